"""Old owners and modes given back, from the records of `migrator.ownership`, to what has ours yet.

- An entry gets back what it had, set-id bits too, if its name still leads to the same inode and its
  owner and mode are what the migrator gave, or what there is between the two. If anybody changed
  them since, it stays as it is and is counted.
- The order of the records does not matter, and a second time changes nothing. An inode may be on
  record twice: a process was killed when it had set the owner and not the mode, or two workers met
  at two names of one file. Then one record tells of a mode alone, and gives back a mode alone.
- Links are not followed, mounts not crossed, and what the system refuses stops nothing else.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from migrator import modes
from migrator.lines import records
from migrator.oldowners import Old, read, shared
from migrator.owned import TOLD, Left
from migrator.units import Path
from vfs.beneath import Directory
from vfs.bulk import Looker, change_modes, change_owners
from vfs.closing import Closing
from vfs.descent import Descent
from vfs.errors import NotFound
from vfs.resolving import O_LIST

_GONE: Final = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE))
"""Answers about an entry or a directory that is not there any more, or is another."""
_OURS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Failures of this process or machine, which say nothing of the entry."""
_NOTHING: Final = (0, 0, 0, 0)
"""What is now where nothing is; no inode has the number 0."""


@dataclass(slots=True)
class Restored:
    """What came of it."""

    back: int = 0
    """Entries that have their old owner and mode again."""
    same: int = 0
    """Those that had them already."""
    changed: int = 0
    """Those that somebody gave another owner or mode since; left so."""
    gone: int = 0
    """Names that lead nowhere by now, or to another inode."""
    failed: int = 0
    """Those that the system refused to change."""
    left: list[Left] = field(default_factory=list)
    """Up to `TOLD` of those that failed."""

    def fail(self, left: Left) -> None:
        """Counts one entry, and names it if there is room."""
        if self.failed < TOLD:
            self.left.append(left)
        self.failed += 1


def restore(
    roots: Mapping[str, Directory],
    state: Directory,
    files: Sequence[bytes],
    *,
    count: Callable[[int], None] = lambda entries: None,
) -> Restored:
    """Gives back what the record files `files` of the folder `state` tell.

    A file that was never made tells nothing. A root that is not among `roots` is gone. Raises
    Mismatch for a damaged file, VfsError and OSError when one cannot be read. Call it again after a
    failure.
    """
    restored = Restored()
    looker = Looker()
    with _Way(roots) as way:
        for file in files:
            try:
                for old in read(records(state, file)):
                    _give_back(way, old, looker, restored)
                    count(len(old.names))
            except NotFound:
                continue
    return restored


class _Way(Closing):
    """The directory of one record after the other: each is reached from the one before."""

    def __init__(self, roots: Mapping[str, Directory]) -> None:
        self._roots = roots
        self._root: str | None = None
        self._path: list[bytes] = []
        self._descent: Descent | None = None

    def close(self) -> None:
        """Releases the descriptors; a second call does nothing."""
        if self._descent is not None:
            self._descent.close()
        self._descent = None

    def go(self, root: str, path: Path) -> Directory:
        """The directory, good until the next call. OSError."""
        try:
            descent = self._up(root, path)
        except OSError:
            # A directory on the way was moved meanwhile: down again from the top.
            self.close()
            descent = self._up(root, path)
        for name in path[len(self._path) :]:
            descent.enter(name)
            self._path.append(name)
        return descent.here

    def _up(self, root: str, path: Path) -> Descent:
        """Where both paths are one yet."""
        if self._descent is None or root != self._root:
            self.close()
            top = self._roots[root]
            fd = os.open(".", O_LIST, dir_fd=top.fd)
            self._descent, self._root = Descent(Directory(fd, top.mnt_id)), root
            self._path.clear()
        common = shared(tuple(self._path), path)
        while len(self._path) > common:
            self._path.pop()
            self._descent.leave()
        return self._descent


def _give_back(way: _Way, old: Old, looker: Looker, restored: Restored) -> None:
    try:
        directory = way.go(old.root, old.path)
    except KeyError:
        restored.gone += len(old.names)
    except OSError as exc:
        if exc.errno in _GONE:
            restored.gone += len(old.names)
        elif exc.errno in _OURS:
            raise
        else:
            for name in old.names:
                path = (*old.path, name)
                restored.fail(Left("failed", old.root, path, exc.strerror or str(exc)))
    else:
        _in_directory(directory, old, looker, restored)


def _in_directory(directory: Directory, old: Old, looker: Looker, restored: Restored) -> None:
    seen = looker.look(directory.fd, directory.mnt_id, old.names)
    columns = zip(seen.inos, seen.uids, seen.gids, seen.modes, strict=True)
    now = dict(zip(seen.names, columns, strict=True))
    refused = {name: exc for name, exc in seen.errors if exc.errno not in _GONE}
    owners: list[tuple[bytes, int, int]] = []
    back: list[tuple[bytes, int]] = []
    entries = zip(old.names, old.inos, old.uids, old.gids, old.modes, strict=True)
    for name, old_ino, old_uid, old_gid, old_mode in entries:
        if name in refused:
            continue
        ino, uid, gid, mode = now.get(name, _NOTHING)
        if ino != old_ino:
            restored.gone += 1
            continue
        judgement = judge((uid, gid), mode, (old_uid, old_gid), old_mode, old.to)
        if judgement == "same":
            restored.same += 1
        elif judgement == "changed":
            restored.changed += 1
        else:
            back.append((name, old_mode))
            if (uid, gid) != (old_uid, old_gid):
                owners.append((name, old_uid, old_gid))
    failed = _change(directory.fd, owners, back)
    restored.back += len(back) - len(failed)
    for name, exc in (refused | failed).items():
        restored.fail(Left("failed", old.root, (*old.path, name), exc.strerror or str(exc)))


def _change(
    dirfd: int, owners: list[tuple[bytes, int, int]], back: list[tuple[bytes, int]]
) -> dict[bytes, OSError]:
    """Sets the owners of some names and the modes of all; of those that refused, why."""
    names = [name for name, _, _ in owners]
    failed = change_owners(
        dirfd, names, [uid for _, uid, _ in owners], [gid for _, _, gid in owners]
    )
    # After the owner, which takes set-id bits off. A link has no mode of its own.
    moded = [entry for entry in back if entry[0] not in failed and not stat.S_ISLNK(entry[1])]
    return failed | change_modes(
        dirfd, [name for name, _ in moded], [modes.bits(mode) for _, mode in moded]
    )


def judge(
    owner: tuple[int, int],
    mode: int,
    old_owner: tuple[int, int],
    old_mode: int,
    given: tuple[int, int],
) -> Literal["back", "same", "changed"]:
    """What is to be done with an entry: as it is now, as it was, and the owner that it was given.

    back: it has what the migrator gave, or a part of it. same: nothing of what the record tells was
    given. changed: somebody else had a hand in it. The modes are of the type that they had.
    """
    now, was = modes.bits(mode), modes.bits(old_mode)
    if (owner, now) == (old_owner, was):
        return "same"
    if old_owner == given and now & ~modes.SETID == was & ~modes.SETID:
        # Only the mode was given, and it is back: by another record, which told of the owner too.
        return "same"
    if owner in (old_owner, given) and now in modes.on_the_way(old_mode):
        return "back"
    return "changed"
