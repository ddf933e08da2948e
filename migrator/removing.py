"""The removal of what the migrator made or took over: by manifest, never by name alone.

An entry goes only if it is the very one that the manifest tells of, unchanged since: inode, size
and time of change. Directories go when they are empty. Whatever else is found stays, and is told
of. Everything may be interrupted, and done again: what is gone already is no difference.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, Literal

from migrator import manifest, modes
from migrator.cursor import ABSENT, Cursor, Cursors
from migrator.errors import retryable
from migrator.manifest import Attributes, Entries, Left, Made, Same
from migrator.units import Path, Unit
from vfs.beneath import Directory
from vfs.bulk import change_modes, change_owners
from vfs.closing import Closing
from vfs.errors import NotFound, VfsError
from vfs.printable import printable
from vfs.removal import remove
from vfs.workspace import OWNER

Count = Callable[[int, int], None]
"""Is told of files and bytes when they are done."""

Row = tuple[bytes, int, int, int, bool]
"""What is to go: name, inode, size, mtime in ns, and whether it may go though it has no other name
(of the saves), or at all, since the saves have it (of the unit)."""

TOLD: Final = 1000
"""Paths of what stays that are told one by one; the rest is counted."""


def _uncounted(files: int, size: int) -> None:
    pass


@dataclass(slots=True)
class Removed:
    """What a removal did."""

    files: int = 0
    """Files and links."""
    directories: int = 0
    bytes: int = 0
    stayed: int = 0
    """Entries that stay, directories only for themselves."""
    kept: list[Path] = field(default_factory=list)
    """Which: the first `TOLD` of them; beneath the unit's target, or beneath the saves."""

    @property
    def removed(self) -> int:
        """Files, links and directories."""
        return self.files + self.directories

    def keep(self, path: Path) -> None:
        """Counts one that stays."""
        self.stayed += 1
        if len(self.kept) < TOLD:
            self.kept.append(path)


def unstage(unit: Unit, root: Directory) -> None:
    """Removes whatever lies where the unit is staged. Raises VfsError."""
    sweep(root, unit.staging)


def sweep(root: Directory, path: Path) -> None:
    """Removes whatever lies at `path`, if anything does. Raises VfsError."""
    with suppress(NotFound):
        remove(root, path)


def remove_target(
    unit: Unit,
    root: Directory,
    source: Directory,
    records: Iterable[dict[str, Any]],
    *,
    count: Count = _uncounted,
) -> Removed:
    """Removes a published unit by its manifest: what is still as it was published.

    Nothing goes that `source`, the saves, do not have (any more): the old name of what was linked,
    the old file of what was copied, as it was when it was read. A linked file gets its old owner
    and mode back by that name, since its new one may have been removed or replaced. Paths that stay
    are beneath `unit.target`. Raises Retryable, and Mismatch for a manifest that is not whole.
    """
    with _TargetRemoval(unit, root, source, count) as removal:
        return removal.go(manifest.read(records))


def remove_source(
    unit: Unit,
    source: Directory,
    records: Iterable[dict[str, Any]],
    *,
    above: Iterable[Path] = (),
    last_names: Literal["keep", "remove"] = "keep",
    count: Count = _uncounted,
) -> Removed:
    """Removes what a unit took from the saves, if it is still what was taken.

    What was left is not touched. `above`: further directories that go if they are empty then, such
    as those that held the parts. `last_names`: what becomes of a file that was linked but has no
    name beside this one, since the linked one was removed or replaced. Paths that stay are beneath
    the saves. Raises as `remove_target`.
    """
    with _SourceRemoval(unit, source, last_names == "keep", count) as removal:
        removed = removal.go(manifest.read(records))
        removal.prune(above)
        return removed


@dataclass(slots=True)
class _Level:
    """A directory of the unit whose entries are being removed."""

    path: Path
    numbers: tuple[int, ...]
    """The parts that have it."""
    stays: dict[int, set[bytes]]
    """By part, the names in it that were told of as staying."""


