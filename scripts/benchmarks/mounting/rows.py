"""The rows of the table: which work is done, on what state of the caches, in what order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from mounting import work
from mounting.data import Sizes
from mounting.work import Work, timed

COLD = "cold"
"""Nothing is cached anywhere."""
BELOW = "cached below"
"""The folder is in the page cache, the mount is new: what the mount itself costs."""
WARM = "warm"
"""The same was done on the same mount just before."""

SLOW_SECONDS = 15.0
"""A system that took longer for a row's first states is spared the others."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where one measurement takes place."""

    shown: Path
    """The folder as the system shows it; its mount is new."""
    native: Path
    """The folder itself."""
    tag: str
    """A name of this measurement's own."""
    sizes: Sizes
    cold: bool
    """Whether caches may be dropped."""


class Row(Protocol):
    """One kind of work; it may fill several lines of the table."""

    @property
    def key(self) -> str:
        """Its name on the command line."""

    @property
    def writes(self) -> bool:
        """Whether only a writable system can do it."""

    def prepare(self, native: Path, sizes: Sizes, tags: list[str]) -> None:
        """Done once before all measurements, which have these tags."""

    def measure(self, stage: Stage) -> Iterator[tuple[str, float]]:
        """The row's lines, each with its seconds."""

    def first(self, stage: Stage) -> Work:
        """The work as it is done first on a new mount."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Work that changes nothing, on each state of the caches."""

    key: str
    title: str
    work: Work
    states: tuple[str, ...] = (BELOW, WARM, COLD)
    writes: bool = False

    def prepare(self, native: Path, sizes: Sizes, tags: list[str]) -> None:
        """Brings the folder into the caches."""
        timed(self.work, native)

    def measure(self, stage: Stage) -> Iterator[tuple[str, float]]:
        """One line for each state; a slow system has the first ones only."""
        spent = 0.0
        for state in self.states:
            if spent > SLOW_SECONDS or (state == COLD and not stage.cold):
                return
            if state == COLD:
                drop_caches()
            seconds = timed(self.work, stage.shown)
            spent += seconds
            yield f"{self.title}, {state}", seconds

    def first(self, stage: Stage) -> Work:
        """The work itself."""
        return self.work


@dataclass(frozen=True, slots=True)
class Making:
    """Work that makes something new. What it makes stays: see `mounting.data`."""

    key: str
    title: str
    work: Callable[[Path, str, Sizes], None]
    """Takes the shown folder, the new name and the sizes."""
    writes: bool = True

    def prepare(self, native: Path, sizes: Sizes, tags: list[str]) -> None:
        """Nothing."""

    def measure(self, stage: Stage) -> Iterator[tuple[str, float]]:
        """One line."""
        os.sync()
        yield self.title, timed(self.first(stage), stage.shown)

    def first(self, stage: Stage) -> Work:
        """The work with a name of its own."""
        return partial(_named, self.work, f"{self.key}-{stage.tag}", stage.sizes)


@dataclass(frozen=True, slots=True)
class Unlinking:
    """Removes files that were made natively, before any were removed."""

    key: str
    title: str
    writes: bool = True

    def prepare(self, native: Path, sizes: Sizes, tags: list[str]) -> None:
        """Makes a directory of files for each measurement."""
        for tag in tags:
            work.create_files(native / f"{self.key}-{tag}", sizes.made_files)

    def measure(self, stage: Stage) -> Iterator[tuple[str, float]]:
        """One line."""
        os.sync()
        yield self.title, timed(self.first(stage), stage.shown)

    def first(self, stage: Stage) -> Work:
        """The removal of the measurement's own directory of files."""
        return partial(_unlink, f"{self.key}-{stage.tag}")


def _named(work: Callable[[Path, str, Sizes], None], name: str, sizes: Sizes, folder: Path) -> None:
    work(folder, name, sizes)


def _unlink(name: str, folder: Path) -> None:
    work.unlink_files(folder / name)


def _clone(folder: Path, name: str, sizes: Sizes) -> None:
    work.git_clone(folder, folder / name)


def _write(folder: Path, name: str, sizes: Sizes) -> None:
    work.write_big(folder / name, sizes.file_mib)


def _create(folder: Path, name: str, sizes: Sizes) -> None:
    work.create_files(folder / name, sizes.made_files)


def rows(sizes: Sizes) -> list[Row]:
    """All rows, those that remove files last."""
    big = f"{sizes.file_mib} MiB"
    tree = f"{sizes.tree_directories * 100} files"
    made = f"{sizes.made_files} files"
    return [
        Reading("read", f"read {big}", work.read_big),
        Reading("find", f"find with stat, {tree}", work.find_tree),
        Reading("ls", f"ls -lR, {tree}", work.list_tree),
        Reading("small", f"open+read+close, {sizes.small_files} files", work.read_small),
        Reading("tar", f"tar, {tree}", work.tar_tree, (BELOW, WARM)),
        Reading("status", "git status", work.git_status, (BELOW, WARM)),
        Making("write", f"write {big}", _write),
        Making("create", f"create {made}", _create),
        Making("clone", "git clone", _clone),
        Unlinking("unlink", f"unlink {made}"),
    ]


def drop_caches() -> None:
    """Drops clean pages, directory entries and inodes, of all file systems (proc_sys_vm(5))."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
