"""Walks of a tree beneath a pinned directory: iterative, bounded, and nothing is left out silently.

- Any depth and width is walked with a bounded number of descriptors (`vfs.descent`).
- No link is followed and no mount is crossed; a directory swapped for a link meanwhile is not
  entered.
- What vanishes meanwhile is skipped. What cannot be read, what a limit leaves out, and mounts are
  counted in a `Cut` and told to `on_error`; a caller that passes neither gets the error raised.
- Entries come in the order of their names' bytes, a directory before what it holds.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Literal, NamedTuple

from vfs import linux
from vfs.beneath import Directory, Path, split_path
from vfs.descent import Descent
from vfs.errors import VfsError, from_oserror
from vfs.linux import Status

Parts = tuple[bytes, ...]
OnError = Callable[[Parts, VfsError], None]

Kind = Literal[
    "file", "directory", "link", "fifo", "socket", "character device", "block device", "unknown"
]

_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}

_VANISHED = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE))
"""Answers about an entry that was there, as a directory, a moment ago."""

_OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Failures of this process or machine, which say nothing of the entry."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a walk examines. The defaults are the ones that users are told of."""

    depth: int = 15
    """Levels of entries below the start; what stands directly in it is level 1."""
    directories: int = 600
    """Directories read, the start included."""
    entries_per_directory: int = 500
    """Entries looked at in one directory."""
    entries: int = 10_000
    """Entries looked at in all."""
    hits: int = 100
    """Results of a search."""

    @classmethod
    def unbounded(cls) -> Limits:
        """For maintenance, which must see everything."""
        return cls(*[sys.maxsize] * 5)


UNBOUNDED = Limits.unbounded()


@dataclass(slots=True)
class Cut:
    """What a walk left out, and why; false when it left out nothing."""

    depth: int = 0
    """Directories not entered because they stand at the deepest level allowed."""
    directories: int = 0
    """Directories not entered because enough had been read."""
    entries_per_directory: int = 0
    """Directories that hold more entries than were looked at."""
    entries: int = 0
    """1 if the walk ended early because it had looked at enough entries."""
    hits: int = 0
    """1 if a search ended early because it had found enough."""
    unreadable: int = 0
    """Entries that could not be looked at and directories that could not be read."""
    mounts: int = 0
    """Entries on which something else is mounted; they are not shown."""

    def __bool__(self) -> bool:
        return any(self.to_json().values())

    def to_json(self) -> dict[str, int]:
        """The counts by the names of the fields."""
        return asdict(self)


class Entry(NamedTuple):
    """One entry of a tree, as it was when it was looked at."""

    path: Parts
    """Its components, from the pinned directory that the walk was asked of."""
    status: Status
    """The entry's own status: a link's, never its target's."""

    @property
    def name(self) -> bytes:
        """The last component."""
        return self.path[-1]

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.status.mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.status.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.status.mode)

    @property
    def is_special(self) -> bool:
        """Whether it is a FIFO, a socket or a device."""
        return not (self.is_file or self.is_dir or self.is_link)

    @property
    def kind(self) -> Kind:
        """The type as a word."""
        return _KINDS.get(stat.S_IFMT(self.status.mode), "unknown")


