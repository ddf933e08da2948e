"""Which open files the kernel reads and writes by itself, in the host's file (FUSE pass-through).

The kernel wants all concurrent opens of one inode to be of one kind, pass-through with one backing
file or cached in the mount, and answers EIO to a mix (fs/fuse/iomode.c). So the first open of a
node decides, and its decision holds until the last one is released.
"""

from __future__ import annotations

import fcntl
import os

from vfs.mount import wire
from vfs.mount.attributes import Opened

SMALLEST = 65536
"""Bytes from which on a file that is only read is passed through: below, two ioctls cost more than
the reads that they save."""


class _OpenNode:
    __slots__ = ("backing", "count")

    def __init__(self, backing: int) -> None:
        self.backing = backing
        self.count = 0


class BackingFiles:
    """The open nodes of one mount, and the backing file that each has in the kernel."""

    def __init__(self, device: int, *, enabled: bool) -> None:
        """`device` is the connection's descriptor; `enabled` says that INIT agreed on it."""
        self._device = device
        self._enabled = enabled
        self._open: dict[int, _OpenNode] = {}

    def open(self, node: int, opened: Opened, flags: int) -> int:
        """Counts one open of `node` by open(2)'s `flags`; its backing file's id, 0 for cached."""
        known = self._open.get(node)
        if known is None:
            backing = 0
            # The kernel's own open of the backing file would keep O_DIRECT when a program drops it
            # by fcntl, as dd does for the last part of a block, and refuse that part.
            wanted = opened.writable or opened.size >= SMALLEST
            if self._enabled and wanted and not flags & os.O_DIRECT:
                backing = self._register(opened.fh)
            known = self._open[node] = _OpenNode(backing)
        known.count += 1
        return known.backing

    def release(self, node: int) -> None:
        """Counts one release of `node`."""
        known = self._open[node]
        known.count -= 1
        if known.count == 0:
            del self._open[node]
            if known.backing:
                self._unregister(known.backing)

    def _register(self, fd: int) -> int:
        try:
            # A mutable argument is what makes ioctl return the number.
            backing: int = fcntl.ioctl(
                self._device, wire.IOC_BACKING_OPEN, bytearray(wire.BACKING_MAP.pack(fd, 0))
            )
        except OSError:
            # EPERM without the right to, ELOOP on a stacked file system: cached serves as well.
            return 0
        return backing

    def _unregister(self, backing: int) -> None:
        fcntl.ioctl(self._device, wire.IOC_BACKING_CLOSE, wire.BACKING_CLOSE.pack(backing))
