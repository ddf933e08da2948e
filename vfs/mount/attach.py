"""A FUSE mount made from a descriptor of the device, put in its place, found again, taken away.

The mount is made detached, so that it is complete before anybody can reach it, and attached by the
descriptor of its mountpoint: a mountpoint that is swapped for a link meanwhile leads nowhere else.
Save for `flush`, nothing here asks the mount itself for anything: its own server calls this.

Functions raise OSError, unless they say otherwise.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from vfs import linux
from vfs.errors import Unavailable
from vfs.mount import mountapi, table
from vfs.resolving import O_ENTER, O_LOOK

DEVICE = "/dev/fuse"

READAHEAD = 1024
"""KiB that the kernel reads ahead: one READ of the largest size."""

DRAIN = 5.0
"""Seconds for which a mount that is being stopped still answers those who never pause."""


class Identity(NamedTuple):
    """Which mount it is: the id of the mount and the device number of its file system."""

    id: int
    dev: str
    """``major:minor``"""


def open_device(flags: int = 0) -> int:
    """A new connection to the kernel: a descriptor of the device, with more `flags` for open(2).

    Raises Unavailable where the machine has none.
    """
    try:
        return os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC | flags)
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
            raise Unavailable(
                f"this machine has no {DEVICE}", fix="load it: modprobe fuse"
            ) from exc
        raise


@contextmanager
def opened(mountpoint: int | bytes) -> Iterator[int]:
    """A descriptor of a mountpoint that is given as one, which stays open, or by its path."""
    if isinstance(mountpoint, int):
        yield mountpoint
        return
    fd = os.open(mountpoint, O_ENTER)
    try:
        yield fd
    finally:
        os.close(fd)


def make_detached(
    device: int, *, fsname: bytes, subtype: bytes, allow_other: bool, attributes: int
) -> int:
    """A descriptor of a new FUSE mount, not attached yet, that is served through `device`.

    With `allow_other` every user may enter and the kernel checks permissions by mode and owner
    (default_permissions). Without it only processes that are wholly the caller's user and group may
    enter at all. Then root is not checked any further, as it may do everything anyway: the checks
    would cost a GETATTR of the directory after each change in it. `attributes` are the mount's
    (MOUNT_ATTR_*); RDONLY is set for its file system too, which spares the times of access.
    """
    context = mountapi.fsopen(b"fuse")
    try:
        strings = {
            b"source": fsname,
            b"subtype": subtype,
            b"fd": b"%d" % device,
            b"rootmode": b"40000",
            b"user_id": b"%d" % os.geteuid(),
            b"group_id": b"%d" % os.getegid(),
        }
        for key, value in strings.items():
            mountapi.fsconfig_string(context, key, value)
        if allow_other or os.geteuid() != 0:
            mountapi.fsconfig_flag(context, b"default_permissions")
        if allow_other:
            mountapi.fsconfig_flag(context, b"allow_other")
        if attributes & mountapi.MOUNT_ATTR_RDONLY:
            mountapi.fsconfig_flag(context, b"ro")
        mountapi.fsconfig_create(context)
        return mountapi.fsmount(context, attributes)
    finally:
        os.close(context)


def identify(mount: int) -> Identity:
    """Which mount a descriptor of its root is of; the file system is not asked."""
    status = linux.statx(mount, b"", linux.AT_EMPTY_PATH | linux.AT_STATX_DONT_SYNC)
    return Identity(status.mnt_id, f"{status.dev_major}:{status.dev_minor}")


def attach(mount: int, mountpoint: int) -> None:
    """Puts a detached mount on the directory that `mountpoint` is a descriptor of."""
    mountapi.move_mount(mount, b"", mountpoint, b"")


def set_readahead(mount: Identity, kibibytes: int) -> None:
    """How far the kernel reads ahead on the mount; INIT can only lower its default of 128 KiB."""
    with open(f"/sys/class/bdi/{mount.dev}/read_ahead_kb", "w") as knob:
        knob.write(str(kibibytes))


def open_attached(mount: Identity) -> int:
    """An O_PATH descriptor of the root of an attached mount, wherever it was moved to.

    Raises FileNotFoundError when the mount is attached nowhere in this process's namespace, or lies
    below another one.
    """
    for line in table.mounts():
        if Identity(line.id, line.dev) != mount:
            continue
        root = os.open(line.point, O_LOOK)
        try:
            found = identify(root)
        except BaseException:
            os.close(root)
            raise
        if found == mount:
            return root
        os.close(root)
    raise FileNotFoundError(errno.ENOENT, "the mount is attached nowhere")


def flush(root: int) -> None:
    """Has the kernel write back what was changed through mappings of the mount's files.

    The mount must be served by another thread meanwhile.
    """
    directory = os.open(f"/proc/self/fd/{root}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        linux.syncfs(directory)
    finally:
        os.close(directory)


def detach(root: int) -> None:
    """Takes the mount whose root `root` is a descriptor of out of the tree, busy or not."""
    mountapi.umount(b"/proc/self/fd/%d" % root, mountapi.MNT_DETACH)
