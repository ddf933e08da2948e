"""The kernel's mount interface, as typed functions of one system call each.

Every function takes descriptors and exact-bytes paths, raises OSError with the kernel's errno, and
decides nothing; every descriptor it returns is close-on-exec. `clone_private` alone is more than
one call: it promises a view of one directory that no other mount is in or can get into.

Numbers and layouts are the kernel's stable user ABI (include/uapi/linux/mount.h). System calls from
424 on have one number on x86_64, aarch64 and every architecture with the generic table (riscv,
loongarch); mount and umount2, which have not, are reached by libc's names.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from vfs import linux

OPEN_TREE_CLONE = 1
"""Make a detached clone of the mount, its root at the directory named; else only open the place."""

MOVE_MOUNT_F_EMPTY_PATH = 0x04
MOVE_MOUNT_T_EMPTY_PATH = 0x40

FSOPEN_CLOEXEC = 1
FSMOUNT_CLOEXEC = 1
FSCONFIG_SET_FLAG = 0
FSCONFIG_SET_STRING = 1
FSCONFIG_CMD_CREATE = 6

MOUNT_ATTR_RDONLY = 0x01
MOUNT_ATTR_NOSUID = 0x02
MOUNT_ATTR_NODEV = 0x04
MOUNT_ATTR_NOEXEC = 0x08
MOUNT_ATTR_IDMAP = 0x0010_0000
MOUNT_ATTR_NOSYMFOLLOW = 0x0020_0000
"""Attributes of one mount: mount_setattr has them from Linux 5.12, NOSYMFOLLOW from 5.14."""

MS_BIND = 1 << 12
MS_REC = 1 << 14
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MS_SHARED = 1 << 20

MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8
"""include/linux/fs.h, and umount(2)."""

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUSER = 0x1000_0000
"""include/uapi/linux/sched.h"""

_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_FSOPEN = 430
_SYS_FSCONFIG = 431
_SYS_FSMOUNT = 432
_SYS_MOUNT_SETATTR = 442

_MOUNT_ATTR = struct.Struct("=QQQQ")
"""struct mount_attr: attr_set, attr_clr, propagation, userns_fd"""

_Argument = int | bytes | ctypes.Array[ctypes.c_char] | None

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def open_tree(dirfd: int, path: bytes, flags: int) -> int:
    """A descriptor of the mount at `path`, or with OPEN_TREE_CLONE of a detached copy (Linux 5.2).

    A detached copy lives as long as its descriptor, or until it is attached.
    """
    return _syscall(_SYS_OPEN_TREE, dirfd, path, flags | os.O_CLOEXEC)


def move_mount(from_fd: int, from_path: bytes, to_fd: int, to_path: bytes) -> None:
    """Attaches a detached mount, or moves an attached one; b"" names the descriptor itself."""
    flags = 0 if from_path else MOVE_MOUNT_F_EMPTY_PATH
    flags |= 0 if to_path else MOVE_MOUNT_T_EMPTY_PATH
    _syscall(_SYS_MOVE_MOUNT, from_fd, from_path, to_fd, to_path, flags)


def mount_setattr(
    fd: int,
    path: bytes = b"",
    *,
    recursive: bool = False,
    attr_set: int = 0,
    attr_clr: int = 0,
    propagation: int = 0,
    userns_fd: int = 0,
) -> None:
    """Changes attributes and propagation of the mount at `path`, all or nothing (Linux 5.12)."""
    flags = linux.AT_SYMLINK_NOFOLLOW if path else linux.AT_EMPTY_PATH
    flags |= linux.AT_RECURSIVE if recursive else 0
    attributes = ctypes.create_string_buffer(
        _MOUNT_ATTR.pack(attr_set, attr_clr, propagation, userns_fd), _MOUNT_ATTR.size
    )
    _syscall(_SYS_MOUNT_SETATTR, fd, path, flags, attributes, _MOUNT_ATTR.size)


def fsopen(filesystem: bytes) -> int:
    """A context in which a new filesystem of that type is configured (Linux 5.2)."""
    return _syscall(_SYS_FSOPEN, filesystem, FSOPEN_CLOEXEC)


def fsconfig_string(fs_fd: int, key: bytes, value: bytes) -> None:
    """Sets one option of the filesystem, `source` included."""
    _syscall(_SYS_FSCONFIG, fs_fd, FSCONFIG_SET_STRING, key, value, 0)


def fsconfig_flag(fs_fd: int, key: bytes) -> None:
    """Sets one option of the filesystem that takes no value."""
    _syscall(_SYS_FSCONFIG, fs_fd, FSCONFIG_SET_FLAG, key, None, 0)


def fsconfig_create(fs_fd: int) -> None:
    """Makes the filesystem as it was configured."""
    _syscall(_SYS_FSCONFIG, fs_fd, FSCONFIG_CMD_CREATE, None, None, 0)


def fsmount(fs_fd: int, attributes: int) -> int:
    """A detached mount of the filesystem, with MOUNT_ATTR_* attributes."""
    return _syscall(_SYS_FSMOUNT, fs_fd, FSMOUNT_CLOEXEC, attributes)


def mount(source: bytes, target: bytes, filesystem: bytes, flags: int, options: bytes) -> None:
    """mount(2), which follows links in `target`: give it /proc/self/fd/N."""
    arguments = [_register(part) for part in (source, target, filesystem, flags, options)]
    _check(_libc.mount(*arguments))


def umount(target: bytes, flags: int = 0) -> None:
    """umount2(2): MNT_DETACH, UMOUNT_NOFOLLOW."""
    _check(_libc.umount2(_register(target), ctypes.c_int(flags)))


def unshare(flags: int) -> None:
    """unshare(2): gives the calling process namespaces of its own."""
    _check(_libc.unshare(ctypes.c_int(flags)))


def restricted(*, read_only: bool, nosymfollow: bool) -> int:
    """The attributes of every mount made here: nosuid and nodev; if `read_only` noexec as well."""
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
    if read_only:
        attributes |= MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC
    if nosymfollow:
        attributes |= MOUNT_ATTR_NOSYMFOLLOW
    return attributes


def clone_private(
    fd: int, *, read_only: bool, idmap_userns: int | None = None, nosymfollow: bool = True
) -> int:
    """A detached mount that shows the directory behind `fd`, and nothing that is mounted below it.

    It is private: no mount made later, here or in another mount namespace, appears in it. It is
    nosuid and nodev; with `read_only` read-only and noexec too; with `nosymfollow` the kernel
    follows no link in it (ELOOP). `idmap_userns` is a user namespace by whose map owners are shown.

    OSError: EPERM without CAP_SYS_ADMIN over the mount, ENOSYS from a kernel before 5.12, EINVAL
    before 5.14, from an unbindable mount, or from a filesystem that cannot be id-mapped.
    """
    attributes = restricted(read_only=read_only, nosymfollow=nosymfollow)
    if idmap_userns is not None:
        attributes |= MOUNT_ATTR_IDMAP
    clone = open_tree(fd, b"", linux.AT_EMPTY_PATH | OPEN_TREE_CLONE)
    try:
        # Of a shared mount it is a peer so far, but a detached mount gets nothing propagated to it
        # (fs/pnode.h, IS_MNT_NEW: Linux 5.12): no mount can slip in before it is private.
        mount_setattr(
            clone, attr_set=attributes, propagation=MS_PRIVATE, userns_fd=idmap_userns or 0
        )
    except BaseException:
        os.close(clone)
        raise
    return clone


def _syscall(number: int, *arguments: _Argument) -> int:
    return _check(_libc.syscall(ctypes.c_long(number), *map(_register, arguments)))


def _register(value: _Argument) -> ctypes.c_long | ctypes.c_char_p | ctypes.Array[ctypes.c_char]:
    # A variadic function reads whole registers, where a bare int would fill the lower half.
    if isinstance(value, int):
        return ctypes.c_long(value)
    if isinstance(value, bytes):
        if b"\0" in value:  # it would silently end the text
            raise OSError(errno.EINVAL, "a path or option holds a NUL byte")
        return ctypes.c_char_p(value)
    return ctypes.c_char_p(None) if value is None else value


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
