"""A view from one directory on, and what is done with files there: the workspace, or a Workdir.

Paths in a scope are scope paths: ``/notes/a.txt`` as text or bytes, or the exact names apart. A
runtime path (``/home/gem/…``) is refused where a scope path belongs, as far as the two can be told
apart. What is made has mode 0700 or 0600 and the owner of the storage; no link is followed; walks
are bounded as their `limits` say. Everything raises `vfs.errors.VfsError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vfs import linux, saving, tree
from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.errors import InvalidPath, PermissionDenied, TooLarge
from vfs.linux import Status
from vfs.making import make_directories, make_directory
from vfs.namespace import scope_parts
from vfs.printable import printable
from vfs.resolving import split_path
from vfs.walking import Cut, Entry, Kind, Limits

ScopePath = str | bytes | tuple[bytes, ...]
"""A path in a scope: ``/notes/a.txt`` as text or bytes, or its exact names."""

READ_MAX: Final = 64 * 1024 * 1024
"""Bytes that `Scope.read` returns at most unless told otherwise; `Scope.open` has no limit."""

_LIMITS: Final = Limits()

_CHUNK: Final = 1024 * 1024
"""Bytes asked for in one read."""


class Scope(Closing):
    """A pinned directory that paths start from. A context manager."""

    __slots__ = ("_reserved", "directory", "owner")

    def __init__(
        self,
        directory: Directory,
        owner: tuple[int, int] | None,
        reserved: frozenset[bytes] = frozenset(),
    ) -> None:
        """Takes over `directory`; use `Workspace.scope` or `Workdir.scope`.

        `reserved` are names at its top that cannot be removed, renamed or replaced, and that can
        be made as directories alone.
        """
        self.directory = directory
        self.owner = owner
        """Uid and gid that what is made is given to; None: it stays the process's."""
        self._reserved = reserved

    def close(self) -> None:
        """Releases the directory; what was opened through it stays open."""
        self.directory.close()

    def stat(self, path: ScopePath) -> Status:
        """The status of an entry; of a link itself."""
        return self.directory.stat(_parts(path))

    def list(self, path: ScopePath = (), *, limits: Limits = _LIMITS) -> tree.Listing:
        """The entries of one directory, directories first."""
        return tree.list_directory(self.directory, _parts(path), limits)

    def walk(
        self, path: ScopePath = (), *, limits: Limits = _LIMITS, cut: Cut | None = None
    ) -> Iterator[Entry]:
        """Each entry beneath a directory, before what it holds itself.

        What is left out is counted in `cut`; without one, the first thing that cannot be read is
        raised.
        """
        return tree.walk(self.directory, _parts(path), limits=limits, cut=cut)

    def search(
        self,
        path: ScopePath = (),
        *,
        pattern: str | bytes | None = None,
        kind: Kind | None = None,
        limits: Limits = _LIMITS,
    ) -> tree.Hits:
        """The entries beneath a directory with a name like `pattern` and the type `kind`.

        The pattern is one of `tree.search`; None fits every name, and every type.
        """
        fits = None if pattern is None else tree.name_matcher(pattern)

        def matches(entry: Entry) -> bool:
            return (kind is None or entry.kind == kind) and (fits is None or fits(entry))

        return tree.search(self.directory, _parts(path), matches, limits)

    def usage(self, path: ScopePath = ()) -> tree.Usage:
        """What a tree, or one entry, takes; all of it is counted."""
        return tree.usage(self.directory, _parts(path))

    def open(self, path: ScopePath) -> int:
        """A descriptor of a regular file, for reading; the caller closes it."""
        return self.directory.open_file(_parts(path))

    def read(self, path: ScopePath, *, limit: int = READ_MAX) -> bytes:
        """The content of a regular file; TooLarge if it has more than `limit` bytes."""
        with open(self.open(path), "rb", buffering=0) as file:
            content = bytearray()
            while len(content) <= limit:
                chunk = file.read(min(_CHUNK, limit + 1 - len(content)))
                if not chunk:
                    return bytes(content)
                content += chunk
        shown = b"/".join(_parts(path))
        raise TooLarge(
            f"{printable(shown)} has more than {limit} bytes", fix="read it in parts", path=shown
        )

    def read_link(self, path: ScopePath) -> bytes:
        """The text of a link, which nothing ever follows."""
        return self.directory.read_link(_parts(path))

    def save(
        self,
        path: ScopePath,
        content: saving.Content,
        *,
        mode: int | None = None,
        clobber: bool = True,
        if_match: str | None = None,
    ) -> Status:
        """Saves a file whole, as `saving.save` does; its directory must exist."""
        parts = _parts(path)
        self._refuse_reserved(parts)
        return saving.save(
            self.directory,
            parts,
            content,
            mode=mode,
            owner=self.owner,
            clobber=clobber,
            if_match=if_match,
        )

    def make_directory(self, path: ScopePath, *, parents: bool = False) -> None:
        """Makes a directory, which must be new; with `parents` it may exist, and all above it."""
        parts = _parts(path)
        if parents:
            make_directories(self.directory, parts, self.owner).close()
        else:
            make_directory(self.directory, parts, self.owner)

    def move(
        self,
        source: ScopePath,
        target: ScopePath,
        *,
        clobber: bool = False,
        exchange: bool = False,
    ) -> None:
        """Renames an entry in one step, a link as the link.

        Raises AlreadyExists when the target exists, unless it may be replaced (`clobber`): a file
        by a file, an empty directory by a directory. With `exchange` both must exist, and each gets
        the other's name.
        """
        parts, goal = _parts(source), _parts(target)
        self._refuse_reserved(parts)
        self._refuse_reserved(goal)
        shorter = min(len(parts), len(goal))
        if len(parts) != len(goal) and parts[:shorter] == goal[:shorter]:
            # Told by the names alone, since no link is followed and no name is equal to another.
            raise InvalidPath(
                f"cannot move {_shown(parts)} to {_shown(goal)}: one would be inside itself",
                fix="name a place outside of it",
                path=b"/".join(parts),
            )
        flags = linux.RENAME_EXCHANGE if exchange else 0 if clobber else linux.RENAME_NOREPLACE
        self.directory.rename(parts, goal, flags=flags)

    def unlink(self, path: ScopePath) -> None:
        """Removes an entry, a link as the link; IsADirectory for a directory."""
        parts = _parts(path)
        self._refuse_reserved(parts)
        self.directory.unlink(parts)

    def remove(self, path: ScopePath) -> None:
        """Removes an entry, a link as the link, a directory with all that is beneath it.

        What stands in the way is said before anything is gone.
        """
        parts = _parts(path)
        self._refuse_reserved(parts)
        tree.remove(self.directory, parts)

    def _refuse_reserved(self, parts: tuple[bytes, ...]) -> None:
        if len(parts) == 1 and parts[0] in self._reserved:
            raise PermissionDenied(
                f"{_shown(parts)} is reserved: it cannot be removed, renamed or replaced",
                fix="change what is in it instead",
                path=parts[0],
            )


def _parts(path: ScopePath) -> tuple[bytes, ...]:
    return split_path(path) if isinstance(path, tuple) else scope_parts(path)


def _shown(parts: tuple[bytes, ...]) -> str:
    return printable(b"/" + b"/".join(parts))
