"""How much there is to take over: files and bytes of every unit, counted by several processes.

Nothing is opened but directories. Memory does not grow with the trees.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Final

from migrator.units import Kind, Unit
from migrator.workers import map_parallel
from vfs.beneath import Directory
from vfs.errors import VfsError
from vfs.walking import Cut, walk

TWINS_MAX: Final = 100_000
"""Inodes with several names that are remembered, in each process, so as to count their bytes once:
about 20 MB. What goes beyond is counted once for each name, so a need may be overstated."""

_UNITS_AT_ONCE: Final = 64
"""Units that a process gets at a time: most are small, and a round trip takes about 100 µs."""


@dataclass(slots=True)
class Count:
    """What a unit, or all of a kind, holds."""

    units: int = 0
    files: int = 0
    """Names of regular files."""
    directories: int = 0
    links: int = 0
    """Symbolic links."""
    special: int = 0
    """FIFOs, sockets and devices: they are left."""
    bytes: int = 0
    """Sizes of the files, each inode once."""
    allocated: int = 0
    """Bytes that they take on the disk: holes take none."""
    unreadable: int = 0
    """Entries that could not be looked at, and mounts."""

    def add(self, other: Count) -> None:
        """Adds another count to this one."""
        for each in fields(Count):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(slots=True)
class Totals:
    """The counts of a plan."""

    kinds: dict[Kind, Count] = field(default_factory=dict)
    unreadable: list[tuple[Unit, VfsError]] = field(default_factory=list)
    """Units of which something could not be looked at, and the first reason of each."""
    special: list[tuple[Unit, int]] = field(default_factory=list)
    """Units that hold special files, and how many."""

    @property
    def all(self) -> Count:
        """Everything together."""
        total = Count()
        for count in self.kinds.values():
            total.add(count)
        return total


def count(
    units: Sequence[Unit],
    source: Directory,
    *,
    jobs: int,
    tick: Callable[[], None] | None = None,
) -> Totals:
    """Counts the parts of the units. Raises what stops a process from working."""
    totals = Totals({kind: Count() for kind in ("workspace", "workdir", "skill")})
    batches = [units[at : at + _UNITS_AT_ONCE] for at in range(0, len(units), _UNITS_AT_ONCE)]
    for batch, result in map_parallel(
        partial(_count_batch, source), batches, jobs=min(jobs, len(batches)) or 1, tick=tick
    ):
        if isinstance(result, Exception):
            raise result
        for unit, (counted, error) in zip(batch, result, strict=True):
            totals.kinds[unit.kind].add(counted)
            if error is not None:
                totals.unreadable.append((unit, error))
            if counted.special:
                totals.special.append((unit, counted.special))
    totals.special.sort(key=lambda item: item[0].key)
    totals.unreadable.sort(key=lambda item: item[0].key)
    return totals


def _count_batch(source: Directory, units: Sequence[Unit]) -> list[tuple[Count, VfsError | None]]:
    twins: set[tuple[int, int, int]] = set()
    return [_count_unit(source, unit, twins) for unit in units]


def _count_unit(
    source: Directory, unit: Unit, twins: set[tuple[int, int, int]]
) -> tuple[Count, VfsError | None]:
    counted = Count(units=1, directories=1)
    errors: list[VfsError] = []
    for part in unit.parts:
        cut = Cut()
        try:
            counted.directories += bool(part.target)
            for entry in walk(
                source, part.source, cut=cut, on_error=lambda _, exc: errors.append(exc)
            ):
                status = entry.status
                if stat.S_ISREG(status.mode):
                    counted.files += 1
                    if status.nlink > 1:
                        if status.identity in twins:
                            continue
                        if len(twins) < TWINS_MAX:
                            twins.add(status.identity)
                    counted.bytes += status.size
                    counted.allocated += status.allocated
                elif stat.S_ISDIR(status.mode):
                    counted.directories += 1
                elif stat.S_ISLNK(status.mode):
                    counted.links += 1
                else:
                    counted.special += 1
        except VfsError as exc:
            errors.append(exc)
            counted.unreadable += 1
        counted.unreadable += cut.unreadable + cut.mounts
    return counted, errors[0] if errors else None
