"""The removal of a whole tree, which says what stands in the way before anything is deleted.

Links go as links. Any depth and width is removed with a bounded number of descriptors; what
vanishes meanwhile is as good as removed; a directory swapped for a link meanwhile is not entered,
so nothing outside is ever deleted.
"""

from __future__ import annotations

import errno
import os
import stat
from itertools import islice

from vfs import linux
from vfs.beneath import Directory, Path, split_path, translated
from vfs.descent import Descent
from vfs.errors import InvalidPath, PermissionDenied, VfsError, from_oserror
from vfs.linux import Status
from vfs.printable import printable
from vfs.walking import Entry, Parts, visit

_BATCH = 1024
"""Names read at once from a directory that is being emptied: bounds the memory of a wide one."""

_TRIES = 1000
"""How often an entry may turn out to be something else by now before the removal gives up."""

_ATTRIBUTES = (
    (linux.STATX_ATTR_IMMUTABLE, "immutable", "i"),
    (linux.STATX_ATTR_APPEND, "append-only", "a"),
)

_RIGHTS = "run as its owner, or as root"


def remove(directory: Directory, path: Path) -> None:
    """Removes the entry at `path`, and all beneath it.

    First the tree is looked through. Raises PermissionDenied (a directory that cannot be read or
    written, an immutable or append-only entry), InvalidPath (a mount, or the root itself) or
    ReadOnly with everything still in place. After that only a change made meanwhile, or a failing
    disk, can end it half-way.
    """
    parts = split_path(path)
    with directory.parent(parts) as (parent, name):
        top = Entry(parts, directory.stat(parts))
        _refuse(directory, parent, top)
        with translated("remove", parts):
            if top.is_dir or not _unlink(parent.fd, name):
                _remove_tree(parent, name)


class _Obstacles:
    """What stands in the way: the first in full, the others counted."""

    def __init__(self, top: Parts) -> None:
        self._top = printable(b"/".join(top))
        self._first: VfsError | None = None
        self._more = 0

    def add(self, error: type[VfsError], path: Parts, reason: str, fix: str | None) -> None:
        if self._first is not None:
            self._more += 1
            return
        whole = b"/".join(path)
        shown = printable(whole) if whole else "its directory"
        self._first = error(f"cannot remove {self._top}: {shown} {reason}", fix=fix, path=whole)

    def failed(self, path: Parts, exc: VfsError) -> None:
        if isinstance(exc, InvalidPath):
            self.add(InvalidPath, path, "is a mount", "unmount it first")
        else:
            self.add(type(exc), path, "cannot be read", exc.fix)

    def raise_any(self) -> None:
        if self._first is None:
            return
        if self._more:
            message = f"{self._first.message}, and {self._more} more such entries"
            raise type(self._first)(message, fix=self._first.fix, path=self._first.path)
        raise self._first


class _Preflight:
    """The look through the tree. A directory is judged only when something in it must go."""

    def __init__(self, obstacles: _Obstacles) -> None:
        self._obstacles = obstacles
        self._holders: dict[int, tuple[Parts, Status]] = {}
        """By depth: the directory that held the last entry looked at there."""

    def look(self, here: Directory, entry: Entry) -> None:
        """Notes what keeps `entry`, which `here` holds, from going."""
        above = entry.path[:-1]
        known = self._holders.get(len(above))
        if known is None or known[0] != above:
            known = self._holders[len(above)] = (above, here.stat())
            self._look_at_holder(here, *known)
        holder, status = known[1], entry.status
        if not self._changeable(entry.path, status):
            return
        if holder.mode & stat.S_ISVTX and os.geteuid() not in (0, holder.uid, status.uid):
            self._obstacles.add(PermissionDenied, entry.path, "is somebody else's", _RIGHTS)

    def _look_at_holder(self, here: Directory, path: Parts, status: Status) -> None:
        if self._changeable(path, status) and not os.access(
            b".", os.W_OK | os.X_OK, dir_fd=here.fd, effective_ids=True
        ):
            self._obstacles.add(PermissionDenied, path, "cannot be written", _RIGHTS)

    def _changeable(self, path: Parts, status: Status) -> bool:
        for attribute, word, letter in _ATTRIBUTES:
            if status.attributes & attribute:
                fix = f"run `chattr -{letter}` on it first"
                self._obstacles.add(PermissionDenied, path, f"is {word}", fix)
                return False
        return True


def _refuse(directory: Directory, parent: Directory, top: Entry) -> None:
    """Raises if anything would stop the removal of `top` half-way."""
    if os.statvfs(parent.fd).f_flag & os.ST_RDONLY:
        raise from_oserror(
            OSError(errno.EROFS, ""), path=b"/".join(top.path), action="remove"
        ) from None
    obstacles = _Obstacles(top.path)
    preflight = _Preflight(obstacles)
    preflight.look(parent, top)
    if top.is_dir:
        try:
            for here, entry in visit(directory, top.path, on_error=obstacles.failed):
                preflight.look(here, entry)
        except VfsError as exc:
            obstacles.failed(top.path, exc)
    obstacles.raise_any()


def _remove_tree(parent: Directory, name: bytes) -> None:
    descent = Descent(Directory(os.dup(parent.fd), parent.mnt_id))
    pending = [[(name, True)]]
    tries = 0
    try:
        while True:
            names = pending[-1]
            if names:
                name, is_directory = names.pop()
                if is_directory or not _unlink(descent.here.fd, name):
                    try:
                        descent.enter(name)
                    except FileNotFoundError:
                        continue
                    except OSError as exc:
                        if exc.errno not in (errno.ELOOP, errno.ENOTDIR):
                            raise
                        names.append((name, False))  # something else has its name now
                        tries += 1
                    else:
                        pending.append([])
            elif len(pending) == 1:
                return
            elif found := _some_names(descent.here.fd):
                names += found
            else:
                pending.pop()
                left = descent.leave()
                if not _remove_directory(descent.here.fd, left):
                    pending[-1].append((left, False))  # filled again, or something else by now
                    tries += 1
            if tries > _TRIES:
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    finally:
        descent.close()


def _some_names(fd: int) -> list[tuple[bytes, bool]]:
    """Names in a directory, and whether each is a directory; none when there are none left."""
    try:
        with os.scandir(fd) as entries:
            return [
                (os.fsencode(entry.name), entry.is_dir(follow_symlinks=False))
                for entry in islice(entries, _BATCH)
            ]
    except FileNotFoundError:  # removed meanwhile
        return []


def _unlink(dirfd: int, name: bytes) -> bool:
    """Whether `name` is gone; it is not when it is a directory."""
    try:
        os.unlink(name, dir_fd=dirfd)
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        return False
    except PermissionError:
        # POSIX lets unlink answer EPERM for a directory, and some file systems do.
        if stat.S_ISDIR(linux.statx(dirfd, name).mode):
            return False
        raise
    return True


def _remove_directory(dirfd: int, name: bytes) -> bool:
    """Whether the directory `name` is gone; it is not when it was filled again or replaced."""
    try:
        os.rmdir(name, dir_fd=dirfd)
    except FileNotFoundError:
        return True
    except OSError as exc:
        if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    return True
