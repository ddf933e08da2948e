"""The operations as pyfuse3 asks for them.

Importing it needs pyfuse3 and trio, so only `vfs.mount.libfuse` does, and late. Whatever an
operation raises becomes a FUSEError here: pyfuse3 ends the whole mount on any other exception.

Handlers run on one thread, one after the other, and never wait, save for the syncs: those wait for
the disk in threads of their own.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, TypeVarTuple

import pyfuse3
import trio
from pyfuse3 import (
    EntryAttributes,
    FileInfo,
    FUSEError,
    ReaddirToken,
    RequestContext,
    SetattrFields,
    StatvfsData,
)

from vfs.errors import VfsError
from vfs.mount.attributes import Attributes, Change, DirectoryEntry, Opened
from vfs.mount.libfuse_loop import RequestLoop
from vfs.mount.operations import Operations
from vfs.mount.replies import SLOW_CALLS, error_number

_SECOND = 1_000_000_000

_Args = TypeVarTuple("_Args")
_T = TypeVar("_T")


def _refusal(exc: Exception) -> FUSEError:
    """The answer to a request whose operation raised `exc`."""
    return exc if isinstance(exc, FUSEError) else FUSEError(error_number(exc))


def _handler(
    method: Callable[[Handlers, *_Args], _T],
) -> Callable[[Handlers, *_Args], Coroutine[Any, Any, _T]]:
    """A handler of a method that does not wait."""

    async def handle(self: Handlers, *args: *_Args) -> _T:
        try:
            return method(self, *args)
        except Exception as exc:
            raise _refusal(exc) from None

    return handle


def _slow_handler(
    method: Callable[[Handlers, *_Args], Awaitable[_T]],
) -> Callable[[Handlers, *_Args], Coroutine[Any, Any, _T]]:
    """A handler of a method that waits for a thread."""

    async def handle(self: Handlers, *args: *_Args) -> _T:
        try:
            return await method(self, *args)
        except Exception as exc:
            raise _refusal(exc) from None

    return handle


class Handlers(pyfuse3.Operations):
    """One mount's handlers. Those left out answer ENOSYS, once: the kernel then does without.

    That is FLUSH (a close writes nothing) and POLL.
    """

    supports_dot_lookup = False
    enable_writeback_cache = False
    enable_acl = False

    def __init__(
        self, operations: Operations, loop: RequestLoop, initialised: Callable[[], None]
    ) -> None:
        """`initialised` is called when the kernel's first request is about to be answered."""
        self._operations = operations
        self._loop = loop
        self._initialised = initialised
        self._timeout = operations.timeout
        self._slow = trio.CapacityLimiter(SLOW_CALLS)
        self._listed: dict[int, int] = {}
        """The node of each listing."""

    def init(self) -> None:
        """Called once, while the kernel's first request is answered."""
        self._initialised()

    def _attributes(self, values: Attributes) -> EntryAttributes:
        answer = EntryAttributes()
        (
            answer.st_ino, answer.st_size, answer.st_blocks,
            atime, mtime, ctime, atime_nsec, mtime_nsec, ctime_nsec,
            answer.st_mode, answer.st_nlink, answer.st_uid, answer.st_gid,
            answer.st_rdev, answer.st_blksize,
        ) = values  # fmt: skip
        answer.st_atime_ns = atime * _SECOND + atime_nsec
        answer.st_mtime_ns = mtime * _SECOND + mtime_nsec
        answer.st_ctime_ns = ctime * _SECOND + ctime_nsec
        answer.entry_timeout = answer.attr_timeout = self._timeout
        return answer

    # Names and attributes.

    @_handler
    def lookup(self, parent: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        try:
            return self._attributes(self._operations.lookup(parent, name).attributes)
        except (OSError, VfsError) as exc:
            if exc.errno != errno.ENOENT or self._timeout <= 0:
                raise
        # An entry without a node: the kernel remembers that there is none.
        absent = EntryAttributes()
        absent.st_ino = 0
        absent.entry_timeout = self._timeout
        return absent

    @_handler
    def forget(self, counts: Sequence[tuple[int, int]]) -> None:
        for node, count in counts:
            self._operations.forget(node, count)

    @_handler
    def getattr(self, node: int, ctx: RequestContext) -> EntryAttributes:
        return self._attributes(self._operations.getattr(node, None))

    @_handler
    def access(self, node: int, mask: int, ctx: RequestContext) -> bool:
        self._operations.access(node, mask)
        return True

    @_handler
    def setattr(
        self,
        node: int,
        wanted: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        change = Change()
        if fields.update_mode:
            change.mode = wanted.st_mode & 0o7777
        if fields.update_uid:
            change.uid = wanted.st_uid
        if fields.update_gid:
            change.gid = wanted.st_gid
        if fields.update_size:
            change.size = wanted.st_size
        if fields.update_atime:
            change.atime_ns = wanted.st_atime_ns
        if fields.update_mtime:
            change.mtime_ns = wanted.st_mtime_ns
        return self._attributes(self._operations.setattr(node, fh, change, (ctx.uid, ctx.gid)))

    @_handler
    def readlink(self, node: int, ctx: RequestContext) -> bytes:
        return self._operations.readlink(node)

    @_handler
    def mknod(
        self, parent: int, name: bytes, mode: int, rdev: int, ctx: RequestContext
    ) -> EntryAttributes:
        entry = self._operations.mknod(parent, name, mode, rdev, (ctx.uid, ctx.gid))
        return self._attributes(entry.attributes)

    @_handler
    def mkdir(self, parent: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        entry = self._operations.mkdir(parent, name, mode, (ctx.uid, ctx.gid))
        return self._attributes(entry.attributes)

    @_handler
    def symlink(
        self, parent: int, name: bytes, target: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        entry = self._operations.symlink(parent, name, target, (ctx.uid, ctx.gid))
        return self._attributes(entry.attributes)

    @_handler
    def link(
        self, node: int, new_parent: int, new_name: bytes, ctx: RequestContext
    ) -> EntryAttributes:
        return self._attributes(self._operations.link(node, new_parent, new_name).attributes)

    @_handler
    def unlink(self, parent: int, name: bytes, ctx: RequestContext) -> None:
        self._operations.unlink(parent, name)

    @_handler
    def rmdir(self, parent: int, name: bytes, ctx: RequestContext) -> None:
        self._operations.rmdir(parent, name)

    @_handler
    def rename(
        self,
        parent: int,
        name: bytes,
        new_parent: int,
        new_name: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        self._operations.rename(parent, name, new_parent, new_name, flags)

    # Files.

    @_handler
    def open(self, node: int, flags: int, ctx: RequestContext) -> FileInfo:
        return _file_info(self._operations.open(node, flags))

    @_handler
    def create(
        self, parent: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        opened, entry = self._operations.create(parent, name, mode, flags, (ctx.uid, ctx.gid))
        return _file_info(opened), self._attributes(entry.attributes)

    @_handler
    def read(self, fh: int, offset: int, size: int) -> bytes:
        return self._operations.read(fh, size, offset)

    @_handler
    def write(self, fh: int, offset: int, data: bytes) -> int:
        return self._operations.write(fh, data, offset)

    @_handler
    def release(self, fh: int) -> None:
        self._operations.release(fh)

    @_slow_handler
    async def fsync(self, fh: int, datasync: bool) -> None:
        with self._loop.shared():
            await trio.to_thread.run_sync(self._operations.fsync, fh, datasync, limiter=self._slow)

    @_slow_handler
    async def fsyncdir(self, handle: int, datasync: bool) -> None:
        with self._loop.shared():
            await trio.to_thread.run_sync(
                self._operations.fsyncdir, handle, datasync, limiter=self._slow
            )

    # Listings.

    @_handler
    def opendir(self, node: int, ctx: RequestContext) -> int:
        handle = self._operations.opendir(node)
        self._listed[handle] = node
        return handle

    @_handler
    def readdir(self, handle: int, offset: int, token: ReaddirToken) -> None:
        begun = False
        try:
            for entry in self._operations.readdir(handle, offset, True):
                if not self._reply(handle, entry, token):
                    return
                begun = True
        except Exception as exc:
            # An error in place of the entries would have the kernel hold nodes that it was never
            # told of. It asks again from where this reply ends, and gets the error then.
            if not begun:
                raise
            _refusal(exc)

    def _reply(self, handle: int, entry: DirectoryEntry, token: ReaddirToken) -> bool:
        """Puts one entry into the reply; False when it is full."""
        if entry.dots:
            # Counts for nothing, and shows the number and the type alone.
            dots = EntryAttributes()
            dots.st_ino = entry.ino
            dots.st_mode = entry.type << 12
            return pyfuse3.readdir_reply(token, entry.name, dots, entry.next_offset)
        if entry.attributes is not None:
            attributes = self._attributes(entry.attributes)
            if not pyfuse3.readdir_reply(token, entry.name, attributes, entry.next_offset):
                return False
            self._operations.adopt(handle, entry)
            return True
        # pyfuse3 has no entry without a node, so this one is looked up for the kernel.
        try:
            found = self._operations.lookup(self._listed[handle], entry.name)
        except (OSError, VfsError):
            return True  # vanished meanwhile
        attributes = self._attributes(found.attributes)
        if pyfuse3.readdir_reply(token, entry.name, attributes, entry.next_offset):
            return True
        self._operations.forget(found.node, 1)
        return False

    @_handler
    def releasedir(self, handle: int) -> None:
        del self._listed[handle]
        self._operations.releasedir(handle)

    # The whole file system, and extended attributes.

    @_handler
    def statfs(self, ctx: RequestContext) -> StatvfsData:
        found: os.statvfs_result = self._operations.statfs(pyfuse3.ROOT_INODE)
        answer = StatvfsData()
        answer.f_bsize = found.f_bsize
        answer.f_frsize = found.f_frsize
        answer.f_blocks = found.f_blocks
        answer.f_bfree = found.f_bfree
        answer.f_bavail = found.f_bavail
        answer.f_files = found.f_files
        answer.f_ffree = found.f_ffree
        answer.f_favail = found.f_favail
        answer.f_namemax = found.f_namemax
        return answer

    @_handler
    def getxattr(self, node: int, name: bytes, ctx: RequestContext) -> bytes:
        return self._operations.getxattr(node, name)

    @_handler
    def setxattr(self, node: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        # pyfuse3 has seen to XATTR_CREATE and XATTR_REPLACE.
        self._operations.setxattr(node, name, value, 0)

    @_handler
    def listxattr(self, node: int, ctx: RequestContext) -> Sequence[bytes]:
        return self._operations.listxattr(node)

    @_handler
    def removexattr(self, node: int, name: bytes, ctx: RequestContext) -> None:
        self._operations.removexattr(node, name)


def _file_info(opened: Opened) -> FileInfo:
    return FileInfo(fh=opened.fh, keep_cache=opened.keep_cache)
