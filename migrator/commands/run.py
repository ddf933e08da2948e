"""`migrator run`: the migration."""

from __future__ import annotations

from migrator.commands.base import PLANNING, Settings, verb
from migrator.outcome import Outcome


@verb(
    "run",
    *PLANNING,
    examples=(
        "migrator run --source /srv/saves --storage /srv/gemspace   # GEMSPACE_DATABASE is set",
        "migrator run --source /srv/saves/threads --storage /srv/gemspace --owners owners.csv",
        "migrator run --source /srv/saves --storage /mnt/new --transfer copy --jobs 8",
    ),
)
def command(settings: Settings) -> Outcome:
    """Migrate, or go on where a run was interrupted.

    Everything is built out of sight, compared with the old saves, and put in place whole; then the
    database is changed in one transaction and read back; last come owners and modes. The old saves
    stay as they are until `finalize`, and `rollback` leads back to them.
    """
    request = settings.request()
    from migrator import running
    from migrator.progress import Progress

    with Progress() as progress:
        return running.run(request, progress)