class _Removal(Closing):
    """The removal of one unit's entries from one or more trees, in the manifest's order.

    A tree is told by a number: the target is 0, and the sources are the parts.
    """

    def __init__(self, unit: Unit, root: Directory, count: Count) -> None:
        self._unit = unit
        self._root = root
        self._count = count
        self._removed = Removed()
        self._levels: list[_Level] = []
        self._trees = Cursors(lambda number: Cursor.open(root, self._top(number)))

    def close(self) -> None:
        """Releases every descriptor."""
        self._trees.close()

    def go(self, records: Iterable[manifest.Record]) -> Removed:
        """Removes what the records tell of."""
        place: Path = ()
        try:
            for record in records:
                place = record.path
                if isinstance(record, Made):
                    self._close_levels(record.path)
                    self._levels.append(_Level(record.path, self._numbers(record), {}))
                elif not isinstance(record, Left):
                    self._remove_entries(record)
            self._close_levels(None)
        except (OSError, VfsError) as exc:
            shown = printable(b"/".join((self._unit.key.encode(), *place)))
            raise retryable(exc, f"remove {shown}") from exc
        return self._removed

    def _top(self, number: int) -> Path:
        """Where a tree begins, beneath the root."""
        raise NotImplementedError

    def _numbers(self, record: Made) -> tuple[int, ...]:
        """The trees that have a directory of the unit."""
        raise NotImplementedError

    def _rows(self, record: Entries | Same) -> tuple[int, Iterator[Row]]:
        """The tree that a record is about, and what of it is to go."""
        raise NotImplementedError

    def _within(self, number: int, path: Path) -> Path:
        """A path of the unit as one of a tree."""
        raise NotImplementedError

    def _directory(self, number: int, path: Path) -> Directory | None:
        """A directory of a tree; None if it is gone, or something else by now."""
        try:
            return self._trees.go(number, self._within(number, path))
        except (OSError, VfsError) as exc:
            if exc.errno in ABSENT:
                return None
            raise

    def _remove_entries(self, record: Entries | Same) -> None:
        number, rows = self._rows(record)
        directory = self._directory(number, record.path)
        if directory is None:
            return
        fd, removed = directory.fd, self._removed
        files, size = removed.files, removed.bytes
        for name, inode, length, mtime, last in rows:
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if (
                status.st_ino != inode
                or status.st_size != length
                or status.st_mtime_ns != mtime
                or not self._may_go(status, last)
                or stat.S_ISDIR(status.st_mode)
            ):
                self._keep(number, (*record.path, name))
                continue
            os.unlink(name, dir_fd=fd)
            removed.files += 1
            removed.bytes += length
        self._count(removed.files - files, removed.bytes - size)

    def _may_go(self, status: os.stat_result, last: bool) -> bool:
        """Whether an entry may go that is as it was recorded; `last` is the row's own word."""
        return last or status.st_nlink > 1

    def _keep(self, number: int, path: Path) -> None:
        """Tells of an entry of the innermost directory that stays."""
        self._removed.keep((*self._shown(number), *self._within(number, path)))
        self._levels[-1].stays.setdefault(number, set()).add(path[-1])

    def _shown(self, number: int) -> Path:
        """What the paths of a tree begin with when they are told."""
        raise NotImplementedError

    def _close_levels(self, path: Path | None) -> None:
        """Removes the directories that are done with: those that are not above `path`."""
        while self._levels:
            level = self._levels[-1]
            if path is not None and path[: len(level.path)] == level.path:
                return
            for number in level.numbers:
                self._remove_directory(number, level)
            self._levels.pop()

    def _remove_directory(self, number: int, level: _Level) -> None:
        within = self._within(number, level.path)
        try:
            if within:
                above = self._directory(number, level.path[:-1])
                if above is None:
                    return
                os.rmdir(within[-1], dir_fd=above.fd)
            else:
                self._root.remove_directory(self._top(number))
        except (OSError, VfsError) as exc:
            if exc.errno in ABSENT:
                return
            if exc.errno != errno.ENOTEMPTY:
                raise
            self._tell_unknown(number, level)
            return
        self._removed.directories += 1

    def _tell_unknown(self, number: int, level: _Level) -> None:
        """Tells of what is in a directory that stays, and was not told of yet."""
        known = level.stays.get(number, set())
        directory = self._directory(number, level.path)
        if directory is not None:
            with os.scandir(directory.fd) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    if name not in known:
                        self._removed.keep(
                            (*self._shown(number), *self._within(number, (*level.path, name)))
                        )
        if len(self._levels) > 1:
            self._levels[-2].stays.setdefault(number, set()).add(level.path[-1])


