"""A pinned directory, and everything that may be done beneath it without following a link.

This is the only module that turns a workspace path into a descriptor. It promises, for every call:

- no component is followed that is a symbolic link, a magic link, `..`, or another mount;
- a component swapped for a link while the call runs gives an error or the inside file, never the
  link's target: every step starts from a descriptor, and no path is checked first and used later;
- only regular files and directories are opened; a FIFO, socket or device is refused by its type
  before an open could block or have a side effect;
- every descriptor is close-on-exec.

Two resolvers keep the promise. `Openat2` asks the kernel (Linux 5.6) to resolve a whole path with
RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS and NO_XDEV. `Walk` opens one component a call with
O_NOFOLLOW and compares mount ids; it serves older kernels, seccomp filters that refuse openat2, and
paths beyond the kernel's 4 096 bytes. `resolver()` probes once; GEMSPACE_NO_OPENAT2=1 forces Walk.

Paths are exact bytes, relative to the directory; text is encoded as the file system's (surrogate
escapes kept). Functions of the module raise OSError and take one name; methods of `Directory` raise
`vfs.errors.VfsError` and take paths.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Protocol

from vfs import linux
from vfs.errors import InvalidPath, LinkRefused, from_oserror
from vfs.linux import Status

Path = bytes | str | Sequence[bytes]

NAME_MAX = 255
"""Longest file name in bytes (include/uapi/linux/limits.h; ext4, xfs, btrfs and tmpfs agree)."""

PATH_MAX = 4096
"""Longest path in bytes that one system call takes, its final NUL counted (the same file)."""

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
"""Modes of what is made here, whatever the umask (workspace rules: nothing for group or other)."""

_O_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_O_ENTER = _O_LOOK | os.O_DIRECTORY
_RESOLVE = (
    linux.RESOLVE_BENEATH
    | linux.RESOLVE_NO_SYMLINKS
    | linux.RESOLVE_NO_MAGICLINKS
    | linux.RESOLVE_NO_XDEV
)


def split_path(path: Path) -> tuple[bytes, ...]:
    """The components of a relative path, each checked; `()` for the directory itself.

    Accepts text, bytes, or components already apart. One trailing slash is allowed, as a listing
    shows directories. Raises InvalidPath for an absolute path and for a component that is empty,
    `.`, `..`, longer than NAME_MAX, or holds NUL or a slash.
    """
    if isinstance(path, str):
        try:
            path = os.fsencode(path)
        except UnicodeEncodeError:
            raise InvalidPath("the path cannot be written as bytes", path=None) from None
    if isinstance(path, bytes):
        if path in (b"", b"/"):
            return ()
        if path.startswith(b"/"):
            raise InvalidPath(
                "the path is absolute", fix="give it relative to the directory", path=path
            )
        parts = tuple(path.removesuffix(b"/").split(b"/"))
    else:
        parts = tuple(path)
    for name in parts:
        try:
            check_name(name)
        except OSError as exc:
            raise InvalidPath(f"{exc.strerror}", path=b"/".join(parts)) from None
    return parts


def check_name(name: bytes) -> None:
    """Raises OSError (EINVAL, ENAMETOOLONG) unless `name` can be one entry of a directory."""
    if name in (b"", b".", b".."):
        raise OSError(errno.EINVAL, "a component is empty, '.' or '..'", name)
    if b"/" in name or b"\0" in name:
        raise OSError(errno.EINVAL, "a component holds a slash or a NUL byte", name)
    if len(name) > NAME_MAX:
        raise OSError(errno.ENAMETOOLONG, "a component is longer than 255 bytes", name)


def mount_id(fd: int) -> int:
    """The id of the mount that `fd` is on: by statx, before Linux 5.8 from /proc."""
    status = linux.fstatx(fd)
    if status.mask & linux.STATX_MNT_ID:
        return status.mnt_id
    with open(f"/proc/self/fdinfo/{fd}") as lines:
        for line in lines:
            if line.startswith("mnt_id:"):
                return int(line.split()[1])
    raise OSError(errno.ENOSYS, "the kernel does not tell the mount of a descriptor")


class Resolver(Protocol):
    """A way to open `parts` beneath a directory; both ways pass one test-suite."""

    def open(self, dirfd: int, mnt_id: int, parts: Sequence[bytes], flags: int) -> int:
        """A new descriptor, the last component not followed.

        With O_PATH a last component that is a link is opened as the link. Raises OSError: ELOOP at
        a link on the way, EXDEV at another mount, else the kernel's.
        """


class Openat2:
    """Resolution by one openat2 call per 4 095 bytes of path."""

    def open(self, dirfd: int, mnt_id: int, parts: Sequence[bytes], flags: int) -> int:
        """See Resolver."""
        path = b"/".join(parts)
        if len(path) < PATH_MAX:
            return _openat2(dirfd, path, flags | os.O_NOFOLLOW)
        return self._open_long(dirfd, parts, flags)

    def _open_long(self, dirfd: int, parts: Sequence[bytes], flags: int) -> int:
        current = dirfd
        start = 0
        try:
            while True:
                end, length = start, -1
                while end < len(parts) and length + 1 + len(parts[end]) < PATH_MAX:
                    length += 1 + len(parts[end])
                    end += 1
                last = end == len(parts)
                wanted = flags | os.O_NOFOLLOW if last else _O_ENTER
                fd = _openat2(current, b"/".join(parts[start:end]), wanted)
                if last:
                    return fd
                if current != dirfd:
                    os.close(current)
                current, start = fd, end
        finally:
            if current != dirfd:
                os.close(current)


class Walk:
    """Resolution by one openat with O_NOFOLLOW for each component, the mount compared each time."""

    def open(self, dirfd: int, mnt_id: int, parts: Sequence[bytes], flags: int) -> int:
        """See Resolver."""
        current = dirfd
        try:
            for name in parts[:-1]:
                fd = self._step(current, mnt_id, name, _O_ENTER)
                if current != dirfd:
                    os.close(current)
                current = fd
            return self._step(current, mnt_id, parts[-1], flags)
        finally:
            if current != dirfd:
                os.close(current)

    @staticmethod
    def _step(dirfd: int, mnt_id: int, name: bytes, flags: int) -> int:
        try:
            fd = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dirfd)
        except NotADirectoryError:
            # O_DIRECTORY answers ENOTDIR for a link too; say which, as openat2 does.
            if stat.S_ISLNK(linux.statx(dirfd, name).mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
            raise
        if _mount_id_or_close(fd) != mnt_id:
            os.close(fd)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
        return fd


def _mount_id_or_close(fd: int) -> int:
    try:
        return mount_id(fd)
    except OSError:
        os.close(fd)
        raise


def _openat2(dirfd: int, path: bytes, flags: int) -> int:
    # EAGAIN: a rename elsewhere raced with the resolution; openat2(2) says to try again. The bound
    # only keeps a hostile renamer from holding the call for ever.
    for _ in range(1000):
        try:
            return linux.openat2(dirfd, path, flags, _RESOLVE)
        except BlockingIOError as exc:
            last = exc
    raise last


@functools.cache
def resolver() -> Resolver:
    """The resolver of this process: Openat2 where the kernel and the seccomp filter allow it."""
    if os.environ.get("GEMSPACE_NO_OPENAT2") == "1":
        return Walk()
    try:
        os.close(linux.openat2(linux.AT_FDCWD, b".", os.O_PATH | os.O_DIRECTORY, _RESOLVE))
    except OSError as exc:
        # ENOSYS: before Linux 5.6. EPERM: a seccomp filter. Anything else says the call is there.
        if exc.errno in (errno.ENOSYS, errno.EPERM):
            return Walk()
    return Openat2()


def refuse_type(mode: int, name: bytes = b"") -> None:
    """Raises OSError unless `mode` is a regular file's: ELOOP, EISDIR, ENXIO for special files."""
    if stat.S_ISREG(mode):
        return
    if stat.S_ISLNK(mode):
        number = errno.ELOOP
    elif stat.S_ISDIR(mode):
        number = errno.EISDIR
    else:
        number = errno.ENXIO
    raise OSError(number, os.strerror(number), name)


