"""The kernel's FUSE protocol as bytes: opcodes, flags, layouts, and the packing of replies.

It promises the layouts of include/uapi/linux/fuse.h at protocol 7.45 (Linux 6.18), from which every
number here comes; no state and no input or output. A request is a header and what the opcode adds;
a reply is a header and what was asked for. Integers have the machine's byte order and no padding
but what is written out here.

Names follow the header's: `GETATTR_IN` is struct fuse_getattr_in. A `*_REPLY` layout begins with
the reply's header, so that one call packs the whole answer.
"""

from __future__ import annotations

import errno
import os
from enum import IntEnum, IntFlag
from struct import Struct, pack

from vfs.mount.attributes import Attributes

MAJOR = 7
MINOR = 45
"""The version spoken here. The kernel and we keep to the smaller of the two minors."""

OLDEST_MINOR = 31
"""Linux 5.4; before it, layouts and limits differ from those used here."""

PAGE_SIZE = os.sysconf("SC_PAGESIZE")
MIN_READ_BUFFER = 8192
"""Bytes that a read of the device must offer at least (FUSE_MIN_READ_BUFFER)."""

MAX_ERRNO = 511
"""The device refuses larger ones (fs/fuse/dev.c), and then nobody is answered."""


class Opcode(IntEnum):
    """enum fuse_opcode."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    GETLK = 31
    SETLK = 32
    SETLKW = 33
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    BMAP = 37
    DESTROY = 38
    IOCTL = 39
    POLL = 40
    NOTIFY_REPLY = 41
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    SETUPMAPPING = 48
    REMOVEMAPPING = 49
    SYNCFS = 50
    TMPFILE = 51
    STATX = 52
    COPY_FILE_RANGE_64 = 53


class Init(IntFlag):
    """Flags of INIT, the second word's shifted by 32 (FUSE_*)."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    BIG_WRITES = 1 << 5
    AUTO_INVAL_DATA = 1 << 12
    DO_READDIRPLUS = 1 << 13
    READDIRPLUS_AUTO = 1 << 14
    ASYNC_DIO = 1 << 15
    PARALLEL_DIROPS = 1 << 18
    MAX_PAGES = 1 << 22
    HANDLE_KILLPRIV_V2 = 1 << 28
    INIT_EXT = 1 << 30
    PASSTHROUGH = 1 << 37


class Fopen(IntFlag):
    """Flags of the replies to OPEN, CREATE and OPENDIR (FOPEN_*)."""

    KEEP_CACHE = 1 << 1
    CACHE_DIR = 1 << 3
    PASSTHROUGH = 1 << 7


class Fattr(IntFlag):
    """What a SETATTR changes (FATTR_*)."""

    MODE = 1 << 0
    UID = 1 << 1
    GID = 1 << 2
    SIZE = 1 << 3
    ATIME = 1 << 4
    MTIME = 1 << 5
    FH = 1 << 6
    ATIME_NOW = 1 << 7
    MTIME_NOW = 1 << 8
    KILL_SUIDGID = 1 << 11


GETATTR_FH = 1 << 0
FSYNC_FDATASYNC = 1 << 0

NOTIFY_STORE = 4
NOTIFY_INVAL_INODE = 2
NOTIFY_INVAL_ENTRY = 3

# ioctls of the device: _IOW(229, 1, struct fuse_backing_map) and _IOW(229, 2, uint32_t).
IOC_BACKING_OPEN = 0x4010E501
IOC_BACKING_CLOSE = 0x4004E502

_ATTR = "QQQqqqIIIIIIIII4x"  # the seconds are signed in the kernel, whatever the header says
_OUT = "IiQ"
_ENTRY = "Q8x24s" + _ATTR
_OPEN = "QIi"

IN_HEADER = Struct("=IIQQIIIHH")
"""len, opcode, unique, nodeid, uid, gid, pid, total_extlen, padding"""
OUT_HEADER = Struct("=" + _OUT)
"""len, error (0 or a negated errno), unique"""
IN_HEADER_SIZE = IN_HEADER.size
OUT_HEADER_SIZE = OUT_HEADER.size

INIT_IN = Struct("=IIIII")
"""major, minor, max_readahead, flags, flags2; before 7.36 without flags2"""
INIT_REPLY = Struct("=" + _OUT + "IIIIHHIIHHIIH22x")
"""header, major, minor, max_readahead, flags, max_background, congestion_threshold, max_write,
time_gran, max_pages, map_alignment, flags2, max_stack_depth, request_timeout"""

