"""`verify`: target and database are proved against the journal once more, at any time.

Nothing is changed. What users did since the migration is told as what it is: a difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator import adopting, markers, transfer
from migrator.cutover import read_change
from migrator.errors import Mismatch, Precondition
from migrator.outcome import Outcome
from migrator.progress import Progress
from migrator.request import Request
from migrator.running import raise_first
from migrator.session import Session, opened
from migrator.state import PUBLISHED
from migrator.transfer import Difference
from migrator.units import Unit
from migrator.workers import map_parallel

SHOWN = 100
"""Differences that are told one by one; the rest are counted."""


@dataclass(slots=True)
class Proof:
    """What a verification found."""

    units: int = 0
    differences: list[str] = field(default_factory=list)
    """One line each, printable."""
    damaged: bool = False
    """Whether some content is another though size and time of change are as recorded: nobody's
    work, but a failing disk's."""


def verify(request: Request, progress: Progress) -> Outcome:
    """The answer of `migrator verify`. Raises Mismatch when there are differences."""
    with opened(request) as session:
        state = session.journal.state
        if state.rolling_back:
            raise Precondition(
                "the migration was rolled back" if state.rolled_back else "a rollback was begun",
                fix="run it again: migrator run"
                if state.rolled_back
                else "finish it: migrator rollback",
            )
        progress.save_in(session.state)
        found = prove(session, progress)
        word = session.journal.state.word
    numbers: dict[str, int | float] = {"units": found.units, "differences": len(found.differences)}
    if found.differences:
        raise mismatch(found)
    return Outcome(
        "verify",
        word,
        f"{found.units} units, the database and the markers are as they were recorded",
        numbers=numbers,
    )


def mismatch(found: Proof) -> Mismatch:
    """The error that tells of differences."""
    first, more = found.differences[0], len(found.differences) - 1
    also = f", and {more} more" if more else ""
    return Mismatch(
        f"not as it was recorded: {first}{also}",
        fix="`migrator verify --json` names them all; nothing was changed",
        details=found.differences,
    )


def prove(session: Session, progress: Progress) -> Proof:
    """Looks at every unit that is in its place, at the database, and at the markers."""
    found = Proof()
    known = session.journal.state.units
    units = {
        key: unit for key, unit in session.recorded_units().items() if known[key].step in PUBLISHED
    }
    found.units = len(units)
    _prove_units(session, units, progress, found)
    if session.database is not None and session.journal.state.cut_over == "committed":
        found.differences += session.database.differences(read_change(session.state))
    if session.journal.state.done:
        found.differences += [
            f"the marker {marker.name.decode()} is not there"
            for marker in markers.missing(session.roots)
        ]
    return found


def _prove_units(
    session: Session, units: Mapping[str, Unit], progress: Progress, found: Proof
) -> None:
    known = session.journal.state.units
    finalized = session.journal.state.finalizing

    def prove_one(key: str) -> list[Difference]:
        unit, root = units[key], session.roots[units[key].root]
        records = session.records(unit)
        source = None if finalized else session.source
        if known[key].step == "adopted":
            return adopting.verify(unit, root, records, source=source, count=progress.count)
        return transfer.verify(
            unit, unit.target, root, records, source=source, count=progress.count
        )

    files, size = session.totals(units)
    progress.phase("verify", files=files, bytes=size)
    failures: list[Exception] = []
    for _, result in map_parallel(
        prove_one, list(units), jobs=session.request.jobs, tick=progress.tick
    ):
        if isinstance(result, Exception):
            failures.append(result)
        else:
            found.differences += map(str, result)
            found.damaged |= any(difference.code == "content" for difference in result)
    raise_first(failures, "verify")
