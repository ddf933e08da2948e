"""Whole trees beneath a pinned directory: list, search, measure, digest; and walk, copy, remove.

All of it is iterative, follows no link, crosses no mount, holds a bounded number of descriptors at
any depth and width, and says what it left out. `vfs.walking`, `vfs.copying` and `vfs.removal` hold
the parts that are re-exported here. Everything raises `vfs.errors.VfsError`.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
import struct
import unicodedata
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from vfs.beneath import Directory, Path, open_regular, split_path, translated
from vfs.copying import Modes, copy, extents
from vfs.descent import Descent
from vfs.errors import PermissionDenied
from vfs.removal import remove
from vfs.resolving import O_LIST, resolver
from vfs.walking import (
    UNBOUNDED,
    Cut,
    Entry,
    Limits,
    OnError,
    Parts,
    Survey,
    visit,
    walk,
)

__all__ = [
    "UNBOUNDED",
    "Cut",
    "Entry",
    "Hits",
    "Limits",
    "Listing",
    "Modes",
    "OnError",
    "Usage",
    "copy",
    "digest",
    "list_directory",
    "remove",
    "search",
    "usage",
    "visit",
    "walk",
]

_DEFAULT = Limits()


@dataclass(frozen=True, slots=True)
class Listing:
    """One directory's entries: directories first, then by name without regard to case."""

    entries: list[Entry]
    cut: Cut


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search found: the nearest first, and by name within one directory."""

    entries: list[Entry]
    cut: Cut


@dataclass(slots=True)
class Usage:
    """What a tree holds. Names are counted each; the bytes of a hard-linked file only once."""

    files: int = 0
    directories: int = 0
    """Directories, the one asked of included."""
    links: int = 0
    special: int = 0
    """FIFOs, sockets and devices."""
    size: int = 0
    """Bytes that the files hold for their readers."""
    allocated: int = 0
    """Bytes that the disk holds for all entries: a hole takes none, a directory takes its own."""
    cut: Cut = field(default_factory=Cut)


def list_directory(directory: Directory, path: Path = (), limits: Limits = _DEFAULT) -> Listing:
    """The entries of one directory, of which no more are looked at than `limits` allow."""
    parts = split_path(path)
    survey = Survey(limits, Cut(), None)
    descent = Descent(Directory(directory.open_listing(parts), directory.mnt_id))
    try:
        entries = list(survey.entries(descent, parts))
    finally:
        descent.close()
    entries.sort(key=_listing_order)
    return Listing(entries, survey.cut)


def _listing_order(entry: Entry) -> tuple[bool, str, bytes]:
    return (not entry.is_dir, os.fsdecode(entry.name).lower(), entry.name)


def search(
    directory: Directory,
    path: Path,
    pattern: str | bytes | Callable[[Entry], bool],
    limits: Limits = _DEFAULT,
) -> Hits:
    """The entries beneath `path` that match, nearest first.

    A pattern with `*`, `?` or `[` is a glob that the whole name matches; any other is a part of the
    name. Case and Unicode composition make no difference. A function is asked about each entry.

    It goes level by level, so that a wide directory at the side of the way does not use the limits
    up before what is near has been seen.
    """
    matches = pattern if callable(pattern) else name_matcher(pattern)
    start = split_path(path)
    survey = Survey(limits, Cut(), None)
    found: list[Entry] = []
    with Directory(directory.open_listing(start), directory.mnt_id) as top:
        waiting: deque[Parts] = deque()
        if survey.may_enter(0):
            waiting.append(start)
        while waiting and not survey.cut.entries:
            parts = waiting.popleft()
            below = parts[len(start) :]
            try:
                fd = resolver().open(top.fd, top.mnt_id, below, O_LIST) if below else os.dup(top.fd)
            except OSError as exc:
                survey.failed(parts, exc)
                continue
            descent = Descent(Directory(fd, top.mnt_id))
            try:
                for entry in survey.entries(descent, parts):
                    if matches(entry):
                        if len(found) == limits.hits:
                            survey.cut.hits = 1
                            return Hits(found, survey.cut)
                        found.append(entry)
                    if entry.is_dir and survey.may_enter(len(entry.path) - len(start)):
                        waiting.append(entry.path)
            finally:
                descent.close()
    return Hits(found, survey.cut)


def name_matcher(pattern: str | bytes) -> Callable[[Entry], bool]:
    """The predicate that `search` makes of a pattern."""
    wanted = _searchable(pattern)
    if re.search(r"[*?\[]", wanted):
        whole = re.compile(fnmatch.translate(wanted)).match
        return lambda entry: whole(_searchable(entry.name)) is not None
    return lambda entry: wanted in _searchable(entry.name)


def _searchable(name: str | bytes) -> str:
    return unicodedata.normalize("NFC", os.fsdecode(name)).casefold()


def usage(
    directory: Directory, path: Path = (), *, limits: Limits = UNBOUNDED, cut: Cut | None = None
) -> Usage:
    """What `path` holds: a tree, or one entry. What could not be read is counted in its `cut`."""
    parts = split_path(path)
    total = Usage(cut=Cut() if cut is None else cut)
    start = Entry(parts, directory.stat(parts))
    seen: set[tuple[int, int, int]] = set()
    _add(total, start, seen)
    if start.is_dir:
        try:
            for entry in walk(directory, parts, limits=limits, cut=total.cut):
                _add(total, entry, seen)
        except PermissionDenied:  # the directory itself; those in it are counted by the walk
            total.cut.unreadable += 1
    return total


def _add(total: Usage, entry: Entry, seen: set[tuple[int, int, int]]) -> None:
    status = entry.status
    mode = status.mode
    if stat.S_ISDIR(mode):
        total.directories += 1
    elif stat.S_ISREG(mode):
        total.files += 1
    elif stat.S_ISLNK(mode):
        total.links += 1
    else:
        total.special += 1
    if status.nlink > 1 and not stat.S_ISDIR(mode):
        if status.identity in seen:
            return
        seen.add(status.identity)
    if stat.S_ISREG(mode):
        total.size += status.size
    total.allocated += status.allocated


_DIGEST_FORMAT = b"gemspace tree 1\n"
_RECORD = struct.Struct(">cBQQ")
"""Type, whether it may be executed, depth, length of the name; the name and the content follow.
Entries come in the order of the walk, so that names and depths tell the whole tree."""

_LETTERS = {
    "file": b"f",
    "directory": b"d",
    "link": b"l",
    "fifo": b"p",
    "socket": b"s",
    "character device": b"c",
    "block device": b"b",
    "unknown": b"?",
}


def digest(directory: Directory, path: Path = ()) -> bytes:
    """A SHA-256 of what `path` holds: names, types, executable bits, bytes and link texts.

    Times, owners, other mode bits, hard links and holes make no difference, and neither does the
    name of `path` itself; holes are not read either. Raises on anything that cannot be read.
    """
    parts = split_path(path)
    total = hashlib.sha256(_DIGEST_FORMAT)
    start = Entry(parts, directory.stat(parts))
    if not start.is_dir:
        with directory.parent(parts) as (parent, name):
            _digest_entry(total, parent, start, name, 0)
        return total.digest()
    for parent, entry in visit(directory, parts):
        _digest_entry(total, parent, entry, entry.name, len(entry.path) - len(parts))
    return total.digest()


def _digest_entry(
    total: hashlib._Hash, parent: Directory, entry: Entry, name: bytes, depth: int
) -> None:
    executable = entry.is_file and bool(entry.status.mode & 0o111)
    shown = name if depth else b""
    total.update(_RECORD.pack(_LETTERS[entry.kind], executable, depth, len(shown)) + shown)
    with translated("read", entry.path):
        if entry.is_file:
            fd = open_regular(parent.fd, parent.mnt_id, (name,), os.O_RDONLY)
            try:
                total.update(_content_digest(fd))
            finally:
                os.close(fd)
        elif entry.is_link:
            text = os.readlink(name, dir_fd=parent.fd)
            total.update(hashlib.sha256(text).digest())


_PIECE = 1 << 16
_ZEROS = bytes(_PIECE)


def _content_digest(fd: int) -> bytes:
    """The SHA-256 of a file's size and of each piece of it that is not all zeros, with its offset.

    So a file with holes and one with zeros written have one digest, and an enormous hole takes no
    time.
    """
    size = os.fstat(fd).st_size
    total = hashlib.sha256(size.to_bytes(8, "big"))
    done = 0
    for start, end in extents(fd, size):
        done = max(done, start - start % _PIECE)
        while done < end:
            piece = os.pread(fd, _PIECE, done)
            if piece != _ZEROS[: len(piece)]:
                total.update(done.to_bytes(8, "big"))
                total.update(piece)
            done += _PIECE
    return total.digest()