def reopen(fd: int, flags: int) -> int:
    """Opens the very inode that the O_PATH descriptor `fd` holds; no name is resolved again."""
    return os.open(f"/proc/self/fd/{fd}", (flags & ~os.O_NOFOLLOW) | os.O_CLOEXEC)


def open_regular(dirfd: int, mnt_id: int, parts: Sequence[bytes], flags: int) -> int:
    """A descriptor of an existing regular file.

    The entry is held by O_PATH first, so that its type is known before anything is opened: opening
    a FIFO may block and opening a device may act. `flags` must not hold O_CREAT, O_EXCL or O_TRUNC.
    """
    look = resolver().open(dirfd, mnt_id, parts, _O_LOOK)
    try:
        refuse_type(os.fstat(look).st_mode, parts[-1])
        return reopen(look, flags)
    finally:
        os.close(look)


def create_regular(
    dirfd: int,
    name: bytes,
    mode: int,
    flags: int = os.O_RDWR,
    owner: tuple[int, int] | None = None,
) -> int:
    """Makes `name`, which must not exist, as an empty regular file of exactly `mode`.

    Nobody but its maker can open it before it has its owner.
    """
    check_name(name)
    create = flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, create, 0o600, dir_fd=dirfd)
    try:
        if owner is not None:
            os.fchown(fd, *owner)
        os.fchmod(fd, mode)
    except OSError:
        os.close(fd)
        raise
    return fd


