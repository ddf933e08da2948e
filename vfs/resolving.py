"""One relative path to one descriptor, with no link followed: the two ways, and the choice of one.

`Openat2` asks the kernel (Linux 5.6) to resolve a whole path with RESOLVE_BENEATH, NO_SYMLINKS,
NO_MAGICLINKS and NO_XDEV. `Walk` opens one component a call with O_NOFOLLOW and compares mount ids;
it serves older kernels and seccomp filters that refuse openat2. `resolver()` probes once;
GEMSPACE_NO_OPENAT2=1 forces Walk. Both answer alike, errno by errno.

Only `vfs.beneath` and what stands on it use this. Everything here raises OSError, save
`split_path`, which judges what a caller gave and raises InvalidPath.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Sequence
from typing import Protocol

from vfs import linux
from vfs.errors import InvalidPath
from vfs.printable import printable

Path = bytes | str | Sequence[bytes]
"""A path beneath a directory: bytes, text as the file system's encoding has it, or components."""

NAME_MAX = 255
"""Longest file name in bytes (include/uapi/linux/limits.h; ext4, xfs, btrfs and tmpfs agree)."""

PATH_MAX = 4096
"""Longest path in bytes that one system call takes, its final NUL counted (the same file)."""

O_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
"""To hold an entry of any type, a link as the link, without opening it."""
O_ENTER = O_LOOK | os.O_DIRECTORY
"""To hold a directory."""
O_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""To read a directory's names."""

_RESOLVE = (
    linux.RESOLVE_BENEATH
    | linux.RESOLVE_NO_SYMLINKS
    | linux.RESOLVE_NO_MAGICLINKS
    | linux.RESOLVE_NO_XDEV
)

_TRIES = 1000
"""Bound of the tries after EAGAIN, so that a hostile renamer cannot hold a call for ever."""

_CROSSED = 10
"""Answers of EXDEV before a mount is believed in. Where a directory was swapped without a pause,
one call in 500 was answered so with no mount anywhere (Linux 6.18)."""


def split_path(path: Path) -> tuple[bytes, ...]:
    """The components of a relative path, each checked; `()` for the directory itself.

    Accepts text, bytes, or components already apart. One trailing slash is allowed, as a listing
    shows directories. Raises InvalidPath for an absolute path and for a component that is empty,
    `.`, `..`, longer than NAME_MAX, or holds NUL or a slash.
    """
    if isinstance(path, str):
        try:
            path = os.fsencode(path)
        except UnicodeEncodeError:
            raise InvalidPath(
                "the path cannot be written as bytes", fix="give it as its exact bytes"
            ) from None
    if isinstance(path, bytes):
        if path in (b"", b"/"):
            return ()
        if path.startswith(b"/"):
            raise InvalidPath(
                f"{printable(path)} is absolute",
                fix="give the path relative to the directory",
                path=path,
            )
        parts = tuple(path.removesuffix(b"/").split(b"/"))
    else:
        parts = tuple(path)
    for name in parts:
        try:
            check_name(name)
        except OSError as exc:
            whole = b"/".join(parts)
            raise InvalidPath(
                f"{printable(whole)} is not a path here: {exc.strerror}",
                fix="name each directory on the way, up to 255 bytes each",
                path=whole,
            ) from None
    return parts


def check_name(name: bytes) -> None:
    """Raises OSError (EINVAL, ENAMETOOLONG) unless `name` can be one entry of a directory."""
    if name in (b"", b".", b".."):
        raise OSError(errno.EINVAL, "a component is empty, '.' or '..'", name)
    if b"/" in name or b"\0" in name:
        raise OSError(errno.EINVAL, "a component holds a slash or a NUL byte", name)
    if len(name) > NAME_MAX:
        raise OSError(errno.ENAMETOOLONG, "a component is longer than 255 bytes", name)


def mount_id(fd: int) -> int:
    """The id of the mount that `fd` is on: by statx, before Linux 5.8 from /proc."""
    status = linux.fstatx(fd)
    if status.mask & linux.STATX_MNT_ID:
        return status.mnt_id
    with open(f"/proc/self/fdinfo/{fd}") as lines:
        for line in lines:
            if line.startswith("mnt_id:"):
                return int(line.split()[1])
    raise OSError(errno.ENOSYS, "the kernel does not tell the mount of a descriptor")


