"""How a plan's files will get into the new tree, the room that takes, and about how long."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from migrator.counting import Count, Totals
from migrator.request import Request
from migrator.units import RootName
from vfs import linux
from vfs.beneath import Directory
from vfs.printable import printable

JOURNAL_BYTES: Final = 150
"""Bytes that the manifests and the old owners take for each entry, on the average."""
DIRECTORY_BYTES: Final = 4096
"""Bytes that a new directory takes on ext4 and most other file systems: one block."""

LINK_SECONDS: Final = 12e-6
COPY_SECONDS: Final = 60e-6
"""What a file takes that is linked or copied, verified, and given to its owner, of two processes on
two cores: small files on ext4."""
DIRECTORY_SECONDS: Final = 130e-6
"""The same for a directory, which is made: mkdir alone is half of it."""
UNIT_SECONDS: Final = 900e-6
"""What a unit takes besides what is in it: its manifest, its publication, its rows."""
START_SECONDS: Final = 0.5
"""What a run takes that finds nothing: looking for what is in use, and syncing."""
COPY_RATE: Final = 400e6
"""Bytes a second that are read, hashed, written and read back: a solid-state disk's."""

_REFLINKING: Final = frozenset(("btrfs", "xfs", "bcachefs"))
"""File systems that share blocks between files (ioctl_ficlone(2))."""


@dataclass(frozen=True, slots=True)
class Space:
    """One file system that gets something new."""

    path: str
    """The first folder of it that was named, or would be made, printable."""
    need: int
    """Bytes, at most."""
    free: int
    """Bytes that this process could write."""
    inodes: int
    """Files and directories that are made, at most."""
    inodes_free: int | None
    """None where a file system does not count them."""

    @property
    def suffices(self) -> bool:
        """Whether there is room enough."""
        fits = self.inodes_free is None or self.inodes <= self.inodes_free
        return fits and self.need <= self.free

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


def method(source: Directory, place: bytes, wanted: str) -> str:
    """How files would get from the source to a root at the host path `place`.

    Nothing is tried, which needs writing, so this is a guess: that of a link is good, that of a
    reflink may turn out to be a copy.
    """
    if wanted != "auto":
        return wanted
    with Directory.open(existing(place)) as near:
        if near.mnt_id == source.mnt_id:
            return "link"
        if near.stat().identity[:2] == source.stat().identity[:2]:
            return "reflink" if _file_system(near) in _REFLINKING else "copy"
    return "copy"


def existing(place: bytes) -> bytes:
    """The nearest folder at or above a host path that is there."""
    while not os.path.isdir(place):
        above = os.path.dirname(place)
        if above == place:
            break
        place = above
    return os.path.realpath(place)


def _file_system(directory: Directory) -> str:
    """The name of a directory's file system; empty if it cannot be told."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
            for line in mounts:
                before, _, after = line.partition(" - ")
                if before.split(" ", 1)[0] == str(directory.mnt_id):
                    return after.split(" ", 1)[0]
    except OSError:
        pass
    return ""


def spaces(request: Request, totals: Totals, methods: Mapping[RootName, str]) -> list[Space]:
    """The room that is needed, one entry for each file system."""
    everything = totals.all
    entries = everything.files + everything.directories + everything.links
    needs = [(request.state, JOURNAL_BYTES * entries, everything.units)]
    skills = totals.kinds["skill"]
    users = Count()
    for kind in ("workspace", "workdir"):
        users.add(totals.kinds[kind])
    needs.append((request.user_data, *_need(users, methods["user-data"])))
    needs.append((request.skill_store, *_need(skills, methods["skill-store"])))
    found: dict[tuple[int, int], Space] = {}
    for place, need, inodes in needs:
        here = existing(place)
        status = linux.statx(linux.AT_FDCWD, here)
        key = status.identity[:2]
        if key in found:
            need += found[key].need
            inodes += found[key].inodes
        shown = found[key].path if key in found else printable(place)
        room = os.statvfs(here)
        found[key] = Space(
            shown,
            need,
            room.f_bavail * room.f_frsize,
            inodes,
            room.f_favail if room.f_files else None,
        )
    return list(found.values())


def _need(count: Count, how: str) -> tuple[int, int]:
    """Bytes and inodes that the units of a root take."""
    directories = count.directories * DIRECTORY_BYTES
    if how == "link":
        return directories, count.directories
    made = count.files + count.links + count.directories
    if how == "reflink":
        return directories, made
    return directories + count.allocated, made


def seconds(totals: Totals, methods: Mapping[RootName, str], jobs: int) -> float:
    """About how long a run takes; on a machine with other work, a few times as long."""
    total = START_SECONDS
    for kind, count in totals.kinds.items():
        how = methods["skill-store" if kind == "skill" else "user-data"]
        files = count.files + count.links
        total += UNIT_SECONDS * count.units + DIRECTORY_SECONDS * count.directories
        total += files * (LINK_SECONDS if how == "link" else COPY_SECONDS)
        if how == "copy":
            total += count.allocated / COPY_RATE
    return total * (2 if jobs == 1 else 1)