def make_directory(
    dirfd: int, mnt_id: int, name: bytes, mode: int, owner: tuple[int, int] | None
) -> None:
    """Makes the directory `name` of exactly `mode`, given to `owner` before it can be entered.

    The umask and the owner are set through a descriptor of the new directory. Should someone have
    put another entry in its place meanwhile, that entry is left as it is and ESTALE raised.
    """
    check_name(name)
    os.mkdir(name, 0o700, dir_fd=dirfd)
    fd = resolver().open(dirfd, mnt_id, (name,), os.O_RDONLY | os.O_DIRECTORY)
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or os.listdir(fd):
            raise OSError(errno.ESTALE, "the new directory was replaced meanwhile", name)
        os.fchmod(fd, mode)
        if owner is not None and (status.st_uid, status.st_gid) != owner:
            os.fchown(fd, *owner)
    finally:
        os.close(fd)


def rename(
    source_dirfd: int, source: bytes, target_dirfd: int, target: bytes, flags: int = 0
) -> None:
    """Renames one entry; `flags` are renameat2's NOREPLACE and EXCHANGE."""
    check_name(source)
    check_name(target)
    if flags:
        linux.renameat2(source_dirfd, source, target_dirfd, target, flags)
    else:
        os.rename(source, target, src_dir_fd=source_dirfd, dst_dir_fd=target_dirfd)


