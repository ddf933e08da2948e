"""The Linux system calls that the standard library does not offer, as typed functions.

Each function is one system call: it takes descriptors and one exact-bytes path, raises OSError with
the kernel's errno, and decides nothing. Policy lives in `vfs.beneath`.

Numbers and layouts are the kernel's stable user ABI (include/uapi/linux). openat2 (437) and every
later call have one number on all architectures; statx and renameat2 are reached by libc's names.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import NamedTuple

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
AT_STATX_FORCE_SYNC = 0x2000
AT_STATX_DONT_SYNC = 0x4000
AT_RECURSIVE = 0x8000  # include/uapi/linux/fcntl.h: the mounts below as well

# include/uapi/linux/openat2.h
RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

# include/uapi/linux/fs.h
RENAME_NOREPLACE = 1
RENAME_EXCHANGE = 2
RENAME_WHITEOUT = 4

# include/uapi/linux/stat.h
STATX_BASIC_STATS = 0x07FF
STATX_MNT_ID = 0x1000
STATX_ATTR_IMMUTABLE = 0x10
STATX_ATTR_APPEND = 0x20

_SYS_OPENAT2 = 437
SYS_FCHMODAT2 = 452

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h

_libc = ctypes.CDLL(None, use_errno=True)

_syscall = _libc.syscall
_syscall.argtypes = [
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
]
_syscall.restype = ctypes.c_long

# Without argtypes, which would cost a walk a quarter of its time: ctypes passes an int as a C int,
# bytes as a char pointer and an array as its address, and statx takes just these.
_statx = _libc.statx
_statx.restype = ctypes.c_int

_renameat2 = _libc.renameat2
_renameat2.argtypes = [
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_uint,
]
_renameat2.restype = ctypes.c_int


class Status(NamedTuple):
    """What statx tells of one inode. Times are seconds and nanoseconds apart, as the kernel's are.

    `mnt_id` is 0 where the kernel does not report it (before Linux 5.8); `mask` then lacks
    STATX_MNT_ID.
    """

    mask: int
    blksize: int
    attributes: int
    nlink: int
    uid: int
    gid: int
    mode: int
    ino: int
    size: int
    blocks: int
    atime: int
    atime_nsec: int
    ctime: int
    ctime_nsec: int
    mtime: int
    mtime_nsec: int
    rdev_major: int
    rdev_minor: int
    dev_major: int
    dev_minor: int
    mnt_id: int

    @property
    def identity(self) -> tuple[int, int, int]:
        """Device and inode number: the same for two names exactly when they are one inode."""
        return (self.dev_major, self.dev_minor, self.ino)

    @property
    def atime_ns(self) -> int:
        """Time of the last access, in nanoseconds since the epoch."""
        return self.atime * 1_000_000_000 + self.atime_nsec

    @property
    def mtime_ns(self) -> int:
        """Time of the last change of content, in nanoseconds since the epoch."""
        return self.mtime * 1_000_000_000 + self.mtime_nsec

    @property
    def ctime_ns(self) -> int:
        """Time of the last change of the inode, in nanoseconds since the epoch."""
        return self.ctime * 1_000_000_000 + self.ctime_nsec

    @property
    def allocated(self) -> int:
        """Bytes that the disk holds: a block of statx(2) has 512, whatever the file system's."""
        return self.blocks * 512

    @property
    def rdev(self) -> int:
        """Device number of a device node, as os.makedev gives it."""
        return os.makedev(self.rdev_major, self.rdev_minor)


# struct statx: the spare 16 bits after mode, attributes_mask, btime and the padding of each
# timestamp are skipped.
_STATX = struct.Struct("=IIQIIIHxxQQQxxxxxxxxqIxxxx16xqIxxxxqIxxxxIIIIQ")
_STATX_BUFFER = ctypes.c_char * 256
_STATX_WANTED = STATX_BASIC_STATS | STATX_MNT_ID
_unpack_status = _STATX.unpack_from
_new_status = tuple.__new__


