"""Calls on an open file of the mount.

They use its descriptor alone, so a worker thread may run them.
"""

from __future__ import annotations

import os

from vfs import linux


class FileIO:
    """Reads, writes and syncs; a handle is the host's descriptor itself."""

    @staticmethod
    def read(fh: int, size: int, offset: int) -> bytes:
        """At most `size` bytes at `offset`; fewer only at the end."""
        return os.pread(fh, size, offset)

    @staticmethod
    def write(fh: int, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Writes bytes at `offset`; the number written, short only when no more would go."""
        return os.pwrite(fh, data, offset)

    @staticmethod
    def fsync(fh: int, datasync: bool) -> None:
        """Makes a file durable."""
        if datasync:
            os.fdatasync(fh)
        else:
            os.fsync(fh)

    @staticmethod
    def fallocate(fh: int, mode: int, offset: int, length: int) -> None:
        """Reserves, punches or zeroes a range, as fallocate(2)."""
        linux.fallocate(fh, mode, offset, length)

    @staticmethod
    def lseek(fh: int, offset: int, whence: int) -> int:
        """The next data or hole from `offset`, by SEEK_DATA or SEEK_HOLE."""
        return os.lseek(fh, offset, whence)

    @staticmethod
    def copy_file_range(source: int, source_offset: int, fh: int, offset: int, length: int) -> int:
        """Copies a range between two open files; the number of bytes copied."""
        return os.copy_file_range(source, fh, length, source_offset, offset)
