"""What is wrong in one tree of a storage: owners, modes, links, special files, names, leftovers.

`vfs.check` says which trees there are, and what each kind of finding means.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from vfs import linux
from vfs.beneath import Directory
from vfs.errors import InvalidPath, NotFound, VfsError
from vfs.linktext import is_contained
from vfs.linux import Status
from vfs.printable import printable
from vfs.saving import is_temporary
from vfs.walking import Parts, visit

Kind = Literal[
    "owner",
    "mode",
    "links",
    "link",
    "special",
    "collision",
    "stray",
    "incomplete",
    "skill",
    "projection",
    "leftover",
    "mount",
    "unreadable",
]

COMPARED_MAX: Final = 100_000
"""Names of one directory that are compared for collisions, not counting those that are in their
plainest form, which need no room. A directory with more is reported as not looked at in full."""

_SHOWN_MAX: Final = 5
"""Names that the detail of a finding repeats."""

Owner = tuple[int, int | None]
"""Uid and gid that everything should have; None: any gid."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or worth knowing."""

    kind: Kind
    path: str
    """In the user's namespace, as ``/home/gem/user-data/a``; outside of it from the name of the
    root on, as ``skill-store/shared/pdf``. Exact: text with surrogate escapes."""
    detail: str
    """What is wrong, on one line; the names in it are printable."""
    fix: str
    """What to do about it, on one line."""
    user: str | None = None
    """The directory name of the user whose namespace it is; None outside of one."""
    harmless: bool = False
    """Whether it is a number worth knowing, and no fault."""


@dataclass(frozen=True, slots=True)
class Place:
    """How the entries of a tree are called."""

    prefix: bytes
    """The path of its top."""
    user: str | None = None

    def finding(
        self, kind: Kind, parts: Parts, detail: str, fix: str, *, harmless: bool = False
    ) -> Finding:
        """A finding about the entry with these names below the top."""
        path = os.fsdecode(b"/".join((self.prefix, *parts)))
        return Finding(kind, path, detail, fix, self.user, harmless)

    def failure(self, parts: Parts, error: VfsError) -> Finding:
        """A finding about what could not be looked at."""
        if isinstance(error, InvalidPath):
            detail = "something else is mounted there; it was not looked at"
            return self.finding("mount", parts, detail, "unmount it, and check again")
        cause = error.message.rpartition(": ")[2]
        fix = error.fix or "see the system's log"
        return self.finding("unreadable", parts, f"it could not be looked at: {cause}", fix)


def inspect_tree(
    directory: Directory, path: Parts, place: Place, owner: Owner, *, links: bool
) -> Iterator[Finding]:
    """What is wrong with all entries beneath `path`; `links` says whether links may be there."""
    failures: list[tuple[Parts, VfsError]] = []
    base = len(path)
    counted = 0
    before = path
    try:
        for here, entry in visit(directory, path, on_error=lambda *told: failures.append(told)):
            parts, status = entry.path[base:], entry.status
            if entry.path[:-1] == before:
                # The first entry of a directory comes right behind it.
                yield from _collisions(here, parts[:-1], place)
            before = entry.path
            if is_temporary(parts[-1]):
                yield leftover(place, parts)
            yield from inspect_entry(place, parts, status, owner)
            if entry.is_link:
                counted += 1
                yield from _inspect_link(here, parts, place, links)
            while failures:
                told = failures.pop(0)
                yield place.failure(told[0][base:], told[1])
    except VfsError as exc:
        failures.append((path, exc))
    for parts, error in failures:
        yield place.failure(parts[base:], error)
    if counted and links:
        yield place.finding(
            "links",
            (),
            f"it holds {counted} symbolic {'link' if counted == 1 else 'links'}",
            "nothing: they are shown as links and never followed",
            harmless=True,
        )


