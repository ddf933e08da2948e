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
)
from migrator.manifest import Copied, Linked
from migrator.registry import Registry
from vfs.beneath import Directory, make_link

_NO_MORE_NAMES: Final = frozenset((errno.EMLINK, errno.EPERM, errno.EXDEV))
"""What link(2) answers for a file that has as many names as it can have (ext4: 65 000), for one
that is immutable or append-only, and for one in another subvolume (btrfs). These are copied."""

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_Made = tuple[int, int, str, str | None, bool]
"""Of a copy: inode, mtime in ns, digest, digest of its attributes, whether it has them all."""

_TRIES: Final = 100
"""Bound of the tries at a copy that other processes make at the same time."""


class Changed(OSError):
    """A file that was written while it was read."""

    def __init__(self) -> None:
        super().__init__(errno.ESTALE, "it changed while it was read")


class Taken:
    """What came of the entries of one directory."""

    __slots__ = ("copied", "left", "linked")

    def __init__(self) -> None:
        self.linked: list[Linked] = []
        self.copied: list[Copied] = []
        self.left: list[tuple[str, str]] = []
        """What was not taken, or not whole: code of `migrator.manifest.Left`, name."""


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
                taken.left.append(("special_file", name))
            else:
                raise
            return
        try:
            if status.st_nlink == 1:
                made = self._make(fd, status, target, exact)
            else:
                made = self._find(fd, status, target, exact)
            now = os.fstat(fd)
            if now.st_mtime_ns != status.st_mtime_ns or now.st_size != status.st_size:
                raise Changed
        except OSError as exc:
            if exc.errno != errno.EFBIG:
                raise
            os.unlink(exact, dir_fd=target.fd)
            taken.left.append(("too_large", name))
        else:
            taken.copied.append(_row(name, status, *made))
            if not made[-1]:
                taken.left.append(("attributes_not_kept", name))
        finally:
            os.close(fd)

    def _find(self, fd: int, status: os.stat_result, target: Directory, name: bytes) -> _Made:
        """A name of the copy of a file that has further names; it is made if there is none."""
        for _ in range(_TRIES):
            if self._registry.give(status, target, name):
                made = self._share(fd, status, target, name)
                if made is not None:
                    return made
                self._registry.forget(status)
            else:
                made = self._make(fd, status, target, name)
                if self._registry.keep(status, target, name):
                    return made
            os.unlink(name, dir_fd=target.fd)
        raise BlockingIOError(errno.EAGAIN, "another process keeps making the same copy")

    def _make(self, fd: int, status: os.stat_result, target: Directory, name: bytes) -> _Made:
        """A new file of this content."""
        mode = 0o700 if status.st_mode & 0o111 else 0o600
        copy = os.open(name, _CREATE, mode, dir_fd=target.fd)
        try:
            # Nobody else has seen it yet: its directory is open to nobody before it is full.
            if self._owner is not None:
                os.fchown(copy, *self._owner)
            digest = self._fill(fd, copy, status, self._count)
            xattrs, whole = copy_xattrs(fd, copy)
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
            made = os.fstat(copy)
            if made.st_mode & 0o7777 != mode:  # the umask took something
                os.fchmod(copy, mode)
        finally:
            os.close(copy)
        return made.st_ino, made.st_mtime_ns, digest, xattrs, whole

    def _share(
        self, fd: int, status: os.stat_result, target: Directory, name: bytes
    ) -> _Made | None:
        """What is recorded of a further name of a copy; None if that is no good copy.

        It may not have been on the disk yet when the machine failed.
        """
        copy, made = open_regular(target, name)
        try:
            size, sparse = status.st_size, is_sparse(status)
            if made.st_size != size:
                return None
            digest = self._content.digest(fd, size, self._count, sparse=sparse)
            if self._content.digest(copy, size, _uncounted, sparse=sparse) != digest:
                return None
            xattrs, whole = copy_xattrs(fd, copy)
            os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
            return made.st_ino, os.fstat(copy).st_mtime_ns, digest, xattrs, whole
        finally:
            os.close(copy)

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
            made = os.fstat(fd)
        finally:
            os.close(fd)
        return _row(name, status, made.st_ino, made.st_mtime_ns, text_digest(text), None, True)


def _row(
    name: str,
    status: os.stat_result,
    inode: int,
    kept_ns: int,
    digest: str,
    xattrs: str | None,
    whole: bool,
) -> Copied:
    return (
        name,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        (status.st_mode, status.st_uid, status.st_gid),
        inode,
        kept_ns,
        digest,
        xattrs,
        whole,
    )


class Linking:
    """Takes further names of the very files and links; nothing is read.

    A file that has several names already is copied: owner and mode, and what is written to it, are
    those of all its names, and some may be outside of the saves, or another user's.
    """

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
                if status.st_nlink > 2 and mode & 0o170000 == stat.S_IFREG:
                    # It had several names: to whom the others belong nobody can tell.
                    os.unlink(name, dir_fd=to_fd)
                    self._copying.one(source, target, name, taken)
                    continue
                if mode & 0o170000 not in linkable:
                    os.unlink(name, dir_fd=to_fd)
                    taken.left.append(("special_file", name))
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


def _uncounted(_: int) -> None:
    pass
