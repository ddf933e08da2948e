"""`migrator verify`: whether all is as it was recorded."""

from __future__ import annotations

from migrator.commands.base import Settings, verb
from migrator.outcome import Outcome


@verb(
    "verify",
    examples=("migrator verify --storage /srv/gemspace",),
)
def command(settings: Settings) -> Outcome:
    """Compare what is there with the journal, and change nothing.

    Files and database rows are read again. Exit status 4 when something differs, with what it is.
    """
    request = settings.begun()
    from migrator import verifying
    from migrator.progress import Progress

    with Progress() as progress:
        return verifying.verify(request, progress)
