"""What the operations and the transports of the mount tell each other: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vfs.linux import Status

Attributes = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int]
"""ino, size, blocks, atime, mtime, ctime, their nanoseconds, mode, nlink, uid, gid, rdev, blksize.

In the order of struct fuse_attr (include/uapi/linux/fuse.h), as they are to be shown: times in
seconds, blocks of 512 bytes.
"""

Caller = tuple[int, int]
"""uid and gid of the process whose request is answered."""

NOW = -1
"""In Change: the time of the change itself."""


class Entry(NamedTuple):
    """A name that was looked up or made. Each one given out counts as one lookup of its node."""

    node: int
    attributes: Attributes


class Opened(NamedTuple):
    """An open file."""

    fh: int
    """The handle: the host's descriptor itself."""
    keep_cache: bool
    """Whether pages that the kernel holds of the file are still those of its bytes."""
    is_first: bool
    """Whether the kernel cannot hold any page of the file yet."""
    size: int
    """Bytes."""
    writable: bool


class DirectoryEntry(NamedTuple):
    """One name of a listing."""

    name: bytes
    next_offset: int
    ino: int
    type: int
    """DT_* (include/linux/fs_types.h): the mode's type bits shifted right by 12."""
    attributes: Attributes | None
    """Only in a listing with attributes, and not for `.` and `..`."""
    status: Status | None
    dots: bool


@dataclass(slots=True)
class Change:
    """What a setattr asks for; None leaves a value as it is."""

    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    size: int | None = None
    atime_ns: int | None = None
    mtime_ns: int | None = None

    @property
    def touches_inode(self) -> bool:
        """Whether anything but the size is asked for."""
        return not (
            self.mode is None
            and self.uid is None
            and self.gid is None
            and self.atime_ns is None
            and self.mtime_ns is None
        )
