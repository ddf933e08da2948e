"""What a directory of a unit is made of: directories of one or more parts, laid over each other.

Directories of one name become one. A directory beats what is none. Of several files or links of one
name that changed last wins, at equal times that of the later part; those that are the same as it
(one inode, or byte for byte) are not needed, and the others are left.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from migrator.units import Part, Path
from vfs.beneath import Directory, open_regular

_CHUNK: Final = 1 << 16
"""Bytes of two files that are compared at once."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of one directory, by type; names as os.fsdecode gives them."""

    directories: list[str]
    others: list[str]
    """Files and links."""
    special: list[str]
    """FIFOs, sockets and devices."""


def listing(fd: int) -> Listing:
    """The listing of an open directory. Raises OSError."""
    found = Listing([], [], [])
    directories, others = found.directories.append, found.others.append
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                others(entry.name)
            elif entry.is_dir(follow_symlinks=False):
                directories(entry.name)
            elif entry.is_symlink():
                others(entry.name)
            else:
                found.special.append(entry.name)
    return found


class Tops:
    """Where in a unit its parts begin."""

    __slots__ = ("_children", "_depth", "_numbers")

    def __init__(self, parts: Iterable[Part]) -> None:
        self._numbers: dict[Path, list[int]] = defaultdict(list)
        self._children: dict[Path, set[bytes]] = defaultdict(set)
        self._depth = -1
        for number, part in enumerate(parts):
            self._numbers[part.target].append(number)
            self._depth = max(self._depth, len(part.target))
            for depth, name in enumerate(part.target):
                self._children[part.target[:depth]].add(name)

    def at(self, path: Path) -> Sequence[int]:
        """The numbers of the parts that begin at `path`."""
        return self._numbers.get(path, ()) if len(path) <= self._depth else ()

    def below(self, path: Path) -> Iterable[bytes]:
        """The names in the directory `path` that lead to where parts begin."""
        return self._children.get(path, ()) if len(path) < self._depth else ()


@dataclass(slots=True)
class Merged:
    """What becomes of the entries of one directory."""

    directories: dict[bytes, list[int]] = field(default_factory=dict)
    """The parts that have a directory of that name."""
    taken: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Files and links to take, by part."""
    same: dict[int, list[tuple[str, int, int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Not needed, by part: name, inode, size, mtime in ns."""
    left: list[tuple[str, int, str]] = field(default_factory=list)
    """What stays: code, part, name."""


class NotCompared(Exception):
    """Files of one name could not be read."""

    def __init__(self, cause: OSError, part: int, name: str) -> None:
        super().__init__(cause)
        self.cause = cause
        self.part = part
        """The first of the parts that have it."""
        self.name = name


def merge(
    listings: dict[int, Listing], below: Iterable[bytes], source: Callable[[int], Directory]
) -> Merged:
    """Merges what each part has; `below` are directories that are there in any case.

    `source` gives the directory of a part again; two of them must be good at a time. Raises
    NotCompared where two files cannot be compared.
    """
    merged = Merged({name: [] for name in below})
    for number, found in listings.items():
        for name in found.directories:
            merged.directories.setdefault(os.fsencode(name), []).append(number)
        merged.left.extend(("special_file", number, name) for name in found.special)
    if len(listings) == 1 and not below:
        ((number, found),) = listings.items()
        merged.taken[number] = found.others
        return merged
    candidates: dict[str, list[int]] = defaultdict(list)
    for number, found in listings.items():
        for name in found.others:
            candidates[name].append(number)
    for name, numbers in candidates.items():
        if os.fsencode(name) in merged.directories:
            merged.left.extend(("name_taken_by_directory", number, name) for number in numbers)
        elif len(numbers) == 1:
            merged.taken[numbers[0]].append(name)
        else:
            try:
                _choose(merged, name, numbers, source)
            except OSError as exc:
                raise NotCompared(exc, numbers[0], name) from exc
    return merged


def _choose(
    merged: Merged, name: str, numbers: list[int], source: Callable[[int], Directory]
) -> None:
    status = {
        number: os.stat(name, dir_fd=source(number).fd, follow_symlinks=False) for number in numbers
    }
    winner = max(numbers, key=lambda number: (status[number].st_mtime_ns, number))
    merged.taken[winner].append(name)
    for number in numbers:
        if number == winner:
            continue
        one, other = status[winner], status[number]
        exact = os.fsencode(name)
        if _is_same(one, other) or same_content(
            source(winner), exact, one.st_mode, source(number), exact, other.st_mode
        ):
            row = (name, other.st_ino, other.st_size, other.st_mtime_ns)
            merged.same[number].append(row)
        else:
            merged.left.append(("name_taken_by_newer_file", number, name))


def _is_same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


def same_content(
    one: Directory, name: bytes, mode: int, other: Directory, other_name: bytes, other_mode: int
) -> bool:
    """Whether two files are the same byte for byte, or two links in their text. Raises OSError."""
    if stat.S_IFMT(mode) != stat.S_IFMT(other_mode):
        return False
    if stat.S_ISLNK(mode):
        text = os.readlink(name, dir_fd=one.fd)
        return text == os.readlink(other_name, dir_fd=other.fd)
    if not stat.S_ISREG(mode):
        return False
    fd = open_regular(one.fd, one.mnt_id, (name,), os.O_RDONLY)
    try:
        other_fd = open_regular(other.fd, other.mnt_id, (other_name,), os.O_RDONLY)
        try:
            return _same_bytes(fd, other_fd)
        finally:
            os.close(other_fd)
    finally:
        os.close(fd)


def _same_bytes(one: int, other: int) -> bool:
    if os.fstat(one).st_size != os.fstat(other).st_size:
        return False
    position = 0
    while True:
        chunk = os.pread(one, _CHUNK, position)
        if chunk != os.pread(other, _CHUNK, position):
            return False
        if not chunk:
            return True
        position += len(chunk)
