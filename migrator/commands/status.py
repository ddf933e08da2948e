"""`migrator status`: where the migration stands."""

from __future__ import annotations

from migrator.commands.base import Settings, verb
from migrator.outcome import Outcome
from migrator.request import Request


@verb(
    "status",
    examples=(
        "migrator status --storage /srv/gemspace",
        "watch migrator status --storage /srv/gemspace",
    ),
)
def command(settings: Settings) -> Outcome:
    """Tell where the migration stands, and change nothing.

    It is read from the journal, with the progress of a run that is under way. Of the folders only
    that of the journal need be named, or the storage that it lies in.
    """
    state = settings.state_folder()
    from migrator import status

    return status.status(Request(b"", b"", b"", b"", state=state))  # it looks at nothing else
