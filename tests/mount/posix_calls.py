"""The system calls that the suites make, by name, errnos as values; and identities to make them.

Run as a program it is a peer: `posix_calls FOLDER` reads pickled steps on stdin, makes each call in
FOLDER, and writes the pickled result on stdout.

A step is `(who, call, *arguments)`: a name of `IDENTITIES` and a method of `Calls`. Everything is
plain values. Nothing here imports the project: other identities may not read it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import pickle
import resource
import socket
import stat
import struct
import sys
import time
from typing import Any

IDENTITIES: dict[str, tuple[int, int, list[int]]] = {
    "root": (0, 0, []),
    "user": (65534, 65534, [65534, 2000, 2001]),
    "mate": (65533, 65533, [65533, 2000]),
    "guest": (65532, 65532, []),
}
"""uid, gid and further groups. None is 1000, which the mount gives to what root makes."""

Step = tuple[Any, ...]
Facts = dict[str, Any]

OMIT = -2
NOW = -1
"""In times: leave it, or the present. Else nanoseconds, or (seconds, nanoseconds) unchecked."""

_AT_FDCWD = -100
_UTIME = {NOW: (0, (1 << 30) - 1), OMIT: (0, (1 << 30) - 2)}  # include/linux/stat.h
_SET_IDS = stat.S_ISUID | stat.S_ISGID

_TYPES = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}

_FLOCK = struct.Struct("hhqqi4x")
"""struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid."""
_F_OFD_SETLK = 37  # include/uapi/asm-generic/fcntl.h

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def _flock(kind: int, start: int, length: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


def checked(result: int) -> int:
    """The result of a libc call that sets errno."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def timespecs(*times: Any) -> ctypes.Array[ctypes.c_int64]:
    """Two times as utimensat wants them."""
    words: list[int] = []
    for value in times:
        if isinstance(value, tuple):
            words += value
        else:
            words += _UTIME.get(value) or divmod(value, 1_000_000_000)
    return (ctypes.c_int64 * 4)(*words)


