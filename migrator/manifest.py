"""What a unit is made of, entry by entry: written while it is staged, read by whoever acts on it.

A manifest is a file of records (`migrator.lines`). Directories come in the order of a walk from the
top down, each followed by its entries and then by what is beneath it, so that whoever reads it
needs no more memory than for one record:

=============  ====================================================================================
kind           holds
=============  ====================================================================================
``unit``       first: `FORMAT`, the key, and the method of the transfer
``directory``  a directory of the unit, when it was changed, and each directory of the source that
               it was made of: number of the part, mode, uid, gid, inode, mtime
``entries``    up to `ENTRIES` files and links of that directory that came from one part, in
               columns: name, inode, size, mtime, and mode, uid and gid of the source; of those that
               are copies also inode and mtime of the copy, and the digest of what was read
``same``       what was not needed, since the unit has it already: names of one part
``left``       what stays in the source, and why
``end``        last, with the totals; a manifest without it is not one
=============  ====================================================================================

Paths are beneath the unit's top, and told by how many names they have in common with the record
before, and the rest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from migrator.cursor import common
from migrator.errors import Mismatch
from migrator.lines import path_exact, path_text, text
from migrator.units import Path

FORMAT: Final = 1
"""Of the records; another one is not read."""

ENTRIES: Final = 4096
"""Entries of one record: bounds the memory of whoever reads it."""

Method = Literal["link", "reflink", "copy"]

Attributes = tuple[int, int, int]
"""Mode (type included), uid and gid of an entry of the source."""

Linked = tuple[str, int, int, int, Attributes]
"""One entry that was linked: name as os.fsdecode gives it, inode, size, mtime in ns, attributes."""

Copied = tuple[str, int, int, int, Attributes, int, int, str, str | None, bool]
"""One entry that was copied: the same, then of the copy its inode, its mtime in ns (another one
where the file system keeps no such time), the digest of its content (`migrator.content`) and that
of its extended attributes (None: it has none); and whether it has all that the source has."""


class Sink(Protocol):
    """Where records go, as to `migrator.lines.Appender`."""

    def append(self, record: dict[str, Any], /) -> None:
        """Adds one."""

    def write(self) -> None:
        """Has what was added outlive this process."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A directory of the source that is part of a directory of the unit."""

    part: int
    mode: int
    uid: int
    gid: int
    ino: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Made:
    """A directory of the unit."""

    path: Path
    mtime_ns: int | None
    """When it was changed; None where no directory of the source is at its place."""
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """Files and links of one directory that came from one part; the lists are of one length."""

    path: Path
    part: int
    names: list[bytes]
    ino: list[int]
    """Inodes of the source."""
    size: list[int]
    mtime_ns: list[int]
    attributes: list[Attributes]
    inode: list[int]
    """Inodes of the unit; `ino` itself where nothing was copied."""
    kept_ns: list[int]
    """Times of change of the unit; `mtime_ns` itself where the file system keeps them."""
    digests: list[str] | None
    """Of the contents; None where nothing was copied."""
    xattrs: dict[int, str]
    """Digests of the extended attributes, by the index of the entry; of copies alone."""
    partial: frozenset[int]
    """Indices of copies that lack extended attributes of the source."""


@dataclass(frozen=True, slots=True)
class Same:
    """Entries of one directory of one part that the unit has already, byte for byte."""

    path: Path
    part: int
    names: list[bytes]
    ino: list[int]
    size: list[int]
    mtime_ns: list[int]


@dataclass(frozen=True, slots=True)
class Left:
    """What stays in the source."""

    code: str
    """Why: ``special_file``, ``source_is_a_link``, ``source_is_no_directory``,
    ``name_taken_by_newer_file``, ``name_taken_by_directory``, ``too_large``; of a copy, that it is
    not whole: ``attributes_not_kept``."""
    source: Path
    """Where it is, beneath the saves."""
    path: Path
    """Where it would have been, beneath the unit's top."""


Record = Made | Entries | Same | Left


