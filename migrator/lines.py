"""One file of records, a line each: appended in batches, durable when asked for, checked when read.

A line is ``<CRC-32 of the JSON, 8 hex digits> <one JSON object, ASCII>\\n`` (zlib's CRC, RFC 1952).
What this promises, whatever happens meanwhile (a full disk, SIGKILL, a lost page of an unfinished
write):

- a record is there whole or not at all: what a writer was killed in the middle of has no newline,
  ends the reading, and is cut off before anything is appended;
- anything else that is not as it was written is `migrator.errors.Mismatch`, never skipped;
- when `Appender.sync` returned, every record before it, and the file's name, have reached the disk.

The file may be read while it is being written. Names from disk are any bytes but NUL and ``/``;
`text` and `exact` turn them into JSON's text and back.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

from migrator.errors import Mismatch
from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.errors import NotFound
from vfs.printable import printable

BATCH: Final = 256 * 1024
"""Bytes that are collected before they are written: one system call for thousands of entries."""

_TORN: Final = re.compile(rb"(?:[0-9a-f]{0,8}|[0-9a-f]{8} (?:\{[ -~]*)?)\0*")
"""How a line without its end may look: the beginning of one, and what a file system made of blocks
that were never written."""

_TAIL: Final = 64 * 1024
"""Bytes that are read at once to find the last newline."""

_encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decode: Final = json.JSONDecoder().decode


def text(name: bytes) -> str:
    """A name as text for JSON: UTF-8, and PEP 383's surrogates for bytes that are none."""
    return name.decode("utf-8", "surrogateescape")


def exact(text: str) -> bytes:
    """The name that `text` made that text of."""
    return text.encode("utf-8", "surrogateescape")


def path_text(parts: Iterable[bytes]) -> list[str]:
    """The names of a path as texts."""
    return [text(name) for name in parts]


def path_exact(texts: Iterable[str]) -> tuple[bytes, ...]:
    """The path that `path_text` made those texts of."""
    return tuple(exact(name) for name in texts)


def line(record: Mapping[str, Any]) -> bytes:
    """The line of one record, its newline included. TypeError for what JSON has no form for."""
    body = _encode(record if isinstance(record, dict) else dict(record)).encode("ascii")
    return b"%08x %b\n" % (crc32(body), body)


class Appender(Closing):
    """The end of one file of records. One process at a time may have it.

    After a failure nobody knows what has reached the disk, so every later call fails as well; open
    the file again to go on after its last whole record. Closing writes nothing: what was not
    written or synced before is dropped.
    """

    __slots__ = ("_failure", "_fsync", "_lines", "_listing", "_size", "fd")

    def __init__(self, fd: int, listing: int, fsync: Callable[[int], None]) -> None:
        """Takes over `fd`, open for appending, and `listing`, a descriptor of its directory."""
        self.fd = fd
        self._listing = listing
        self._fsync = fsync
        self._lines: list[bytes] = []
        self._size = 0
        self._failure: OSError | None = None

    @classmethod
    def open(
        cls, directory: Directory, name: bytes, *, fsync: Callable[[int], None] = os.fsync
    ) -> Appender:
        """Opens the file `name`, made with mode 0600 if missing; the torn end is cut off.

        `fsync` makes a descriptor durable. Raises VfsError when it cannot be opened, OSError when
        it cannot be read or cut, and Mismatch when its end is not of this format.
        """
        listing = directory.open_listing()
        try:
            try:
                fd = directory.open_file(name, os.O_RDWR | os.O_APPEND)
            except NotFound:
                os.close(directory.create_file(name))
                fd = directory.open_file(name, os.O_RDWR | os.O_APPEND)
            try:
                _cut(fd, name)
                return cls(fd, listing, fsync)
            except BaseException:
                os.close(fd)
                raise
        except BaseException:
            os.close(listing)
            raise

    @classmethod
    def create(
        cls, directory: Directory, name: bytes, *, fsync: Callable[[int], None] = os.fsync
    ) -> Appender:
        """The same, with an empty file: one that is there already is removed."""
        with suppress(NotFound):
            directory.unlink(name)
        return cls.open(directory, name, fsync=fsync)

    def close(self) -> None:
        """Releases the descriptors; a second call does nothing."""
        for fd in (self.fd, self._listing):
            if fd >= 0:
                os.close(fd)
        self.fd = self._listing = -1
        self._lines.clear()

    def append(self, record: Mapping[str, Any]) -> None:
        """Adds one record, written with those around it. OSError; then close this."""
        self._refuse_failed()
        new = line(record)
        self._lines.append(new)
        self._size += len(new)
        if self._size >= BATCH:
            self.write()

    def write(self) -> None:
        """Writes what was appended: from now on it survives this process, but not the machine."""
        self._refuse_failed()
        if not self._lines:
            return
        rest = memoryview(b"".join(self._lines))
        self._lines.clear()
        self._size = 0
        try:
            while rest:
                rest = rest[os.write(self.fd, rest) :]
        except OSError as exc:
            self._failure = exc
            raise

    def sync(self) -> None:
        """Makes every record appended so far durable, and the file's name with the first of them.

        OSError; then close this.
        """
        self.write()
        try:
            self._fsync(self.fd)
            if self._listing >= 0:
                self._fsync(self._listing)
                listing, self._listing = self._listing, -1
                os.close(listing)
        except OSError as exc:
            self._failure = exc
            raise

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise OSError(self._failure.errno, self._failure.strerror)


def records(directory: Directory, name: bytes) -> Iterator[dict[str, Any]]:
    """The whole records of a file, from its first; a torn end is left out.

    Raises VfsError (NotFound among them) when it cannot be opened, OSError when it cannot be read,
    Mismatch where it is not what was written. Memory for one record at a time.
    """
    with io.FileIO(directory.open_file(name), "r") as raw, io.BufferedReader(raw, BATCH) as file:
        for number, whole in enumerate(file, 1):
            if not whole.endswith(b"\n"):
                _check_torn(whole, name)
                return
            body = whole[9:-1]
            if whole[:9] != b"%08x " % crc32(body):
                raise _mismatch(name, f"line {number} is not what was written")
            try:
                record = _decode(body.decode("ascii"))
            except ValueError:
                record = None
            if not isinstance(record, dict):
                raise _mismatch(name, f"line {number} holds no record")
            yield record


def _cut(fd: int, name: bytes) -> None:
    """Cuts off what follows the last newline."""
    size = end = os.lseek(fd, 0, os.SEEK_END)
    torn = b""
    while end:
        start = max(0, end - _TAIL)
        block = os.pread(fd, end - start, start)
        newline = block.rfind(b"\n")
        torn = block[newline + 1 :] + torn
        end = start
        if newline >= 0:
            end += newline + 1
            break
    if end < size:
        _check_torn(torn, name)
        os.ftruncate(fd, end)


def _check_torn(end: bytes, name: bytes) -> None:
    """Raises Mismatch unless it may be all that a killed writer, or a lost page, left of a line."""
    if _TORN.fullmatch(end) is None:
        raise _mismatch(name, "its last line is not of this program")


def _mismatch(name: bytes, what: str) -> Mismatch:
    return Mismatch(
        f"{printable(name)} in the state folder is damaged: {what}",
        fix="give back the file as the migrator left it, from a backup of the state folder",
    )