class _OpenHow(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


def _raise_errno(name: bytes | None = None) -> None:
    number = ctypes.get_errno()
    if name is None:
        raise OSError(number, os.strerror(number))
    raise OSError(number, os.strerror(number), name)


def _checked(path: bytes) -> bytes:
    # A NUL would silently cut the name short in C.
    if b"\0" in path:
        raise OSError(errno.EINVAL, "a path holds a NUL byte")
    return path


def openat2(dirfd: int, path: bytes, flags: int, resolve: int, mode: int = 0) -> int:
    """A new close-on-exec descriptor for `path` beneath `dirfd`, resolved as `resolve` demands."""
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)
    fd: int = _syscall(_SYS_OPENAT2, dirfd, _checked(path), ctypes.byref(how), ctypes.sizeof(how))
    if fd < 0:
        _raise_errno(path)
    return fd


def statx(dirfd: int, name: bytes, flags: int = AT_SYMLINK_NOFOLLOW) -> Status:
    """The status of `name` in `dirfd`, a link itself and not its target unless `flags` say so."""
    if b"\0" in name:
        _checked(name)
    buffer = _STATX_BUFFER()
    if _statx(dirfd, name, flags, _STATX_WANTED, buffer) < 0:
        _raise_errno(name)
    status: Status = _new_status(Status, _unpack_status(buffer))
    return status


def fstatx(fd: int) -> Status:
    """The status of an open descriptor, O_PATH ones included."""
    return statx(fd, b"", AT_EMPTY_PATH)


def renameat2(
    source_dirfd: int, source: bytes, target_dirfd: int, target: bytes, flags: int
) -> None:
    """Renames one entry, atomically, with RENAME_NOREPLACE or RENAME_EXCHANGE."""
    if _renameat2(source_dirfd, _checked(source), target_dirfd, _checked(target), flags) < 0:
        _raise_errno(source)


_fallocate = _libc.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_fallocate.restype = ctypes.c_int

_fchownat = _libc.fchownat
_fchownat.argtypes = [
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_uint32,
    ctypes.c_uint32,
    ctypes.c_int,
]
_fchownat.restype = ctypes.c_int


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Reserves, punches or zeroes a range of an open file; `mode` as in fallocate(2)."""
    if _fallocate(fd, mode, offset, length) < 0:
        _raise_errno()


def fchown_held(fd: int, uid: int, gid: int) -> None:
    """Sets the owner of the inode that an O_PATH descriptor holds, a link's own included."""
    if _fchownat(fd, b"", uid & 0xFFFFFFFF, gid & 0xFFFFFFFF, AT_EMPTY_PATH) < 0:
        _raise_errno()


def syncfs(fd: int) -> None:
    """Writes to the disk what was changed on the file system that an open descriptor is on."""
    if _libc.syncfs(fd) < 0:
        _raise_errno()


_fchmodat2 = _libc["syscall"]  # another object than _libc.syscall, whose argtypes are openat2's
_fchmodat2.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_int]
_fchmodat2.restype = ctypes.c_long


def fchmodat2(dirfd: int, name: bytes, mode: int, flags: int = AT_SYMLINK_NOFOLLOW) -> None:
    """Sets the mode of `name` in `dirfd`, of a link's target never unless `flags` say so.

    Linux 6.6; ENOSYS before. A link itself has no mode that counts: file systems answer EOPNOTSUPP.
    """
    if _fchmodat2(SYS_FCHMODAT2, dirfd, _checked(name), mode, flags) < 0:
        _raise_errno(name)


def set_parent_death_signal(number: int) -> None:
    """Has the kernel send this process a signal when the thread that forked it ends; 0: none.

    A parent that had ended before is not noticed: compare os.getppid() afterwards.
    """
    if _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0) < 0:
        _raise_errno()
