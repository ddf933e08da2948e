"""`status`: where the migration stands, by its journal, and how far a running one is. Reads only.

It takes no lock that would keep a migrator from working, so it may be asked at any time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from migrator.findings import Finding
from migrator.journal import PROGRESS, read
from migrator.locks import running
from migrator.outcome import Outcome
from migrator.places import open_folder
from migrator.request import Request
from migrator.state import PUBLISHED, State, UnitState
from vfs.beneath import Directory
from vfs.errors import NotFound
from vfs.printable import printable

_MOST: Final = 64 * 1024
"""Bytes of the progress file that are read: a hundred times what is ever written."""

_SUMMARIES: Final = {
    "nothing": "no migration was begun",
    "done": "the migration is done; the old saves are as they were",
    "rolling-back": "the migration is being rolled back",
    "rolled-back": "the migration was rolled back; everything is as it was before",
    "finalizing": "the old saves are being removed",
    "finalized": "the migration is done, and the old saves are removed",
}

_NEXT: Final = {
    "nothing": "see what would be done: migrator plan",
    "done": "look at the result, then remove the old saves: migrator finalize",
    "rolling-back": "migrator rollback, which goes on where it was",
    "rolled-back": None,
    "finalizing": "migrator finalize, which goes on where it was",
    "finalized": None,
}

_GO_ON: Final = "migrator run, which goes on where it was (or back: migrator rollback)"


def status(request: Request) -> Outcome:
    """Where the migration of a state folder stands; `nothing` if there is none.

    ``details`` has ``running``, ``process`` of a migrator at work, ``migration`` (the facts of its
    beginning), ``phases``, ``units`` by step, ``database``, ``ownership``, ``markers``, and
    ``progress``, that of the running one. Raises Mismatch for a damaged journal, Precondition for
    one of another version and for a state folder that is none.
    """
    folder = open_folder(request.state, "the state folder")
    if folder is None:
        return _outcome(State(), None, None)
    with folder:
        process = running(folder)
        state = read(folder)
        progress = None if process is None else _progress(folder, process)
        return _outcome(state, process, progress)


def _outcome(state: State, process: int | None, progress: dict[str, Any] | None) -> Outcome:
    word = state.word
    summary = _SUMMARIES.get(word, "the migration is not finished")
    if process is not None:
        who = f"process {process}" if process else "a process"
        summary += f"; {who} is at work"
    return Outcome(
        "status",
        word,
        summary,
        None if process is not None else _NEXT.get(word, _GO_ON),
        [] if state.rolling_back else list(_findings(state)),
        _numbers(state),
        _details(state, process, progress),
    )


def _numbers(state: State) -> dict[str, int | float]:
    """Units, and the files and bytes of those that are in their places."""
    placed = [unit.fields for unit in state.units.values() if unit.step in PUBLISHED]
    return {
        "units": len(state.units),
        "published": len(placed),
        "files": sum(fields.get("files", 0) for fields in placed),
        "bytes": sum(fields.get("bytes", 0) for fields in placed),
    }


def _details(
    state: State, process: int | None, progress: dict[str, Any] | None
) -> dict[str, object]:
    details: dict[str, object] = {"running": process is not None, "process": process or None}
    if state.facts is not None:
        facts = state.facts
        details |= {
            "migration": {
                "run": facts.run,
                "begun": datetime.fromtimestamp(facts.time, UTC).isoformat(timespec="seconds"),
                "program": facts.program,
                "layout": facts.layout,
                "method": facts.method,
                "database": facts.database,
                **{name: printable(place) for name, place in facts.places.items()},
            },
            "phases": dict(state.phases),
            "units": dict(state.steps()),
            "database": state.cut_over,
            "ownership": state.ownership,
            "markers": [printable(name) for _, name in state.markers],
        }
    if progress is not None:
        details["progress"] = progress
    return details


def _findings(state: State) -> Iterator[Finding]:
    for key, unit in state.units.items():
        if unit.step == "conflict":
            yield Finding(
                "target_taken",
                "conflict",
                printable(key),
                f"it was not taken over: {_reason(unit)}",
                "move away what stands there, then run again",
            )
        elif unit.step == "failed":
            yield Finding(
                "unit_failed",
                "warning",
                printable(key),
                f"it was not taken over: {_reason(unit)}",
                "put that right, then run again",
            )


def _reason(unit: UnitState) -> str:
    return printable(str(unit.fields.get("reason") or "see the output of the run"))


def _progress(folder: Directory, process: int) -> dict[str, Any] | None:
    """What the running migrator saved last; None if that is of one before, or nothing yet."""
    try:
        fd = folder.open_file(PROGRESS)
    except NotFound:
        return None
    try:
        document = json.loads(os.read(fd, _MOST))
    except ValueError:
        return None
    finally:
        os.close(fd)
    if not isinstance(document, dict) or process not in (0, document.get("pid")):
        return None
    return document
