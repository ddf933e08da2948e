"""The files of one skill: a quick look at all of them, a copy that is whole, and its place.

A skill is a directory of regular files and directories. A link or special file anywhere in it is
refused by its name, as is a skill that is over the limits here: what agents are shown is copied for
each user, and looked through at each refresh.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Final

from vfs import tree
from vfs.beneath import Directory, translated
from vfs.dirfd import exchange
from vfs.errors import Busy, LinkRefused, NotFound, SpecialFileRefused, TooLarge, VfsError
from vfs.printable import printable
from vfs.resolving import O_LIST, resolver
from vfs.saving import is_temporary
from vfs.walking import Parts

ENTRIES_MAX: Final = 10_000
"""Files and directories in one skill: the number that users' walks are limited to as well."""

DEPTH_MAX: Final = 32
"""Levels of entries in one skill."""

_TRIES: Final = 3
"""How often a skill may change while it is copied. Whoever replaces one does it in a moment; one
that is written to all the time is not ready to be shown."""

Snapshot = dict[str, tuple[int, int, bool] | None]
"""By path in the skill: size in bytes, time of the last change in nanoseconds, and whether somebody
may execute it; None for a directory. Files that agree in these count as equal, as for rsync."""


def snapshot(directory: Directory, path: Parts, slug: str) -> Snapshot:
    """What a quick look at a skill tells: a status for each entry, and no byte is read.

    Raises LinkRefused, SpecialFileRefused or TooLarge, naming the slug and the path in the skill,
    and whatever reading directories raises.
    """
    found: Snapshot = {}
    waiting = [(path, "")]
    open_beneath = resolver().open
    while waiting:
        parts, prefix = waiting.pop()
        with translated("read", parts):
            if parts:
                fd = open_beneath(directory.fd, directory.mnt_id, parts, O_LIST)
            else:
                fd = os.open(b".", O_LIST, dir_fd=directory.fd)
            try:
                with os.scandir(fd) as entries:
                    # The scan is one of a descriptor: the statuses are taken beneath it, whatever
                    # became of the path.
                    for entry in entries:
                        status = entry.stat(follow_symlinks=False)
                        mode = status.st_mode
                        name = prefix + entry.name
                        if stat.S_ISREG(mode):
                            executable = mode & 0o111 != 0
                            found[name] = (status.st_size, status.st_mtime_ns, executable)
                        elif stat.S_ISDIR(mode):
                            found[name] = None
                            waiting.append(((*parts, os.fsencode(entry.name)), f"{name}/"))
                        else:
                            raise _refusal(slug, name, mode)
            finally:
                os.close(fd)
        if len(found) > ENTRIES_MAX or len(parts) - len(path) >= DEPTH_MAX:
            raise TooLarge(
                f"{slug}: it holds more than {ENTRIES_MAX} entries or {DEPTH_MAX} levels",
                fix="leave out what agents do not need",
                path=slug,
            )
    return found


def _refusal(slug: str, path: str, mode: int) -> VfsError:
    exact = os.fsencode(f"{slug}/{path}")
    if stat.S_ISLNK(mode):
        return LinkRefused(
            f"{slug}: {printable(path)} is a symbolic link",
            fix="put the file itself in its place",
            path=exact,
        )
    return SpecialFileRefused(
        f"{slug}: {printable(path)} is a FIFO, socket or device", fix="remove it", path=exact
    )


def copy_whole(
    source: Directory,
    path: Parts,
    slug: str,
    target: Directory,
    name: bytes,
    owner: tuple[int, int] | None,
) -> None:
    """Copies the skill at `path`, as it is at one time, to `name`, which must be free.

    Raises Busy when the skill changed during each of some tries, and what `snapshot` and
    `tree.copy` raise; nothing is at `name` then.
    """
    for _ in range(_TRIES):
        with source.directory(path) as skill:
            copied = False
            try:
                # If something vanishes on the way and it is the skill, the next try says so.
                with suppress(NotFound):
                    copied = _is_copied(source, path, slug, skill, target, name, owner)
            finally:
                if not copied:
                    _discard(target, name)
            if copied:
                return
    raise Busy(f"{slug}: it kept changing while it was copied", fix="try again when it is complete")


def _is_copied(
    source: Directory,
    path: Parts,
    slug: str,
    skill: Directory,
    target: Directory,
    name: bytes,
    owner: tuple[int, int] | None,
) -> bool:
    """Whether the copy that was made is one of a skill that stood still meanwhile."""
    before = snapshot(source, path, slug)
    tree.copy(skill, (), target, (name,), owner=owner)
    # Replaced whole, it is another directory; changed in place, it looks different.
    same = source.stat(path).identity == skill.stat().identity
    return same and snapshot(source, path, slug) == before


def _discard(target: Directory, name: bytes) -> None:
    with suppress(NotFound):
        tree.remove(target, (name,))


def put_in_place(directory: Directory, hidden: bytes, name: bytes) -> None:
    """Gives a skill that was copied to `hidden` the name of the one there, which gets `hidden`."""
    with translated("replace", (name,)):
        exchange(directory.fd, hidden, name)


def sweep(directory: Directory) -> None:
    """Removes what killed processes left under temporary names. It must be the caller's turn."""
    for name in directory.names():
        if is_temporary(name):
            drop(directory, name)


def drop(directory: Directory, hidden: bytes) -> None:
    """Removes what has a temporary name, if it can be.

    What cannot is in nobody's way: the next `sweep` tries again, and `vfs.check` reports it.
    """
    with suppress(VfsError):
        tree.remove(directory, (hidden,))
