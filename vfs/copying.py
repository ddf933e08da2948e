"""The copy of a whole tree, which is there complete or not at all.

It is made under a temporary name beside the target and renamed there last, never over an entry.
Links are refused or kept as links; hard links within the tree stay hard links; holes stay holes;
times of change are kept. Of the modes only the executable bit is, unless asked otherwise. Extended
attributes are not. Any depth and width is copied with a bounded number of descriptors. What
vanishes from the source meanwhile is not in the copy.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from vfs import linux
from vfs.beneath import (
    Directory,
    Path,
    create_regular,
    make_directory,
    make_link,
    open_regular,
    refuse_type,
    rename,
    split_path,
    translated,
)
from vfs.descent import Descent
from vfs.errors import InvalidPath, VfsError
from vfs.linux import Status
from vfs.removal import remove
from vfs.saving import random_token, temporary_name
from vfs.walking import Entry, Parts, visit

_RANGE = 1 << 27
"""Bytes that the kernel is told to copy at once: a signal waits for no more than this."""

_CHUNK = 1 << 20
"""Bytes read at once where the kernel cannot copy by itself."""


@dataclass(frozen=True, slots=True)
class Modes:
    """The modes of what is made."""

    directory: int = 0o700
    file: int = 0o600
    executable: int = 0o700
    """Of a file that somebody may execute at the source."""

    def of(self, mode: int) -> int:
        """The mode of the copy of what has this mode."""
        if stat.S_ISDIR(mode):
            return self.directory
        return self.executable if mode & 0o111 else self.file


PRIVATE = Modes()
"""A workspace's: nothing for group and others."""


def copy(
    source: Directory,
    source_path: Path,
    target: Directory,
    target_path: Path,
    *,
    links: Literal["refuse", "keep"] = "refuse",
    owner: tuple[int, int] | None = None,
    modes: Modes | Literal["keep"] = PRIVATE,
) -> None:
    """Copies a file or a tree to `target_path`, which must not exist; its parent must.

    All is given to `owner`, else it is this process's. Set-id bits are never kept. Raises
    AlreadyExists, LinkRefused (unless links are kept), SpecialFileRefused, InvalidPath (a mount, or
    a target within the source), NoSpace, and whatever reading and writing raise; nothing is at the
    target then. Only a kill leaves something, under a
    temporary name. What it holds is not forced to the disk.
    """
    parts, goal = split_path(source_path), split_path(target_path)
    top = Entry(parts, source.stat(parts))
    with target.parent(goal) as (folder, name):
        with translated("copy to", goal):
            _refuse_existing(folder.fd, name)
        temporary = temporary_name(random_token())
        making = _Copy(folder, temporary, links, owner, modes)
        try:
            if top.is_dir:
                making.add(source, top, 0)
                for here, entry in visit(source, parts):
                    making.add(here, entry, len(entry.path) - len(parts))
            else:
                with source.parent(parts) as (here, _):
                    making.add(here, top, 0)
            making.finish()
            with translated("copy to", goal):
                rename(folder.fd, temporary, folder.fd, name, linux.RENAME_NOREPLACE)
        except BaseException:
            _discard(folder, temporary)
            raise
        finally:
            making.close()


def _refuse_existing(dirfd: int, name: bytes) -> None:
    with suppress(FileNotFoundError):
        linux.statx(dirfd, name)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _discard(folder: Directory, temporary: bytes) -> None:
    """Removes what was made, directories that are read-only already included."""
    with suppress(VfsError):
        folder.change_mode((temporary,), 0o700)
        for here, entry in visit(folder, (temporary,)):
            if entry.is_dir:
                here.change_mode((entry.name,), 0o700)
    with suppress(VfsError):
        remove(folder, (temporary,))


