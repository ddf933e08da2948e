"""One migrator at a time: for a state folder, and for each folder that it works on.

The locks are flock(2)'s, on the file `migrator.journal.LOCK` of the state folder and on the folders
themselves, so that two migrators with state folders of their own exclude each other too. They
belong to the open descriptors, which forked workers inherit on purpose: what a killed migrator's
workers still do, they do under its lock. The kernel releases them when the last such process ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from typing import Final

from migrator.errors import Precondition
from migrator.journal import LOCK
from vfs import linux
from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.errors import AlreadyExists, NotFound
from vfs.locking import lock
from vfs.printable import printable

WAIT: Final = 1.0
"""Seconds until a lock counts as held: a `status` that looks takes it for a moment, and the workers
of a migrator that was killed just now take a moment to end."""

_PID: Final = 20
"""Bytes of the lock file that are read: more digits than a process id has."""


class Locks(Closing):
    """The locks of one migration, held until this is closed and every worker has ended."""

    __slots__ = ("_fds",)

    def __init__(self) -> None:
        self._fds: list[int] = []

    @classmethod
    def take(cls, state: Directory, roots: Sequence[Directory], *, wait: float = WAIT) -> Locks:
        """Locks the state folder and each distinct one of `roots`, within `wait` seconds each.

        Raises Precondition, nothing locked, naming what is held and by which process; VfsError or
        OSError when a lock cannot be asked for.
        """
        locks = cls()
        try:
            fd = _open(state)
            locks._fds.append(fd)
            locks._lock(fd, wait, "the state folder", state)
            os.ftruncate(fd, 0)
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
            # In one order for everybody, so that of two that start at once one gets them all.
            distinct = {root.stat().identity: root for root in roots}
            for _, root in sorted(distinct.items()):
                fd = root.open_listing()
                locks._fds.append(fd)
                locks._lock(fd, wait, "the folder", root)
            return locks
        except BaseException:
            locks.close()
            raise

    def close(self) -> None:
        """Gives the locks back, as far as this process has them; a second call does nothing."""
        while self._fds:
            os.close(self._fds.pop())

    def _lock(self, fd: int, wait: float, what: str, directory: Directory) -> None:
        try:
            lock(fd, wait=wait)
        except OSError as exc:
            if exc.errno != errno.EBUSY:
                raise
            pid = _holder(fd)
            by = "another migrator" if pid is None else f"process {pid}"
            raise Precondition(
                f"{what} {_shown(directory)} is in use by {by}",
                fix="wait until it has ended, or stop it, then try again",
            ) from None


def running(state: Directory) -> int | None:
    """The process whose migration runs in this state folder, 0 if it cannot be told; else None.

    Nothing is changed, and no lock is kept. Raises VfsError, OSError.
    """
    try:
        fd = state.open_file(LOCK)
    except NotFound:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _holder(fd) or 0
    finally:
        os.close(fd)
    return None


def _open(state: Directory) -> int:
    """The lock file, made if missing; it is never removed, or two could be locked."""
    try:
        return state.create_file(LOCK)
    except AlreadyExists:
        return state.open_file(LOCK, os.O_RDWR)


def _holder(fd: int) -> int | None:
    """The process that locked what `fd` has open, if it can be told."""
    return _tabled(fd) or _written(fd)


def _tabled(fd: int) -> int | None:
    """The process that the kernel's table of locks names.

    A line is ``1: FLOCK ADVISORY WRITE <pid> <major>:<minor>:<inode> 0 EOF``, the device in hex
    (proc_locks(5)); the process is 0 if it is outside this pid namespace. btrfs has other device
    numbers there.
    """
    status = linux.fstatx(fd)
    file = f"{status.dev_major:02x}:{status.dev_minor:02x}:{status.ino}"
    try:
        with open("/proc/locks", encoding="ascii") as table:
            rows = [row.split() for row in table]
    except OSError:
        return None
    for row in rows:
        if row[1:4:2] == ["FLOCK", "WRITE"] and row[5] == file:
            return int(row[4])
    return None


def _written(fd: int) -> int | None:
    """The process that the lock file names; None for a folder, and for a file just made."""
    if stat.S_ISDIR(linux.fstatx(fd).mode):
        return None
    digits = os.pread(fd, _PID, 0).strip()
    return int(digits) if digits.isdigit() else None


def _shown(directory: Directory) -> str:
    """The host path of a pinned directory."""
    return printable(os.readlink(f"/proc/self/fd/{directory.fd}"))
