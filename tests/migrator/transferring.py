"""A source, a place for the new tree, one for manifests, and what tests of a transfer do there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from migrator import transfer
from migrator.lines import Appender, records
from migrator.manifest import Left, Method
from migrator.transfer import Staged
from migrator.units import Part, Unit
from tests.migrator.trees import Node, Tree, snapshot
from vfs.beneath import Directory
from vfs.closing import Closing

SECOND = 10**9
OLD = 1_600_000_000 * SECOND

Plan = Mapping[str, "bytes | str | Plan"]
"""What to plant: bytes are a file, text is a link, a mapping is a directory."""


def plant(top: Path, plan: Plan, mtime_ns: int = OLD) -> None:
    """Makes the tree `top`; everything in it was changed at the time given."""
    top.mkdir(parents=True, exist_ok=True)
    for name, what in plan.items():
        path = top / name
        if isinstance(what, bytes):
            path.write_bytes(what)
        elif isinstance(what, str):
            path.symlink_to(what)
        else:
            plant(path, what, mtime_ns)
        age(path, mtime_ns)
    age(top, mtime_ns)


def age(path: Path, mtime_ns: int) -> None:
    """Sets both times of an entry, of a link itself."""
    os.utime(path, ns=(mtime_ns, mtime_ns), follow_symlinks=False)


def part(source: str, target: str = "") -> Part:
    """A part by its paths."""
    return Part(_path(source), _path(target))


def _path(path: str) -> tuple[bytes, ...]:
    return tuple(os.fsencode(path).split(b"/")) if path else ()


class Bench(Closing):
    """The directories ``saves``, ``data`` and ``state`` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.saves, self.data, self.state = (folder / n for n in ("saves", "data", "state"))
        for path in (self.saves, self.data, self.state):
            path.mkdir(exist_ok=True)
        self.source = Directory.open(self.saves)
        self.root = Directory.open(self.data)
        self._state = Directory.open(self.state)
        self.counted = [0, 0]

    def close(self) -> None:
        """Releases the descriptors."""
        for directory in (self.source, self.root, self._state):
            directory.close()

    def unit(self, *parts: Part, name: str = "one", user: str = "u1") -> Unit:
        """A Workdir made of parts."""
        target = (b"shared", user.encode(), b"workspace", b"projects", name.encode())
        return Unit(f"workdir-{name}", "workdir", "user-data", target, parts, user)

    def stage(
        self, unit: Unit, method: Method = "link", owner: tuple[int, int] | None = None
    ) -> Staged:
        """Stages it, its manifest kept."""
        with Appender.create(self._state, unit.key.encode()) as manifest:
            return transfer.stage(
                unit, self.source, self.root, method, manifest, owner=owner, count=self.count
            )

    def count(self, files: int, size: int) -> None:
        """Adds up what is done."""
        self.counted[0] += files
        self.counted[1] += size

    def records(self, unit: Unit) -> Iterator[dict[str, Any]]:
        """The manifest of a unit."""
        return records(self._state, unit.key.encode())

    def verify(self, unit: Unit, *, source: bool = True) -> list[tuple[str, str]]:
        """How it differs from its manifest, wherever it is: path beneath it, code."""
        at = unit.staging if self.staged(unit).exists() else unit.target
        found = transfer.verify(
            unit,
            at,
            self.root,
            self.records(unit),
            source=self.source if source else None,
            count=self.count,
        )
        return [
            (os.fsdecode(b"/".join(difference.path[len(at) :])), difference.code)
            for difference in found
        ]

    def staged(self, unit: Unit) -> Path:
        """Where it is staged."""
        return self.data / os.fsdecode(b"/".join(unit.staging))

    def published(self, unit: Unit) -> Path:
        """Where it is published."""
        return self.data / os.fsdecode(b"/".join(unit.target))

    def publish(self, unit: Unit) -> Path:
        """Gives it its name, and tells where."""
        self.root.make_directories(unit.target[:-1]).close()
        self.root.rename(unit.staging, unit.target)
        return self.published(unit)

    def tree(self, unit: Unit) -> Tree:
        """What is staged, without owners and modes."""
        return bare(snapshot(self.staged(unit)))


def bare(tree: Tree) -> Tree:
    """A tree without what belongs to the new place."""
    return {
        path: Node(
            node.kind,
            None,
            None,
            node.mtime_ns,
            node.size,
            node.digest,
            node.text,
            node.xattrs,
            node.data,
            node.twin,
        )
        for path, node in tree.items()
    }


def told(left: list[Left]) -> list[tuple[str, str, str]]:
    """What was left: code, place in the saves, place in the unit."""
    return sorted(
        (one.code, os.fsdecode(b"/".join(one.source)), os.fsdecode(b"/".join(one.path)))
        for one in left
    )


@contextmanager
def mounted(point: Path, *arguments: str | Path) -> Iterator[Path]:
    """`mount(8)` with these arguments at `point`, for a block."""
    point.mkdir(exist_ok=True)
    subprocess.run(["mount", *arguments, point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


@contextmanager
def formatted(folder: Path, program: str, size: int, *options: str) -> Iterator[Path]:
    """A file system of its own, made by a mkfs program in a file of `size` bytes, mounted."""
    image = folder / f"{program}.image"
    with open(image, "wb") as file:
        file.truncate(size)
    subprocess.run([program, "-q", *options, image], check=True)
    with mounted(folder / program, "-o", "loop", image) as point:
        yield point