class Resolver(Protocol):
    """A way to open `parts` beneath a directory; both ways pass one test-suite."""

    def open(self, dirfd: int, mnt_id: int, parts: Sequence[bytes], flags: int) -> int:
        """A new close-on-exec descriptor of the entry at `parts`, which is not empty.

        `flags` hold O_PATH or O_DIRECTORY, so that no FIFO can block and no device is opened; with
        O_PATH alone a last component that is a link is held as the link. `mnt_id` is the mount of
        `dirfd`. Raises OSError: ELOOP at a link, EXDEV at another mount, else the kernel's.
        """


class Openat2:
    """Resolution by one openat2 call per 4 095 bytes of path."""

    def open(self, dirfd: int, mnt_id: int, parts: Sequence[bytes], flags: int) -> int:
        """See Resolver."""
        if flags & os.O_DIRECTORY:
            # With O_NOFOLLOW the kernel calls a last link ENOTDIR; without it, RESOLVE_NO_SYMLINKS
            # refuses it for what it is.
            flags &= ~os.O_NOFOLLOW
        else:
            flags |= os.O_NOFOLLOW
        path = b"/".join(parts)
        if len(path) < PATH_MAX:
            return _openat2(dirfd, path, flags)
        return self._open_long(dirfd, parts, flags)

    def _open_long(self, dirfd: int, parts: Sequence[bytes], flags: int) -> int:
        current = dirfd
        start = 0
        try:
            while True:
                end, length = start, -1
                while end < len(parts) and length + 1 + len(parts[end]) < PATH_MAX:
                    length += 1 + len(parts[end])
                    end += 1
                path = b"/".join(parts[start:end])
                if end == len(parts):
                    return _openat2(current, path, flags)
                fd = _openat2(current, path, O_ENTER & ~os.O_NOFOLLOW)
                if current != dirfd:
                    os.close(current)
                current, start = fd, end
        finally:
            if current != dirfd:
                os.close(current)


class Walk:
    """Resolution by one openat with O_NOFOLLOW for each component, the mount compared each time."""

    def open(self, dirfd: int, mnt_id: int, parts: Sequence[bytes], flags: int) -> int:
        """See Resolver."""
        current = dirfd
        try:
            for name in parts[:-1]:
                fd = self._step(current, mnt_id, name, O_ENTER)
                if current != dirfd:
                    os.close(current)
                current = fd
            return self._step(current, mnt_id, parts[-1], flags)
        finally:
            if current != dirfd:
                os.close(current)

    @staticmethod
    def _step(dirfd: int, mnt_id: int, name: bytes, flags: int) -> int:
        try:
            fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dirfd)
        except NotADirectoryError:
            # O_DIRECTORY answers ENOTDIR for a link too; say which, as openat2 does.
            if stat.S_ISLNK(linux.statx(dirfd, name).mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
            raise
        try:
            found = mount_id(fd)
        except BaseException:
            os.close(fd)
            raise
        if found != mnt_id:
            os.close(fd)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        return fd


def _openat2(dirfd: int, path: bytes, flags: int) -> int:
    crossed = 0
    for _ in range(_TRIES):
        try:
            return linux.openat2(dirfd, path, flags, _RESOLVE)
        except (BlockingIOError, InterruptedError):
            # EAGAIN: a rename elsewhere raced with the resolution; openat2(2) says to try again.
            # EINTR: a signal came; Python's own calls try again too (PEP 475).
            continue
        except OSError as exc:
            # A mount is on the way, or what was found has just been moved from beneath `dirfd`
            # (complete_walk in fs/namei.c). The second will hardly happen every time.
            crossed += 1
            if exc.errno != errno.EXDEV or crossed == _CROSSED:
                raise
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)


@functools.cache
def resolver() -> Resolver:
    """The resolver of this process: Openat2 where the kernel and the seccomp filter allow it."""
    if os.environ.get("GEMSPACE_NO_OPENAT2") == "1":
        return Walk()
    try:
        os.close(linux.openat2(linux.AT_FDCWD, b".", os.O_PATH | os.O_DIRECTORY, _RESOLVE))
    except OSError as exc:
        # ENOSYS: before Linux 5.6. EPERM: a seccomp filter. Anything else says the call is there.
        if exc.errno in (errno.ENOSYS, errno.EPERM):
            return Walk()
    return Openat2()