class Calls:
    """The system calls that scenarios use, each under its name; paths are relative."""

    def __init__(self) -> None:
        self.handles: dict[str, int] = {}
        self.mappings: dict[str, mmap.mmap] = {}

    def close_all(self) -> None:
        """Closes every file that is open."""
        for fd in self.handles.values():
            os.close(fd)
        self.handles.clear()

    def _fd(self, handle: str) -> int:
        """EBADF where the open failed, so that what would follow it fails in both runs alike."""
        try:
            return self.handles[handle]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    # Paths.

    def open(self, path: bytes, flags: int, mode: int = 0o644, keep: str = "") -> str:
        """Gives the flags that F_GETFL reports, in octal."""
        fd = os.open(path, flags, mode)
        if keep:
            self.handles[keep] = fd
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        if not keep:
            os.close(fd)
        return oct(flags)

    def mkdir(self, path: bytes, mode: int) -> None:
        os.mkdir(path, mode)

    def rmdir(self, path: bytes) -> None:
        os.rmdir(path)

    def unlink(self, path: bytes) -> None:
        os.unlink(path)

    def rename(self, old: bytes, new: bytes, flags: int = 0) -> None:
        checked(libc.renameat2(_AT_FDCWD, old, _AT_FDCWD, new, flags))

    def link(self, old: bytes, new: bytes) -> None:
        os.link(old, new, follow_symlinks=False)

    def symlink(self, text: bytes, path: bytes) -> None:
        os.symlink(text, path)

    def mknod(self, path: bytes, mode: int, device: int = 0) -> None:
        os.mknod(path, mode, device)

    def mkfifo(self, path: bytes, mode: int) -> None:
        os.mkfifo(path, mode)

    def bind(self, path: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path)

    def connect(self, path: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as made:
            made.connect(path)

    def chmod(self, path: bytes, mode: int) -> None:
        os.chmod(path, mode)

    def chown(self, path: bytes, uid: int, gid: int) -> None:
        os.chown(path, uid, gid)

    def lchown(self, path: bytes, uid: int, gid: int) -> None:
        os.lchown(path, uid, gid)

    def truncate(self, path: bytes, size: int) -> None:
        os.truncate(path, size)

    def utimensat(self, path: bytes, atime: Any, mtime: Any, follow: bool = True) -> None:
        flags = 0 if follow else 0x100  # AT_SYMLINK_NOFOLLOW
        checked(libc.utimensat(_AT_FDCWD, path, timespecs(atime, mtime), flags))

    def utimes_null(self, path: bytes) -> None:
        checked(libc.utimensat(_AT_FDCWD, path, None, 0))

    def access(self, path: bytes, mode: int, effective: bool = False) -> None:
        checked(libc.faccessat(_AT_FDCWD, path, mode, 0x200 if effective else 0))  # AT_EACCESS

    def stat(self, path: bytes) -> Facts:
        return shown(facts(os.stat(path)))

    def lstat(self, path: bytes) -> Facts:
        return shown(facts(os.lstat(path)))

    def readlink(self, path: bytes) -> bytes:
        return os.readlink(path)

    def statvfs(self, path: bytes) -> tuple[int, int]:
        found = os.statvfs(path)
        return found.f_namemax, found.f_bsize

    def chdir(self, path: bytes) -> None:
        os.chdir(path)

    def listdir(self, path: bytes) -> list[tuple[bytes, bool, bool]]:
        """Names, and what the listing itself says of their types."""
        with os.scandir(path) as entries:
            return sorted(
                (os.fsencode(e.name), e.is_dir(follow_symlinks=False), e.is_symlink())
                for e in entries
            )

    def getxattr(self, path: bytes, name: bytes, size: int | None = None) -> bytes | int:
        if size is None:
            return os.getxattr(path, name, follow_symlinks=False)
        buffer = ctypes.create_string_buffer(max(size, 1))
        return checked(libc.lgetxattr(path, name, buffer, size))

    def setxattr(self, path: bytes, name: bytes, value: bytes, flags: int = 0) -> None:
        os.setxattr(path, name, value, flags, follow_symlinks=False)

    def removexattr(self, path: bytes, name: bytes) -> None:
        os.removexattr(path, name, follow_symlinks=False)

    def listxattr(self, path: bytes) -> list[str]:
        return sorted(os.listxattr(path, follow_symlinks=False))

    # Open files.

    def close(self, handle: str) -> None:
        os.close(self._fd(handle))
        del self.handles[handle]

    def read(self, handle: str, size: int) -> bytes:
        return os.read(self._fd(handle), size)

    def pread(self, handle: str, size: int, offset: int) -> bytes:
        return os.pread(self._fd(handle), size, offset)

    def write(self, handle: str, data: bytes) -> int:
        return os.write(self._fd(handle), data)

    def pwrite(self, handle: str, data: bytes, offset: int) -> int:
        return os.pwrite(self._fd(handle), data, offset)

    def pwritev(self, handle: str, data: tuple[bytes, ...], offset: int) -> int:
        return os.pwritev(self._fd(handle), data, offset)

    def lseek(self, handle: str, offset: int, whence: int) -> int:
        return os.lseek(self._fd(handle), offset, whence)

    def ftruncate(self, handle: str, size: int) -> None:
        os.ftruncate(self._fd(handle), size)

    def fchmod(self, handle: str, mode: int) -> None:
        os.fchmod(self._fd(handle), mode)

    def fchown(self, handle: str, uid: int, gid: int) -> None:
        os.fchown(self._fd(handle), uid, gid)

    def futimens(self, handle: str, atime: Any, mtime: Any) -> None:
        checked(libc.futimens(self._fd(handle), timespecs(atime, mtime)))

    def fstat(self, handle: str) -> Facts:
        return shown(facts(os.fstat(self._fd(handle))))

    def fsync(self, handle: str) -> None:
        os.fsync(self._fd(handle))

    def fdatasync(self, handle: str) -> None:
        os.fdatasync(self._fd(handle))

    def fchdir(self, handle: str) -> None:
        os.fchdir(self._fd(handle))

    def flistdir(self, handle: str) -> list[str]:
        return sorted(os.listdir(self._fd(handle)))

    def posix_fallocate(self, handle: str, offset: int, length: int) -> None:
        os.posix_fallocate(self._fd(handle), offset, length)

    def fallocate(self, handle: str, mode: int, offset: int, length: int) -> None:
        checked(libc.fallocate(self._fd(handle), mode, offset, length))

    def copy_file_range(
        self, source: str, target: str, length: int, source_offset: int, offset: int
    ) -> int:
        return os.copy_file_range(self._fd(source), self._fd(target), length, source_offset, offset)

    def sendfile(self, source: str, target: str, offset: int, length: int) -> int:
        return os.sendfile(self._fd(target), self._fd(source), offset, length)

    def link_handle(self, handle: str, path: bytes) -> None:
        os.link(f"/proc/self/fd/{self._fd(handle)}", path, follow_symlinks=True)

    def reopen(self, handle: str, flags: int, keep: str = "") -> str:
        return self.open(b"/proc/self/fd/%d" % self._fd(handle), flags, keep=keep)

    def map_write(self, handle: str, size: int, offset: int, data: bytes) -> None:
        with mmap.mmap(self._fd(handle), size) as memory:
            memory[offset : offset + len(data)] = data
            memory.flush()

    def map_read(self, handle: str, size: int, protection: int = mmap.PROT_READ) -> bytes:
        with mmap.mmap(self._fd(handle), size, prot=protection) as memory:
            return memory[:]

    def flock(self, handle: str, operation: int) -> None:
        fcntl.flock(self._fd(handle), operation)

    def set_flags(self, handle: str, flags: int) -> None:
        fcntl.fcntl(self._fd(handle), fcntl.F_SETFL, flags)

    def read_at(self, handle: str, name: bytes, size: int) -> bytes:
        """Opens a name in a directory that is open, and reads from it."""
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=self._fd(handle))
        try:
            return os.read(fd, size)
        finally:
            os.close(fd)

    def make_at(self, handle: str, name: bytes) -> None:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL, 0o644, dir_fd=self._fd(handle)))

    def data_map(self, handle: str) -> list[tuple[int, int]]:
        """The ranges that hold data."""
        fd = self._fd(handle)
        end = os.fstat(fd).st_size
        ranges, position = [], 0
        while position < end:
            try:
                start = os.lseek(fd, position, os.SEEK_DATA)
            except OSError as exc:
                if exc.errno == errno.ENXIO:
                    break
                raise
            position = os.lseek(fd, start, os.SEEK_HOLE)
            ranges.append((start, position))
        return ranges

    # Locks of ranges, and mappings that stay.

    def setlk(self, handle: str, kind: int, start: int, length: int, wait: bool = False) -> None:
        """A POSIX lock of the process."""
        operation = fcntl.F_SETLKW if wait else fcntl.F_SETLK
        fcntl.fcntl(self._fd(handle), operation, _flock(kind, start, length))

    def setlk_open(self, handle: str, kind: int, start: int, length: int) -> None:
        """A lock of the open file description."""
        fcntl.fcntl(self._fd(handle), _F_OFD_SETLK, _flock(kind, start, length))

    def getlk(self, handle: str, kind: int, start: int, length: int) -> int:
        """F_UNLCK if such a lock could be had, else the kind of the one in the way."""
        answer = fcntl.fcntl(self._fd(handle), fcntl.F_GETLK, _flock(kind, start, length))
        return int(_FLOCK.unpack(answer)[0])

    def map_keep(self, handle: str, size: int) -> None:
        self.mappings[handle] = mmap.mmap(self._fd(handle), size)

    def map_put(self, handle: str, offset: int, data: bytes) -> None:
        self.mappings[handle][offset : offset + len(data)] = data

    def map_get(self, handle: str, offset: int, size: int) -> bytes:
        return self.mappings[handle][offset : offset + size]

    def map_sync(self, handle: str) -> None:
        self.mappings[handle].flush()

    # Many calls at once, for processes that work at the same time.

    def append_records(self, handle: str, tag: bytes, count: int) -> int:
        """Writes `count` lines of growing length that begin with `tag`; the bytes written."""
        fd = self._fd(handle)
        return sum(
            os.write(fd, b"%s %d %s\n" % (tag, number, b"x" * (number * 7 % 500)))
            for number in range(count)
        )

    def pwrite_records(self, handle: str, count: int, size: int) -> None:
        """Writes `count` records, each of `size` bytes that tell its number."""
        for number in range(count):
            os.pwrite(self._fd(handle), (b"%d." % number * size)[:size], number * size)

    def open_many(self, path: bytes, count: int) -> tuple[int, str]:
        """Opens a file again and again: how often that went, and the errno that ended it."""
        for number in range(count):
            try:
                self.handles[f"many{number}"] = os.open(path, os.O_RDONLY)
            except OSError as exc:
                return number, errno.errorcode[exc.errno or 0]
        return count, ""

    # The process.

    def umask(self, mask: int) -> None:
        os.umask(mask)

    def limit_size(self, size: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def facts(status: os.stat_result) -> Facts:
    """What is comparable of an inode; times in nanoseconds."""
    kind = stat.S_IFMT(status.st_mode)
    set_ids = status.st_mode & _SET_IDS if kind == stat.S_IFREG else 0
    return {
        "type": _TYPES[kind],
        "mode": oct(stat.S_IMODE(status.st_mode) & ~set_ids),
        "set-ids": oct(set_ids),
        "nlink": status.st_nlink,
        "size": status.st_size,
        "uid": status.st_uid,
        "gid": status.st_gid,
        "device": status.st_rdev if kind in (stat.S_IFCHR, stat.S_IFBLK) else 0,
        "ino": status.st_ino,
        "atime": status.st_atime_ns,
        "mtime": status.st_mtime_ns,
        "ctime": status.st_ctime_ns,
    }


def shown(found: Facts) -> Facts:
    """The facts that do not depend on when and where the scenario runs."""
    recent = time.time_ns() - 3600 * 1_000_000_000
    for key in ("atime", "mtime", "ctime"):
        if recent < found[key] < recent + 7200 * 1_000_000_000:
            found[key] = "recent"
    del found["ino"]
    return found


def become(who: str) -> None:
    """Takes an identity; root is kept as the saved user, so that it can be taken again."""
    os.setresuid(0, 0, 0)
    uid, gid, groups = IDENTITIES[who]
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, 0)


def perform(calls: Calls, step: Step) -> Any:
    """The value of a call, or the name of its errno."""
    _, call, *arguments = step
    try:
        return getattr(calls, call)(*arguments)
    except OSError as exc:
        return errno.errorcode.get(exc.errno or 0, str(exc))


def main() -> None:
    """Makes the calls of stdin, until it ends."""
    os.chdir(sys.argv[1])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    calls = Calls()
    while True:
        try:
            step = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        become(step[0])
        result = perform(calls, step)
        become("root")
        pickle.dump(result, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