class _TargetRemoval(_Removal):
    """The removal of the unit itself."""

    def __init__(self, unit: Unit, root: Directory, source: Directory, count: Count) -> None:
        super().__init__(unit, root, count)
        self._origins = Cursors(lambda part: Cursor.open(source, unit.parts[part].source))

    def close(self) -> None:
        """Releases every descriptor."""
        super().close()
        self._origins.close()

    def _top(self, number: int) -> Path:
        return self._unit.target

    def _numbers(self, record: Made) -> tuple[int, ...]:
        return (0,)

    def _rows(self, record: Entries | Same) -> tuple[int, Iterator[Row]]:
        if isinstance(record, Same):
            return 0, iter(())
        there = self._in_the_saves(record)
        columns = (record.names, record.inode, record.size, record.kept_ns, there)
        return 0, zip(*columns, strict=True)

    def _in_the_saves(self, record: Entries) -> list[bool]:
        """Of each entry, whether the saves have it as they had it."""
        part = self._unit.parts[record.part]
        try:
            origin = self._origins.go(record.part, record.path[len(part.target) :])
        except (OSError, VfsError) as exc:
            if exc.errno in ABSENT:
                return [False] * len(record.names)
            raise
        there = []
        back: list[tuple[bytes, Attributes]] = []
        rows = zip(
            record.names,
            record.ino,
            record.size,
            record.mtime_ns,
            record.attributes,
            strict=True,
        )
        for name, ino, size, mtime, attributes in rows:
            try:
                status = os.stat(name, dir_fd=origin.fd, follow_symlinks=False)
            except FileNotFoundError:
                there.append(False)
                continue
            same = status.st_ino == ino
            if record.digests is not None:
                same &= status.st_size == size and status.st_mtime_ns == mtime
            elif same and _is_ours(status, attributes):
                back.append((name, attributes))
            there.append(same)
        _give_back(origin, back)
        return there

    def _may_go(self, status: os.stat_result, there: bool) -> bool:
        return there

    def _within(self, number: int, path: Path) -> Path:
        return path

    def _shown(self, number: int) -> Path:
        return ()


def _is_ours(status: os.stat_result, old: Attributes) -> bool:
    """Whether an entry has the owner and mode that a run gave it, and had others before."""
    mode, uid, gid = old
    if (status.st_uid, status.st_gid) != OWNER:
        return False
    if stat.S_ISLNK(mode):
        return (uid, gid) != OWNER
    now, wanted = modes.bits(status.st_mode), modes.wanted(mode)
    return now == wanted and (wanted, *OWNER) != (modes.bits(mode), uid, gid)


def _give_back(directory: Directory, entries: Sequence[tuple[bytes, Attributes]]) -> None:
    """Gives entries their old owners and modes. Raises the first refusal."""
    names = [name for name, _ in entries]
    refused = change_owners(
        directory.fd,
        names,
        [uid for _, (_, uid, _) in entries],
        [gid for _, (_, _, gid) in entries],
    )
    files = [(name, modes.bits(mode)) for name, (mode, _, _) in entries if not stat.S_ISLNK(mode)]
    refused |= change_modes(directory.fd, [name for name, _ in files], [mode for _, mode in files])
    for exc in refused.values():
        raise exc


class _SourceRemoval(_Removal):
    """The removal of what the unit was made of."""

    def __init__(self, unit: Unit, source: Directory, keep: bool, count: Count) -> None:
        super().__init__(unit, source, count)
        self._keeps_last = keep

    def _top(self, number: int) -> Path:
        return self._unit.parts[number].source

    def _numbers(self, record: Made) -> tuple[int, ...]:
        return tuple(origin.part for origin in record.origins)

    def _rows(self, record: Entries | Same) -> tuple[int, Iterator[Row]]:
        copied = isinstance(record, Same) or record.digests is not None
        last = repeat(copied or not self._keeps_last, len(record.names))
        columns = (record.names, record.ino, record.size, record.mtime_ns, last)
        rows = zip(*columns, strict=True)
        if isinstance(record, Same) or not record.partial:
            return record.part, rows
        # What is not whole in the unit stays whole in the saves.
        whole = (row for index, row in enumerate(rows) if index not in record.partial)
        return record.part, whole

    def _within(self, number: int, path: Path) -> Path:
        return path[len(self._unit.parts[number].target) :]

    def _shown(self, number: int) -> Path:
        return self._unit.parts[number].source

    def prune(self, paths: Iterable[Path]) -> None:
        """Removes directories that are empty, the innermost first."""
        for path in sorted(set(paths), key=len, reverse=True):
            try:
                self._root.remove_directory(path)
            except VfsError as exc:
                if exc.errno not in ABSENT and exc.errno != errno.ENOTEMPTY:
                    shown = printable(b"/".join(path))
                    raise retryable(exc, f"remove {shown}") from exc
            else:
                self._removed.directories += 1