def inspect_entry(place: Place, parts: Parts, status: Status, owner: Owner) -> Iterator[Finding]:
    """What is wrong with one entry by itself."""
    uid, gid = owner
    if status.uid != uid or (gid is not None and status.gid != gid):
        right = f"{uid}" if gid is None else f"{uid}:{gid}"
        yield place.finding(
            "owner",
            parts,
            f"it belongs to {status.uid}:{status.gid}, not to {right}",
            f"chown -h {right}",
        )
    mode = stat.S_IMODE(status.mode)
    if stat.S_ISREG(status.mode):
        needed = stat.S_IRUSR
    elif stat.S_ISDIR(status.mode):
        needed = stat.S_IRWXU
    elif stat.S_ISLNK(status.mode):
        return
    else:
        yield place.finding(
            "special",
            parts,
            f"it is a {_SPECIAL.get(stat.S_IFMT(status.mode), 'special file')}; nothing opens it",
            "remove it",
        )
        return
    faults = [
        fault
        for wrong, fault in (
            (mode & 0o022, "others than its owner may write"),
            (mode & 0o6000, "it has a set-id bit"),
            (needed & ~mode, "its owner may not use it"),
        )
        if wrong
    ]
    if faults:
        yield place.finding(
            "mode",
            parts,
            f"its mode is {mode:04o}: {', '.join(faults)}",
            f"chmod {mode & ~0o6022 | needed:04o}",
        )


_SPECIAL: Final = {
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


def leftover(place: Place, parts: Parts) -> Finding:
    """The finding about a temporary name."""
    return place.finding(
        "leftover",
        parts,
        "a process that was killed left it, unless one is writing there now",
        "look whether it holds something that is missed, then remove it",
    )


def _inspect_link(here: Directory, parts: Parts, place: Place, links: bool) -> Iterator[Finding]:
    try:
        text = here.read_link((parts[-1],))
    except NotFound:
        return
    except VfsError as exc:
        yield place.failure(parts, exc)
        return
    if not links:
        fix = "put the file itself in its place"
        yield place.finding("link", parts, f"it is a link to {printable(text)}", fix)
    elif not is_contained(text, len(parts) - 1):
        yield place.finding(
            "link",
            parts,
            f"it is a link to {printable(text)}, which may be outside",
            "nothing follows it; put the file in its place if it is needed",
        )


def _collisions(here: Directory, parts: Parts, place: Place) -> Iterator[Finding]:
    """Names of one directory that are one where case or composition is not told apart.

    Of two such names at most one is in the plainest form of both, so it is enough to keep the
    others and then to ask for that form.
    """
    groups: dict[str, list[bytes]] = {}
    count = 0
    try:
        fd = here.open_listing()
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    plainest = _plainest(entry.name)
                    if plainest != entry.name:
                        count += 1
                        if count > COMPARED_MAX:
                            break
                        groups.setdefault(plainest, []).append(os.fsencode(entry.name))
        finally:
            os.close(fd)
        for plainest, names in groups.items():
            if _exists(here, plainest):
                names.append(os.fsencode(plainest))
            if len(names) > 1:
                yield _collision(place, parts, sorted(names))
    except (OSError, VfsError):
        # The walk meets the same, and reports it.
        return
    if count > COMPARED_MAX:
        yield place.finding(
            "unreadable",
            parts,
            f"it has more than {COMPARED_MAX} names with capitals: the rest was not compared",
            "spread its entries over several directories",
        )


def _plainest(name: str) -> str:
    if name.isascii():
        return name.lower()
    composed = unicodedata.normalize("NFC", name).casefold()
    return unicodedata.normalize("NFC", composed)


def _exists(here: Directory, name: str) -> bool:
    try:
        linux.statx(here.fd, os.fsencode(name))
    except (OSError, UnicodeEncodeError):
        return False
    return True


def _collision(place: Place, parts: Parts, names: list[bytes]) -> Finding:
    first, *others = names
    shown = ", ".join(map(printable, others[:_SHOWN_MAX]))
    more = f" and {len(others) - _SHOWN_MAX} more" if len(others) > _SHOWN_MAX else ""
    return place.finding(
        "collision",
        (*parts, first),
        f"where case or Unicode form is not told apart it is the same name as {shown}{more}",
        "rename all but one, if it goes to such a system",
    )
