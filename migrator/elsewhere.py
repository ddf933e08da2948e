"""Files in workspaces that have a further name elsewhere: they are not the workspace's alone.

A user may have linked in a file of somebody else's, of the host's even, where kernel and mounts let
them. To give such a file to 1000:1000 would give away the other name too. So in workspaces that are
in their place already, a file counts as theirs if all its names were found there, or else beneath
the root that they are in, which holds the old threads if it is the old root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterable
from contextlib import suppress

from migrator.units import Path
from vfs.beneath import Directory
from vfs.descent import Descent
from vfs.errors import NotADirectory, NotFound


def named_elsewhere(root: Directory, tops: Iterable[Path], skip: Iterable[Path]) -> frozenset[int]:
    """The inodes of files beneath `tops` that have more names than were found beneath `root`.

    `skip` are directories that are passed by with all that they hold. What cannot be entered is
    passed by as well. Memory for files with several names alone. OSError, VfsError.
    """
    missing: dict[int, int] = {}
    seen = set(skip)
    for top in tops:
        if top not in seen:
            with suppress(NotFound, NotADirectory):
                _count(root, top, seen, missing, known=False)
            seen.add(top)
    if any(missing.values()):
        _count(root, (), seen, missing, known=True)
    return frozenset(inode for inode, names in missing.items() if names)


def _count(
    root: Directory, top: Path, skip: Container[Path], missing: dict[int, int], *, known: bool
) -> None:
    """Counts down the names of files that have several; of those only that are `known`."""
    descent = Descent(Directory(root.open_listing(top), root.mnt_id))
    path = list(top)
    waiting = [_scan(descent.here, missing, known)]
    try:
        while waiting:
            if not waiting[-1]:
                waiting.pop()
                if waiting:
                    descent.leave()
                    path.pop()
                continue
            name = waiting[-1].pop()
            if (*path, name) in skip:
                continue
            try:
                here = descent.enter(name)
            except OSError:
                continue
            path.append(name)
            waiting.append(_scan(here, missing, known))
    finally:
        descent.close()


def _scan(directory: Directory, missing: dict[int, int], known: bool) -> list[bytes]:
    """Counts the files of one directory; the names of the directories in it."""
    below = []
    with os.scandir(directory.fd) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                below.append(os.fsencode(entry.name))
            elif (
                stat.S_ISREG(status.st_mode)
                and status.st_nlink > 1
                and not (known and status.st_ino not in missing)
            ):
                missing[status.st_ino] = missing.get(status.st_ino, status.st_nlink) - 1
    return below
