"""What the verbs print: lines that are safe on a terminal, or one JSON document.

A name is shown by `vfs.printable`. In JSON it stands under its key in that form, and where that
form had to escape something, the base64url of its exact bytes under the key with `_bytes` added.
Sizes are bytes, modes four octal digits, times ISO 8601 in UTC.
"""

from __future__ import annotations

import json
import stat
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vfs.printable import one_line, printable, reference

if TYPE_CHECKING:
    from vfs.walking import Cut, Entry

_CUTS = {
    "depth": "{} director{} too deep",
    "directories": "{} director{} more than the limit",
    "entries_per_directory": "{} director{} with more entries than the limit",
    "entries": "more entries than the limit",
    "hits": "more results than the limit",
    "unreadable": "{} entr{} that cannot be read",
    "mounts": "{} entr{} with another mount on it",
}
_NOT_LIMITS = ("unreadable", "mounts")


def say(text: str) -> None:
    """Prints one line."""
    sys.stdout.write(one_line(text) + "\n")


def note(text: str) -> None:
    """Prints one line on stderr, where it is in no program's way."""
    sys.stdout.flush()
    sys.stderr.write(f"vfs: {one_line(text)}\n")


def emit(document: Mapping[str, object]) -> None:
    """Prints a JSON document on one line, in UTF-8 whatever the locale (RFC 8259, section 8.1)."""
    sys.stdout.flush()
    sys.stdout.buffer.write(json.dumps(document, ensure_ascii=False).encode() + b"\n")


def write(text: str) -> None:
    """Prints text of ours that has several lines."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def table(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> None:
    """Prints columns as wide as they need to be, those in `right` flush; the last is as it is."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = []
        for index, cell in enumerate(row[:-1]):
            padding = " " * (widths[index] - _width(cell))
            cells.append(padding + cell if index in right else cell + padding)
        say("  ".join([*cells, row[-1]]))


def _width(text: str) -> int:
    """Columns that a terminal takes for it: two for a wide letter (UAX #11), none for a mark."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) != 0 for char in text)


def columns(entries: Sequence[Entry], names: Sequence[str]) -> None:
    """Prints entries as `ls -l` does: mode, owner, size, time, and the names given."""
    table(
        [
            (
                stat.filemode(entry.status.mode),
                f"{entry.status.uid}:{entry.status.gid}",
                str(entry.status.size),
                short_time(entry.status.mtime),
                name,
            )
            for entry, name in zip(entries, names, strict=True)
        ],
        right=frozenset({2}),
    )


def counted(number: int, noun: str) -> str:
    """A number of things, in words that fit it."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def path_text(parts: Sequence[bytes]) -> str:
    """A scope path as it is shown."""
    return printable(path_bytes(parts))


def path_bytes(parts: Sequence[bytes]) -> bytes:
    """A scope path, exact."""
    return b"/" + b"/".join(parts)


def named(key: str, name: bytes | str) -> dict[str, object]:
    """A name under `key`, and its exact bytes where they are not what is shown."""
    exact = reference(name)
    shown: dict[str, object] = {key: printable(name)}
    return shown if exact is None else {**shown, f"{key}_bytes": exact}


def time_text(seconds: int, nanoseconds: int) -> str | None:
    """A time with all its digits; None for one beyond the years 1 to 9999."""
    whole = _moment(seconds)
    return None if whole is None else f"{whole}.{nanoseconds:09d}Z"


def short_time(seconds: int) -> str:
    """A time for a column, to the second."""
    whole = _moment(seconds)
    return "beyond all years    " if whole is None else f"{whole}Z"


def entry(entry: Entry) -> dict[str, object]:
    """An entry as the JSON of every verb has it."""
    status = entry.status
    return {
        **named("path", path_bytes(entry.path)),
        "type": entry.kind,
        "mode": f"{stat.S_IMODE(status.mode):04o}",
        "uid": status.uid,
        "gid": status.gid,
        "size": status.size,
        "modified": time_text(status.mtime, status.mtime_nsec),
    }


def cut(cut: Cut) -> dict[str, int] | None:
    """What was left out, in JSON; null for nothing."""
    return cut.to_json() if cut else None


def note_cut(cut: Cut) -> None:
    """Says on stderr what was left out, if anything was."""
    counts = cut.to_json()
    parts = [
        words.format(count, "y" if count == 1 else "ies")
        for name, words in _CUTS.items()
        if (count := counts[name])
    ]
    if parts:
        limited = any(counts[name] for name in _CUTS if name not in _NOT_LIMITS)
        note("not all is shown: " + ", ".join(parts) + ("; --unlimited shows it" * limited))


def _moment(seconds: int) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat("T", "seconds")
    except (OverflowError, ValueError, OSError):
        return None
