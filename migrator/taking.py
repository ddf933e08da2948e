"""Files and links of one directory of the source, taken into one of the unit: linked or copied.

Only the two directories' descriptors and one name at a time are used. What a name leads to is
judged by what was taken, never by a look before, and a source is opened for reading only. Raises
OSError; what was made of the name that failed may be there still, in a unit that is swept then.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import Final, Protocol

from migrator.content import (
    Content,
    Count,
    copy_xattrs,
    is_sparse,
    open_regular,
    text_digest,
    xattrs_digest,
)
from migrator.manifest import Copied, Linked
from migrator.registry import Registry
from vfs.beneath import Directory, make_link

_NO_MORE_NAMES: Final = frozenset((errno.EMLINK, errno.EPERM))
"""What link(2) answers for a file that has as many names as it can have (ext4: 65 000), and for one
that is immutable or append-only. Of these a copy is made."""

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_TRIES: Final = 100
"""Bound of the tries at a copy that other processes make at the same time."""


class Changed(OSError):
    """A file that was written while it was read."""

    def __init__(self) -> None:
        super().__init__(errno.ESTALE, "it changed while it was read")


class Taken:
    """What came of the entries of one directory."""

    __slots__ = ("copied", "linked", "special")

    def __init__(self) -> None:
        self.linked: list[Linked] = []
        self.copied: list[Copied] = []
        self.special: list[str] = []
        """Names of what is neither file nor link, and was not taken."""


class Take(Protocol):
    """A way of taking entries over."""

    name: str
    """The entry it is at, or was at when it failed."""

    def __call__(
        self, source: Directory, target: Directory, names: Iterable[str], taken: Taken
    ) -> None:
        """Takes the entries `names` of `source` into `target`, where they must not exist."""


class Copying:
    """Takes copies, hashed while they are made, for one owner."""

    def __init__(
        self,
        content: Content,
        registry: Registry,
        owner: tuple[int, int] | None,
        count: Count,
        *,
        clone: bool = False,
    ) -> None:
        """`clone`: blocks are shared with the source where the file system can."""
        self._content = content
        self._fill = content.clone if clone else content.copy
        self._registry = registry
        self._owner = owner
        self._count = count
        self.name = ""

    def __call__(
        self, source: Directory, target: Directory, names: Iterable[str], taken: Taken
    ) -> None:
        """See Take."""
        for self.name in names:
            self.one(source, target, self.name, taken)

    def one(self, source: Directory, target: Directory, name: str, taken: Taken) -> None:
        """Takes one entry, whatever it is."""
        exact = os.fsencode(name)
        try:
            fd, status = open_regular(source, exact)
        except OSError as exc:
            if exc.errno == errno.ELOOP:
                taken.copied.append(self._copy_link(source, target, name, exact))
            elif exc.errno == errno.ENXIO:
                taken.special.append(name)
            else:
                raise
            return
        try:
            taken.copied.append(self._copy_file(fd, status, target, name, exact))
        finally:
            os.close(fd)

    def _copy_file(
        self, fd: int, status: os.stat_result, target: Directory, name: str, exact: bytes
    ) -> Copied:
        if status.st_nlink == 1:
            made, digest, xattrs = self._make(fd, status, target, exact)
        else:
            made, digest, xattrs = self._share(fd, status, target, exact)
        after = os.fstat(fd)
        if _version(after) != _version(status):
            raise Changed
        return (
            name,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            (status.st_mode, status.st_uid, status.st_gid),
            made,
            digest,
            xattrs,
        )

    def _make(
        self, fd: int, status: os.stat_result, target: Directory, name: bytes
    ) -> tuple[int, str, str | None]:
        """A new file of this content: its inode and the two digests."""
        made, inode = self._create(target.fd, name, 0o700 if status.st_mode & 0o111 else 0o600)
        try:
            digest = self._fill(fd, made, status, self._count)
            xattrs = copy_xattrs(fd, made)
            os.utime(made, ns=(status.st_atime_ns, status.st_mtime_ns))
        finally:
            os.close(made)
        return inode, digest, xattrs

    def _create(self, dirfd: int, name: bytes, mode: int) -> tuple[int, int]:
        """A writable descriptor of a new file, and its inode. Nobody else has seen it yet."""
        made = os.open(name, _CREATE, mode, dir_fd=dirfd)
        try:
            status = os.fstat(made)
            if self._owner is not None and self._owner != (status.st_uid, status.st_gid):
                os.fchown(made, *self._owner)
            if status.st_mode & 0o7777 != mode:  # the umask took something
                os.fchmod(made, mode)
        except BaseException:
            os.close(made)
            raise
        return made, status.st_ino

    def _share(
        self, fd: int, status: os.stat_result, target: Directory, name: bytes
    ) -> tuple[int, str, str | None]:
        """The same of a file that has further names: a name of the copy that there is, if any."""
        for _ in range(_TRIES):
            if not self._registry.give(status, target, name):
                made = self._make(fd, status, target, name)
                if self._registry.keep(status, target, name):
                    return made
            else:
                copy, _ = open_regular(target, name)
                try:
                    inode = os.fstat(copy).st_ino
                    if digest := self._same(fd, copy, status):
                        return inode, digest, xattrs_digest(fd)
                finally:
                    os.close(copy)
                self._registry.forget(status)
            os.unlink(name, dir_fd=target.fd)
        raise BlockingIOError(errno.EAGAIN, "another process keeps making the same copy")

    def _same(self, fd: int, copy: int, status: os.stat_result) -> str | None:
        """The digest of a file, if that of its copy is the same.

        It need not be: a copy that was not yet on the disk when the machine failed is none.
        """
        found = os.fstat(copy)
        if (found.st_size, found.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
            return None
        size, sparse = status.st_size, is_sparse(status)
        digest = self._content.digest(fd, size, self._count, sparse=sparse)
        if self._content.digest(copy, size, _uncounted, sparse=sparse) != digest:
            return None
        return digest

    def _copy_link(self, source: Directory, target: Directory, name: str, exact: bytes) -> Copied:
        status = os.stat(name, dir_fd=source.fd, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            raise Changed
        text = os.readlink(exact, dir_fd=source.fd)
        fd = make_link(target.fd, target.mnt_id, exact, text)
        try:
            if self._owner is not None:
                os.chown(exact, *self._owner, dir_fd=target.fd, follow_symlinks=False)
            os.utime(
                exact,
                ns=(status.st_atime_ns, status.st_mtime_ns),
                dir_fd=target.fd,
                follow_symlinks=False,
            )
            made = os.fstat(fd).st_ino
        finally:
            os.close(fd)
        return (
            name,
            status.st_ino,
            status.st_size,
            status.st_mtime_ns,
            (status.st_mode, status.st_uid, status.st_gid),
            made,
            text_digest(text),
            None,
        )


class Linking:
    """Takes further names of the very files and links; nothing is read."""

    def __init__(self, copying: Copying) -> None:
        """`copying` takes what can have no further name."""
        self._copying = copying
        self.name = ""

    def __call__(
        self, source: Directory, target: Directory, names: Iterable[str], taken: Taken
    ) -> None:
        """See Take."""
        # Everything in this loop is paid for by each of a million files.
        link, look, linkable = os.link, os.stat, _LINKABLE
        from_fd, to_fd = source.fd, target.fd
        add = taken.linked.append
        name = ""
        try:
            for name in names:
                try:
                    link(name, name, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
                except OSError as exc:
                    if exc.errno not in _NO_MORE_NAMES:
                        raise
                    self._copying.one(source, target, name, taken)
                    continue
                # Of what was linked, in a directory that is ours alone; not of what was there.
                status = look(name, dir_fd=to_fd, follow_symlinks=False)
                mode = status.st_mode
                if mode & 0o170000 not in linkable:
                    os.unlink(name, dir_fd=to_fd)
                    taken.special.append(name)
                    continue
                add(
                    (
                        name,
                        status.st_ino,
                        status.st_size,
                        status.st_mtime_ns,
                        (mode, status.st_uid, status.st_gid),
                    )
                )
        except OSError:
            self.name = name
            raise


_LINKABLE: Final = (stat.S_IFREG, stat.S_IFLNK)


def _version(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _uncounted(_: int) -> None:
    pass
