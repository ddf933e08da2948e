"""Mounts of `vfs mount` taken away, live and dead ones, by root and by whoever made them.

What is unmounted is the mount that was looked at: its id is compared in a directory that is held,
and a mountpoint can be neither renamed nor removed. For others than root fusermount3 judges.
"""

from __future__ import annotations

import errno
import os
import re
import select
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vfs.errors import Busy, NotFound, from_oserror
from vfs.mount import fusermount, kernel, mountapi, registry, table
from vfs.mount.mountpoint import O_PLACE, TYPE, locate
from vfs.mount.table import Mount
from vfs.printable import printable

_DEAD_MOUNTS = 16
"""How many dead mounts on one directory are taken away: a few restarts leave one on the other."""

_END_SECONDS = 5
"""How long the end of a mount's process is waited for: it has nothing left to do but to exit."""


@dataclass(frozen=True, slots=True)
class Released:
    """A mount that was taken away."""

    point: bytes
    """Absolute."""
    dead: bool
    """Whether its process had gone before."""


def release(path: bytes, *, lazy: bool = False) -> Released:
    """Unmounts the mount of ours at `path`, and waits until its process has ended.

    A dead one goes whoever still has files of it open; a live one that is in use is Busy, unless
    `lazy` takes it out of sight at once. Raises NotFound if none of ours is there.
    """
    point = locate(path)
    mount = table.at(point)
    if mount is None:
        raise NotFound(
            f"nothing is mounted at {printable(point)}", fix="`vfs mounts` lists what is"
        )
    record = registry.find(point)
    if record is None and mount.type != TYPE:
        raise NotFound(
            f"what is mounted at {printable(point)} ({printable(mount.type)}) is none of ours",
            fix="`vfs mounts` lists those of `vfs mount`; take others away with umount",
        )
    if record is not None and record.engine == "kernel":
        kernel.detach(point, mount.id, lazy=lazy)
        dead = False
    else:
        dead = table.is_dead(point) if record is None else record.dead
        with _awaited(None if record is None or dead or lazy else record.pid):
            _unmount_fuse(mount, lazy=lazy or dead)
    registry.forget(mount.id)
    return Released(point, dead)


def clear_dead(path: bytes) -> None:
    """Takes away the dead mounts of ours at `path`; raises as `locate` does."""
    point = locate(path)
    for _ in range(_DEAD_MOUNTS):
        mount = table.at(point)
        if mount is None or mount.type != TYPE or not table.is_dead(point):
            return
        _unmount_fuse(mount, lazy=True)
        registry.forget(mount.id)


def _unmount_fuse(mount: Mount, *, lazy: bool) -> None:
    if os.geteuid() == 0:
        _unmount_as_root(mount, lazy=lazy)
        return
    try:
        fusermount.unmount(mount.point, lazy=lazy)
    except Busy:
        raise _in_use(mount.point) from None


def _unmount_as_root(mount: Mount, *, lazy: bool) -> None:
    point = mount.point
    parent, name = os.path.split(point)
    flags = mountapi.UMOUNT_NOFOLLOW | (mountapi.MNT_DETACH if lazy else 0)
    try:
        with _opened(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) as dirfd:
            with _opened(name, O_PLACE, dirfd) as root:
                is_same = _mount_id(root) == mount.id
            if not is_same:
                raise Busy(f"what is mounted at {printable(point)} changed", fix="try again")
            mountapi.umount(b"/proc/self/fd/%d/%b" % (dirfd, name), flags)
    except OSError as exc:
        if exc.errno == errno.EBUSY:
            raise _in_use(point) from exc
        raise from_oserror(exc, path=point, action="unmount") from exc


def _mount_id(fd: int) -> int:
    # Not by statx, which a mount without a process does not answer, nor another user's.
    with open(f"/proc/self/fdinfo/{fd}", "rb") as info:
        found = re.search(rb"^mnt_id:\s*(\d+)$", info.read(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@contextmanager
def _awaited(pid: int | None) -> Iterator[None]:
    """Waits after its block for the end of a process that the block ends."""
    if pid is None:
        yield
        return
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # it has ended already, or the kernel is older than 5.3
        yield
        return
    try:
        yield
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(_END_SECONDS * 1000)
    finally:
        os.close(pidfd)


def _in_use(point: bytes) -> Busy:
    return Busy(
        f"the mount at {printable(point)} is in use",
        fix="leave it with every shell and program, or use --lazy",
        path=point,
    )


@contextmanager
def _opened(path: bytes, flags: int, dirfd: int | None = None) -> Iterator[int]:
    fd = os.open(path, flags, dir_fd=dirfd)
    try:
        yield fd
    finally:
        os.close(fd)
