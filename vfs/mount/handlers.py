"""One method for each kind of request: it unpacks the request, makes the call, packs the reply.

A handler takes the request's `unique`, its `nodeid` and its length; the request itself is in
`buffer`. It gives the reply, or None where it is sent by other means or none is due. It raises
OSError or VfsError for an answer that is an error (`vfs.mount.dispatch` makes it one).
"""

from __future__ import annotations

import errno
import os
import stat

from vfs.errors import VfsError
from vfs.mount import wire
from vfs.mount.attributes import NOW, Caller, Change, Opened
from vfs.mount.backing import BackingFiles
from vfs.mount.dircache import DirectoryCache
from vfs.mount.operations import Operations
from vfs.mount.replies import Replies
from vfs.mount.wire import Fattr, Fopen, Validity

BODY = wire.IN_HEADER_SIZE
"""Where a request goes on after its header."""
_PAYLOAD = BODY + wire.WRITE_IN.size

_LARGE_READ = 65536
"""Bytes from which on a READ goes through a buffer of ours and is not copied behind its header."""

_STORED = 65535
"""Bytes of the largest file that is given whole at its first open. From 64 KiB on the kernel reads
the host's file itself, and copying more for one that may read only the beginning would not pay."""

_MAX_COPY = 0x7FFFF000
"""Bytes of one COPY_FILE_RANGE: what one call of the host's does, and what the reply can tell."""

_SLASH = ord("/")  # looking for a number is several times faster than for bytes
_SECOND = 1_000_000_000

_unpack_getattr = wire.GETATTR_IN.unpack_from
_unpack_open = wire.OPEN_IN.unpack_from
_unpack_create = wire.CREATE_IN.unpack_from
_unpack_read = wire.READ_IN.unpack_from
_unpack_write = wire.WRITE_IN.unpack_from
_unpack_release = wire.RELEASE_IN.unpack_from


