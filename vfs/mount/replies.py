"""How replies reach the kernel, and how a failed call becomes one.

Calls that may wait for a disk (fsync and its like) are made and answered by a few threads, so that
the mount stays alive meanwhile: a reply is one write to the device, which any thread may do.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from vfs.errors import VfsError
from vfs.mount import wire

SLOW_CALLS = 4
"""Threads for calls that wait for a disk: a disk gains from a few at once, and not from many."""

_log = logging.getLogger("vfs.mount")


def error_number(exc: Exception) -> int:
    """The errno that answers a request which failed with `exc`; a fault of ours is logged."""
    number = 0
    if isinstance(exc, OSError | VfsError):
        number = exc.errno or 0
    else:
        _log.error("a request failed", exc_info=exc)
    # The device refuses others (fs/fuse/dev.c), and then nobody is answered.
    return number if 0 < number <= wire.MAX_ERRNO else errno.EIO


class Replies:
    """The way back to the kernel, over one connection."""

    def __init__(self, device: int) -> None:
        self._device = device
        self._pool = ThreadPoolExecutor(SLOW_CALLS, "vfs-mount-slow")

    def close(self) -> None:
        """Waits for the slow calls that still run."""
        self._pool.shutdown()

    def send(self, *parts: bytes | memoryview) -> bool:
        """Writes one reply or notice made of `parts`; whether the kernel took it."""
        try:
            os.writev(self._device, parts)
        except OSError as exc:
            self.note_refused(exc)
            return False
        return True

    def later(self, unique: int, call: Callable[[], bytes]) -> None:
        """Has `call` made, and the reply that it gives sent, by a thread for slow calls."""
        self._pool.submit(self._answer, unique, call)

    def _answer(self, unique: int, call: Callable[[], bytes]) -> None:
        try:
            reply = call()
        except Exception as exc:
            reply = wire.error_reply(unique, error_number(exc))
        self.send(reply)

    @staticmethod
    def note_refused(exc: OSError) -> None:
        """Logs that the device refused a reply, unless nobody waits for it any more."""
        # ENOENT: the request was given up, or the kernel does not know the node. ENODEV: the mount
        # is gone.
        if exc.errno not in (errno.ENOENT, errno.ENODEV):
            _log.error("the kernel refused a reply: %s", exc.strerror)
