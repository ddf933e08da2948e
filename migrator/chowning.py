"""One worker's part of giving trees to an owner: go through directories, record, then change.

The directories of a batch are held by descriptors from when their entries were recorded until those
are changed, so that what is changed is in the very directory that was looked at. What is before it
in its walk a worker shares: half of the directories still to be gone into, nearest to the top,
or half of the names that it has just read of a large one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress, islice
from typing import Final

from migrator import modes
from migrator.lines import Appender
from migrator.oldowners import Old, Recorder
from migrator.owned import Left, Owned
from migrator.units import Path
from migrator.workers import Share
from vfs.beneath import Directory
from vfs.bulk import Columns, Looker, change_modes, change_owners
from vfs.closing import Closing
from vfs.descent import Descent
from vfs.resolving import O_LIST, resolver

BATCH: Final = 32_768
"""Entries whose records are made durable together: a sync takes milliseconds, a change
microseconds. So many names of one directory are read at once, too."""

HELD: Final = 512
"""Directories of a batch, half of the 1 024 descriptors that a process usually may have. With more
and smaller ones a batch ends earlier."""

SPLIT: Final = 2_048
"""Names of which another worker may get half: fewer are done by the time that it has them."""

IN_ORDER: Final = 1_000
"""Names from which on they are taken in the order of their inodes, as the disk has them."""

_VANISHED: Final = frozenset((errno.ENOENT,))
_OURS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Failures of this process or machine, which say nothing of the entry."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the work, in one directory."""

    root: str
    path: Path
    """The directory, beneath its root."""
    names: tuple[bytes, ...] | None
    """The entries to be changed; None for all."""
    itself: bool = False
    """Whether the directory itself is to be changed, too."""
    inside: tuple[bytes, ...] = ()
    """Directories to be gone into that are changed already."""
    recursive: bool = True
    """Whether to go into the directories that are changed."""