class Writer:
    """Writes the manifest of one unit. Errors are those of the sink."""

    __slots__ = ("_last", "_sink")

    def __init__(self, sink: Sink, key: str, method: Method) -> None:
        self._sink = sink
        self._last: Path = ()
        sink.append({"kind": "unit", "format": FORMAT, "key": key, "method": method})

    def directory(self, path: Path, mtime_ns: int | None, origins: Sequence[Origin]) -> None:
        """A directory; what follows is in it until the next one."""
        keep = common(self._last, path)
        self._last = path
        self._sink.append(
            {
                "kind": "directory",
                "keep": keep,
                "path": path_text(path[keep:]),
                "mtime": mtime_ns,
                "origins": [[o.part, o.mode, o.uid, o.gid, o.ino, o.mtime_ns] for o in origins],
            }
        )

    def linked(self, part: int, rows: list[Linked]) -> None:
        """Entries of the last directory that were linked, as many as there are."""
        for start in range(0, len(rows), ENTRIES):
            self._sink.append(_columns(part, rows[start : start + ENTRIES]))

    def copied(self, part: int, rows: list[Copied]) -> None:
        """Entries of the last directory that were copied, as many as there are."""
        for start in range(0, len(rows), ENTRIES):
            some = rows[start : start + ENTRIES]
            record = _columns(part, some)
            record["new"] = [row[5] for row in some]
            if any(row[6] != row[3] for row in some):
                record["kept"] = [row[6] for row in some]
            record["digest"] = [row[7] for row in some]
            if xattrs := [[index, row[8]] for index, row in enumerate(some) if row[8]]:
                record["xattrs"] = xattrs
            if partial := [index for index, row in enumerate(some) if not row[9]]:
                record["partial"] = partial
            self._sink.append(record)

    def same(self, part: int, rows: Sequence[tuple[str, int, int, int]]) -> None:
        """Entries of one part that the last directory has already: name, inode, size, mtime."""
        for start in range(0, len(rows), ENTRIES):
            names, ino, size, mtime = zip(*rows[start : start + ENTRIES], strict=True)
            self._sink.append(
                {
                    "kind": "same",
                    "part": part,
                    "names": _texts(names),
                    "ino": ino,
                    "size": size,
                    "mtime": mtime,
                }
            )

    def left(self, left: Left) -> None:
        """Something that stays in the source."""
        self._sink.append(
            {
                "kind": "left",
                "code": left.code,
                "source": path_text(left.source),
                "path": path_text(left.path),
            }
        )

    def end(self, **totals: int) -> None:
        """The end, with the totals; all of it is written then."""
        self._sink.append({"kind": "end", **totals})
        self._sink.write()


def _columns(part: int, rows: Sequence[Linked] | Sequence[Copied]) -> dict[str, Any]:
    names, ino, size, mtime, attributes = list(zip(*rows, strict=True))[:5]
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(attributes))}
    return {
        "kind": "entries",
        "part": part,
        "names": _texts(names),
        "ino": ino,
        "size": size,
        "mtime": mtime,
        "attributes": list(kinds),
        "attribute": 0 if len(kinds) == 1 else [kinds[kind] for kind in attributes],
    }


def _texts(names: Sequence[str]) -> Sequence[str]:
    """Names as os.fsdecode gives them, as `migrator.lines.text` does."""
    if sys.getfilesystemencoding() == "utf-8":
        return names
    return [text(os.fsencode(name)) for name in names]


def read(records: Iterable[dict[str, Any]]) -> Iterator[Record]:
    """The records of a manifest. Mismatch where it is not whole, or of another format."""
    path: Path = ()
    begun = ended = False
    for record in records:
        kind = record.get("kind")
        if not begun:
            begun = kind == "unit" and record.get("format") == FORMAT
            if not begun:
                raise _mismatch("is of another format")
            continue
        try:
            if kind == "directory":
                path = (*path[: record["keep"]], *path_exact(record["path"]))
                origins = tuple(Origin(*origin) for origin in record["origins"])
                yield Made(path, record["mtime"], origins)
            elif kind == "entries":
                yield _entries(path, record)
            elif kind == "same":
                yield Same(
                    path,
                    record["part"],
                    _exact(record["names"]),
                    record["ino"],
                    record["size"],
                    record["mtime"],
                )
            elif kind == "left":
                yield Left(record["code"], path_exact(record["source"]), path_exact(record["path"]))
            elif kind == "end":
                ended = True
            else:
                raise _mismatch(f"holds a record of an unknown kind, {kind}")
        except (KeyError, TypeError, ValueError) as exc:
            raise _mismatch(f"holds a record that lacks {exc}") from None
    if not ended:
        raise _mismatch("has no end")


def _entries(path: Path, record: dict[str, Any]) -> Entries:
    kinds = [tuple(kind) for kind in record["attributes"]]
    which = record["attribute"]
    names = _exact(record["names"])
    attributes = [kinds[0]] * len(names) if which == 0 else [kinds[number] for number in which]
    ino = record["ino"]
    return Entries(
        path,
        record["part"],
        names,
        ino,
        record["size"],
        record["mtime"],
        attributes,
        record.get("new", ino),
        record.get("kept", record["mtime"]),
        record.get("digest"),
        dict(record.get("xattrs", ())),
        frozenset(record.get("partial", ())),
    )


def _exact(names: list[str]) -> list[bytes]:
    return [name.encode("utf-8", "surrogateescape") for name in names]


def _mismatch(what: str) -> Mismatch:
    return Mismatch(
        f"the manifest of a unit {what}",
        fix="give back the state folder as the migrator left it, from a backup",
    )
