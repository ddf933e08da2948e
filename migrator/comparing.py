"""What was transferred, proved: every entry looked at, and read where it was copied.

A linked entry is the recorded inode, with the recorded type, size and time of change; to read it
would prove nothing, since it is the very file. A copied one must have the digest of what was read.
The times of directories are compared only while the unit is staged: afterwards they change with
whatever is put there. What the manifest does not tell of is not looked at.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from migrator import manifest
from migrator.content import SPARSE, Content, open_regular, text_digest, xattrs_digest
from migrator.cursor import ABSENT, Cursor, Cursors
from migrator.errors import retryable
from migrator.manifest import Entries, Made
from migrator.merging import same_content
from migrator.units import Path, Unit
from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.errors import VfsError
from vfs.printable import printable

Count = Callable[[int, int], None]
"""Is told of files and bytes when they are done."""

TOLD: Final = 1000
"""Differences of one unit that are told; where there are more, the last one tells how many."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that is not as it was recorded."""

    path: Path
    """Beneath the root."""
    code: str
    """``missing``, ``another_file``, ``type``, ``size``, ``time``, ``content``, ``attributes``,
    ``source_changed``, ``more``."""
    message: str
    """What is so, as the end of a sentence that begins with the path."""

    def __str__(self) -> str:
        """One line, printable."""
        return f"{printable(b'/'.join(self.path))} {self.message}"


_MESSAGES: Final = {
    "missing": "is missing",
    "another_file": "is another file than the one that was recorded",
    "type": "is of another type than recorded",
    "size": "is not of the recorded size",
    "time": "has another time of change than recorded",
    "content": "has other content than was read from the source",
    "attributes": "has other extended attributes than the source",
    "source_changed": "has changed in the source since it was copied",
}


def verify(
    unit: Unit,
    at: Path,
    root: Directory,
    records: Iterable[dict[str, Any]],
    *,
    source: Directory | None,
    count: Count,
) -> list[Difference]:
    """What is not as the manifest tells, of the unit that lies at `at` beneath `root`.

    With `source`, what was copied must also be in the source still as it was when it was read.
    Raises Retryable, naming the entry, where something cannot be read; Mismatch for a manifest that
    is not whole.
    """
    with Proof(unit, at, root, source, count) as proof:
        proof.go(manifest.read(records))
        return proof.differences()