class _Way:
    """Where a walk stands beneath its start, and the directories that wait on each level."""

    __slots__ = ("_start", "levels", "path", "waiting")

    def __init__(self, start: Path) -> None:
        self._start = len(start)
        self.path = list(start)
        self.levels: list[deque[bytes]] = [deque()]
        self.waiting = 0

    def add(self, names: list[bytes]) -> None:
        """Directories here that are to be gone into."""
        self.levels[-1].extend(names)
        self.waiting += len(names)

    def next(self) -> bytes | None:
        """The next one here, None after the last."""
        if not self.levels[-1]:
            return None
        self.waiting -= 1
        return self.levels[-1].popleft()

    def enter(self, name: bytes) -> None:
        """It now stands in that directory."""
        self.path.append(name)
        self.levels.append(deque())

    def leave(self) -> None:
        """It is up again by one level, on which nothing may wait."""
        self.levels.pop()
        if self.levels:
            self.path.pop()

    def lose(self) -> None:
        """What waits here cannot be reached any more."""
        self.waiting -= len(self.levels[-1])
        self.levels[-1].clear()

    def half(self) -> tuple[Path, tuple[bytes, ...]]:
        """Half of what waits on the level nearest to the top, taken off; there must be some."""
        depth = next(n for n, level in enumerate(self.levels) if level)
        level = self.levels[depth]
        names = tuple(level.pop() for _ in range((len(level) + 1) // 2))
        self.waiting -= len(names)
        return tuple(self.path[: self._start + depth]), names


class Worker(Closing):
    """What one process does, a piece at a time."""

    def __init__(
        self,
        roots: Mapping[str, Directory],
        appender: Appender,
        owner: tuple[int, int],
        apart: Mapping[str, frozenset[int]],
        count: Callable[[int], None],
    ) -> None:
        """Takes over `appender`, the file of its records. `count` is told of entries done.

        `apart`: by root, inodes that are left alone.
        """
        self._appender = appender
        self._recorder = Recorder(appender)
        self._roots = roots
        self._owner = owner
        self._apart = apart
        self._count = count
        self._looker = Looker()
        self._batch: list[tuple[int, Old]] = []
        """Directories, and what is recorded of their entries, which is about to be changed."""
        self._size = 0
        self._owned = Owned()

    def close(self) -> None:
        """Releases the file of the records; what was not synced was not needed."""
        self._appender.close()

    def work(self, piece: Piece, share: Share[Piece]) -> Owned:
        """Does a piece, save what it hands on. OSError, VfsError: not all of it is done then."""
        self._owned = Owned()
        try:
            self._walk(piece, share)
            self._change_batch()
        finally:
            self._drop_batch()
        return self._owned

    def _walk(self, piece: Piece, share: Share[Piece]) -> None:
        root = self._roots[piece.root]
        try:
            top = Directory(_open(root, piece.path), root.mnt_id)
        except OSError as exc:
            self._failed(piece.root, piece.path, exc)
            return
        way = _Way(piece.path)
        way.add(list(piece.inside))
        descent = Descent(top)
        try:
            self._entries(piece, descent.here, way, share)
            while way.levels:
                if way.waiting > 1 and share.wanted:
                    path, names = way.half()
                    share.give([Piece(piece.root, path, (), inside=names)])
                name = way.next()
                if name is None:
                    self._leave(piece.root, descent, way)
                    continue
                try:
                    here = descent.enter(name)
                except OSError as exc:
                    self._failed(piece.root, (*way.path, name), exc)
                    continue
                way.enter(name)
                self._entries(Piece(piece.root, (), None), here, way, share)
        finally:
            descent.close()

    def _leave(self, root: str, descent: Descent, way: _Way) -> None:
        way.leave()
        if not way.levels:
            return
        try:
            descent.leave()
        except OSError as exc:
            if way.levels[-1]:
                self._failed(root, tuple(way.path), exc)
            way.lose()

    def _entries(self, piece: Piece, here: Directory, way: _Way, share: Share[Piece]) -> None:
        """Sees to the entries of the directory where the walk stands, and adds what waits there."""
        path = tuple(way.path)
        if piece.itself:
            self._see(piece.root, path, here, [b"."])
        for names in _chunks(here.fd) if piece.names is None else [list(piece.names)]:
            if len(names) >= SPLIT and share.wanted:
                half = tuple(names[len(names) // 2 :])
                share.give([Piece(piece.root, path, half, recursive=piece.recursive)])
                names = names[: len(names) // 2]
            seen = self._see(piece.root, path, here, names)
            if piece.recursive:
                way.add(list(compress(seen.names, map(stat.S_ISDIR, seen.modes))))

    def _see(self, root: str, path: Path, here: Directory, names: list[bytes]) -> Columns:
        """Looks at entries, and records what is not as it should be."""
        seen = self._looker.look(here.fd, here.mnt_id, names)
        kinds = set(seen.modes)
        self._owned.seen += len(seen.names)
        self._tell(root, path, seen, kinds)
        self._record(root, path, here.fd, seen, kinds)
        return seen

    def _tell(self, root: str, path: Path, seen: Columns, kinds: set[int]) -> None:
        """Tells of the entries that are not changed in full."""
        for name, exc in seen.errors:
            self._failed(root, (*path, name), exc)
        for name in seen.elsewhere:
            self._owned.leave(Left("mount", root, (*path, name)))
        if any(map(modes.is_special, kinds)):
            for name in compress(seen.names, map(modes.is_special, seen.modes)):
                self._owned.leave(Left("special", root, (*path, name)))

    def _record(self, root: str, path: Path, fd: int, seen: Columns, kinds: set[int]) -> None:
        """Records the entries that are not yet as they should be, for the batch."""
        uid, gid = self._owner
        wrong = {mode: modes.bits(mode) != modes.wanted(mode) for mode in kinds}
        if uid not in seen.uids:
            todo = [True] * len(seen.names)
        else:
            entries = zip(seen.uids, seen.gids, seen.modes, strict=True)
            todo = [u != uid or g != gid or wrong[mode] for u, g, mode in entries]
        apart = self._apart.get(root)
        if apart and not apart.isdisjoint(seen.inos):
            for n, inode in enumerate(seen.inos):
                if todo[n] and inode in apart:
                    todo[n] = False
                    self._owned.leave(Left("elsewhere", root, (*path, seen.names[n])))
        number = sum(todo)
        self._count(len(todo) - number)
        if not number:
            return
        if len(self._batch) >= HELD:
            self._change_batch()
        old = Old(
            root=root,
            path=path,
            to=self._owner,
            names=list(compress(seen.names, todo)),
            inos=list(compress(seen.inos, todo)),
            uids=list(compress(seen.uids, todo)),
            gids=list(compress(seen.gids, todo)),
            modes=list(compress(seen.modes, todo)),
        )
        self._batch.append((os.dup(fd), old))
        self._recorder.append(old)
        self._size += number
        if self._size >= BATCH:
            self._change_batch()

    def _change_batch(self) -> None:
        """Makes the records of the batch durable, and then changes what they tell of."""
        if self._batch:
            self._recorder.sync()
            for fd, old in self._batch:
                self._change(fd, old)
        self._drop_batch()

    def _drop_batch(self) -> None:
        for fd, _ in self._batch:
            os.close(fd)
        self._batch.clear()
        self._size = 0

    def _change(self, fd: int, old: Old) -> None:
        uid, gid = self._owner
        if uid not in old.uids:
            names = old.names
        else:
            entries = zip(old.names, old.uids, old.gids, strict=True)
            names = [name for name, u, g in entries if u != uid or g != gid]
        failed = change_owners(fd, names, [uid] * len(names), [gid] * len(names))
        # After the owner: setting that takes bits off the mode.
        new = {mode: modes.wanted(mode) for mode in set(old.modes)}
        wrong = [modes.bits(mode) != new[mode] for mode in old.modes]
        names = list(compress(old.names, wrong))
        failed |= change_modes(fd, names, [new[mode] for mode in compress(old.modes, wrong)])
        for name, exc in failed.items():
            self._failed(old.root, (*old.path, name), exc)
        self._owned.changed += len(old.names) - len(failed)
        self._count(len(old.names))

    def _failed(self, root: str, path: Path, exc: OSError) -> None:
        """Tells of what could not be looked at, gone into or changed, if it is still there."""
        if exc.errno in _OURS:
            raise exc
        if exc.errno == errno.EXDEV:
            self._owned.leave(Left("mount", root, path))
        elif exc.errno not in _VANISHED:
            self._owned.leave(Left("failed", root, path, exc.strerror or str(exc)))


def _open(root: Directory, path: Path) -> int:
    """A descriptor of a directory, to be listed."""
    if not path:
        return os.open(".", O_LIST, dir_fd=root.fd)
    return resolver().open(root.fd, root.mnt_id, path, O_LIST)


def _chunks(fd: int) -> Iterator[list[bytes]]:
    """The names in a directory, up to `BATCH` at a time."""
    with os.scandir(fd) as entries:
        while some := list(islice(entries, BATCH)):
            if len(some) >= IN_ORDER:
                some.sort(key=os.DirEntry.inode)
            # One conversion for all: no name holds a NUL.
            yield os.fsencode("\0".join([entry.name for entry in some])).split(b"\0")
