"""The kernel engine: a read-only view of a workspace made of bind mounts, at native speed.

What it promises of a view, which is the namespace (`user-data/`, `skills/`) or one directory:

- nothing in it can be written (EROFS), run, or opened as a device; setuid bits do nothing; the
  kernel follows no link in it (ELOOP). Links, devices and FIFOs are listed;
- no mount below the directories shown is in it, and none made later gets into it;
- it appears whole, by one system call, on the very directory that the caller holds open; a failure
  or a kill before that call leaves nothing;
- with an `owner`, what belongs to 1000:1000 on the disk is shown as the owner's, and what belongs
  to anybody else as 65534's (nobody); of the latter even root reads only what everybody may.

It takes CAP_SYS_ADMIN, Linux 5.14, and for an `owner` a filesystem that can be id-mapped.
It cannot filter: a FIFO in it is opened like any other, and waits for its writer.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from vfs import beneath, linux
from vfs.errors import (
    Busy,
    NotADirectory,
    NotFound,
    PermissionDenied,
    Unavailable,
    VfsError,
    from_oserror,
)
from vfs.mount import mountapi, namespaces, table
from vfs.mount.table import Mount
from vfs.namespace import SKILLS_NAME, USER_DATA_NAME
from vfs.printable import printable
from vfs.resolving import O_ENTER
from vfs.workspace import OWNER

SOURCE_NAME = b"gemspace"
"""The source of a namespace view in the mount table. One directory's view has the disk's there."""

_FRAME_OPTIONS = {b"source": SOURCE_NAME, b"size": b"4k", b"nr_inodes": b"3", b"mode": b"0755"}
"""The tmpfs that holds the two directories: it has no data, and they and itself are its inodes."""

_FRAME_ATTRIBUTES = (
    mountapi.MOUNT_ATTR_NOSUID
    | mountapi.MOUNT_ATTR_NODEV
    | mountapi.MOUNT_ATTR_NOEXEC
    | mountapi.MOUNT_ATTR_NOSYMFOLLOW
)

_USE_FUSE = "use the FUSE engine (--engine fuse)"


@dataclass(frozen=True, slots=True)
class View:
    """What to show, as descriptors (O_PATH will do) that stay the caller's.

    Either `root_fd` alone: one directory. Or the others: the namespace, in which a missing one is
    shown as an empty directory.
    """

    user_data_fd: int | None = None
    skills_fd: int | None = None
    root_fd: int | None = None

    def __post_init__(self) -> None:
        if (self.root_fd is None) == (self.user_data_fd is None and self.skills_fd is None):
            raise ValueError("a view is either one directory or the namespace")

    @property
    def directories(self) -> list[int]:
        """The descriptors that there are."""
        given = (self.root_fd, self.user_data_fd, self.skills_fd)
        return [fd for fd in given if fd is not None]


@dataclass(frozen=True, slots=True)
class Attached:
    """A view that is mounted."""

    mount_id: int
    """The id in `vfs.mount.table` of the mount at `point`."""
    point: bytes
    """Where it is, absolute."""


def supports(view: View, owner: tuple[int, int] | None) -> str | None:
    """Why this engine cannot serve the view here, in one line; None if it can. Mounts nothing."""
    refusal = _refusal(view, owner)
    return None if refusal is None else refusal.message


def attach(view: View, mountpoint_fd: int, *, owner: tuple[int, int] | None) -> Attached:
    """Mounts the view on the directory behind `mountpoint_fd`, over what may be mounted there.

    `owner` is the uid and gid that entries of 1000:1000 appear to belong to; None shows owners as
    they are on the disk. Raises PermissionDenied or Unavailable if this engine cannot serve it
    (`supports` says why), NotADirectory for a mountpoint that is none, NotFound for a deleted one.
    """
    if not stat.S_ISDIR(os.fstat(mountpoint_fd).st_mode):
        raise NotADirectory("the mountpoint is not a directory", fix="name an empty directory")
    with ExitStack() as stack:
        try:
            tree = _build(stack, view, owner)
        except OSError as exc:
            raise (_refusal(view, owner) or from_oserror(exc, action="build the view")) from exc
        try:
            return _place(tree, mountpoint_fd)
        except OSError as exc:
            raise from_oserror(exc, action="mount the view") from exc


def detach(point: bytes, mount_id: int, *, lazy: bool = False) -> None:
    """Unmounts the view that `attach` reported, all of it or nothing.

    NotFound if it is not there any more, Busy if it is in use or another mount is over or in it.
    `lazy` takes it, and what is mounted in it, out of sight at once whoever uses it; it goes when
    they end.
    """
    mounts = table.mounts()
    if not any(mount.id == mount_id and mount.point == point for mount in mounts):
        raise NotFound(
            f"the view at {printable(point)} is not mounted",
            fix="`vfs mounts` lists those that are",
        )
    with ExitStack() as stack:
        try:
            # The name is looked up in a directory that is held, and a mountpoint cannot be renamed:
            # what is checked here is what is unmounted.
            parent, name = os.path.split(point)
            dirfd = _own(stack, os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            if linux.statx(dirfd, name).mnt_id != mount_id:
                raise Busy(
                    f"another mount lies over the view at {printable(point)}",
                    fix="unmount that first",
                )
            if lazy:
                _umount(dirfd, name, mountapi.MNT_DETACH)
            else:
                _umount_all(dirfd, name, _folders(mounts, mount_id))
        except OSError as exc:
            if exc.errno == errno.EBUSY:
                raise Busy(
                    f"the view at {printable(point)} is in use",
                    fix="leave it with every shell and program, then try again",
                ) from exc
            raise from_oserror(exc, action="unmount", path=point) from exc


def _refusal(view: View, owner: tuple[int, int] | None) -> VfsError | None:
    """The error that says what the machine lacks to serve the view; None if nothing is known."""
    try:
        _try_clones(view)
    except PermissionError:
        return PermissionDenied(
            "the kernel engine needs the right to mount (root, CAP_SYS_ADMIN)",
            fix=f"run it as root, or {_USE_FUSE}",
        )
    except OSError as exc:
        lacks = {
            errno.ENOSYS: "needs Linux 5.14 or later, or a seccomp filter hides its mount calls",
            errno.EINVAL: "needs Linux 5.14 or later, and storage on a mount that can be bound",
        }.get(exc.errno or 0, f"cannot clone the directory ({_name(exc)})")
        return Unavailable(f"the kernel engine {lacks}", fix=_USE_FUSE)
    if owner is None:
        return None
    try:
        with _idmap(owner) as userns_fd:
            try:
                _try_clones(view, userns_fd)
            except OSError as exc:
                return Unavailable(
                    "the storage's filesystem cannot show files as another owner's "
                    f"(id-mapped mounts: {_name(exc)})",
                    fix=f"use --owner keep, or {_USE_FUSE}",
                )
    except OSError as exc:
        return Unavailable(
            "the kernel engine cannot make the user namespace that shows files as another owner's "
            f"({_name(exc)})",
            fix=f"use --owner keep, or {_USE_FUSE}",
        )
    return None


def _try_clones(view: View, userns_fd: int | None = None) -> None:
    for fd in view.directories:
        os.close(mountapi.clone_private(fd, read_only=True, idmap_userns=userns_fd))


def _build(stack: ExitStack, view: View, owner: tuple[int, int] | None) -> int:
    """The whole view as one detached mount; `stack` closes what was made for it."""
    userns_fd = None if owner is None else stack.enter_context(_idmap(owner))

    def clone(fd: int) -> int:
        return _own(stack, mountapi.clone_private(fd, read_only=True, idmap_userns=userns_fd))

    if view.root_fd is not None:
        return clone(view.root_fd)
    folders = {
        name: clone(fd)
        for name, fd in ((USER_DATA_NAME, view.user_data_fd), (SKILLS_NAME, view.skills_fd))
        if fd is not None
    }
    frame = _own(stack, _make_frame(owner or (os.geteuid(), os.getegid())))
    return _own(stack, namespaces.assemble(frame, folders))


def _make_frame(owner: tuple[int, int]) -> int:
    """A detached, read-only tmpfs that holds nothing but the two empty directories."""
    uid, gid = owner
    with ExitStack() as stack:
        context = _own(stack, mountapi.fsopen(b"tmpfs"))
        for key, value in {**_FRAME_OPTIONS, b"uid": b"%d" % uid, b"gid": b"%d" % gid}.items():
            mountapi.fsconfig_string(context, key, value)
        mountapi.fsconfig_create(context)
        frame = mountapi.fsmount(context, _FRAME_ATTRIBUTES)
    try:
        for name in (USER_DATA_NAME, SKILLS_NAME):
            os.mkdir(name, dir_fd=frame)
            os.chmod(name, 0o755, dir_fd=frame)  # whatever the umask
            os.chown(name, uid, gid, dir_fd=frame)
        mountapi.mount_setattr(frame, attr_set=mountapi.MOUNT_ATTR_RDONLY)
    except BaseException:
        os.close(frame)
        raise
    return frame


def _place(tree: int, mountpoint_fd: int) -> Attached:
    try:
        mountapi.move_mount(tree, b"", mountpoint_fd, b"")
        # On a shared mount it became shared: undone, so that nothing mounted in a copy comes here.
        mountapi.mount_setattr(tree, recursive=True, propagation=mountapi.MS_PRIVATE)
        id_ = beneath.mount_id(tree)
        for mount in table.mounts():
            if mount.id == id_:
                return Attached(id_, mount.point)
        raise NotFound("the view was unmounted while it was mounted", fix="mount it again")
    except BaseException:
        # Lazily, for the descriptor itself keeps it busy. EINVAL: it was not attached.
        with suppress(OSError):
            mountapi.umount(b"/proc/self/fd/%d" % tree, mountapi.MNT_DETACH)
        raise


def _folders(mounts: Sequence[Mount], mount_id: int) -> list[bytes]:
    """The directories of the view that are mounts of their own; Busy if anything else is in it."""
    top = next(mount for mount in mounts if mount.id == mount_id)
    is_frame = (top.type, top.source) == ("tmpfs", SOURCE_NAME)
    own = [top.point + b"/" + name for name in (USER_DATA_NAME, SKILLS_NAME)] if is_frame else []
    inside = [mount for mount in mounts if mount.parent == mount_id]
    ids = {mount.id for mount in inside}
    others = [m for m in inside if m.point not in own] + [m for m in mounts if m.parent in ids]
    if others:
        raise Busy(
            f"something is mounted in the view at {printable(top.point)}",
            fix=f"unmount {printable(others[-1].point)} first",
        )
    return [os.path.basename(mount.point) for mount in inside]


def _umount_all(dirfd: int, name: bytes, folders: Sequence[bytes]) -> None:
    """Unmounts the view's directories, then the view; puts them back if one of them is in use."""
    with ExitStack() as spares:
        gone: list[tuple[bytes, int]] = []
        try:
            with _frame(dirfd, name) as frame:
                for folder in folders:
                    flags = mountapi.OPEN_TREE_CLONE | linux.AT_SYMLINK_NOFOLLOW
                    spare = _own(spares, mountapi.open_tree(frame, folder, flags))
                    _umount(frame, folder)
                    gone.append((folder, spare))
            _umount(dirfd, name)
        except BaseException:
            with _frame(dirfd, name) as frame:
                for folder, spare in gone:
                    mountapi.move_mount(spare, b"", frame, folder)
            raise


def _umount(dirfd: int, name: bytes, flags: int = 0) -> None:
    mountapi.umount(b"/proc/self/fd/%d/%b" % (dirfd, name), flags | mountapi.UMOUNT_NOFOLLOW)


@contextmanager
def _frame(dirfd: int, name: bytes) -> Iterator[int]:
    # While it is open the view cannot be unmounted.
    fd = os.open(name, O_ENTER, dir_fd=dirfd)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _idmap(owner: tuple[int, int]) -> Iterator[int]:
    fd = namespaces.userns_idmap(*OWNER, *owner)
    try:
        yield fd
    finally:
        os.close(fd)


def _own(stack: ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _name(exc: OSError) -> str:
    return errno.errorcode.get(exc.errno or 0, "an unknown error")
