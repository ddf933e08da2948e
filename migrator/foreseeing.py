"""What will stand in the way of publishing, as far as it can be seen without writing or comparing.

A unit is published by a rename to a free name. So whatever has that name, or is no directory on the
way to it, is told beforehand: in the new tree, and in old workspaces, which become part of it. A
directory with contents may turn out to hold just what would be put there; only `run` compares.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from migrator.findings import Finding
from migrator.layouts.base import CALLED, EntryKind, kind_of, shown
from migrator.units import Path, RootName, Unit
from vfs.beneath import Directory
from vfs.errors import NotFound, VfsError
from vfs.printable import printable

_MOVE: Final = "move it away, then run again"


def conflicts(
    units: Sequence[Unit],
    source: Directory,
    roots: Mapping[RootName, Directory],
    done: Collection[str],
) -> Iterator[Finding]:
    """What is in the way of these units; those whose key is in `done` have their place already.

    Roots that are missing hold nothing. VfsError if a directory cannot be looked at.
    """
    holders: dict[tuple[RootName, Path], list[Unit]] = defaultdict(list)
    for unit in units:
        if unit.key not in done:
            holders[unit.root, unit.target[:-1]].append(unit)
    for (name, holder), held in holders.items():
        root = roots.get(name)
        if root is not None:
            yield from _in_holder(root, name, holder, held)
    yield from _in_workspaces(units, source, done)


def _in_holder(
    root: Directory, name: RootName, holder: Path, units: Sequence[Unit]
) -> Iterator[Finding]:
    for depth in range(1, len(holder) + 1):
        kind = kind_of(root, holder[:depth])
        if kind is None:
            return
        if kind != "directory":
            yield _no_holder(_place(name, holder[:depth]), kind, units)
            return
    with root.directory(holder) as directory:
        for unit in units:
            if _is_taken(directory, unit.target[-1:]):
                yield _taken(_place(name, unit.target))


def _in_workspaces(
    units: Sequence[Unit], source: Directory, done: Collection[str]
) -> Iterator[Finding]:
    """Conflicts with what old workspaces bring along, where Workdirs have their place."""
    workdirs: dict[Path, list[Unit]] = defaultdict(list)
    for unit in units:
        if unit.kind == "workdir" and unit.key not in done:
            workdirs[unit.target[:-2]].append(unit)
    for unit in units:
        held = workdirs.get(unit.target, [])
        if unit.kind != "workspace" or unit.key in done or not held:
            continue
        projects = held[0].target[-2]
        for part in unit.parts:
            path = (*part.source, projects)
            kind = kind_of(source, path)
            if kind not in (None, "directory"):
                yield _no_holder(shown(path), kind, held)
            elif kind == "directory":
                with source.directory(path) as directory:
                    for workdir in held:
                        if _is_taken(directory, workdir.target[-1:]):
                            yield _taken(shown((*path, workdir.target[-1])))


def _is_taken(directory: Directory, name: Path) -> bool:
    """Whether something but an empty directory has the name."""
    try:
        fd = directory.open_listing(name)
    except NotFound:
        return False
    except VfsError:
        return True
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is not None
    finally:
        os.close(fd)


def _no_holder(subject: str, kind: EntryKind | None, units: Sequence[Unit]) -> Finding:
    what = CALLED[kind or "special"]
    return Finding(
        "target_taken",
        "conflict",
        subject,
        f"{what} stands where a directory belongs, that of {len(units)} to be taken over",
        _MOVE,
    )


def _taken(subject: str) -> Finding:
    return Finding(
        "target_taken",
        "conflict",
        subject,
        "something stands there already; it is kept, and adopted if it holds just the same",
        "move it away, then run again, unless an earlier run made it",
    )


def _place(name: RootName, path: Path) -> str:
    return f"{name}/{printable(b'/'.join(path))}"
