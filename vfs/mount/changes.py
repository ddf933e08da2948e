"""A setattr carried out on one held inode: owner, mode and times, each by its descriptor."""

from __future__ import annotations

import errno
import os
import stat
import time

from vfs import linux
from vfs.linux import Status
from vfs.mount.attributes import NOW, Change


def apply_change(held: int, change: Change, shown_owner: tuple[int, int] | None) -> None:
    """Changes the inode behind the O_PATH descriptor `held`, all but its size.

    `shown_owner` is the owner that the view shows for every entry, if it does. Set-user-id and
    set-group-id bits are dropped from files: a daemon that runs as root must not hand them out.
    Raises OSError.
    """
    status = linux.fstatx(held)
    if not change.touches_inode:
        linux.fchown_held(held, -1, -1)  # as of chown(path, -1, -1): its ctime moves
    if change.uid is not None or change.gid is not None:
        _change_owner(held, status, change, shown_owner)
    if change.mode is not None:
        _change_mode(held, status, change.mode)
    if change.atime_ns is not None or change.mtime_ns is not None:
        _change_times(held, status, change)


def _change_owner(held: int, status: Status, change: Change, shown: tuple[int, int] | None) -> None:
    uid = -1 if change.uid is None else change.uid
    gid = -1 if change.gid is None else change.gid
    if shown is None:
        linux.fchown_held(held, uid, gid)
    elif uid not in (-1, shown[0], status.uid) or gid not in (-1, shown[1], status.gid):
        # The owner shown is not the one on disk: giving a file to that one changes nothing, and
        # to anyone else cannot be shown.
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))


def _change_mode(held: int, status: Status, mode: int) -> None:
    if stat.S_ISLNK(status.mode):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    mode &= 0o7777 if stat.S_ISDIR(status.mode) else 0o1777
    os.chmod(f"/proc/self/fd/{held}", mode)


def _change_times(held: int, status: Status, change: Change) -> None:
    now = time.time_ns()

    def chosen(wanted: int | None, old: int) -> int:
        return old if wanted is None else now if wanted == NOW else wanted

    atime = chosen(change.atime_ns, status.atime_ns)
    mtime = chosen(change.mtime_ns, status.mtime_ns)
    # The descriptor's entry in /proc leads to the held inode, a link's own included.
    os.utime(f"/proc/self/fd/{held}", ns=(atime, mtime))
