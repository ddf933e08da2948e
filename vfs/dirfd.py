"""Calls on one name in a directory that a descriptor pins: make, open, rename, refuse.

The name-level half of `vfs.beneath`, which re-exports all of it and says what it promises. Each
function raises OSError, follows no link, and gives close-on-exec descriptors.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress

from vfs import linux
from vfs.linux import Status
from vfs.resolving import O_LIST, O_LOOK, check_name, resolver

SETID = stat.S_ISUID | stat.S_ISGID
"""The mode bits that run a program as somebody else; no file made or changed here keeps them."""


NO_SUCH_RENAME = frozenset((errno.EINVAL, errno.ENOSYS))
"""How a file system answers a rename flag that it does not know (renameat2(2))."""


def refuse_type(mode: int, name: bytes = b"") -> None:
    """Raises OSError unless `mode` is a regular file's: ELOOP, EISDIR, ENXIO for special files."""
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        number = errno.ELOOP
    elif stat.S_ISDIR(mode):
        number = errno.EISDIR
    else:
        number = errno.ENXIO
    raise OSError(number, os.strerror(number), name)


def refuse_planted(status: Status, dirfd: int) -> None:
    """Raises OSError (EPERM) for a file that may have been linked in from elsewhere.

    No kernel call tells a hard link of an outside file from any other file; but one that belongs to
    the owner of the directory `dirfd` is that owner's to change.
    """
    if status.nlink <= 1 or stat.S_ISDIR(status.mode):
        return
    if status.uid != linux.fstatx(dirfd).uid:
        raise OSError(errno.EPERM, "it has further names, and somebody else owns it")


def reopen(fd: int, flags: int) -> int:
    """Opens the very inode that the O_PATH descriptor `fd` holds; no name is resolved again."""
    try:
        return os.open(f"/proc/self/fd/{fd}", (flags & ~os.O_NOFOLLOW) | os.O_CLOEXEC)
    except FileNotFoundError:
        # A descriptor's entry is there even when its file was deleted.
        raise OSError(errno.ENOSYS, "/proc is not mounted") from None


def open_regular(dirfd: int, mnt_id: int, parts: Sequence[bytes], flags: int) -> int:
    """A descriptor of an existing regular file.

    The entry is held by O_PATH first, so that its type is known before anything is opened: opening
    a FIFO may block and opening a device may act. `flags` must not hold O_CREAT, O_EXCL or O_TRUNC.
    """
    look = resolver().open(dirfd, mnt_id, parts, O_LOOK)
    try:
        status = linux.fstatx(look)
        refuse_type(status.mode, parts[-1])
        writes = flags & os.O_ACCMODE != os.O_RDONLY
        if writes:
            refuse_planted(status, dirfd)
        # O_NONBLOCK does nothing to a regular file, save that EAGAIN is the answer while somebody
        # holds a lease on it; without it the open waits for that holder, for up to 45 s
        # (lease-break-time in proc_sys_fs(5)).
        fd = reopen(look, flags | os.O_NONBLOCK)
        if writes and status.mode & SETID:
            # The kernel takes the bits away at a write, except from root's. Who may not change the
            # mode is no root.
            with suppress(PermissionError):
                os.fchmod(fd, stat.S_IMODE(status.mode) & ~SETID)
        return fd
    finally:
        os.close(look)


def create_regular(
    dirfd: int,
    name: bytes,
    mode: int,
    flags: int = os.O_RDWR,
    owner: tuple[int, int] | None = None,
) -> int:
    """Makes `name`, which must not exist, as an empty regular file of `mode`, set-id bits left out.

    Nobody but its maker can open it before it has its owner. It is gone again if that fails.
    """
    check_name(name)
    create = flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, create, 0o600, dir_fd=dirfd)
    try:
        if owner is not None:
            os.fchown(fd, *owner)
        os.fchmod(fd, mode & ~SETID)
    except BaseException:
        with suppress(OSError):
            if linux.statx(dirfd, name).identity == linux.fstatx(fd).identity:
                os.unlink(name, dir_fd=dirfd)
        os.close(fd)
        raise
    return fd


def make_directory(
    dirfd: int, mnt_id: int, name: bytes, mode: int, owner: tuple[int, int] | None
) -> None:
    """Makes the directory `name` of exactly `mode`, given to `owner` before it can be entered.

    Mode and owner are set through a descriptor of the new directory. Should someone have put a
    directory that is not empty in its place meanwhile, that is left as it is and ESTALE raised. The
    new directory is gone again if its mode or owner cannot be set.
    """
    check_name(name)
    os.mkdir(name, 0o700, dir_fd=dirfd)
    fd = resolver().open(dirfd, mnt_id, (name,), O_LIST)
    try:
        if os.listdir(fd):
            raise OSError(errno.ESTALE, "the new directory was replaced meanwhile", name)
        try:
            if owner is not None:
                os.fchown(fd, *owner)
            os.fchmod(fd, mode)
        except BaseException:
            with suppress(OSError):
                os.rmdir(name, dir_fd=dirfd)
            raise
    finally:
        os.close(fd)


def make_link(dirfd: int, mnt_id: int, name: bytes, text: bytes) -> int:
    """Makes the symbolic link `name`; an O_PATH descriptor of it, to change it by, and only it.

    Should something else have taken its name meanwhile, that is left alone and ESTALE raised.
    """
    check_name(name)
    os.symlink(text, name, dir_fd=dirfd)
    fd = resolver().open(dirfd, mnt_id, (name,), O_LOOK)
    if not stat.S_ISLNK(linux.fstatx(fd).mode):
        os.close(fd)
        raise OSError(errno.ESTALE, "the new link was replaced meanwhile", name)
    return fd


def rename(
    source_dirfd: int, source: bytes, target_dirfd: int, target: bytes, flags: int = 0
) -> None:
    """Renames one entry; `flags` are renameat2's NOREPLACE and EXCHANGE."""
    check_name(source)
    check_name(target)
    if flags:
        linux.renameat2(source_dirfd, source, target_dirfd, target, flags)
    else:
        os.rename(source, target, src_dir_fd=source_dirfd, dst_dir_fd=target_dirfd)


def exchange(dirfd: int, one: bytes, other: bytes) -> None:
    """Gives each of two entries the other's name in one step; EOPNOTSUPP where that is unknown."""
    try:
        rename(dirfd, one, dirfd, other, linux.RENAME_EXCHANGE)
    except OSError as exc:
        if exc.errno not in NO_SUCH_RENAME:
            raise
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)) from None
