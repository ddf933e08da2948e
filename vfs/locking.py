"""Locks on directories among processes and threads that ask for them, and no endless waits.

The locks are flock(2)'s: they belong to the open descriptor, so that threads with descriptors of
their own are kept apart too; closing it releases the lock, and so does the end of the process,
however it ends. They stop nobody who does not ask.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable

_PAUSES = (0.001, 0.05)
"""Seconds between two tries, at first and at most; it doubles."""


def lock(
    fd: int,
    *,
    wait: float,
    shared: bool = False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Locks what `fd` has open, alone or `shared`, within `wait` seconds.

    Raises OSError: EBUSY when others held it all that time, else the kernel's.
    """
    operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    end = clock() + wait
    pause, longest = _PAUSES
    while True:
        try:
            fcntl.flock(fd, operation)
        except BlockingIOError:
            left = end - clock()
            if left <= 0:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY)) from None
            sleep(min(pause, left))
            pause = min(2 * pause, longest)
        else:
            return
