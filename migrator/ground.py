"""The directories around what is published: made where missing, remembered as they were before.

A rollback must give back every directory as it was, times included. So before a directory that was
there gets or loses an entry, its facts go into the journal (once: the first time counts), and
before a directory is made, that it is ours. Both are on the disk before anything is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from typing import Final

from migrator.journal import Journal
from migrator.lines import path_text
from migrator.places import open_folder, parent_of
from migrator.removing import sweep
from migrator.units import Path, RootName
from vfs.beneath import Directory
from vfs.errors import LinkRefused, NotADirectory, NotFound, VfsError
from vfs.making import make_directories
from vfs.saving import is_temporary
from vfs.walking import Entry
from vfs.workspace import OWNER

Place = tuple[RootName, Path]
"""A directory: the root it is beneath, and its path there."""

_TAKEN: Final = (LinkRefused, NotADirectory)
"""The errors that say that something else stands where a directory belongs."""

HOST: Final = "host"
"""Stands for a root in the records of folders around the roots; their path is one name, the host
path."""


class Ground:
    """The directories that this migration changes; all of it through one journal."""

    def __init__(self, journal: Journal, roots: Mapping[RootName, Directory]) -> None:
        self._journal = journal
        self._roots = roots
        self._known: set[tuple[str, Path]] = set()
        """Directories whose facts are in the journal, or that are ours, made or about to be."""
        self._ready: set[Place] = set()
        """Those that are there, as far as this process has seen to it."""
        state = journal.state
        for root, path in (*state.touched, *state.made):
            self._known.add((root, path))

    def prepare(self, places: Iterable[Place]) -> dict[Place, VfsError]:
        """Has every directory there, ready to get entries; those that cannot be since something
        stands there, with the reason. Raises VfsError for any other reason.

        Two passes: all is looked at and recorded, and after one sync made.
        """
        failed: dict[Place, VfsError] = {}
        missing: list[Place] = []
        for place in dict.fromkeys(places):
            if place in self._ready:
                continue
            self._ready.add(place)
            try:
                if self._look(place):
                    missing.append(place)
            except _TAKEN as exc:
                failed[place] = exc
        self._journal.sync()
        for root, path in missing:
            try:
                make_directories(self._roots[root], path, OWNER).close()
            except _TAKEN as exc:
                failed[root, path] = exc
        self._ready -= failed.keys()
        return failed

    def sweep(self) -> None:
        """Removes what a killed run left under temporary names in directories that it changed."""
        roots = {str(name): root for name, root in self._roots.items()}
        for name, path in self._known:
            with suppress(NotFound), ExitStack() as stack:
                if name == HOST:
                    holder = open_folder(path[0], "the folder")
                else:
                    holder = roots[name].directory(path) if name in roots else None
                if holder is not None:
                    stack.enter_context(holder)
                    for found in filter(is_temporary, holder.names()):
                        sweep(holder, (found,))

    def touch(self, root: RootName, path: Path) -> None:
        """Records one directory that is there, and syncs."""
        if (root, path) not in self._known:
            self._record(root, path, Entry(path, self._roots[root].stat(path)))
            self._journal.sync()

    def prepare_root(self, name: RootName, path: bytes) -> None:
        """Records that a root is about to be made at its host path, and the folder around it."""
        above, _ = parent_of(path)
        holder = open_folder(above, "the folder")
        if holder is None:
            self._record_made(HOST, (above,))
        else:
            with holder:
                self._record(HOST, (above,), Entry((above,), holder.stat()))
        self._record_made(name, ())
        self._journal.sync()

    def _look(self, place: Place) -> bool:
        """Records what `place` needs; whether something of it is missing."""
        root, path = place
        for depth in range(len(path) + 1):
            part = path[:depth]
            if (root, part) in self._known and depth < len(path):
                continue
            try:
                entry = Entry(part, self._roots[root].stat(part))
            except NotFound:
                for below in range(depth, len(path) + 1):
                    self._record_made(root, path[:below])
                return True
            if not entry.is_dir:
                raise NotADirectory(
                    f"a {entry.kind} stands where a directory belongs",
                    fix="move it away, then run the migrator again",
                    path=b"/".join(part),
                )
            if depth == len(path) or not self._is_there(root, path[: depth + 1]):
                self._record(root, part, entry)
        return False

    def _is_there(self, root: RootName, path: Path) -> bool:
        try:
            self._roots[root].stat(path)
        except NotFound:
            return False
        return True

    def _record(self, root: str, path: Path, entry: Entry) -> None:
        if (root, path) in self._known:
            return
        status = entry.status
        self._known.add((root, path))
        self._journal.record(
            "touched",
            root=root,
            path=path_text(path),
            ino=status.ino,
            uid=status.uid,
            gid=status.gid,
            mode=status.mode & 0o7777,
            atime_ns=status.atime_ns,
            mtime_ns=status.mtime_ns,
            sync=False,
        )

    def _record_made(self, root: str, path: Path) -> None:
        if (root, path) not in self._known:
            self._known.add((root, path))
            self._journal.record("made", root=root, path=path_text(path), sync=False)
