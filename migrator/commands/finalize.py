"""`migrator finalize`: the end of the old saves."""

from __future__ import annotations

import click

from migrator.commands.base import YES, Settings, confirm, verb
from migrator.outcome import Outcome


@verb(
    "finalize",
    YES,
    examples=(
        "migrator finalize --storage /srv/gemspace",
        "migrator finalize --storage /srv/gemspace --yes   # asks nothing",
    ),
)
@click.option(
    "--accept-changes",
    is_flag=True,
    help="Go on though files or rows of the new tree were changed or removed since the run.",
)
@click.option(
    "--despite-conflicts",
    is_flag=True,
    help="Go on though conflicts are left; what they concern stays in the saves for good.",
)
def command(
    settings: Settings, yes: bool, accept_changes: bool, despite_conflicts: bool
) -> Outcome:
    """Remove the old saves that were migrated.

    This is the only verb that deletes. First it verifies once more. It removes only what was
    migrated and has not changed since. Then there is no way back.
    """
    request = settings.begun()
    confirm(
        yes=yes,
        what="finalize removes from the old saves what was migrated; afterwards there is no "
        "rollback.",
    )
    from migrator import finalizing
    from migrator.progress import Progress

    with Progress() as progress:
        return finalizing.finalize(
            request, progress, accept_changes=accept_changes, despite_conflicts=despite_conflicts
        )
