"""`migrator check`: whether `run` may start."""

from __future__ import annotations

from migrator.commands.base import PLANNING, Settings, verb
from migrator.outcome import Outcome


@verb(
    "check",
    *PLANNING,
    examples=(
        "migrator check --source /srv/saves --storage /srv/gemspace",
        "migrator check --source /srv/saves --storage /srv/gemspace && echo ready",
    ),
)
def command(settings: Settings) -> Outcome:
    """Look at every condition of `run`, and change nothing.

    The services are stopped, nobody has files open beneath the roots, no sandbox runs, the
    database is of the release that it should be and lets itself be changed, there is room, and
    nothing stands where something will be put. Exit status 3 with all that was found.
    """
    request = settings.request()
    from migrator import checking

    return checking.check(request)
