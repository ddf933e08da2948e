"""One file's bytes: read once, hashed on the way, and written, with its holes and attributes kept.

The digest of a file is the SHA-256 of its bytes, in hex. That of a file with holes is told by a
prefix, `SPARSE`, and made of what is no hole: of each block of `BLOCK` bytes, counted from the
file's beginning, that is not all zeros, its offset (8 bytes, little endian) and its bytes; then of
the file's size. So a file that is all hole costs nothing, however large it says it is, and where a
file system puts its holes does not matter.

Everything here raises OSError.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Final

from vfs.beneath import Directory, refuse_type, reopen, resolver
from vfs.copying import extents
from vfs.resolving import O_LOOK

if TYPE_CHECKING:
    from hashlib import _Hash as Hash

SPARSE: Final = "sparse:"

BLOCK: Final = 1 << 16
"""Bytes of a block of a sparse file; the last one may be shorter."""

CHUNK: Final = 1 << 20
"""Bytes that are read at once: of 64 KiB to 4 MiB the fastest, for a gigabyte in memory."""

SMALL: Final = 1 << 15
"""Bytes that are rather had as an object of their own than put into a buffer."""

FICLONE: Final = 0x40049409
"""include/uapi/linux/fs.h: _IOW(0x94, 9, int)."""

NO_CLONE: Final = frozenset(
    (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ETXTBSY, errno.ENOSYS)
)
"""What FICLONE answers for two files of which one cannot share the other's blocks."""

_NO_XATTR: Final = frozenset((errno.EOPNOTSUPP, errno.E2BIG, errno.ERANGE, errno.ENOSPC))
"""What setxattr(2) answers for an attribute that a file system cannot have, or not so large."""

_XATTRS: Final = "user."
"""The extended attributes that are kept: those that anybody may set. The others belong to the
system (ACLs, capabilities, labels), and modes and owners of the copy are others as well."""


Count = Callable[[int], None]
"""Is told of bytes when they are done."""


def is_sparse(status: os.stat_result) -> bool:
    """Whether the digest of a file of this status is made as that of one with holes."""
    return status.st_blocks * 512 < status.st_size


class Content:
    """Buffers for one process, used for one file after another."""

    @cached_property
    def _chunks(self) -> tuple[memoryview, memoryview]:
        # Not before something is read: where files are linked nothing is.
        return memoryview(bytearray(CHUNK)), memoryview(bytearray(CHUNK))

    def digest(self, fd: int, size: int, count: Count, *, sparse: bool) -> str:
        """The digest of the first `size` bytes of an open file, made as one with holes or not."""
        if size <= SMALL and not sparse:
            count(size)
            return hashlib.sha256(os.pread(fd, size, 0)).hexdigest()
        return self._take(fd, None, size, count, sparse=sparse)

    def copy(self, source: int, target: int, status: os.stat_result, count: Count) -> str:
        """Fills the empty file `target` with what is in `source`, of this status; its digest."""
        size = status.st_size
        if size <= SMALL and status.st_blocks * 512 >= size:
            data = os.pread(source, size, 0)
            done = os.pwrite(target, data, 0) if data else 0
            if done < len(data):
                _write(target, memoryview(data)[done:], done)
            count(size)
            return hashlib.sha256(data).hexdigest()
        return self._take(source, target, size, count, sparse=is_sparse(status))

    def clone(self, source: int, target: int, status: os.stat_result, count: Count) -> str:
        """The same, the blocks shared where the file system can; else they are copied."""
        try:
            fcntl.ioctl(target, FICLONE, source)
        except OSError as exc:
            if exc.errno not in NO_CLONE:
                raise
            return self.copy(source, target, status, count)
        return self.digest(source, status.st_size, count, sparse=is_sparse(status))

    def _take(
        self, source: int, target: int | None, size: int, count: Count, *, sparse: bool
    ) -> str:
        if sparse:
            if target is not None:
                self._copy_ranges(source, target, size)
            return self._hash_sparse(source, size, count)
        digest = hashlib.sha256()
        if size <= CHUNK:
            chunk = self._chunks[0][:size]
            chunk = chunk[: _read(source, chunk, 0)]
            digest.update(chunk)
            if target is not None:
                _write(target, chunk, 0)
            count(len(chunk))
        elif target is None:
            self._hash(source, size, digest, count)
        else:
            self._copy_large(source, target, size, digest, count)
        return digest.hexdigest()

    def _hash(self, source: int, size: int, digest: Hash, count: Count) -> None:
        chunk = self._chunks[0]
        position = 0
        while position < size and (done := _read(source, chunk[: size - position], position)):
            digest.update(chunk[:done])
            position += done
            count(done)

    def _copy_large(self, source: int, target: int, size: int, digest: Hash, count: Count) -> None:
        """Hashes in a second thread what was read, while it is written and more is read."""
        hashing: Future[None] | None = None
        position = number = 0
        with ThreadPoolExecutor(1) as second:
            while position < size:
                chunk = self._chunks[number % 2][: size - position]
                chunk = chunk[: _read(source, chunk, position)]
                if not chunk:
                    break
                if hashing is not None:
                    hashing.result()  # so that its buffer is free for the next chunk
                hashing = second.submit(digest.update, chunk)
                _write(target, chunk, position)
                position += len(chunk)
                number += 1
                count(len(chunk))
            if hashing is not None:
                hashing.result()

    def _copy_ranges(self, source: int, target: int, size: int) -> None:
        """Copies what is no hole, so that the holes are where they were."""
        os.ftruncate(target, size)
        for position, end in extents(source, size):
            while position < end:
                chunk = self._chunks[0][: end - position]
                chunk = chunk[: _read(source, chunk, position)]
                if not chunk:
                    return
                _write(target, chunk, position)
                position += len(chunk)

    def _hash_sparse(self, source: int, size: int, count: Count) -> str:
        digest = hashlib.sha256()
        for position, end in _ranges(source, size):
            while position < end:
                chunk = self._chunks[0][: end - position]
                chunk = chunk[: _read(source, chunk, position)]
                if not chunk:
                    break
                for offset in range(0, len(chunk), BLOCK):
                    block = chunk[offset : offset + BLOCK]
                    if block != _ZEROS[: len(block)]:
                        digest.update((position + offset).to_bytes(8, "little"))
                        digest.update(block)
                position += len(chunk)
                count(len(chunk))
        digest.update(size.to_bytes(8, "little"))
        return SPARSE + digest.hexdigest()


