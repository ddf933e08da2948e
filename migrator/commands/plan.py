"""`migrator plan`: what goes where."""

from __future__ import annotations

from migrator.commands.base import PLANNING, Settings, verb
from migrator.outcome import Outcome


@verb(
    "plan",
    *PLANNING,
    examples=(
        "migrator plan --source /srv/saves --storage /srv/gemspace   # GEMSPACE_DATABASE is set",
        "migrator plan --source /srv/saves --storage /srv/gemspace --owner alice",
        "migrator plan --source /srv/saves --storage /srv/gemspace --json | jq .findings",
    ),
)
def command(settings: Settings) -> Outcome:
    """Tell what goes where, and change nothing.

    Reads the old saves and the database: counts and bytes, what is in the way, what belongs to
    nobody, what is left alone and why, the room that it takes against what is free, and about how
    long it will take. The services may be running meanwhile.
    """
    request = settings.request()
    from migrator import planning

    return planning.plan_verb(request, with_units=settings.json)
