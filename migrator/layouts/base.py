"""What a look at old saves yields, whatever their layout, and how to look without following links.

A survey lists directories only: no file is opened, nothing is counted. It names each tree that can
be taken over and tells of everything else (`Left`, with a finding), so that nothing is left behind
in silence. A link, a file or a special file where a directory belongs is left, with a warning. What
cannot be read, or is another mount, is a conflict.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from migrator.errors import Precondition
from migrator.findings import Finding, Severity
from migrator.units import Part, Path
from vfs.beneath import Directory, translated
from vfs.errors import LinkRefused, NotADirectory, NotFound, VfsError
from vfs.printable import printable

EntryKind = Literal["directory", "file", "link", "special"]

CALLED: Final[dict[EntryKind, str]] = {
    "directory": "a directory",
    "file": "a file",
    "link": "a symbolic link",
    "special": "a special file",
}
"""What people call an entry of that kind."""

_AGAIN: Final = "put the directory itself there if it holds files to take over, and run again"


@dataclass(frozen=True, slots=True)
class Thread:
    """The directory of one thread."""

    id: str
    """Its name; surrogate escapes stand for what is not UTF-8."""
    source: Path
    """Beneath the saves."""
    parts: tuple[Part, ...] = ()
    """What can be taken over; the targets are beneath the Workdir."""
    uid: str | None = None
    """Whose it is, where the layout itself says so."""
    is_directory: bool = True
    """False for a link or a file in the place of one: it has no parts, and was told of."""
    readable: bool = True
    """False if something of it could not be looked at: it must not count as taken over."""


@dataclass(frozen=True, slots=True)
class Left:
    """An entry of the saves that stays where it is; `finalize` does not remove it either."""

    path: Path
    """Beneath the saves."""
    code: str
    """The code of the finding that tells why."""

    def to_json(self) -> dict[str, str]:
        """The fields, the path printable."""
        return {"path": shown(self.path), "code": self.code}


@dataclass(slots=True)
class Survey:
    """What is there."""

    layout: str
    threads: list[Thread] = field(default_factory=list)
    workspaces: dict[bytes, Path] = field(default_factory=dict)
    """Name of a user's directory → the workspace in it, beneath the saves."""
    skills: dict[str, Path] = field(default_factory=dict)
    """Slug → its directory beneath the saves."""
    settings: Path | None = None
    """The file of the system settings, if an entry of that name is there."""
    in_doubt: set[bytes] = field(default_factory=set)
    """Names of users' directories that may hold a workspace that cannot be taken over now. What is
    the user's must wait: the workspace has to be there before anything is put into it."""
    all_in_doubt: bool = False
    """Whether that holds for every user."""
    findings: list[Finding] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Layout:
    """One kind of old saves."""

    name: str
    """As `--layout` takes it."""
    signs: str
    """What such saves are known by, for people."""
    recognises: Callable[[Directory], bool]
    """Whether the saves look like it."""
    survey: Callable[[Directory, frozenset[Path]], Survey]
    """Looks at the saves. The paths are entries that are no part of them: the state of the
    migration, or what belongs to the new tree."""
    has_database: bool = False
    """Whether conversations, users and skills have rows in a database."""


def shown(path: Path) -> str:
    """A path beneath the saves, for people."""
    return printable(b"/".join(path)) if path else "."


def kind_of(directory: Directory, path: Path) -> EntryKind | None:
    """What an entry is; None if it is not there or cannot be reached. VfsError if unreadable."""
    try:
        mode = directory.stat(path).mode
    except (NotFound, NotADirectory, LinkRefused):
        return None
    return kind_of_mode(mode)


def kind_of_mode(mode: int) -> EntryKind:
    """What an entry of this mode is."""
    if stat.S_ISDIR(mode):
        return "directory"
    if stat.S_ISREG(mode):
        return "file"
    return "link" if stat.S_ISLNK(mode) else "special"


def entries(directory: Directory, path: Path) -> list[tuple[bytes, EntryKind]]:
    """The entries of a directory in the order of their names, and what they are. VfsError."""
    fd = directory.open_listing(path)
    try:
        with translated("list", path), os.scandir(fd) as found:
            return sorted((os.fsencode(entry.name), _kind(entry)) for entry in found)
    finally:
        os.close(fd)


def _kind(entry: os.DirEntry[str]) -> EntryKind:
    # The type comes with the name on nearly every file system; else this looks at the entry.
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "special"


class Look:
    """A look at the saves that notes in `survey` what it passes by. Paths are beneath the saves."""

    __slots__ = ("passed_by", "source", "survey")

    def __init__(self, source: Directory, survey: Survey, passed_by: Iterable[Path] = ()) -> None:
        self.source = source
        self.survey = survey
        self.passed_by = frozenset(passed_by)
        """Entries that are no part of the saves."""

    def leave(
        self, code: str, severity: Severity, path: Path, message: str, fix: str | None = None
    ) -> None:
        """Leaves the entry at `path`, with a finding."""
        self.survey.left.append(Left(path, code))
        self.survey.findings.append(Finding(code, severity, shown(path), message, fix))

    def top(self) -> list[tuple[bytes, EntryKind]]:
        """The entries of the saves themselves. VfsError if they cannot be listed."""
        found = entries(self.source, ())
        return [(name, kind) for name, kind in found if (name,) not in self.passed_by]

    def holder(self, path: Path, what: str) -> list[tuple[bytes, EntryKind]]:
        """The entries of a directory that everything hangs on; none if it is not there.

        Precondition if something else is there; VfsError if it cannot be listed.
        """
        kind = kind_of(self.source, path)
        if kind is None:
            return []
        if kind != "directory":
            raise Precondition(
                f"{CALLED[kind]} stands at {shown(path)} in the source, where {what} belongs",
                fix="put the directory itself there, then run again",
            )
        found = entries(self.source, path)
        return [(name, kind) for name, kind in found if (*path, name) not in self.passed_by]

    def listed(self, path: Path) -> list[tuple[bytes, EntryKind]] | None:
        """The entries of a directory; none if it is gone. None if it cannot be read: a conflict."""
        try:
            found = entries(self.source, path)
        except (NotFound, NotADirectory, LinkRefused):
            return []
        except VfsError as exc:
            self.leave("unreadable", "conflict", path, exc.message, exc.fix)
            return None
        if self.passed_by:
            found = [(name, kind) for name, kind in found if (*path, name) not in self.passed_by]
        return found

    def enters(self, path: Path, code: str, what: str) -> bool:
        """Whether a directory is at `path`; anything else than nothing is left."""
        try:
            kind = kind_of(self.source, path)
        except VfsError as exc:
            self.leave("unreadable", "conflict", path, exc.message, exc.fix)
            return False
        if kind is not None and kind != "directory":
            self.not_a_directory(path, kind, code, what)
        return kind == "directory"

    def not_a_directory(self, path: Path, kind: EntryKind, code: str, what: str) -> None:
        """Leaves what is no directory though it has the place of one: of `what`."""
        message = f"{CALLED[kind]} has the place of {what}: left"
        self.leave(code, "warning", path, message, _AGAIN if kind == "link" else None)
