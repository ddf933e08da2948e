"""Where a migration stands: the fold of its journal's records. Pure: nothing is read or written.

=============  ================================================================================
record         says
=============  ================================================================================
`begin`        the first, once: `Facts`
`phase`        ``name``, ``state``: a part of the work is ``begun`` or ``done``
`unit`         ``key``, ``step`` and what that step has to tell: see `UnitState`
`touched`      ``root``, ``path``, ``uid``, ``gid``, ``mode``, ``mtime_ns``, ``atime_ns``,
               ``ino``: what a directory that was there was like before anything was put into it
`made`         ``root``, ``path``: a directory that is about to be made
`cut_over`     ``step``: the database's old rows are ``recorded``, the change is ``committed``
`ownership`    ``step``, ``file``: owners and modes are being changed (``begun``, their old values
               in that file), or are as they should be (``done``)
`files`        ``sizes``: bytes that files beside the journal have at least, by name
`marker`       ``root``, ``name``: a marker is about to be written
`rollback`     ``step``: ``begun``, any name of a part that is done, ``done``
`finalize`     ``step``: the same
=============  ================================================================================

Kinds that are not known are counted and passed over, so that a later version may tell more. A
missing or mistyped field of a known kind is `migrator.errors.Mismatch`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, Literal

from migrator.errors import Mismatch, Precondition
from migrator.lines import exact, path_exact
from migrator.units import Path

FORMAT: Final = 1
"""The version of the journal's records that this program writes, and the only one it reads."""

Step = Literal["staged", "verified", "publishing", "published", "adopted", "conflict", "failed"]
"""How far a unit is: built hidden; that checked; about to be renamed to its place; there; what
stood there already was the same; what stands there is something else; not migrated, see why."""

BUILT: Final = frozenset(("staged", "verified", "publishing"))
"""The steps of a unit that is built and not in its place yet."""

PUBLISHED: Final = frozenset(("published", "adopted"))
"""The steps of a unit that is in its place."""

Record = Mapping[str, Any]

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Facts:
    """What was to be done, as the first record tells it."""

    run: str
    """The name of this migration, unique: markers and rows refer to it."""
    time: float
    """When it was begun, seconds since the epoch."""
    program: str
    """The program and version that began it."""
    layout: str
    method: str
    """How files were to be transferred: ``auto``, ``link``, ``reflink``, ``copy``."""
    database: str | None
    """The database's URL without its password; None for a layout without one."""
    places: Mapping[str, bytes]
    """The exact host paths, by name: ``source``, ``user-data``, ``skill-store`` …"""


@dataclass(slots=True)
class UnitState:
    """How far one unit is."""

    step: str
    """The last step, a `Step`."""
    told: str
    """`fields` as JSON: there may be 100 000 units, and as objects each would take six times the
    room."""

    @property
    def fields(self) -> dict[str, Any]:
        """What its records told; a new object each time. `staged` starts anew, the later steps add
        to it."""
        fields: dict[str, Any] = json.loads(self.told)
        return fields


@dataclass(frozen=True, slots=True)
class Touched:
    """What a directory was like before the migration put something into it."""

    uid: int
    gid: int
    mode: int
    """Permission bits."""
    mtime_ns: int
    atime_ns: int
    ino: int | None = None
    """Its inode number, where it was recorded."""


Place = tuple[str, Path]
"""A root's name and a path beneath it."""


