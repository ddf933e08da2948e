"""`finalize`: the old files go, after everything was proved once more. The only verb that deletes.

Removed is what a unit took from the saves, entry by entry of its manifest, if it is still what was
taken; then the directories that this left empty, up to the thread's, the skill's or the old user's
own. Whatever was left alone, lost its name to a newer file, or was changed since, stays where it is
and is counted. From its first step on there is no way back; interrupted, it is done again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from migrator import removing
from migrator.errors import Conflict, Precondition
from migrator.findings import Finding
from migrator.outcome import Outcome
from migrator.progress import Progress
from migrator.request import Request
from migrator.running import raise_first
from migrator.session import Session, opened, sync
from migrator.state import PUBLISHED, State
from migrator.units import Path, Unit
from migrator.verifying import mismatch, prove
from migrator.workers import map_parallel
from vfs.printable import printable

SHOWN = 100
"""Entries that stayed and are told one by one; the rest are counted."""


def finalize(
    request: Request,
    progress: Progress,
    *,
    accept_changes: bool = False,
    despite_conflicts: bool = False,
) -> Outcome:
    """The answer of `migrator finalize`.

    `accept_changes`: what users changed or removed in the new tree since is no obstacle; content
    that is not what it was though nobody wrote it always is. `despite_conflicts`: what could not be
    taken over stays in the saves for good. Raises Mismatch and Conflict, nothing removed.
    """
    with opened(request) as session:
        progress.save_in(session.state)
        state = session.journal.state
        if state.finalized:
            return Outcome("finalize", state.word, "the old files were removed already")
        if state.rolling_back:
            raise Precondition(
                "the migration was rolled back", fix="run it again first: migrator run"
            )
        if os.fstatvfs(session.source.fd).f_flag & os.ST_RDONLY:
            raise Precondition(
                "the old saves are on a read-only file system: nothing can be removed there",
                fix="mount them writable, or leave them as they are",
            )
        if not state.finalizing:
            _refuse_unfinished(state, despite_conflicts)
        found = prove(session, progress)
        if found.damaged or (found.differences and not accept_changes):
            raise mismatch(found)
        if not state.finalizing:
            session.journal.record("finalize", step="begun")
        outcome = _remove(session, progress)
        if found.differences:
            outcome.findings.append(
                Finding(
                    "changed_since",
                    "warning",
                    "the new tree",
                    f"{len(found.differences)} entries or rows are not as the run left them:"
                    " taken for the users' own work",
                )
            )
        sync(session.source)
        session.journal.record("finalize", step="done")
        outcome.state = state.word
        return outcome


def _refuse_unfinished(state: State, despite_conflicts: bool) -> None:
    if state.done:
        return
    conflicts = [key for key, unit in state.units.items() if unit.step == "conflict"]
    if state.word != "owned":
        raise Precondition(
            f"the run is not at its end: {state.word}", fix="end it first: migrator run"
        )
    if not despite_conflicts:
        raise Conflict(
            "the last run ended with conflicts: not everything was taken over",
            fix="put them right and run again, or leave that in the saves for good with"
            " --despite-conflicts",
            details=conflicts,
        )


def _remove(session: Session, progress: Progress) -> Outcome:
    known = session.journal.state.units
    units: Mapping[str, Unit] = {
        key: unit for key, unit in session.recorded_units().items() if known[key].step in PUBLISHED
    }
    progress.phase("remove")
    removed, stayed = 0, 0
    findings: list[Finding] = []
    failures: list[Exception] = []

    def remove(key: str) -> removing.Removed:
        unit = units[key]
        return removing.remove_source(
            unit,
            session.source,
            session.records(unit),
            above=above(unit),
            # What was adopted is there in files of its own.
            last_names="remove" if known[key].step == "adopted" else "keep",
            count=progress.count,
        )

    for _, result in map_parallel(
        remove, list(units), jobs=session.request.jobs, tick=progress.tick
    ):
        if isinstance(result, Exception):
            failures.append(result)
            continue
        removed += result.files
        stayed += result.stayed
        findings += [
            Finding(
                "kept_in_the_saves",
                "warning",
                printable(b"/".join(path)),
                "it is not what was taken over: left where it is",
                "look at it, and remove it by hand if nobody needs it",
            )
            for path in result.kept[: max(0, SHOWN - len(findings))]
        ]
    raise_first(failures, "remove old files")
    summary = f"{removed} old entries are removed"
    if stayed:
        summary += f", {stayed} stay since they are not what was taken over"
    return Outcome(
        "finalize",
        "finalizing",
        summary,
        findings=findings,
        numbers={"removed": removed, "kept": stayed},
    )


def above(unit: Unit) -> list[Path]:
    """The directories of the saves that only held what a unit took: the thread's, the old user's.

    The innermost first.
    """
    found: dict[Path, None] = {}
    for part in unit.parts:
        for depth in range(len(part.source) - 1, 1, -1):
            found[part.source[:depth]] = None
    return sorted(found, key=lambda path: -len(path))
