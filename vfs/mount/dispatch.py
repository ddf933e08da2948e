"""Requests of the kernel led to their handlers, and whatever comes of it into a reply.

It promises an answer to every request that wants one: a malformed request gets EINVAL, an unknown
one ENOSYS, an error of the operations its errno; any other exception is logged with its traceback
and answered EIO. Nothing is raised.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable

from vfs.mount import wire
from vfs.mount.handlers import BODY, Handlers
from vfs.mount.replies import error_number
from vfs.mount.wire import Opcode

Handler = Callable[[int, int, int], bytes | None]

_UNANSWERED = frozenset({Opcode.FORGET, Opcode.BATCH_FORGET})
"""Requests to which the kernel takes no reply."""

_unpack_header = wire.IN_HEADER.unpack_from

_log = logging.getLogger("vfs.mount")


class Dispatcher:
    """Answers the requests that are put into the handlers' buffer."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._buffer = handlers.buffer
        self._table = _table(handlers)

    def dispatch(self, length: int) -> bytes | None:
        """The reply to the request in the first `length` bytes of the buffer, if any is due."""
        opcode: int
        header = _unpack_header(self._buffer)
        size, opcode, unique, node = header[:4]
        if length < BODY:
            _log.error("a request of %d bytes has no header", length)
            return None
        try:
            handler, smallest = self._table[opcode]
        except IndexError:
            return wire.error_reply(unique, errno.ENOSYS)
        if size != length or length < smallest:
            return None if opcode in _UNANSWERED else wire.error_reply(unique, errno.EINVAL)
        self._handlers.header = header
        try:
            return handler(unique, node, length)
        except Exception as exc:
            number = error_number(exc)
            return None if opcode in _UNANSWERED else wire.error_reply(unique, number)


def _table(handlers: Handlers) -> list[tuple[Handler, int]]:
    """For each opcode, its handler and the bytes that a request of that kind has at least."""
    name = 2  # the shortest name and its NUL
    known: dict[Opcode, tuple[Handler, int]] = {
        Opcode.LOOKUP: (handlers.lookup, name),
        Opcode.FORGET: (handlers.forget, wire.FORGET_IN.size),
        Opcode.BATCH_FORGET: (handlers.batch_forget, wire.BATCH_FORGET_IN.size),
        Opcode.GETATTR: (handlers.getattr, wire.GETATTR_IN.size),
        Opcode.ACCESS: (handlers.access, wire.ACCESS_IN.size),
        Opcode.SETATTR: (handlers.setattr, wire.SETATTR_IN.size),
        Opcode.READLINK: (handlers.readlink, 0),
        Opcode.SYMLINK: (handlers.symlink, name + name),
        Opcode.MKNOD: (handlers.mknod, wire.MKNOD_IN.size + name),
        Opcode.MKDIR: (handlers.mkdir, wire.MKDIR_IN.size + name),
        Opcode.UNLINK: (handlers.unlink, name),
        Opcode.RMDIR: (handlers.rmdir, name),
        Opcode.RENAME: (handlers.rename, wire.RENAME_IN.size + name + name),
        Opcode.RENAME2: (handlers.rename2, wire.RENAME2_IN.size + name + name),
        Opcode.LINK: (handlers.link, wire.LINK_IN.size + name),
        Opcode.OPEN: (handlers.open, wire.OPEN_IN.size),
        Opcode.CREATE: (handlers.create, wire.CREATE_IN.size + name),
        Opcode.READ: (handlers.read, wire.READ_IN.size),
        Opcode.WRITE: (handlers.write, wire.WRITE_IN.size),
        Opcode.RELEASE: (handlers.release, wire.RELEASE_IN.size),
        Opcode.FSYNC: (handlers.fsync, wire.FSYNC_IN.size),
        Opcode.FALLOCATE: (handlers.fallocate, wire.FALLOCATE_IN.size),
        Opcode.LSEEK: (handlers.lseek, wire.LSEEK_IN.size),
        Opcode.COPY_FILE_RANGE: (handlers.copy_file_range, wire.COPY_FILE_RANGE_IN.size),
        Opcode.OPENDIR: (handlers.opendir, wire.OPEN_IN.size),
        Opcode.READDIR: (handlers.readdir, wire.READ_IN.size),
        Opcode.READDIRPLUS: (handlers.readdirplus, wire.READ_IN.size),
        Opcode.RELEASEDIR: (handlers.releasedir, wire.RELEASE_IN.size),
        Opcode.FSYNCDIR: (handlers.fsyncdir, wire.FSYNC_IN.size),
        Opcode.STATFS: (handlers.statfs, 0),
        Opcode.GETXATTR: (handlers.getxattr, wire.GETXATTR_IN.size + name),
        Opcode.SETXATTR: (handlers.setxattr, wire.SETXATTR_IN.size + name),
        Opcode.LISTXATTR: (handlers.listxattr, wire.GETXATTR_IN.size),
        Opcode.REMOVEXATTR: (handlers.removexattr, name),
        Opcode.DESTROY: (handlers.destroy, 0),
    }
    table: list[tuple[Handler, int]] = [(handlers.unknown, 0)] * (max(Opcode) + 1)
    for opcode, (handler, body) in known.items():
        table[opcode] = (handler, BODY + body)
    return table
