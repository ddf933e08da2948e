"""A plan, what counting its files brought up, and the answer that `plan` makes of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from migrator.counting import Totals
from migrator.database import Change
from migrator.estimating import Space
from migrator.findings import Finding
from migrator.layouts.base import Left, shown
from migrator.outcome import Outcome
from migrator.settings import Settings
from migrator.state import PUBLISHED, State
from migrator.tables import duration, number, size
from migrator.units import Kind, Path, RootName, Unit
from vfs.printable import printable


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that `run` has to know."""

    layout: str
    in_place: bool
    """Whether the new user-data root is the old `threads`."""
    units: tuple[Unit, ...]
    """Workspaces, then Workdirs, then skills."""
    kept: tuple[Path, ...]
    """Workspaces beneath the user-data root that are in their place already: they get their owners
    and modes, nothing else."""
    change: Change | None
    """What the database gets: of conversations only those that can be migrated. None without a
    database."""
    settings: Settings
    findings: tuple[Finding, ...]
    left: tuple[Left, ...]
    """What of the saves stays where it is."""
    methods: Mapping[RootName, str]
    """How files are expected to get into each root: ``link``, ``reflink``, ``copy``."""
    waiting: int = 0
    """Conversations that would have no project afterwards."""
    to_assign: int = 0
    """Conversations that have none yet and would get one."""
    schema_old: bool = False
    """Whether the database has not all of the new schema yet."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What counting brought up."""

    totals: Totals
    spaces: tuple[Space, ...]
    """The room needed and free, an entry for each file system that is written to."""
    seconds: float
    """About how long a run takes."""
    findings: tuple[Finding, ...]
    """What could not be counted."""

    @property
    def need(self) -> int:
        """Bytes that a run takes on all file systems together."""
        return sum(space.need for space in self.spaces)

    @property
    def free(self) -> int:
        """Bytes that are free on them."""
        return sum(space.free for space in self.spaces)


_CALLED: Final[dict[Kind, tuple[str, str]]] = {
    "workspace": ("workspace", "workspaces"),
    "workdir": ("Workdir", "Workdirs"),
    "skill": ("skill", "skills"),
}


def is_pending(plan: Plan, state: State) -> bool:
    """Whether a run would change anything, as far as the journal and the database tell."""
    done = {key for key, unit in state.units.items() if unit.step in PUBLISHED}
    if any(unit.key not in done for unit in plan.units) or plan.to_assign:
        return True
    if plan.schema_old and not plan.waiting:
        return True
    return not (state.done or state.finalizing)


def nothing_left(state: State) -> Outcome:
    """The answer when the old saves are gone, as they should be."""
    return Outcome(
        "plan",
        state.word,
        "nothing to do: the migration is done, and the old saves are removed",
        details={"pending": False},
    )


def answer(plan: Plan, measure: Measure, state: State, *, with_units: bool) -> Outcome:
    """What `plan` answers.

    ``details``: ``pending``, ``layout``, ``in_place``, ``method`` by root, ``kinds`` (a count for
    each), ``space`` (an entry for each file system), ``settings``, ``unknown_settings``, ``left``,
    and ``units`` where they are wanted.
    """
    pending = is_pending(plan, state)
    findings = [*plan.findings, *measure.findings, *_short(measure)]
    details: dict[str, Any] = {
        "pending": pending,
        "layout": plan.layout,
        "in_place": plan.in_place,
        "method": dict(plan.methods),
        "kinds": [{"kind": kind, **asdict(count)} for kind, count in measure.totals.kinds.items()],
        "space": [space.to_json() for space in measure.spaces],
        "settings": plan.settings.known,
        "unknown_settings": plan.settings.unknown,
        "left": [left.to_json() for left in plan.left],
    }
    if with_units:
        details["units"] = [_unit(unit) for unit in plan.units]
    word = state.word if state.begun else "planned"
    return Outcome(
        "plan",
        word if pending or state.begun else "nothing",
        _summary(plan, measure) if pending else "nothing to do: all that can be is migrated",
        _next(findings, state) if pending else None,
        findings,
        _numbers(plan, measure),
        details,
        foretells=True,
    )


def _unit(unit: Unit) -> dict[str, Any]:
    """A unit for people and programs to read: everything printable."""
    return {
        "key": unit.key,
        "uid": None if unit.uid is None else printable(unit.uid),
        "target": f"{unit.root}/{shown(unit.target)}",
        "sources": [shown(part.source) for part in unit.parts],
        "threads": [printable(thread) for thread in unit.threads],
    }


def _numbers(plan: Plan, measure: Measure) -> dict[str, int | float]:
    everything = measure.totals.all
    kinds = measure.totals.kinds
    return {
        "workspaces": kinds["workspace"].units,
        "workspaces_in_place": len(plan.kept),
        "workdirs": kinds["workdir"].units,
        "skills": kinds["skill"].units,
        "conversations": plan.to_assign,
        "conversations_waiting": plan.waiting,
        "files": everything.files,
        "directories": everything.directories,
        "links": everything.links,
        "special_files": everything.special,
        "bytes": everything.bytes,
        "need": measure.need,
        "free": measure.free,
        "left": len(plan.left),
        "seconds": round(measure.seconds, 1),
    }


def _summary(plan: Plan, measure: Measure) -> str:
    everything = measure.totals.all
    parts = []
    for kind, called in _CALLED.items():
        units = measure.totals.kinds[kind].units
        if units:
            parts.append(_counted(units, *called))
    what = ", ".join(parts) if parts else "owners and modes alone"
    how = "/".join(dict.fromkeys(plan.methods.values()))
    return (
        f"to take over: {what}; {_counted(everything.files, 'file', 'files')}, "
        f"{size(everything.bytes)}, by {how}, in about {duration(max(1, measure.seconds))}"
    )


def _counted(count: int, one: str, many: str) -> str:
    return f"{number(count)} {one if count == 1 else many}"


def _next(findings: list[Finding], state: State) -> str:
    if state.begun:
        return "migrator run, which goes on where it was"
    if any(finding.severity in ("conflict", "warning") for finding in findings):
        return "look at the findings, then see whether all is ready: migrator check"
    return "see whether all is ready for a run: migrator check"


def _short(measure: Measure) -> list[Finding]:
    """A finding for each file system that has not room enough."""
    return [
        Finding(
            "no_space",
            "warning",
            space.path,
            f"a run takes up to {size(space.need)} and {number(space.inodes)} inodes there, "
            f"{size(space.free)} and {_inodes(space.inodes_free)} inodes are free",
            "make room, or name folders on the file system of the old saves",
        )
        for space in measure.spaces
        if not space.suffices
    ]


def _inodes(count: int | None) -> str:
    return "any number of" if count is None else number(count)