_ZEROS: Final = memoryview(bytes(BLOCK))


def _ranges(fd: int, size: int) -> Iterator[tuple[int, int]]:
    """The ranges of a file that are no holes, each widened to whole blocks, none twice."""
    done = 0
    for start, end in extents(fd, size):
        start = max(start // BLOCK * BLOCK, done)
        end = min(-(-end // BLOCK) * BLOCK, size)
        if start < end:
            yield start, end
            done = end


def _read(fd: int, buffer: memoryview, position: int) -> int:
    """Reads until the buffer is full or the file ends; the bytes read."""
    done = 0
    while done < len(buffer):
        count = os.preadv(fd, [buffer[done:]], position + done)
        if not count:
            break
        done += count
    return done


def _write(fd: int, chunk: memoryview, position: int) -> None:
    while chunk:
        count = os.pwrite(fd, chunk, position)
        chunk = chunk[count:]
        position += count


def open_regular(directory: Directory, name: bytes) -> tuple[int, os.stat_result]:
    """A readable descriptor of a regular file, and its status; its time of access stays.

    As that of `vfs.dirfd`: held first, so that nothing but a regular file is ever opened.
    """
    look = resolver().open(directory.fd, directory.mnt_id, (name,), O_LOOK)
    try:
        status = os.fstat(look)
        refuse_type(status.st_mode, name)
        return _reopen(look), status
    finally:
        os.close(look)


def _reopen(look: int) -> int:
    try:
        return reopen(look, os.O_RDONLY | os.O_NONBLOCK | os.O_NOATIME)
    except PermissionError as exc:
        if exc.errno != errno.EPERM:  # open(2): O_NOATIME is for the owner of the file
            raise
        return reopen(look, os.O_RDONLY | os.O_NONBLOCK)


def copy_xattrs(source: int, target: int) -> tuple[str | None, bool]:
    """Gives an open file the users' extended attributes of another, as many as it can have.

    The digest of those that it has now, None for none; and whether these are all.
    """
    found = _xattrs(source)
    if not found:
        return None, True
    kept = [(name, value) for name, value in found if _set_xattr(target, name, value)]
    return _xattrs_digest(kept) if kept else None, len(kept) == len(found)


def _set_xattr(fd: int, name: str, value: bytes) -> bool:
    """Whether the file has the attribute now; not where the file system has no place for it."""
    try:
        os.setxattr(fd, name, value)
    except OSError as exc:
        # ext4 gives all attributes of a file one block, and answers as if the disk were full.
        full = exc.errno == errno.ENOSPC and os.fstatvfs(fd).f_bavail == 0
        if full or exc.errno not in _NO_XATTR:
            raise
        return False
    return True


def xattrs_digest(fd: int) -> str | None:
    """The digest of the users' extended attributes of an open file, None for none."""
    found = _xattrs(fd)
    return _xattrs_digest(found) if found else None


def _xattrs(fd: int) -> list[tuple[str, bytes]]:
    try:
        names = os.listxattr(fd)
    except OSError as exc:
        if exc.errno != errno.EOPNOTSUPP:
            raise
        return []
    if not names:
        return []
    return [(name, os.getxattr(fd, name)) for name in sorted(names) if name.startswith(_XATTRS)]


def _xattrs_digest(found: list[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, value in found:
        for part in (os.fsencode(name), value):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def text_digest(text: bytes) -> str:
    """The digest of a link: that of its text."""
    return hashlib.sha256(text).hexdigest()
