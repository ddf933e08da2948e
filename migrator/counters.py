"""Files and bytes counted by several processes at once, without a lock on the way.

The counts lie in memory that forked processes share. Each process adds in a slot of its own, which
it takes at its first count; a total is the sum of the slots. Nothing is lost with a worker that is
killed: what it counted stays.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Final

from vfs.closing import Closing

SLOTS: Final = 1024
"""Processes that count at the same time; more than anybody has processors. The next one gets the
slot of the one that came this many before, goes on from its counts, and relies on its end."""

_WORD: Final = 8


class Counters(Closing):
    """Two totals, files and bytes. Make it before the workers are forked."""

    __slots__ = ("_cells", "_fd", "_map", "_pid", "_slot")

    def __init__(self) -> None:
        size = (1 + 2 * SLOTS) * _WORD
        self._fd = os.memfd_create("gemspace-counters")
        os.ftruncate(self._fd, size)
        self._map = mmap.mmap(self._fd, size)
        # How many slots were taken; then files and bytes of each. Words are aligned, so that no
        # reader meets half of one.
        self._cells = memoryview(self._map).cast("Q")
        self._pid = 0
        self._slot = 0

    def close(self) -> None:
        """Releases the memory; a second call does nothing."""
        if self._fd >= 0:
            self._cells.release()
            self._map.close()
            os.close(self._fd)
            self._fd = -1

    def add(self, files: int, size: int) -> None:
        """Counts `files` and `size` bytes more."""
        if os.getpid() != self._pid:
            self._take_slot()
        self._cells[self._slot] += files
        self._cells[self._slot + 1] += size

    def totals(self) -> tuple[int, int]:
        """Files and bytes of all processes."""
        end = 1 + 2 * min(self._cells[0], SLOTS)
        counts = self._cells[1:end].tolist()
        return sum(counts[::2]), sum(counts[1::2])

    def reset(self) -> None:
        """Begins at zero again. Nobody may be counting meanwhile."""
        for cell in range(1, 1 + 2 * SLOTS):
            self._cells[cell] = 0

    def _take_slot(self) -> None:
        # Record locks are those of a process, even on a descriptor that was inherited.
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        taken = self._cells[0]
        self._cells[0] = taken + 1
        fcntl.lockf(self._fd, fcntl.LOCK_UN)
        self._slot = 1 + 2 * (taken % SLOTS)
        self._pid = os.getpid()