class _Copy:
    """A tree that is made in `folder` under a temporary name, entry by entry as they are met."""

    def __init__(
        self,
        folder: Directory,
        temporary: bytes,
        links: Literal["refuse", "keep"],
        owner: tuple[int, int] | None,
        modes: Modes | Literal["keep"],
    ) -> None:
        self._folder = folder
        self._temporary = temporary
        self._links = links
        self._owner = owner
        self._modes = modes
        self._descent = Descent(Directory(os.dup(folder.fd), folder.mnt_id))
        self._unfinished: list[Entry] = []
        """The directories whose copies are being filled, the outermost first."""
        self._top: tuple[int, int, int] | None = None
        """The identity of the outermost copy."""
        self._names: dict[tuple[int, int, int], Parts] = {}
        """Where the first name of each hard-linked file was copied to, beneath `folder`."""

    def close(self) -> None:
        self._descent.close()

    def add(self, here: Directory, entry: Entry, depth: int) -> None:
        """Copies one entry, which `here` holds, `depth` levels below the top."""
        while len(self._unfinished) > depth:
            self._finish_directory()
        name = entry.name if depth else self._temporary
        with translated("copy", entry.path):
            if entry.is_dir:
                self._add_directory(entry, name)
                return
            try:
                source = self._read(here, entry)
            except FileNotFoundError:
                if depth:
                    return
                raise
            if isinstance(source, bytes):
                self._add_link(source, entry.status, name)
            else:
                try:
                    self._add_file(source, name)
                finally:
                    os.close(source)

    def _read(self, here: Directory, entry: Entry) -> bytes | int:
        """The text of a link that is to be kept, or a descriptor of a regular file."""
        if entry.is_link and self._links == "keep":
            return os.readlink(entry.name, dir_fd=here.fd)
        refuse_type(entry.status.mode)
        return open_regular(here.fd, here.mnt_id, (entry.name,), os.O_RDONLY)

    def finish(self) -> None:
        """Gives the directories that are still open their owners, modes and times."""
        while self._unfinished:
            self._finish_directory()

    def _add_directory(self, entry: Entry, name: bytes) -> None:
        if entry.status.identity == self._top:
            raise InvalidPath(
                "a directory cannot be copied into itself", fix="name a target outside of it"
            )
        here = self._descent.here
        # Private until it is full: nobody can act in it, and it can be filled whatever its mode.
        make_directory(here.fd, here.mnt_id, name, 0o700, None)
        made = self._descent.enter(name)
        self._unfinished.append(entry)
        if self._top is None:
            self._top = linux.fstatx(made.fd).identity

    def _finish_directory(self) -> None:
        entry = self._unfinished.pop()
        with translated("copy", entry.path):
            fd = self._descent.here.fd
            if self._owner is not None:
                os.fchown(fd, *self._owner)
            os.fchmod(fd, self._mode(entry.status.mode))
            os.utime(fd, ns=(entry.status.atime_ns, entry.status.mtime_ns))
            self._descent.leave()

    def _mode(self, mode: int) -> int:
        return mode & 0o1777 if self._modes == "keep" else self._modes.of(mode)

    def _add_link(self, text: bytes, status: Status, name: bytes) -> None:
        made = self._descent.here
        fd = make_link(made.fd, made.mnt_id, name, text)
        try:
            if self._owner is not None:
                linux.fchown_held(fd, *self._owner)
            os.utime(f"/proc/self/fd/{fd}", ns=(status.atime_ns, status.mtime_ns))
        finally:
            os.close(fd)

    def _add_file(self, source: int, name: bytes) -> None:
        made = self._descent.here
        status = linux.fstatx(source)
        first = self._names.get(status.identity)
        if first is not None:
            self._folder.link(first, (name,), to=made)
            return
        target = create_regular(made.fd, name, self._mode(status.mode), owner=self._owner)
        try:
            _copy_bytes(source, target, status)
            os.utime(target, ns=(status.atime_ns, status.mtime_ns))
        finally:
            os.close(target)
        if status.nlink > 1:
            above = [entry.name for entry in self._unfinished[1:]]
            self._names[status.identity] = (self._temporary, *above, name)


def _copy_bytes(source: int, target: int, status: Status) -> None:
    if status.allocated >= status.size:
        _copy_range(source, target, 0, status.size)
        return
    for start, end in extents(source, status.size):
        _copy_range(source, target, start, end)
    os.ftruncate(target, status.size)


def extents(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The ranges of an open file that are no holes, up to `size` bytes. Raises OSError."""
    end = 0
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # nothing but a hole is left
                return
            raise
        end = os.lseek(fd, start, os.SEEK_HOLE)
        yield start, min(end, size)


_BY_HAND = frozenset((errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP))
"""What copy_file_range(2) answers between file systems that it does not copy between."""


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    """Copies the bytes from `start` to `end`, or to the end of the file if it became shorter."""
    while start < end:
        try:
            count = os.copy_file_range(source, target, min(end - start, _RANGE), start, start)
        except OSError as exc:
            if exc.errno not in _BY_HAND:
                raise
            count = 0
        if count == 0:
            break
        start += count
    while start < end:
        chunk = os.pread(source, min(end - start, _CHUNK), start)
        if not chunk:
            return
        while chunk:
            count = os.pwrite(target, chunk, start)
            chunk = chunk[count:]
            start += count
