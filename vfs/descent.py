"""Where a walk stands: the directories from its top down, the deepest few held by descriptors.

It goes down and up any number of levels with at most `HELD` + 2 descriptors, and never leaves the
top: down by one name that is no link, up only to the very directory it came from. What of this is
another directory by now is refused as changed (ESTALE), not walked.
"""

from __future__ import annotations

import errno
import os

from vfs import linux
from vfs.beneath import Directory
from vfs.resolving import O_LIST, resolver

HELD = 32
"""Directories held at once. Real trees seldom go deeper, and 32 leave room in the 1 024 descriptors
that a process usually gets, even for some walks at a time."""


class _Level:
    __slots__ = ("directory", "identity", "name")

    def __init__(self, name: bytes, directory: Directory) -> None:
        self.name = name
        self.directory = directory
        self.identity: tuple[int, int, int] | None = None
        """Who it was, once its descriptor is given up."""


class Descent:
    """A stack of directories beneath `top`. Raises OSError."""

    __slots__ = ("_levels",)

    def __init__(self, top: Directory) -> None:
        """Takes over `top`, whose descriptor must be readable."""
        self._levels = [_Level(b"", top)]

    @property
    def here(self) -> Directory:
        """The directory it stands in; readable."""
        return self._levels[-1].directory

    @property
    def depth(self) -> int:
        """How many levels it is below the top."""
        return len(self._levels) - 1

    def enter(self, name: bytes) -> Directory:
        """Goes down into `name`, which must be a directory on the same mount."""
        here = self.here
        fd = resolver().open(here.fd, here.mnt_id, (name,), O_LIST)
        self._levels.append(_Level(name, Directory(fd, here.mnt_id)))
        if self.depth > HELD:
            self._give_up(self._levels[-1 - HELD])
        return self.here

    def _give_up(self, level: _Level) -> None:
        if level is self._levels[0] or level.directory.fd < 0:
            return
        level.identity = linux.fstatx(level.directory.fd).identity
        level.directory.close()

    def leave(self) -> bytes:
        """Goes up one level; the name of the directory left.

        Raises ESTALE when the directory above cannot be had again, since it or this one was moved.
        Its level is then lost, with a closed `here`, and to leave again is all that may be done.
        """
        left = self._levels.pop()
        try:
            if self.here.fd < 0:
                self._levels[-1].directory = self._again(left.directory)
        finally:
            left.directory.close()
        return left.name

    def _again(self, below: Directory) -> Directory:
        """The directory whose descriptor was given up: by `..` if that is it, else from the top."""
        for find in (self._from_below, self._from_the_top):
            try:
                fd = find(below)
            except OSError:
                continue
            if linux.fstatx(fd).identity == self._levels[-1].identity:
                return Directory(fd, self._levels[0].directory.mnt_id)
            os.close(fd)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    @staticmethod
    def _from_below(below: Directory) -> int:
        # Good only since the identity is compared: `..` leads to where the directory is now.
        return os.open(b"..", O_LIST, dir_fd=below.fd)

    def _from_the_top(self, _below: Directory) -> int:
        top = self._levels[0].directory
        parts = [level.name for level in self._levels[1:]]
        return resolver().open(top.fd, top.mnt_id, parts, O_LIST)

    def close(self) -> None:
        """Releases every descriptor, the top's too."""
        for level in self._levels:
            level.directory.close()
