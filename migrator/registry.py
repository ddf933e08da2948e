"""The names under which copied files that have several are found again, across units and processes.

Of a file that has further names the first copy gets one more in a hidden directory of its user,
called by device and inode of the source; whoever meets another of its names links that. So the
copies of one user's files are one file exactly when the files were, and no two users share any.
A name is there only once the copy is whole.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Final

from migrator.units import STAGING, Path
from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.making import make_directories

NAME: Final = b"links"
"""The directory in that of the staged units; no unit's key is called so."""


class Registry(Closing):
    """The further names of one user's copies. Raises OSError, and VfsError where it is opened."""

    __slots__ = ("_directory", "_holder", "_owner", "_root")

    def __init__(self, root: Directory, holder: Path, owner: tuple[int, int] | None) -> None:
        """`holder` is the user's directory beneath `root`; nothing is made before it is needed."""
        self._root = root
        self._holder = holder
        self._owner = owner
        self._directory: Directory | None = None

    def close(self) -> None:
        """Releases its descriptor; a second call does nothing."""
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    def give(self, source: os.stat_result, target: Directory, name: str | bytes) -> bool:
        """Makes `name` in `target` a further name of the copy of this file, if there is one."""
        try:
            _link(self._opened().fd, _key(source), target.fd, name)
        except FileNotFoundError:
            return False
        except OSError as exc:
            if exc.errno != errno.EMLINK:
                raise
            self.forget(source)
            return False
        return True

    def keep(self, source: os.stat_result, target: Directory, name: str | bytes) -> bool:
        """Remembers the copy `name` in `target`; False if another process has one by now."""
        try:
            _link(target.fd, name, self._opened().fd, _key(source))
        except FileExistsError:
            return False
        return True

    def forget(self, source: os.stat_result) -> None:
        """Lets go of a copy that is of no more use."""
        with suppress(FileNotFoundError):
            os.unlink(_key(source), dir_fd=self._opened().fd)

    def _opened(self) -> Directory:
        if self._directory is None:
            path = (*self._holder, STAGING, NAME)
            self._directory = make_directories(self._root, path, self._owner)
        return self._directory


def _key(status: os.stat_result) -> bytes:
    return b"%d-%d" % (status.st_dev, status.st_ino)


def _link(from_fd: int, old: str | bytes, to_fd: int, new: str | bytes) -> None:
    os.link(old, new, src_dir_fd=from_fd, dst_dir_fd=to_fd, follow_symlinks=False)