FORGET_IN = Struct("=Q")
BATCH_FORGET_IN = Struct("=I4x")
FORGET_ONE = Struct("=QQ")
GETATTR_IN = Struct("=I4xQ")
"""getattr_flags, fh"""
SETATTR_IN = Struct("=I4xQQ8xqqqIIII4xII4x")
"""valid, fh, size, atime, mtime, ctime, their nanoseconds, mode, uid, gid"""
MKNOD_IN = Struct("=IIII")
"""mode, rdev, umask, padding"""
MKDIR_IN = Struct("=II")
"""mode, umask"""
RENAME_IN = Struct("=Q")
RENAME2_IN = Struct("=QI4x")
"""newdir, flags"""
LINK_IN = Struct("=Q")
OPEN_IN = Struct("=II")
"""flags, open_flags"""
CREATE_IN = Struct("=IIII")
"""flags, mode, umask, open_flags"""
READ_IN = Struct("=QQIIQII")
"""fh, offset, size, read_flags, lock_owner, flags, padding; READDIR's too"""
WRITE_IN = Struct("=QQIIQII")
"""fh, offset, size, write_flags, lock_owner, flags, padding"""
RELEASE_IN = Struct("=QIIQ")
"""fh, flags, release_flags, lock_owner"""
FSYNC_IN = Struct("=QI4x")
"""fh, fsync_flags"""
SETXATTR_IN = Struct("=II")
"""size, flags: the short form, for SETXATTR_EXT is not negotiated"""
GETXATTR_IN = Struct("=I4x")
ACCESS_IN = Struct("=I4x")
FALLOCATE_IN = Struct("=QQQI4x")
"""fh, offset, length, mode"""
LSEEK_IN = Struct("=QqI4x")
"""fh, offset, whence"""
COPY_FILE_RANGE_IN = Struct("=QQQQQQQ")
"""fh_in, off_in, nodeid_out, fh_out, off_out, len, flags"""

ENTRY_REPLY = Struct("=" + _OUT + _ENTRY)
"""header, nodeid, Validity.entry, the attributes"""
ATTR_REPLY = Struct("=" + _OUT + "12s4x" + _ATTR)
"""header, Validity.attributes, the attributes"""
OPEN_REPLY = Struct("=" + _OUT + _OPEN)
"""header, fh, open_flags, backing_id"""
CREATE_REPLY = Struct("=" + _OUT + _ENTRY + _OPEN)
WRITE_REPLY = Struct("=" + _OUT + "I4x")
STATFS_REPLY = Struct("=" + _OUT + "QQQQQIII28x")
"""header, blocks, bfree, bavail, files, ffree, bsize, namelen, frsize"""
XATTR_SIZE_REPLY = Struct("=" + _OUT + "I4x")
LSEEK_REPLY = Struct("=" + _OUT + "Q")

DIRENT = Struct("=QQII")
"""ino, off, namelen, type; the name follows, padded to 8 bytes"""
DIRENTPLUS = Struct("=" + _ENTRY + "QQII")
"""An entry's reply without header, then DIRENT"""
BACKING_MAP = Struct("=iI8x")
"""fd, flags"""
BACKING_CLOSE = Struct("=I")
STORE = Struct("=" + _OUT + "QQII")
INVAL_INODE = Struct("=" + _OUT + "Qqq")
"""header, nodeid, offset, length (0: to the end)"""
INVAL_ENTRY = Struct("=" + _OUT + "QII")
"""header, parent, namelen, flags; the name and a NUL follow"""

_NO_ATTRIBUTES: Attributes = (0,) * 15

_ENTRY_SIZE = ENTRY_REPLY.size
_ATTR_SIZE = ATTR_REPLY.size
_OPEN_SIZE = OPEN_REPLY.size
_CREATE_SIZE = CREATE_REPLY.size
_WRITE_SIZE = WRITE_REPLY.size
_pack_out = OUT_HEADER.pack
_pack_entry = ENTRY_REPLY.pack
_pack_attr = ATTR_REPLY.pack
_pack_open = OPEN_REPLY.pack
_pack_create = CREATE_REPLY.pack
_pack_write = WRITE_REPLY.pack
_pack_dirent = DIRENT.pack
_pack_direntplus = DIRENTPLUS.pack
_PADDING = [bytes(-length % 8) for length in range(8)]


class Validity:
    """How long the kernel may keep what it is told, as the replies write it."""

    __slots__ = ("attributes", "entry")

    def __init__(self, timeout: float) -> None:
        """`timeout` in seconds."""
        seconds, nanoseconds = int(timeout), int(timeout % 1 * 1_000_000_000)
        self.entry = pack("=QQII", seconds, seconds, nanoseconds, nanoseconds)
        """entry_valid, attr_valid, their nanoseconds"""
        self.attributes = pack("=QI", seconds, nanoseconds)
        """attr_valid, its nanoseconds"""


def error_reply(unique: int, number: int) -> bytes:
    """The answer that a request failed with the errno `number`; EIO for one that is no answer."""
    if not 0 < number <= MAX_ERRNO:
        number = errno.EIO
    return _pack_out(OUT_HEADER_SIZE, -number, unique)


