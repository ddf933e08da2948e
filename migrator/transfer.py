"""A unit is built where nobody sees it yet: linked, or copied and hashed; its manifest beside it.

What this promises:

- the source is opened for reading only, no link in it is followed, and no mount is crossed;
- what is not in the unit is in the manifest as left, with the reason; nothing is left silently;
- a file that changes, vanishes or cannot be read meanwhile fails the unit, which is then swept and
  built anew by the next try; nothing of it counts before the manifest has its end;
- bytes, holes, times, links, hard links, empty directories, the executable bit and the users'
  extended attributes are kept; directories have mode 0700 and their owner when they are full;
- any depth and width, with a bounded number of descriptors.

Nothing is forced to the disk; the caller syncs before anything counts.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from migrator.choosing import choose
from migrator.comparing import Difference, verify
from migrator.content import Content, copy_xattrs
from migrator.cursor import Cursor, Cursors
from migrator.errors import Precondition, Retryable, retryable
from migrator.manifest import ENTRIES, Left, Method, Origin, Sink, Writer
from migrator.merging import Listing, Merged, NotCompared, Tops, listing, merge
from migrator.registry import Registry
from migrator.removing import unstage
from migrator.taking import Copying, Linking, Take, Taken
from migrator.units import Path, Unit
from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.errors import LinkRefused, NotADirectory, VfsError
from vfs.making import make_directories
from vfs.printable import printable

__all__ = ["Difference", "Method", "Staged", "choose", "stage", "verify"]

Count = Callable[[int, int], None]
"""Is told of files and bytes when they are done."""

LEFT: Final = 1000
"""Of what was left, the entries that `Staged` tells one by one; the manifest has them all."""

_TOP_LEFT: Final = {
    errno.ELOOP: "source_is_a_link",
    errno.ENOTDIR: "source_is_no_directory",
}
"""Why a part is left whose source cannot be entered."""


@dataclass(slots=True)
class Staged:
    """What a unit was made of."""

    files: int = 0
    """Files and links."""
    directories: int = 0
    bytes: int = 0
    """Of the files, each name counted."""
    same: int = 0
    """Entries that the unit had already, byte for byte."""
    left_count: int = 0
    left: list[Left] = field(default_factory=list)
    """The first `LEFT` of them."""

    def to_json(self) -> dict[str, int]:
        """The numbers, for the journal."""
        return {
            "files": self.files,
            "directories": self.directories,
            "bytes": self.bytes,
            "same": self.same,
            "left": self.left_count,
        }


def stage(
    unit: Unit,
    source: Directory,
    root: Directory,
    method: Method,
    manifest: Sink,
    *,
    owner: tuple[int, int] | None,
    count: Count,
) -> Staged:
    """Builds a unit at `unit.staging` beneath `root` from its parts beneath `source`.

    What was there is swept first. Raises Retryable, naming the entry, when something cannot be read
    or written, or changed meanwhile; Precondition for a unit that would contain itself. The
    manifest is written, and not synced.
    """
    shown = f"stage {unit.key}"
    try:
        unstage(unit, root)
        make_directories(root, unit.staging[:-1], owner).close()
        root.make_directory(unit.staging)
        with _Staging(unit, source, root, owner, count) as staging:
            return staging.run(method, manifest)
    except (OSError, VfsError) as exc:
        raise retryable(exc, shown) from exc


@dataclass(slots=True)
class _Frame:
    """A directory that is being filled."""

    path: Path
    waiting: list[tuple[bytes, list[int]]]
    """Directories in it that are yet to be made, and the parts that have them."""
    times: tuple[int, int] | None
    """Last access and last change in ns, the newest of the source; None: what is in it decides."""
    sourced: bool
    """Whether `times` are those of the source."""


class _Staging(Closing):
    """One unit in the making."""

    def __init__(
        self,
        unit: Unit,
        source: Directory,
        root: Directory,
        owner: tuple[int, int] | None,
        count: Count,
    ) -> None:
        self._unit = unit
        self._owner = owner
        self._count = count
        self._tops = Tops(unit.parts)
        self._sources = Cursors(lambda number: Cursor.open(source, unit.parts[number].source))
        self._registry = Registry(root, unit.holder, owner)
        self._made = Cursor.open(root, unit.staging)
        self._own = _identity(os.fstat(self._made.go(()).fd))
        self._staged = Staged()
        self._writer: Writer
        self._take: Take

    def close(self) -> None:
        """Releases every descriptor."""
        self._sources.close()
        self._registry.close()
        self._made.close()

    def run(self, method: Method, manifest: Sink) -> Staged:
        """Makes the unit's directories one after the other, each filled before those in it."""
        self._writer = Writer(manifest, self._unit.key, method)
        copying = Copying(
            Content(),
            self._registry,
            self._owner,
            partial(self._count, 0),
            clone=method == "reflink",
        )
        self._take = Linking(copying) if method == "link" else copying
        frames = [self._fill((), self._enterable((), ()) or ())]
        while frames:
            frame = frames[-1]
            if not frame.waiting:
                frames.pop()
                self._finish(frame, frames[-1] if frames else None)
                continue
            name, parts = frame.waiting.pop()
            path = (*frame.path, name)
            entered = self._enterable(path, parts)
            if entered is not None:
                frames.append(self._fill(path, entered))
        self._writer.end(**self._staged.to_json())
        return self._staged

    def _source(self, number: int, path: Path) -> Directory:
        """The directory of a part that is laid over the unit's directory `path`."""
        return self._sources.go(number, path[len(self._unit.parts[number].target) :])

    def _enterable(self, path: Path, parts: Sequence[int]) -> list[int] | None:
        """The parts that have something in the directory `path`; None if nothing leads there."""
        found = [*parts]
        for number in self._tops.at(path):
            try:
                self._source(number, path)
            except (LinkRefused, NotADirectory) as exc:
                self._leave(_TOP_LEFT[exc.errno], number, path)
            except (OSError, VfsError) as exc:
                raise self._failed(exc, number, path) from exc
            else:
                found.append(number)
        return sorted(found) if found or self._tops.below(path) else None

    def _fill(self, path: Path, parts: Sequence[int]) -> _Frame:
        """Makes the directory `path` and all in it that is no directory."""
        made = self._make(path)
        listings: dict[int, Listing] = {}
        origins: list[Origin] = []
        times: tuple[int, int] | None = None
        for number in parts:
            with self._naming(number, path):
                directory = self._source(number, path)
                status = os.fstat(directory.fd)
                self._refuse_itself(status)
                listings[number] = listing(directory.fd)
            origins.append(
                Origin(
                    number,
                    status.st_mode,
                    status.st_uid,
                    status.st_gid,
                    status.st_ino,
                    status.st_mtime_ns,
                )
            )
            if times is None or times[1] <= status.st_mtime_ns:
                times = (status.st_atime_ns, status.st_mtime_ns)
        lacking = []
        for origin in sorted(origins, key=lambda origin: origin.mtime_ns):
            with self._naming(origin.part, path):
                _, whole = copy_xattrs(self._source(origin.part, path).fd, made.fd)
            if not whole:
                lacking.append(origin.part)
        kept = None
        if times is not None:
            # Set for good when it is full; now to see what the file system makes of it.
            os.utime(made.fd, ns=times)
            kept = os.fstat(made.fd).st_mtime_ns
        self._writer.directory(path, kept, origins)
        for number in lacking:
            self._leave("attributes_not_kept", number, path)
        merged = self._merge(path, listings)
        for number, names in merged.taken.items():
            self._take_over(number, path, made, names)
        for number, rows in merged.same.items():
            self._writer.same(number, rows)
            self._staged.same += len(rows)
        for code, number, name in merged.left:
            self._leave(code, number, (*path, os.fsencode(name)))
        return _Frame(path, list(merged.directories.items()), times, times is not None)

    def _make(self, path: Path) -> Directory:
        """The new directory `path`. Nobody else can enter it before it is full."""
        if path:
            os.mkdir(path[-1], 0o700, dir_fd=self._made.go(path[:-1]).fd)
        return self._made.go(path)

    def _refuse_itself(self, status: os.stat_result) -> None:
        if _identity(status) == self._own:
            raise Precondition(
                f"{self._unit.key} would be built within what it is built from",
                fix="name another folder for the user data or the skill store",
            )

    def _merge(self, path: Path, listings: dict[int, Listing]) -> Merged:
        try:
            return merge(
                listings, self._tops.below(path), lambda number: self._source(number, path)
            )
        except NotCompared as exc:
            raise self._failed(exc.cause, exc.part, path, exc.name) from exc

    def _take_over(self, number: int, path: Path, made: Directory, names: list[str]) -> None:
        """Takes files and links of one part, some at a time."""
        source = self._source(number, path)
        staged = self._staged
        for start in range(0, len(names), ENTRIES):
            taken = Taken()
            try:
                self._take(source, made, names[start : start + ENTRIES], taken)
            except OSError as exc:
                raise self._failed(exc, number, path, self._take.name) from exc
            linked = sum(row[2] for row in taken.linked)
            self._writer.linked(number, taken.linked)
            self._writer.copied(number, taken.copied)
            for code, name in taken.left:
                self._leave(code, number, (*path, os.fsencode(name)))
            done = len(taken.linked) + len(taken.copied)
            staged.files += done
            staged.bytes += linked + sum(row[2] for row in taken.copied)
            self._count(done, linked)

    def _leave(self, code: str, number: int, path: Path) -> None:
        left = Left(code, self._place(number, path), path)
        self._writer.left(left)
        self._staged.left_count += 1
        if len(self._staged.left) < LEFT:
            self._staged.left.append(left)

    def _place(self, number: int, path: Path) -> Path:
        """Where in the source that is, which a part has at `path` of the unit."""
        part = self._unit.parts[number]
        return (*part.source, *path[len(part.target) :])

    def _finish(self, frame: _Frame, above: _Frame | None) -> None:
        """Gives a full directory its owner, mode and times."""
        fd = self._made.go(frame.path).fd
        if self._owner is not None:
            os.fchown(fd, *self._owner)
        os.fchmod(fd, 0o700)
        self._staged.directories += 1
        if frame.times is None:
            return
        os.utime(fd, ns=frame.times)
        if above is not None and not above.sourced:
            newest = above.times is None or above.times[1] < frame.times[1]
            above.times = frame.times if newest else above.times

    @contextmanager
    def _naming(self, number: int, path: Path) -> Iterator[None]:
        try:
            yield
        except (OSError, VfsError) as exc:
            raise self._failed(exc, number, path) from exc

    def _failed(
        self, exc: OSError | VfsError, number: int, path: Path, name: str = ""
    ) -> Retryable:
        place = self._place(number, path)
        shown = printable(b"/".join((*place, os.fsencode(name)) if name else place))
        if exc.errno == errno.ESTALE:
            return Retryable(f"{shown} changed while it was read", fix=_STOP)
        if exc.errno == errno.ENOENT:
            return Retryable(f"{shown} vanished meanwhile", fix=_STOP)
        if exc.errno == errno.EXDEV:
            return Retryable(f"another filesystem is mounted at {shown}", fix=_UNMOUNT)
        return retryable(exc, f"take over {shown}")


_STOP: Final = "stop what writes there, then run again"
_UNMOUNT: Final = "unmount it, or move what is in it, then run again"


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