class Directory:
    """A directory pinned by a descriptor, and the operations beneath it.

    Use it as a context manager, or call `close`. It stays the same directory when it is renamed.
    Paths are relative to it; see `split_path`.
    """

    __slots__ = ("fd", "mnt_id")

    def __init__(self, fd: int) -> None:
        """Takes over `fd`, an O_PATH or readable descriptor of a directory."""
        self.fd = fd
        """The pinned descriptor; it may be O_PATH, good for *at calls only."""
        self.mnt_id = mount_id(fd)
        """The mount that everything beneath must be on."""

    @classmethod
    def open(cls, host_path: str | bytes | os.PathLike[str]) -> Directory:
        """Pins a root by its host path: its parents are the operator's, itself must be no link."""
        name = os.fsencode(host_path)
        try:
            if b"\0" in name:
                raise OSError(errno.EINVAL, "the path holds a NUL byte")
            # A trailing slash would make O_NOFOLLOW follow.
            return cls(os.open(name.rstrip(b"/") or b"/", _O_ENTER))
        except OSError as exc:
            if exc.errno == errno.ENOTDIR and os.path.islink(name.rstrip(b"/")):
                raise LinkRefused(
                    "a root is a symbolic link", fix="name the real directory"
                ) from None
            raise from_oserror(exc, action="open a root") from None

    def close(self) -> None:
        """Releases the descriptor; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Directory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def directory(self, path: Path = ()) -> Directory:
        """A new pinned directory at `path`."""
        parts = split_path(path)
        with translated("open", parts):
            if not parts:
                return Directory(os.dup(self.fd))
            fd = resolver().open(self.fd, self.mnt_id, parts, _O_ENTER)
            try:
                return Directory(fd)
            except OSError:
                os.close(fd)
                raise

    @contextmanager
    def parent(self, path: Path) -> Iterator[tuple[Directory, bytes]]:
        """The pinned directory that holds the last component of `path`, and that component."""
        parts = split_path(path)
        if not parts:
            raise InvalidPath("the root itself cannot be made, renamed or removed", path=b"/")
        if len(parts) == 1:
            yield self, parts[0]
            return
        with self.directory(parts[:-1]) as directory:
            yield directory, parts[-1]

    def stat(self, path: Path = ()) -> Status:
        """The status of an entry; of a link itself, never of its target."""
        parts = split_path(path)
        with translated("look at", parts):
            if not parts:
                return linux.fstatx(self.fd)
            fd = resolver().open(self.fd, self.mnt_id, parts, _O_LOOK)
            try:
                return linux.fstatx(fd)
            finally:
                os.close(fd)

    def names(self, path: Path = ()) -> list[bytes]:
        """The names in a directory, in the file system's order, `.` and `..` left out."""
        parts = split_path(path)
        with translated("list", parts):
            fd = self._listing(parts)
            try:
                return [os.fsencode(name) for name in os.listdir(fd)]
            finally:
                os.close(fd)

    def _listing(self, parts: tuple[bytes, ...]) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        if not parts:
            return os.open(".", flags, dir_fd=self.fd)
        return resolver().open(self.fd, self.mnt_id, parts, flags)

    def open_file(self, path: Path, flags: int = os.O_RDONLY) -> int:
        """A descriptor of an existing regular file, with O_RDONLY, O_WRONLY, O_RDWR or O_APPEND."""
        parts = split_path(path)
        with translated("open", parts):
            if not parts:
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            return open_regular(self.fd, self.mnt_id, parts, flags)

    def create_file(
        self, path: Path, mode: int = FILE_MODE, owner: tuple[int, int] | None = None
    ) -> int:
        """A read-write descriptor of a new, empty file; AlreadyExists when the name is taken."""
        parts = split_path(path)
        with translated("create", parts), self.parent(parts) as (directory, name):
            return create_regular(directory.fd, name, mode, owner=owner)

    def make_directory(
        self, path: Path, mode: int = DIRECTORY_MODE, owner: tuple[int, int] | None = None
    ) -> None:
        """Makes one directory; its parent must exist."""
        parts = split_path(path)
        with translated("make", parts), self.parent(parts) as (directory, name):
            make_directory(directory.fd, directory.mnt_id, name, mode, owner)

    def make_directories(
        self, path: Path, mode: int = DIRECTORY_MODE, owner: tuple[int, int] | None = None
    ) -> Directory:
        """The directory at `path`, pinned, made with its missing parents."""
        directory = self.directory()
        try:
            for name in split_path(path):
                with translated("make", (name,)), suppress(FileExistsError):
                    make_directory(directory.fd, directory.mnt_id, name, mode, owner)
                deeper = directory.directory((name,))
                directory.close()
                directory = deeper
        except BaseException:
            directory.close()
            raise
        return directory

    def unlink(self, path: Path) -> None:
        """Removes an entry that is not a directory; a link goes as the link."""
        parts = split_path(path)
        with translated("remove", parts), self.parent(parts) as (directory, name):
            try:
                os.unlink(name, dir_fd=directory.fd)
            except PermissionError as exc:
                # POSIX lets unlink answer EPERM for a directory, and some file systems do.
                if stat.S_ISDIR(linux.statx(directory.fd, name).mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from exc
                raise

    def remove_directory(self, path: Path) -> None:
        """Removes an empty directory."""
        parts = split_path(path)
        with translated("remove", parts), self.parent(parts) as (directory, name):
            os.rmdir(name, dir_fd=directory.fd)

    def rename(
        self, source: Path, target: Path, *, to: Directory | None = None, flags: int = 0
    ) -> None:
        """Renames `source` to `target` beneath `to` (here, if None), with renameat2's `flags`."""
        source_parts, target_parts = split_path(source), split_path(target)
        with (
            translated("rename", source_parts),
            self.parent(source_parts) as (source_dir, source_name),
            (to or self).parent(target_parts) as (target_dir, target_name),
        ):
            rename(source_dir.fd, source_name, target_dir.fd, target_name, flags)

    def link(self, source: Path, target: Path, *, to: Directory | None = None) -> None:
        """Makes `target` a further name of the file `source`; a link is linked, not its target."""
        source_parts, target_parts = split_path(source), split_path(target)
        with (
            translated("link", source_parts),
            self.parent(source_parts) as (source_dir, source_name),
            (to or self).parent(target_parts) as (target_dir, target_name),
        ):
            os.link(
                source_name,
                target_name,
                src_dir_fd=source_dir.fd,
                dst_dir_fd=target_dir.fd,
                follow_symlinks=False,
            )

    def read_link(self, path: Path) -> bytes:
        """The text of a symbolic link, which nothing here ever resolves."""
        parts = split_path(path)
        with translated("read", parts), self.parent(parts) as (directory, name):
            return os.readlink(name, dir_fd=directory.fd)

    def make_link(self, path: Path, text: bytes) -> None:
        """Makes a symbolic link of the given text: to restore one, as a migration does."""
        parts = split_path(path)
        with translated("make", parts), self.parent(parts) as (directory, name):
            os.symlink(text, name, dir_fd=directory.fd)

    def change_mode(self, path: Path, mode: int) -> None:
        """Sets the permission bits of a file or directory; a link is refused."""
        parts = split_path(path)
        with translated("change", parts), self._held(parts) as fd:
            os.chmod(f"/proc/self/fd/{fd}", mode)

    def change_owner(self, path: Path, uid: int, gid: int) -> None:
        """Sets the owner of an entry; of a link itself."""
        parts = split_path(path)
        with translated("change", parts):
            if not parts:
                os.chown(f"/proc/self/fd/{self.fd}", uid, gid)
                return
            with self.parent(parts) as (directory, name):
                os.chown(name, uid, gid, dir_fd=directory.fd, follow_symlinks=False)

    def change_times(self, path: Path, atime_ns: int, mtime_ns: int) -> None:
        """Sets both times in nanoseconds; of a link itself."""
        parts = split_path(path)
        with translated("change", parts):
            if not parts:
                os.utime(f"/proc/self/fd/{self.fd}", ns=(atime_ns, mtime_ns))
                return
            with self.parent(parts) as (directory, name):
                os.utime(name, ns=(atime_ns, mtime_ns), dir_fd=directory.fd, follow_symlinks=False)

    def sync(self) -> None:
        """Makes the directory's own entries durable."""
        with translated("sync", ()):
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    @contextmanager
    def _held(self, parts: tuple[bytes, ...]) -> Iterator[int]:
        """An O_PATH descriptor of the entry, a link refused."""
        fd = resolver().open(self.fd, self.mnt_id, parts, _O_LOOK) if parts else os.dup(self.fd)
        try:
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            yield fd
        finally:
            os.close(fd)


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