@dataclass(slots=True)
class State:
    """Everything the journal says. Memory grows with the units and the directories around them."""

    facts: Facts | None = None
    """None before the first record."""
    phases: dict[str, str] = field(default_factory=dict)
    """``begun`` or ``done`` by the part's name, in order. A part that is begun again, as the next
    run does, takes with it those that came after it."""
    units: dict[str, UnitState] = field(default_factory=dict)
    touched: dict[Place, Touched] = field(default_factory=dict)
    """The first values recorded, since only those were before the migration."""
    made: dict[Place, None] = field(default_factory=dict)
    """Directories that the migration made, the outer before the inner."""
    cut_over: str | None = None
    """None, ``recorded`` or ``committed``."""
    ownership: str | None = None
    """None, ``begun`` or ``done``."""
    ownership_files: list[str] = field(default_factory=list)
    """The files with old owners and modes, in the order in which they were begun."""
    markers: dict[tuple[str, bytes], None] = field(default_factory=dict)
    """Root and name of each marker, in order."""
    rollback: list[str] = field(default_factory=list)
    """The steps of the rollback, in order; empty if there is none."""
    finalize: list[str] = field(default_factory=list)
    """The steps of finalize, in order; empty if there is none."""
    files: dict[str, int] = field(default_factory=dict)
    """Bytes that files beside the journal have at least, by name."""
    unknown: Counter[str] = field(default_factory=Counter)
    """How many records there are of each kind that this version does not know."""

    @property
    def begun(self) -> bool:
        """Whether there is a migration at all."""
        return self.facts is not None

    @property
    def rolling_back(self) -> bool:
        """Whether a rollback was begun; it may be done."""
        return bool(self.rollback)

    @property
    def rolled_back(self) -> bool:
        """Whether everything is as it was before."""
        return "done" in self.rollback

    @property
    def finalizing(self) -> bool:
        """Whether removing the old sources was begun; it may be done."""
        return bool(self.finalize)

    @property
    def finalized(self) -> bool:
        """Whether the old sources are removed."""
        return "done" in self.finalize

    @property
    def done(self) -> bool:
        """Whether `run` came to its end, and neither rollback nor finalize was begun."""
        return self.word == "done"

    @property
    def word(self) -> str:
        """Where it stands, as a word.

        ``nothing``; ``begun``, ``staged``, ``verified``, ``published``, ``cut-over``, ``owned``,
        ``done`` as the parts of `run` end; ``rolling-back``, ``rolled-back``; ``finalizing``,
        ``finalized``. A run after one that was done begins at ``begun`` again.
        """
        if self.rolling_back:
            return "rolled-back" if self.rolled_back else "rolling-back"
        if self.finalizing:
            return "finalized" if self.finalized else "finalizing"
        if not self.begun:
            return "nothing"
        word = "begun"
        for part, reached in _WORDS.items():
            if self.phases.get(part) != "done":
                break
            word = reached
        return word

    def steps(self) -> Counter[str]:
        """How many units are at each step."""
        return Counter(unit.step for unit in self.units.values())

    def fold(self, record: Record) -> None:
        """Takes in one record, the next of the journal.

        Raises Mismatch for one that cannot be there, Precondition for a journal of a version that
        is not known.
        """
        try:
            kind = record["kind"]
            if not self.begun or kind == "begin":
                self._begin(record)
                return
            take = _FOLDS.get(kind)
            if take is None:
                self.unknown[kind] += 1
            else:
                take(self, record)
        except (KeyError, TypeError, AttributeError, UnicodeEncodeError) as exc:
            raise _damaged(f"a record is not complete ({exc!r})") from None

    def _begin(self, record: Record) -> None:
        if record["kind"] != "begin" or self.begun:
            raise _damaged("the record that begins it is not its first")
        if record["format"] != FORMAT:
            raise Precondition(
                f"the journal in the state folder has format {record['format']!r},"
                f" this program knows {FORMAT}",
                fix=f"use the version that began the migration: {record.get('program')}",
            )
        self.facts = Facts(
            run=record["run"],
            time=record["time"],
            program=record["program"],
            layout=record["layout"],
            method=record["method"],
            database=record["database"],
            places={name: exact(place) for name, place in record["places"].items()},
        )

    def _phase(self, record: Record) -> None:
        name, state = record["name"], record["state"]
        if state == "begun" and name in self.phases:
            before = list(takewhile(lambda part: part != name, self.phases))
            self.phases = {part: self.phases[part] for part in before}
        self.phases[name] = state

    def _unit(self, record: Record) -> None:
        key, step = record["key"], record["step"]
        fields = {name: value for name, value in record.items() if name not in _UNIT_OWN}
        unit = self.units.get(key)
        if unit is None or step == "staged":
            self.units[key] = UnitState(step, _encode(fields))
            return
        unit.step = step
        if fields:
            unit.told = _encode(unit.fields | fields)

    def _touched(self, record: Record) -> None:
        place = _place(record)
        touched = Touched(
            uid=record["uid"],
            gid=record["gid"],
            mode=record["mode"],
            mtime_ns=record["mtime_ns"],
            atime_ns=record["atime_ns"],
            ino=record.get("ino"),
        )
        self.touched.setdefault(place, touched)

    def _made(self, record: Record) -> None:
        self.made.setdefault(_place(record))

    def _cut_over(self, record: Record) -> None:
        self.cut_over = record["step"]

    def _ownership(self, record: Record) -> None:
        self.ownership = record["step"]
        file = record["file"]
        if file is not None and file not in self.ownership_files:
            self.ownership_files.append(file)

    def _files(self, record: Record) -> None:
        self.files.update(record["sizes"])

    def _marker(self, record: Record) -> None:
        self.markers.setdefault((record["root"], exact(record["name"])))

    def _rollback(self, record: Record) -> None:
        self.rollback.append(record["step"])

    def _finalize(self, record: Record) -> None:
        self.finalize.append(record["step"])


def fold(records: Iterable[Record]) -> State:
    """The state after all of these records. Errors as of `State.fold`."""
    state = State()
    for record in records:
        state.fold(record)
    return state


def _place(record: Record) -> Place:
    return record["root"], path_exact(record["path"])


def _damaged(what: str) -> Mismatch:
    return Mismatch(
        f"the journal in the state folder is damaged: {what}",
        fix="give back the journal as the migrator left it, from a backup of the state folder",
    )


_UNIT_OWN: Final = frozenset(("kind", "key", "step"))

_WORDS: Final = {
    "stage": "staged",
    "verify": "verified",
    "publish": "published",
    "database": "cut-over",
    "ownership": "owned",
    "markers": "done",
}
"""Where it stands once a part of `run` is done, in the order of the parts."""

_FOLDS: Final[Mapping[str, Callable[[State, Record], None]]] = {
    "phase": State._phase,
    "unit": State._unit,
    "touched": State._touched,
    "made": State._made,
    "cut_over": State._cut_over,
    "ownership": State._ownership,
    "files": State._files,
    "marker": State._marker,
    "rollback": State._rollback,
    "finalize": State._finalize,
}
