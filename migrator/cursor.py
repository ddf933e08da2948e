"""A place in a tree that moves from directory to directory, whatever the depth.

To go to a directory costs one open for each name in which its path differs from that of the last.
So a tree that is gone through in order costs one open a directory, and at most `vfs.descent.HELD` +
2 descriptors.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from migrator.units import Path
from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.descent import Descent

CURSORS: Final = 8
"""Cursors that a `Cursors` holds at once: 8 of 34 descriptors each, out of the 1 024 that a process
usually gets."""

ABSENT: Final = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP))
"""What the system answers where no such directory is (any more)."""


class Cursor(Closing):
    """Stands in a directory at or beneath its top."""

    __slots__ = ("_descent", "path")

    def __init__(self, top: Directory) -> None:
        """Takes over `top`, whose descriptor must be readable."""
        self._descent = Descent(top)
        self.path: Path = ()
        """Where it stands."""

    @classmethod
    def open(cls, root: Directory, path: Path) -> Cursor:
        """One whose top is the directory at `path` beneath `root`. Raises VfsError."""
        return cls(Directory(root.open_listing(path), root.mnt_id))

    def go(self, path: Path) -> Directory:
        """Moves to the directory at `path`; it is readable, and pinned until the next move.

        Raises OSError: ELOOP where a link is on the way, EXDEV where another mount is, and the
        like; it stands then in the last directory that could be had. ESTALE where the tree was
        moved meanwhile; then it is of no more use.
        """
        shared = common(self.path, path)
        try:
            while self._descent.depth > shared:
                self._descent.leave()
            for name in path[shared:]:
                self._descent.enter(name)
        except OSError:
            self.path = path[: self._descent.depth]
            raise
        self.path = path
        return self._descent.here

    def close(self) -> None:
        """Releases every descriptor; a second call does nothing."""
        self._descent.close()


def common(one: Path, other: Path) -> int:
    """How many names both paths begin with."""
    # What is next is nearly always beside or beneath what was last.
    for length in (len(one), len(one) - 1):
        if 0 <= length <= len(other) and one[:length] == other[:length]:
            return length + (one[length : length + 1] == other[length : length + 1] != ())
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Cursors(Closing):
    """A cursor for each of any number of trees; the few used last are held."""

    __slots__ = ("_held", "_open")

    def __init__(self, open: Callable[[int], Cursor]) -> None:
        """`open` makes the cursor of the tree with a number."""
        self._open = open
        self._held: OrderedDict[int, Cursor] = OrderedDict()

    def go(self, number: int, path: Path) -> Directory:
        """The directory at `path` of one tree; pinned until `CURSORS` others were gone to.

        Raises OSError, and VfsError where the top of the tree cannot be had.
        """
        cursor = self._held.pop(number, None)
        if cursor is None:
            cursor = self._open(number)
            if len(self._held) == CURSORS:
                self._held.popitem(last=False)[1].close()
        self._held[number] = cursor
        try:
            return cursor.go(path)
        except OSError as exc:
            if exc.errno not in ABSENT:
                del self._held[number]
                cursor.close()
            raise

    def close(self) -> None:
        """Releases all of them; a second call does nothing."""
        while self._held:
            self._held.popitem()[1].close()
