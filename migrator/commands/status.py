"""`migrator status`: where the migration stands."""

from __future__ import annotations

from migrator.commands.base import Settings, verb
from migrator.outcome import Outcome


@verb(
    "status",
    examples=(
        "migrator status --source /srv/saves --storage /srv/gemspace",
        "watch -n 5 migrator status --source /srv/saves --storage /srv/gemspace",
    ),
)
def command(settings: Settings) -> Outcome:
    """Tell where the migration stands, and change nothing.

    It is read from the journal, with the progress of a run that is under way.
    """
    request = settings.request()
    from migrator import status

    return status.status(request)
