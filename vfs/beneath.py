"""A pinned directory, and everything that may be done beneath it without following a link.

With `vfs.resolving`, which turns a path into a descriptor, and `vfs.dirfd`, which acts on one name,
this is the only door to a workspace's files. It promises, for every call:

- no component is followed that is a symbolic link, a magic link, `..`, or another mount;
- a component swapped for a link while the call runs gives an error or the inside file, never the
  link's target: every step starts from a descriptor, and no path is checked first and used later;
- only regular files and directories are opened; a FIFO, socket or device is refused by its type
  before an open could block or have a side effect;
- a file with further names that belongs to somebody else than the pinned directory does is not
  written or changed: the other name may be anywhere;
- what is made has exactly the mode asked for, whatever the umask, and never a set-id bit on a file;
- every descriptor is close-on-exec.

Paths are exact bytes, relative to the directory; text is encoded as the file system's (surrogate
escapes kept). Functions of the module raise OSError and take one name; methods of `Directory` raise
`vfs.errors.VfsError` and take paths.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType

from vfs import linux
from vfs.closing import Closing
from vfs.dirfd import (
    SETID,
    create_regular,
    make_directory,
    make_link,
    open_regular,
    refuse_planted,
    refuse_type,
    rename,
    reopen,
)
from vfs.errors import InvalidPath, LinkRefused, from_oserror
from vfs.linux import Status
from vfs.resolving import (
    NAME_MAX,
    O_ENTER,
    O_LIST,
    O_LOOK,
    PATH_MAX,
    Openat2,
    Path,
    Resolver,
    Walk,
    check_name,
    mount_id,
    resolver,
    split_path,
)

__all__ = [
    "DIRECTORY_MODE",
    "FILE_MODE",
    "NAME_MAX",
    "PATH_MAX",
    "SETID",
    "Directory",
    "Openat2",
    "Path",
    "Resolver",
    "Walk",
    "check_name",
    "create_regular",
    "make_directory",
    "make_link",
    "mount_id",
    "open_regular",
    "refuse_planted",
    "refuse_type",
    "rename",
    "reopen",
    "resolver",
    "split_path",
    "translated",
]

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
"""Modes of what is made here unless told otherwise (workspace rules: nothing for group, other)."""


class Directory(Closing):
    """A directory pinned by a descriptor, and the operations beneath it.

    Use it as a context manager, or call `close`. It stays the same directory when it is renamed.
    Paths are relative to it; see `split_path`.
    """

    __slots__ = ("fd", "mnt_id")

    def __init__(self, fd: int, mnt_id: int | None = None) -> None:
        """Takes over `fd`, an O_PATH or readable descriptor of a directory, and closes it.

        `mnt_id` is its mount's id where the caller knows it. Raises OSError, the descriptor closed.
        """
        self.fd = fd
        """The pinned descriptor; it may be O_PATH, good for *at calls only. -1 once closed."""
        try:
            self.mnt_id = mount_id(fd) if mnt_id is None else mnt_id
            """The mount that everything beneath must be on."""
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def open(cls, host_path: str | bytes | os.PathLike[str]) -> Directory:
        """Pins a root by its host path: its parents are the operator's, itself must be no link."""
        name = os.fsencode(host_path)
        # With a slash or a dot after the link's name, O_NOFOLLOW would follow.
        while len(name) > 1 and name.endswith((b"/", b"/.")):
            name = name[:-1]
        try:
            if b"\0" in name:
                raise OSError(errno.EINVAL, "the path holds a NUL byte")
            return cls(os.open(name, O_ENTER))
        except OSError as exc:
            if exc.errno == errno.ENOTDIR and os.path.islink(name):
                raise LinkRefused(
                    "a root is a symbolic link", fix="name the real directory"
                ) from None
            raise from_oserror(exc, action="open a root") from None

    def close(self) -> None:
        """Releases the descriptor; a second call does nothing."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def directory(self, path: Path = ()) -> Directory:
        """A new pinned directory at `path`."""
        parts = split_path(path)
        with translated("open", parts):
            return self._directory(parts)

    def _directory(self, parts: tuple[bytes, ...]) -> Directory:
        if not parts:
            return Directory(os.dup(self.fd), self.mnt_id)
        # The resolver crosses no mount, so the new directory is on this one.
        return Directory(resolver().open(self.fd, self.mnt_id, parts, O_ENTER), self.mnt_id)

    @contextmanager
    def parent(self, path: Path) -> Iterator[tuple[Directory, bytes]]:
        """The pinned directory that holds the last component of `path`, and that component.

        For calls on one name that this class lacks. Such a call must not follow a last link, nor
        act on what may be mounted at that name.
        """
        parts = split_path(path)
        if not parts:
            raise _no_name()
        if len(parts) == 1:
            yield self, parts[0]
            return
        with translated("open", parts):
            directory = self._directory(parts[:-1])
        with directory:
            yield directory, parts[-1]

    def stat(self, path: Path = ()) -> Status:
        """The status of an entry; of a link itself, never of its target."""
        parts = split_path(path)
        with translated("look at", parts), self._held(parts) as fd:
            return linux.fstatx(fd)

    def names(self, path: Path = ()) -> list[bytes]:
        """The names in a directory, in the file system's order, `.` and `..` left out."""
        parts = split_path(path)
        with translated("list", parts):
            fd = self._open_listing(parts)
            try:
                return [os.fsencode(name) for name in os.listdir(fd)]
            finally:
                os.close(fd)

    def open_listing(self, path: Path = ()) -> int:
        """A readable descriptor of a directory, for os.scandir; the caller closes it."""
        parts = split_path(path)
        with translated("list", parts):
            return self._open_listing(parts)

    def _open_listing(self, parts: tuple[bytes, ...]) -> int:
        if not parts:
            return os.open(".", O_LIST, dir_fd=self.fd)
        return resolver().open(self.fd, self.mnt_id, parts, O_LIST)

    def open_file(self, path: Path, flags: int = os.O_RDONLY) -> int:
        """A descriptor of an existing regular file, with O_RDONLY, O_WRONLY, O_RDWR or O_APPEND.

        To open for writing takes set-id bits away. A hard link of somebody else's file opens for
        reading only.
        """
        parts = split_path(path)
        with translated("open", parts):
            if not parts:
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            return open_regular(self.fd, self.mnt_id, parts, flags)

    def create_file(
        self, path: Path, mode: int = FILE_MODE, owner: tuple[int, int] | None = None
    ) -> int:
        """A read-write descriptor of a new, empty file; AlreadyExists when the name is taken."""
        with self._named("create", path) as (directory, name):
            return create_regular(directory.fd, name, mode, owner=owner)

    def make_directory(
        self, path: Path, mode: int = DIRECTORY_MODE, owner: tuple[int, int] | None = None
    ) -> None:
        """Makes one directory; its parent must exist."""
        with self._named("make", path) as (directory, name):
            make_directory(directory.fd, directory.mnt_id, name, mode, owner)

    def make_directories(
        self, path: Path, mode: int = DIRECTORY_MODE, owner: tuple[int, int] | None = None
    ) -> Directory:
        """The directory at `path`, pinned, made with its missing parents."""
        parts = split_path(path)
        with translated("make", parts):
            directory = self._directory(())
            for name in parts:
                with directory:
                    directory = directory._made(name, mode, owner)
            return directory

    def _made(self, name: bytes, mode: int, owner: tuple[int, int] | None) -> Directory:
        try:
            return self._directory((name,))
        except FileNotFoundError:
            with suppress(FileExistsError):
                make_directory(self.fd, self.mnt_id, name, mode, owner)
            return self._directory((name,))

    def unlink(self, path: Path) -> None:
        """Removes an entry that is not a directory; a link goes as the link."""
        with self._named("remove", path) as (directory, name):
            try:
                os.unlink(name, dir_fd=directory.fd)
            except PermissionError as exc:
                # POSIX lets unlink answer EPERM for a directory, and some file systems do.
                if stat.S_ISDIR(linux.statx(directory.fd, name).mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from exc
                raise

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""
        with self._named("remove", path) as (directory, name):
            os.rmdir(name, dir_fd=directory.fd)

    def rename(
        self, source: Path, target: Path, *, to: Directory | None = None, flags: int = 0
    ) -> None:
        """Renames `source` to `target` beneath `to` (here, if None), with renameat2's `flags`.

        An error names `target` where that is what stands in the way, else `source`.
        """
        with (
            self._named("rename", source) as (source_dir, source_name),
            (to or self)._named("rename to", target) as (target_dir, target_name),
        ):
            try:
                rename(source_dir.fd, source_name, target_dir.fd, target_name, flags)
            except OSError as exc:
                if exc.errno in _TARGET_IN_THE_WAY:
                    raise
                raise from_oserror(
                    exc, path=b"/".join(split_path(source)), action="rename"
                ) from None

    def link(self, source: Path, target: Path, *, to: Directory | None = None) -> None:
        """Makes `target` a further name of the file `source`; a link is linked, not its target."""
        with (
            self._named("link", source) as (source_dir, source_name),
            (to or self)._named("make", target) as (target_dir, target_name),
        ):
            try:
                os.link(
                    source_name,
                    target_name,
                    src_dir_fd=source_dir.fd,
                    dst_dir_fd=target_dir.fd,
                    follow_symlinks=False,
                )
            except OSError as exc:
                if exc.errno in _TARGET_IN_THE_WAY:
                    raise
                raise from_oserror(exc, path=b"/".join(split_path(source)), action="link") from None

    def read_link(self, path: Path) -> bytes:
        """The text of a symbolic link, which nothing here ever resolves."""
        with self._named("read", path) as (directory, name):
            return os.readlink(name, dir_fd=directory.fd)

    def make_link(self, path: Path, text: bytes) -> None:
        """Makes a symbolic link of the given text: to restore one, as a migration does."""
        with self._named("make", path) as (directory, name):
            os.close(make_link(directory.fd, directory.mnt_id, name, text))

    def change_mode(self, path: Path, mode: int) -> None:
        """Sets the permission bits; no set-id bit on a file. A link is refused."""
        parts = split_path(path)
        with translated("change", parts), self._held_to_change(parts) as (fd, status):
            if stat.S_ISLNK(status.mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if not stat.S_ISDIR(status.mode):
                mode &= ~SETID
            os.chmod(f"/proc/self/fd/{fd}", mode)

    def change_owner(self, path: Path, uid: int, gid: int) -> None:
        """Sets the owner of an entry, of a link itself; -1 leaves uid or gid as it is."""
        parts = split_path(path)
        with translated("change", parts), self._held_to_change(parts) as (fd, _):
            linux.fchown_held(fd, uid, gid)

    def change_times(self, path: Path, atime_ns: int, mtime_ns: int) -> None:
        """Sets both times in nanoseconds since the epoch; of a link itself."""
        parts = split_path(path)
        with translated("change", parts), self._held_to_change(parts) as (fd, _):
            # The descriptor's entry in /proc leads to the held inode, a link's own included.
            os.utime(f"/proc/self/fd/{fd}", ns=(atime_ns, mtime_ns))

    def sync(self) -> None:
        """Makes the directory's own entries durable."""
        with translated("sync", ()):
            fd = os.open(".", O_LIST, dir_fd=self.fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    @contextmanager
    def _named(self, action: str, path: Path) -> Iterator[tuple[Directory, bytes]]:
        """The parent and the name at `path`, for a call that is translated as `action`."""
        parts = split_path(path)
        if not parts:
            raise _no_name()
        with translated(action, parts):
            if len(parts) == 1:
                yield self, parts[0]
            else:
                with self._directory(parts[:-1]) as directory:
                    yield directory, parts[-1]

    @contextmanager
    def _held(self, parts: tuple[bytes, ...]) -> Iterator[int]:
        """A descriptor of the entry, good for looking at it; another mount is refused."""
        if not parts:
            yield self.fd
            return
        fd = resolver().open(self.fd, self.mnt_id, parts, O_LOOK)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _held_to_change(self, parts: tuple[bytes, ...]) -> Iterator[tuple[int, Status]]:
        """The same, with its status; a file that may be linked in from elsewhere is refused."""
        with self._held(parts) as fd:
            status = linux.fstatx(fd)
            refuse_planted(status, self.fd)
            yield fd, status


_TARGET_IN_THE_WAY = frozenset((errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR))
"""What a rename or link answers because of the entry at its target."""


def _no_name() -> InvalidPath:
    return InvalidPath(
        "the root itself cannot be made, renamed or removed", fix="name an entry in it", path=b"/"
    )


class translated:
    """Turns an OSError of its block into the VfsError of its kind, naming the path given."""

    __slots__ = ("action", "parts")

    def __init__(self, action: str, parts: tuple[bytes, ...]) -> None:
        self.action = action
        self.parts = parts

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(exc, OSError):
            path = b"/".join(self.parts) or b"/"
            raise from_oserror(exc, path=path, action=self.action) from None