class Handlers:
    """The handlers of one mount."""

    def __init__(
        self,
        operations: Operations,
        replies: Replies,
        backing: BackingFiles,
        *,
        read_only: bool,
        max_write: int,
    ) -> None:
        """`replies` takes those that are not returned."""
        self._operations = operations
        self._replies = replies
        self._backing = backing
        self._read_only = read_only
        self._dircache = DirectoryCache(operations.timeout)
        self._valid = Validity(operations.timeout)
        self._keeps_absence = operations.timeout > 0
        self.buffer = bytearray(max(wire.MIN_READ_BUFFER, max_write + wire.PAGE_SIZE))
        """Holds one request at a time."""
        self.header: tuple[int, ...] = (0,) * 9
        """That request's header, as IN_HEADER has it."""
        self._view = memoryview(self.buffer)
        self._data = memoryview(bytearray(max_write))

    # What a request holds.

    def _name(self, start: int, end: int) -> bytes:
        """The one name, and its NUL, that the request holds from `start` to `end`."""
        name = bytes(self._view[start : end - 1])
        if not name or self.buffer[end - 1] or 0 in name or _SLASH in name:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return name

    def _two_texts(self, start: int, end: int) -> tuple[int, int]:
        """Where the second of two NUL-terminated texts begins, and `end`."""
        second = self.buffer.find(b"\0", start, end) + 1
        if not second or second == end:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return second, end

    def _caller(self) -> Caller:
        header = self.header
        return header[4], header[5]

    # The connection.

    def unknown(self, unique: int, node: int, length: int) -> bytes:
        # The kernel asks once, and does without from then on: FLUSH, INTERRUPT, BMAP, POLL and what
        # later protocols add. Locks it keeps itself.
        return wire.error_reply(unique, errno.ENOSYS)

    def destroy(self, unique: int, node: int, length: int) -> bytes:
        return wire.empty_reply(unique)

    # Names and attributes.

    def lookup(self, unique: int, node: int, length: int) -> bytes:
        name = self._name(BODY, length)
        try:
            entry = self._operations.lookup(node, name)
        except OSError as exc:
            if exc.errno == errno.ENOENT and self._keeps_absence:
                return wire.absent_reply(unique, self._valid)
            raise
        return wire.entry_reply(unique, entry.node, self._valid, entry.attributes)

    def forget(self, unique: int, node: int, length: int) -> None:
        (count,) = wire.FORGET_IN.unpack_from(self.buffer, BODY)
        self._operations.forget(node, count)

    def batch_forget(self, unique: int, node: int, length: int) -> None:
        (count,) = wire.BATCH_FORGET_IN.unpack_from(self.buffer, BODY)
        start = BODY + wire.BATCH_FORGET_IN.size
        nodes = self._view[start : min(length, start + count * wire.FORGET_ONE.size)]
        whole = len(nodes) - len(nodes) % wire.FORGET_ONE.size
        for forgotten, lookups in wire.FORGET_ONE.iter_unpack(nodes[:whole]):
            self._operations.forget(forgotten, lookups)

    def getattr(self, unique: int, node: int, length: int) -> bytes:
        flags, fh = _unpack_getattr(self.buffer, BODY)
        attributes = self._operations.getattr(node, fh if flags & wire.GETATTR_FH else None)
        return wire.attr_reply(unique, self._valid, attributes)

    def access(self, unique: int, node: int, length: int) -> bytes:
        (mask,) = wire.ACCESS_IN.unpack_from(self.buffer, BODY)
        self._operations.access(node, mask)
        return wire.empty_reply(unique)

    def setattr(self, unique: int, node: int, length: int) -> bytes:
        (
            valid, fh, size, atime, mtime, _, atime_nsec, mtime_nsec, _, mode, uid, gid,
        ) = wire.SETATTR_IN.unpack_from(self.buffer, BODY)  # fmt: skip
        # KILL_SUIDGID is not looked at: the operations never leave such a bit on a file that is
        # written or given away.
        change = Change()
        if valid & Fattr.MODE:
            change.mode = stat.S_IMODE(mode)
        if valid & Fattr.UID:
            change.uid = uid
        if valid & Fattr.GID:
            change.gid = gid
        if valid & Fattr.SIZE:
            change.size = size
        if valid & Fattr.ATIME:
            change.atime_ns = NOW if valid & Fattr.ATIME_NOW else atime * _SECOND + atime_nsec
        if valid & Fattr.MTIME:
            change.mtime_ns = NOW if valid & Fattr.MTIME_NOW else mtime * _SECOND + mtime_nsec
        attributes = self._operations.setattr(
            node, fh if valid & Fattr.FH else None, change, self._caller()
        )
        return wire.attr_reply(unique, self._valid, attributes)

    def readlink(self, unique: int, node: int, length: int) -> bytes:
        return wire.data_reply(unique, self._operations.readlink(node))

    def symlink(self, unique: int, node: int, length: int) -> bytes:
        target, end = self._two_texts(BODY, length)
        name = self._name(BODY, target)
        if self.buffer[end - 1]:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        text = bytes(self._view[target : end - 1])
        entry = self._operations.symlink(node, name, text, self._caller())
        return wire.entry_reply(unique, entry.node, self._valid, entry.attributes)

    def mknod(self, unique: int, node: int, length: int) -> bytes:
        mode, rdev, _, _ = wire.MKNOD_IN.unpack_from(self.buffer, BODY)
        name = self._name(BODY + wire.MKNOD_IN.size, length)
        entry = self._operations.mknod(node, name, mode, rdev, self._caller())
        return wire.entry_reply(unique, entry.node, self._valid, entry.attributes)

    def mkdir(self, unique: int, node: int, length: int) -> bytes:
        mode, _ = wire.MKDIR_IN.unpack_from(self.buffer, BODY)
        name = self._name(BODY + wire.MKDIR_IN.size, length)
        entry = self._operations.mkdir(node, name, mode, self._caller())
        return wire.entry_reply(unique, entry.node, self._valid, entry.attributes)

    def link(self, unique: int, node: int, length: int) -> bytes:
        (linked,) = wire.LINK_IN.unpack_from(self.buffer, BODY)
        name = self._name(BODY + wire.LINK_IN.size, length)
        entry = self._operations.link(linked, node, name)
        return wire.entry_reply(unique, entry.node, self._valid, entry.attributes)

    def unlink(self, unique: int, node: int, length: int) -> bytes:
        self._operations.unlink(node, self._name(BODY, length))
        return wire.empty_reply(unique)

    def rmdir(self, unique: int, node: int, length: int) -> bytes:
        self._operations.rmdir(node, self._name(BODY, length))
        return wire.empty_reply(unique)

    def rename(self, unique: int, node: int, length: int) -> bytes:
        (target,) = wire.RENAME_IN.unpack_from(self.buffer, BODY)
        return self._move(unique, node, target, 0, BODY + wire.RENAME_IN.size, length)

    def rename2(self, unique: int, node: int, length: int) -> bytes:
        target, flags = wire.RENAME2_IN.unpack_from(self.buffer, BODY)
        return self._move(unique, node, target, flags, BODY + wire.RENAME2_IN.size, length)

    def _move(
        self, unique: int, node: int, target: int, flags: int, start: int, length: int
    ) -> bytes:
        second, end = self._two_texts(start, length)
        name, new_name = self._name(start, second), self._name(second, end)
        self._operations.rename(node, name, target, new_name, flags)
        return wire.empty_reply(unique)

    # Files.

    def open(self, unique: int, node: int, length: int) -> bytes:
        flags, _ = _unpack_open(self.buffer, BODY)
        opened = self._operations.open(node, flags)
        backing = self._backing.open(node, opened, flags)
        if backing:
            return wire.open_reply(unique, opened.fh, Fopen.PASSTHROUGH, backing)
        keep = opened.keep_cache or self._store(node, opened)
        return wire.open_reply(unique, opened.fh, Fopen.KEEP_CACHE if keep else 0)

    def _store(self, node: int, opened: Opened) -> bool:
        """Gives a small file's bytes to the kernel before they are asked for; whether it took them.

        That spares the READ, and the GETATTR that would ask for the time of access after it: most
        of what a reader waits for that comes by once, as grep and tar do. Only where no time of
        access tells that the file was read, for it is, whether its reader reads it or not. And only
        while the kernel can hold no page of the file: it might be waiting, with one locked, for us.
        """
        if opened.writable or not opened.is_first or not 0 < opened.size <= _STORED:
            return False
        if not (self._read_only or self._operations.reads_quietly):
            return False
        data = os.pread(opened.fh, opened.size, 0)
        if len(data) < opened.size:
            return False  # it is being changed: the end is the kernel's to find
        return self._replies.send(wire.store_notice(node, len(data)), data)

    def create(self, unique: int, node: int, length: int) -> bytes:
        flags, mode, _, _ = _unpack_create(self.buffer, BODY)
        name = self._name(BODY + wire.CREATE_IN.size, length)
        opened, entry = self._operations.create(node, name, mode, flags, self._caller())
        backing = self._backing.open(entry.node, opened, flags)
        return wire.create_reply(
            unique, entry.node, self._valid, entry.attributes,
            opened.fh, Fopen.PASSTHROUGH if backing else 0, backing,
        )  # fmt: skip

    def read(self, unique: int, node: int, length: int) -> bytes | None:
        fh, offset, size, _, _, _, _ = _unpack_read(self.buffer, BODY)
        if size < _LARGE_READ:
            return wire.data_reply(unique, self._operations.read(fh, size, offset))
        data = self._data[:size]
        data = data[: os.preadv(fh, [data], offset)]
        self._replies.send(wire.data_header(unique, len(data)), data)
        return None

    def write(self, unique: int, node: int, length: int) -> bytes:
        fh, offset, size, _, _, _, _ = _unpack_write(self.buffer, BODY)
        if _PAYLOAD + size != length:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        written = self._operations.write(fh, self._view[_PAYLOAD:length], offset)
        return wire.write_reply(unique, written)

    def release(self, unique: int, node: int, length: int) -> bytes:
        fh, _, _, _ = _unpack_release(self.buffer, BODY)
        self._backing.release(node)
        self._operations.release(fh)
        return wire.empty_reply(unique)

    def fsync(self, unique: int, node: int, length: int) -> None:
        fh, flags = wire.FSYNC_IN.unpack_from(self.buffer, BODY)

        def call() -> bytes:
            self._operations.fsync(fh, bool(flags & wire.FSYNC_FDATASYNC))
            return wire.empty_reply(unique)

        self._replies.later(unique, call)

    def fallocate(self, unique: int, node: int, length: int) -> None:
        fh, offset, size, mode = wire.FALLOCATE_IN.unpack_from(self.buffer, BODY)

        def call() -> bytes:
            self._operations.fallocate(fh, mode, offset, size)
            return wire.empty_reply(unique)

        self._replies.later(unique, call)

    def lseek(self, unique: int, node: int, length: int) -> bytes:
        fh, offset, whence = wire.LSEEK_IN.unpack_from(self.buffer, BODY)
        return wire.lseek_reply(unique, self._operations.lseek(fh, offset, whence))

    def copy_file_range(self, unique: int, node: int, length: int) -> None:
        (
            source, source_offset, _, target, target_offset, size, _,
        ) = wire.COPY_FILE_RANGE_IN.unpack_from(self.buffer, BODY)  # fmt: skip

        def call() -> bytes:
            copied = self._operations.copy_file_range(
                source, source_offset, target, target_offset, min(size, _MAX_COPY)
            )
            return wire.write_reply(unique, copied)

        self._replies.later(unique, call)

    # Directories.

    def opendir(self, unique: int, node: int, length: int) -> bytes:
        dh = self._operations.opendir(node)
        return wire.open_reply(unique, dh, self._dircache.opened(node, dh))

    def readdir(self, unique: int, node: int, length: int) -> bytes:
        dh, offset, room, _, _, _, _ = _unpack_read(self.buffer, BODY)
        self._dircache.asked(dh, offset)
        records: list[bytes] = []
        for entry in self._operations.readdir(dh, offset, False):
            record = wire.dirent(entry.ino, entry.next_offset, entry.type, entry.name)
            room -= len(record)
            if room < 0:
                break
            records.append(record)
        self._dircache.given(dh, len(records), attributed=False)
        return wire.data_reply(unique, b"".join(records))

    def readdirplus(self, unique: int, node: int, length: int) -> bytes:
        dh, offset, room, _, _, _, _ = _unpack_read(self.buffer, BODY)
        operations = self._operations
        valid = self._valid
        self._dircache.asked(dh, offset)
        records: list[bytes] = []
        try:
            for entry in operations.readdir(dh, offset, True):
                record = wire.direntplus(
                    entry.ino, entry.next_offset, entry.type, entry.name, valid, entry.attributes
                )
                room -= len(record)
                if room < 0:
                    break
                records.append(record)
                if entry.attributes is not None:
                    operations.adopt(dh, entry)
        except (OSError, VfsError):
            # The entries before it count as looked up: give them, and the error when asked again.
            if not records:
                raise
        self._dircache.given(dh, len(records), attributed=True)
        return wire.data_reply(unique, b"".join(records))

    def releasedir(self, unique: int, node: int, length: int) -> bytes:
        dh, _, _, _ = _unpack_release(self.buffer, BODY)
        self._dircache.closed(dh)
        self._operations.releasedir(dh)
        return wire.empty_reply(unique)

    def fsyncdir(self, unique: int, node: int, length: int) -> None:
        dh, flags = wire.FSYNC_IN.unpack_from(self.buffer, BODY)

        def call() -> bytes:
            self._operations.fsyncdir(dh, bool(flags & wire.FSYNC_FDATASYNC))
            return wire.empty_reply(unique)

        self._replies.later(unique, call)

    def statfs(self, unique: int, node: int, length: int) -> bytes:
        return wire.statfs_reply(unique, self._operations.statfs(node))

    # Extended attributes.

    def _sized(self, unique: int, value: bytes) -> bytes:
        """The reply with a value, or with its size where the caller asked for no byte of it."""
        (size,) = wire.GETXATTR_IN.unpack_from(self.buffer, BODY)
        if not size:
            return wire.xattr_size_reply(unique, len(value))
        if len(value) > size:
            raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
        return wire.data_reply(unique, value)

    def getxattr(self, unique: int, node: int, length: int) -> bytes:
        name = self._name(BODY + wire.GETXATTR_IN.size, length)
        return self._sized(unique, self._operations.getxattr(node, name))

    def listxattr(self, unique: int, node: int, length: int) -> bytes:
        names = self._operations.listxattr(node)
        return self._sized(unique, b"".join(name + b"\0" for name in names))

    def setxattr(self, unique: int, node: int, length: int) -> bytes:
        size, flags = wire.SETXATTR_IN.unpack_from(self.buffer, BODY)
        start = BODY + wire.SETXATTR_IN.size
        value = length - size
        if value <= start:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        name = self._name(start, value)
        self._operations.setxattr(node, name, bytes(self._view[value:length]), flags)
        return wire.empty_reply(unique)

    def removexattr(self, unique: int, node: int, length: int) -> bytes:
        self._operations.removexattr(node, self._name(BODY, length))
        return wire.empty_reply(unique)
