"""The place of a mount: found, checked before anything is made, and held for one command.

A mountpoint is good when it is an empty real directory on which nothing is mounted, which is
neither in the storage nor has the storage in it. The storage is recognised by the identity of
directories, never by their paths.

`take` holds a lock (flock) on the directory, so that of two commands at once only one mounts there;
it ends with the last descriptor.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence

from vfs import linux
from vfs.errors import (
    AlreadyExists,
    Busy,
    InvalidPath,
    LinkRefused,
    NotADirectory,
    NotEmpty,
    NotFound,
    Unavailable,
    from_oserror,
)
from vfs.mount import registry, table
from vfs.printable import printable

SUBTYPE = b"gemspace"
TYPE = "fuse.gemspace"
"""How the mount table calls a FUSE mount of ours."""

O_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a mountpoint is opened: itself, no link, and no request to what is mounted there."""


def locate(path: bytes) -> bytes:
    """The absolute path of a directory as the mount table writes it; asks no mounted file system.

    Raises InvalidPath, NotFound, LinkRefused (`path` itself is one), NotADirectory.
    """
    fd = _open_place(path)
    try:
        return os.readlink(b"/proc/self/fd/%d" % fd)
    finally:
        os.close(fd)


class Place:
    """A checked mountpoint; its descriptor holds the lock until it is closed."""

    def __init__(self, fd: int, point: bytes) -> None:
        self.fd = fd
        """Of the directory itself, to mount on."""
        self.point = point
        """Its absolute path, as the mount table writes it."""

    def close(self) -> None:
        """Gives up the lock, as far as this process holds it; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def take(path: bytes, *, storage: Sequence[int]) -> Place:
    """Checks the mountpoint and locks it.

    `storage` are descriptors of the directories that must not be above it or beneath it. Raises the
    error of its kind for a mountpoint that is not good, then nothing was changed.
    """
    point = locate(path)
    _refuse_mounted(point)
    fd = -1
    try:
        fd = os.open(point, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"another command is mounting on {printable(point)}", fix="see `vfs mounts`"
            ) from None
        _refuse_mounted(point)
        _refuse_storage(point, fd, storage)
        _refuse_view(point, fd)
        with os.scandir(fd) as entries:
            if next(entries, None) is not None:
                raise NotEmpty(
                    f"the mountpoint {printable(point)} is not empty",
                    fix="give an empty directory, or a new one",
                )
    except BaseException as exc:
        if fd >= 0:
            os.close(fd)
        if isinstance(exc, OSError):
            raise from_oserror(exc, path=point, action="use the mountpoint") from exc
        raise
    return Place(fd, point)


def _open_place(path: bytes) -> int:
    if not path:
        raise InvalidPath("the mountpoint's path is empty", fix="give an empty directory")
    if b"\0" in path:
        raise InvalidPath("the mountpoint's path holds a NUL byte", fix="give another", path=path)
    # With a slash at its end a link would be followed.
    plain = path.rstrip(b"/") or b"/"
    try:
        return os.open(plain, O_PLACE)
    except FileNotFoundError as exc:
        raise NotFound(
            f"the mountpoint {printable(path)} does not exist",
            fix=f"make it: mkdir {printable(path)}",
            path=path,
        ) from exc
    except NotADirectoryError as exc:
        if os.path.islink(plain):
            raise LinkRefused(
                f"the mountpoint {printable(path)} is a symbolic link",
                fix="name the directory itself",
                path=path,
            ) from exc
        raise NotADirectory(
            f"the mountpoint {printable(path)} is not a directory",
            fix="give an empty directory",
            path=path,
        ) from exc
    except OSError as exc:
        raise from_oserror(exc, path=path, action="use the mountpoint") from exc


def _refuse_mounted(point: bytes) -> None:
    mount = table.at(point)
    if mount is None:
        return
    shown = printable(point)
    if registry.find(point) is not None or mount.type == TYPE:
        raise AlreadyExists(
            f"a workspace is mounted at {shown} already", fix=f"vfs umount {shown}", path=point
        )
    if table.is_dead(point):
        raise Unavailable(
            f"a dead mount of another program ({printable(mount.type)}) is at {shown}",
            fix=f"take it away: umount --lazy {shown}",
            path=point,
        )
    raise AlreadyExists(
        f"something else ({printable(mount.type)}) is mounted at {shown}",
        fix="give an empty directory, or unmount that",
        path=point,
    )


def _refuse_view(point: bytes, mountpoint: int) -> None:
    """A view's directories are the storage's too, though they have an identity of their own."""
    known = {mount.id: mount for mount in table.mounts()}
    ours = {record.mount_id for record in registry.entries()}
    current = known.get(linux.fstatx(mountpoint).mnt_id)
    while current is not None and current.id != current.parent:
        if current.id in ours or current.type == TYPE:
            raise InvalidPath(
                f"the mountpoint {printable(point)} is inside a mounted workspace",
                fix="give a directory outside of it",
                path=point,
            )
        current = known.get(current.parent)


def _refuse_storage(point: bytes, mountpoint: int, storage: Sequence[int]) -> None:
    roots = {linux.fstatx(fd).identity for fd in storage}
    if any(identity in roots for identity in _upwards(mountpoint)):
        raise InvalidPath(
            f"the mountpoint {printable(point)} is inside the storage",
            fix="give a directory outside of it",
            path=point,
        )
    own = linux.fstatx(mountpoint).identity
    if any(own in _upwards(fd) for fd in storage):
        raise InvalidPath(
            f"the storage is inside the mountpoint {printable(point)}, and would be hidden",
            fix="give an empty directory elsewhere",
            path=point,
        )


def _upwards(fd: int) -> Iterator[tuple[int, int, int]]:
    """The identities of a directory and of those above it, up to this process's root."""
    current = os.open(f"/proc/self/fd/{fd}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        status = linux.fstatx(current)
        while True:
            yield status.identity
            above = os.open("..", O_PLACE, dir_fd=current)
            os.close(current)
            current = above
            higher = linux.fstatx(current)
            # A directory bound into itself has its own inode above it, on another mount.
            if (higher.identity, higher.mnt_id) == (status.identity, status.mnt_id):
                return
            status = higher
    finally:
        os.close(current)