class Survey:
    """The bookkeeping of one walk: its limits, what it has examined, what it left out."""

    __slots__ = ("_directories", "_entries", "_on_error", "_tells", "cut", "limits")

    def __init__(self, limits: Limits, cut: Cut | None, on_error: OnError | None) -> None:
        self.limits = limits
        self.cut = Cut() if cut is None else cut
        self._on_error = on_error
        self._tells = cut is not None or on_error is not None
        self._directories = 0
        self._entries = 0

    def may_enter(self, depth: int) -> bool:
        """Whether a directory at level `depth` may be read; counted as read, or as left out."""
        if depth >= self.limits.depth:
            self.cut.depth += 1
            return False
        if self._directories >= self.limits.directories:
            self.cut.directories += 1
            return False
        self._directories += 1
        return True

    def names(self, fd: int) -> list[bytes]:
        """The names in the directory `fd`, sorted; no more than may be looked at. OSError."""
        room = self.limits.entries_per_directory
        if room == sys.maxsize:
            found = os.listdir(fd)
        else:
            with os.scandir(fd) as entries:
                found = [entry.name for entry in islice(entries, room + 1)]
            if len(found) > room:
                self.cut.entries_per_directory += 1
                found.pop()
        return sorted(map(os.fsencode, found))

    def entries(self, descent: Descent, prefix: Parts) -> Iterator[Entry]:
        """The entries of `descent.here`, whose path is `prefix`; each looked at when asked for.

        The descent must stand there again whenever the next one is asked for.
        """
        try:
            names = self.names(descent.here.fd)
        except OSError as exc:
            self.failed(prefix, exc)
            return
        mnt_id = descent.here.mnt_id
        room = self.limits.entries
        for name in names:
            if self._entries >= room:
                self.cut.entries = 1
                return
            self._entries += 1
            path = (*prefix, name)
            try:
                status = linux.statx(descent.here.fd, name)
            except OSError as exc:
                self.failed(path, exc)
                continue
            if status.mnt_id != mnt_id and status.mask & linux.STATX_MNT_ID:
                self.failed(path, OSError(errno.EXDEV, os.strerror(errno.EXDEV)))
                continue
            yield Entry(path, status)

    def failed(self, path: Parts, exc: OSError) -> None:
        """Tells of an entry that could not be looked at or entered, if it is still there."""
        if exc.errno not in _VANISHED:
            self.tell(path, exc)

    def tell(self, path: Parts, exc: OSError) -> None:
        """Counts what was left out at `path`; raises if nobody listens."""
        error = from_oserror(exc, path=b"/".join(path) or b"/", action="read")
        if not self._tells or exc.errno in _OURS:
            raise error from None
        if exc.errno == errno.EXDEV:
            self.cut.mounts += 1
        else:
            self.cut.unreadable += 1
        if self._on_error is not None:
            self._on_error(path, error)


def visit(
    directory: Directory,
    path: Path = (),
    *,
    limits: Limits = UNBOUNDED,
    cut: Cut | None = None,
    on_error: OnError | None = None,
) -> Iterator[tuple[Directory, Entry]]:
    """Each entry beneath `path` with the pinned directory that holds it.

    The caller may act at once on `entry.name` in that directory, without another resolution, and
    may remove, rename or fill the entry: the walk goes on with what is there then. The directory
    is good until the next entry is asked for. Raises VfsError when `path` is not a directory that
    can be read.
    """
    start = split_path(path)
    survey = Survey(limits, cut, on_error)
    descent = Descent(Directory(directory.open_listing(start), directory.mnt_id))
    try:
        levels: list[tuple[Parts, Iterator[Entry]]] = []
        if survey.may_enter(0):
            levels.append((start, survey.entries(descent, start)))
        while levels:
            entry = next(levels[-1][1], None)
            if entry is not None:
                yield descent.here, entry
                if stat.S_ISDIR(entry.status.mode) and survey.may_enter(len(levels)):
                    try:
                        descent.enter(entry.path[-1])
                    except OSError as exc:
                        survey.failed(entry.path, exc)
                    else:
                        levels.append((entry.path, survey.entries(descent, entry.path)))
                continue
            levels.pop()
            if levels:
                try:
                    descent.leave()
                except OSError as exc:
                    prefix = levels[-1][0]
                    levels[-1] = (prefix, iter(()))
                    survey.tell(prefix, exc)
    finally:
        descent.close()


def walk(
    directory: Directory,
    path: Path = (),
    *,
    limits: Limits = UNBOUNDED,
    cut: Cut | None = None,
    on_error: OnError | None = None,
) -> Iterator[Entry]:
    """The same as `visit`, without the directories: for those who only look."""
    for _, entry in visit(directory, path, limits=limits, cut=cut, on_error=on_error):
        yield entry