class Proof(Closing):
    """The proof of one unit; what holds for its entries a subclass may judge otherwise."""

    def __init__(
        self, unit: Unit, at: Path, root: Directory, source: Directory | None, count: Count
    ) -> None:
        self._unit = unit
        self._at = at
        self._root = root
        self._count = count
        self._count_bytes = partial(count, 0)
        self._staged = at == unit.staging
        self._content = Content()
        self._found: list[Difference] = []
        self._more = 0
        self._places = Cursors(lambda _: Cursor.open(root, at))
        self._sources = (
            None
            if source is None
            else Cursors(lambda number: Cursor.open(source, unit.parts[number].source))
        )
        self._name = b""

    def close(self) -> None:
        """Releases every descriptor."""
        self._places.close()
        if self._sources is not None:
            self._sources.close()

    def go(self, records: Iterable[manifest.Record]) -> None:
        """Proves record after record."""
        lost: Path | None = None
        for record in records:
            if not isinstance(record, Made | Entries):
                continue
            if lost is not None and record.path[: len(lost)] == lost:
                continue
            try:
                self._name = b""
                directory = self._enter(record.path)
                if directory is None:
                    lost = record.path
                    self._differ(record.path, "missing")
                elif isinstance(record, Made):
                    self._prove_directory(record, directory)
                elif record.digests is None:
                    self._prove_linked(record, directory)
                else:
                    self._prove_copied(record, record.digests, directory)
            except (OSError, VfsError) as exc:
                path = (*self._at, *record.path, self._name)
                shown = printable(b"/".join(path if self._name else path[:-1]))
                raise retryable(exc, f"verify {shown}") from exc

    def differences(self) -> list[Difference]:
        """What was found, and how much more."""
        if self._more:
            more = Difference(self._at, "more", f"holds {self._more} more that differ")
            return [*self._found, more]
        return self._found

    def _differ(self, path: Path, code: str) -> None:
        if len(self._found) < TOLD:
            self._found.append(Difference((*self._at, *path), code, _MESSAGES[code]))
        else:
            self._more += 1

    def _enter(self, path: Path) -> Directory | None:
        try:
            return self._places.go(0, path)
        except (OSError, VfsError) as exc:
            if exc.errno in ABSENT:
                return None
            raise

    def _prove_directory(self, record: Made, directory: Directory) -> None:
        if not self._staged or record.mtime_ns is None:
            return
        if os.fstat(directory.fd).st_mtime_ns != record.mtime_ns:
            self._differ(record.path, "time")

    def _prove_linked(self, record: Entries, directory: Directory) -> None:
        # Paid for by each of a million files.
        look, fd = os.stat, directory.fd
        device = os.fstat(fd).st_dev
        for name, ino, size, mtime, attributes in zip(
            record.names,
            record.ino,
            record.size,
            record.mtime_ns,
            record.attributes,
            strict=True,
        ):
            try:
                status = look(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                self._differ((*record.path, name), "missing")
                continue
            if (
                status.st_ino != ino
                or status.st_dev != device
                or status.st_mtime_ns != mtime
                or status.st_size != size
                or (status.st_mode ^ attributes[0]) & 0o170000
            ):
                code = _difference(status, ino, size, mtime, attributes[0])
                self._differ((*record.path, name), code or "another_file")
        self._count(len(record.names), sum(record.size))

    def _prove_copied(self, record: Entries, digests: list[str], directory: Directory) -> None:
        rows = zip(
            record.names,
            record.inode,
            record.size,
            record.kept_ns,
            record.attributes,
            digests,
            strict=True,
        )
        for index, (name, inode, size, mtime, attributes, digest) in enumerate(rows):
            self._name = name
            try:
                recorded = (inode, size, mtime, attributes[0])
                xattrs = record.xattrs.get(index)
                code = self._compare(directory, name, recorded, digest, xattrs)
            except FileNotFoundError:
                code = "missing"
            if code is not None:
                self._differ((*record.path, name), code)
        self._name = b""
        self._count(len(record.names), 0)
        if self._sources is not None:
            self._compare_source(record, self._sources)

    def _compare(
        self,
        directory: Directory,
        name: bytes,
        recorded: tuple[int, int, int, int],
        digest: str,
        xattrs: str | None,
    ) -> str | None:
        """The code of how a copy differs, if it does. `recorded`: inode, size, mtime, mode."""
        if stat.S_ISLNK(recorded[3]):
            status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
            code = _difference(status, *recorded)
            if code is None and text_digest(os.readlink(name, dir_fd=directory.fd)) != digest:
                return "content"
            return code
        try:
            fd, status = self._open(directory, name)
        except OSError as exc:
            if exc.errno in _NO_FILE:
                return "type"
            raise
        try:
            code = _difference(status, *recorded)
            if code is not None:
                return code
            sparse = digest.startswith(SPARSE)
            if digest != self._content.digest(fd, recorded[1], self._count_bytes, sparse=sparse):
                return "content"
            return None if xattrs_digest(fd) == xattrs else "attributes"
        finally:
            os.close(fd)

    def _open(self, directory: Directory, name: bytes) -> tuple[int, os.stat_result]:
        """A readable descriptor of what should be a regular file, and its status."""
        if not self._staged:
            return open_regular(directory, name)
        # What is staged nobody else can reach, so it need not be held before it is opened.
        fd = os.open(name, _READ, dir_fd=directory.fd)
        return fd, os.fstat(fd)

    def _compare_source(self, record: Entries, sources: Cursors) -> None:
        """Finds what changed after it was read."""
        part = self._unit.parts[record.part]
        try:
            directory = sources.go(record.part, record.path[len(part.target) :])
        except (OSError, VfsError) as exc:
            if exc.errno not in ABSENT:
                raise
            self._differ(record.path, "source_changed")
            return
        for name, *recorded in zip(
            record.names, record.ino, record.size, record.mtime_ns, strict=True
        ):
            try:
                status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
            except FileNotFoundError:
                self._differ((*record.path, name), "source_changed")
                continue
            if [status.st_ino, status.st_size, status.st_mtime_ns] != recorded:
                self._differ((*record.path, name), "source_changed")


_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC

_NO_FILE: Final = frozenset((errno.ELOOP, errno.EISDIR, errno.ENXIO))
"""What `open_regular` answers for what is no regular file (`vfs.dirfd.refuse_type`)."""


def _difference(
    status: os.stat_result, ino: int, size: int, mtime_ns: int, mode: int
) -> str | None:
    if stat.S_IFMT(status.st_mode) != stat.S_IFMT(mode):
        return "type"
    if status.st_ino != ino:
        return "another_file"
    if status.st_size != size:
        return "size"
    return "time" if status.st_mtime_ns != mtime_ns else None


def same_as(unit: Unit, root: Directory, records: Iterable[dict[str, Any]]) -> bool:
    """Whether the target, which is there, holds all that the staged unit holds, byte for byte.

    It may hold more; owners, modes and times may be others. Raises Retryable where something cannot
    be read, and Mismatch for a manifest that is not whole.
    """
    try:
        with ExitStack() as stack:
            cursors = []
            for path in (unit.staging, unit.target):
                cursors.append(stack.enter_context(Cursor.open(root, path)))
            staged, target = cursors
            for record in manifest.read(records):
                if isinstance(record, Made | Entries) and not _holds(staged, target, record):
                    return False
        return True
    except (OSError, VfsError) as exc:
        if exc.errno in ABSENT:
            return False
        shown = printable(b"/".join(unit.target))
        raise retryable(exc, f"compare {shown} with {unit.key}") from exc


def _holds(staged: Cursor, target: Cursor, record: Made | Entries) -> bool:
    """Raises OSError, of `ABSENT` where something is missing in the target."""
    ours, theirs = staged.go(record.path), target.go(record.path)
    if isinstance(record, Made):
        return True
    for name in record.names:
        one = os.stat(name, dir_fd=ours.fd, follow_symlinks=False)
        other = os.stat(name, dir_fd=theirs.fd, follow_symlinks=False)
        if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino) and not same_content(
            ours, name, one.st_mode, theirs, name, other.st_mode
        ):
            return False
    return True
