"""`migrator rollback`: back to the old saves."""

from __future__ import annotations

from migrator.commands.base import YES, Settings, confirm, verb
from migrator.outcome import Outcome


@verb(
    "rollback",
    YES,
    examples=(
        "migrator rollback --storage /srv/gemspace",
        "migrator rollback --storage /srv/gemspace --yes   # asks nothing",
    ),
)
def command(settings: Settings, yes: bool) -> Outcome:
    """Undo the migration, until `finalize`.

    Database rows, owners and modes become what they were, and what was put in place is removed
    where it is still what was put there; what users have made since stays, and is told.
    """
    request = settings.begun()
    confirm(
        yes=yes,
        what="rollback gives the database, the owners and the modes back as they were, and removes "
        "what the migration made.",
    )
    from migrator import rolling_back
    from migrator.progress import Progress

    with Progress() as progress:
        return rolling_back.rollback(request, progress)
