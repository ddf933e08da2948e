"""The place of a mount: found and checked before anything is made, and given free again.

A mountpoint is good when it is an empty real directory on which nothing is mounted, which is
neither in the storage nor has the storage in it. The storage is recognised by the identity of
directories, never by their paths. A mount of ours whose daemon has gone is taken away on the way.

`take` holds a lock (flock) on the directory, so that of two commands at once only one mounts there;
it ends with the last descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from vfs import linux
from vfs.errors import (
    AlreadyExists,
    Busy,
    InvalidPath,
    LinkRefused,
    NotADirectory,
    NotEmpty,
    NotFound,
    PermissionDenied,
    Unavailable,
    from_oserror,
)
from vfs.mount import kernel, mountapi, registry, table
from vfs.printable import one_line, printable

SUBTYPE = b"gemspace"
TYPE = "fuse.gemspace"
"""How the mount table calls a FUSE mount of ours."""

HELPER = "fusermount3"
"""The set-user-id program of the FUSE library that mounts and unmounts for others than root."""

_DEAD_MOUNTS = 16
"""How many dead mounts on one directory are taken away: a few restarts leave one on the other."""

_END_SECONDS = 5
"""How long the end of a mount's process is waited for: it has nothing left to do but to exit."""

_O_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
    _clear_dead(point)
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
            _unmount_fuse(point, lazy=lazy or dead)
    registry.forget(mount.id)
    return Released(point, dead)


def _open_place(path: bytes) -> int:
    if not path:
        raise InvalidPath("the mountpoint's path is empty", fix="give an empty directory")
    if b"\0" in path:
        raise InvalidPath("the mountpoint's path holds a NUL byte", fix="give another", path=path)
    # With a slash at its end a link would be followed.
    plain = path.rstrip(b"/") or b"/"
    try:
        return os.open(plain, _O_PLACE)
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


def _clear_dead(point: bytes) -> None:
    for _ in range(_DEAD_MOUNTS):
        mount = table.at(point)
        if mount is None or mount.type != TYPE or not table.is_dead(point):
            return
        _unmount_fuse(point, lazy=True)
        registry.forget(mount.id)


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
            above = os.open("..", _O_PLACE, dir_fd=current)
            os.close(current)
            current = above
            higher = linux.fstatx(current)
            # A directory bound into itself has its own inode above it, on another mount.
            if (higher.identity, higher.mnt_id) == (status.identity, status.mnt_id):
                return
            status = higher
    finally:
        os.close(current)


def _unmount_fuse(point: bytes, *, lazy: bool) -> None:
    if os.geteuid() == 0:
        _unmount_as_root(point, lazy=lazy)
    else:
        _unmount_by_helper(point, lazy=lazy)


def _unmount_as_root(point: bytes, *, lazy: bool) -> None:
    parent, name = os.path.split(point)
    flags = mountapi.UMOUNT_NOFOLLOW | (mountapi.MNT_DETACH if lazy else 0)
    try:
        with _opened(parent) as dirfd:
            mountapi.umount(b"/proc/self/fd/%d/%b" % (dirfd, name), flags)
    except OSError as exc:
        if exc.errno == errno.EBUSY:
            raise _in_use(point) from exc
        raise from_oserror(exc, path=point, action="unmount") from exc


def _unmount_by_helper(point: bytes, *, lazy: bool) -> None:
    helper = shutil.which(HELPER)
    if helper is None:
        raise Unavailable(f"{HELPER} is not installed", fix="install FUSE 3 (Debian: fuse3)")
    command: list[str | bytes] = [helper, "-u", *(["-z"] if lazy else []), "--", point]
    # Its words are matched, so they must not be translated.
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    )
    if done.returncode == 0:
        return
    said = done.stdout.decode(errors="replace").strip()
    if "busy" in said.lower():
        raise _in_use(point)
    raise PermissionDenied(
        f"cannot unmount {printable(point)}: {one_line(said) or 'no reason given'}",
        fix="have whoever mounted it, or root, unmount it",
        path=point,
    )


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
def _opened(directory: bytes) -> Iterator[int]:
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