def empty_reply(unique: int) -> bytes:
    """The answer that a request was carried out."""
    return _pack_out(OUT_HEADER_SIZE, 0, unique)


def data_reply(unique: int, data: bytes) -> bytes:
    """The answer made of bytes: a link's text, a file's content, a listing."""
    return _pack_out(OUT_HEADER_SIZE + len(data), 0, unique) + data


def data_header(unique: int, length: int) -> bytes:
    """The header that announces `length` bytes sent along with it."""
    return _pack_out(OUT_HEADER_SIZE + length, 0, unique)


def entry_reply(unique: int, node: int, valid: Validity, attributes: Attributes) -> bytes:
    """The answer to LOOKUP and to what makes a name."""
    return _pack_entry(
        _ENTRY_SIZE, 0, unique,
        node, valid.entry, *attributes,
    )  # fmt: skip


def absent_reply(unique: int, valid: Validity) -> bytes:
    """The answer that a name does not exist and may be remembered as missing."""
    return entry_reply(unique, 0, valid, _NO_ATTRIBUTES)


def attr_reply(unique: int, valid: Validity, attributes: Attributes) -> bytes:
    """The answer to GETATTR and SETATTR."""
    return _pack_attr(_ATTR_SIZE, 0, unique, valid.attributes, *attributes)


def open_reply(unique: int, fh: int, flags: int, backing: int = 0) -> bytes:
    """The answer to OPEN and OPENDIR; `flags` of Fopen, `backing` an id for its PASSTHROUGH."""
    return _pack_open(_OPEN_SIZE, 0, unique, fh, flags, backing)


def create_reply(
    unique: int, node: int, valid: Validity, attributes: Attributes,
    fh: int, flags: int, backing: int,
) -> bytes:  # fmt: skip
    """The answer to CREATE: an entry and an open file."""
    return _pack_create(
        _CREATE_SIZE, 0, unique,
        node, valid.entry, *attributes,
        fh, flags, backing,
    )  # fmt: skip


def write_reply(unique: int, size: int) -> bytes:
    """The answer to WRITE and COPY_FILE_RANGE: the number of bytes taken."""
    return _pack_write(_WRITE_SIZE, 0, unique, size)


def statfs_reply(unique: int, status: os.statvfs_result) -> bytes:
    """The answer to STATFS."""
    return STATFS_REPLY.pack(
        STATFS_REPLY.size, 0, unique,
        status.f_blocks, status.f_bfree, status.f_bavail, status.f_files, status.f_ffree,
        status.f_bsize, status.f_namemax, status.f_frsize,
    )  # fmt: skip


def xattr_size_reply(unique: int, size: int) -> bytes:
    """The answer to GETXATTR and LISTXATTR that ask for the size only."""
    return XATTR_SIZE_REPLY.pack(XATTR_SIZE_REPLY.size, 0, unique, size)


def lseek_reply(unique: int, offset: int) -> bytes:
    """The answer to LSEEK."""
    return LSEEK_REPLY.pack(LSEEK_REPLY.size, 0, unique, offset)


def dirent(ino: int, next_offset: int, kind: int, name: bytes) -> bytes:
    """One name of a READDIR reply; `kind` is a DT_* number."""
    length = len(name)
    return _pack_dirent(ino, next_offset, length, kind) + name + _PADDING[length & 7]


def direntplus(
    ino: int, next_offset: int, kind: int, name: bytes,
    valid: Validity, attributes: Attributes | None,
) -> bytes:  # fmt: skip
    """One name of a READDIRPLUS reply; without attributes the kernel learns the name alone."""
    length = len(name)
    node = ino
    if attributes is None:
        node, attributes = 0, _NO_ATTRIBUTES
    return (
        _pack_direntplus(
            node, valid.entry, *attributes,
            ino, next_offset, length, kind,
        )
        + name
        + _PADDING[length & 7]
    )  # fmt: skip


def store_notice(node: int, length: int) -> bytes:
    """Goes before `length` bytes: puts them into the kernel's cache, from the file's start."""
    return STORE.pack(STORE.size + length, NOTIFY_STORE, 0, node, 0, length, 0)


def inval_inode_notice(node: int, offset: int, length: int) -> bytes:
    """Tells the kernel to drop a node's attributes and its pages from `offset` on (-1: none)."""
    return INVAL_INODE.pack(INVAL_INODE.size, NOTIFY_INVAL_INODE, 0, node, offset, length)


def inval_entry_notice(parent: int, name: bytes) -> bytes:
    """Tells the kernel to forget what it knows of a name."""
    size = INVAL_ENTRY.size + len(name) + 1
    return INVAL_ENTRY.pack(size, NOTIFY_INVAL_ENTRY, 0, parent, len(name), 0) + name + b"\0"
