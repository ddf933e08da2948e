"""What owners and modes were before: records of many entries of one directory, small and quick.

A record is ``{"kind": "old", "root": name, "keep": N, "path": [names], "to": [uid, gid],
"names": "a/b/c", "ino": [...], "uid": [...], "gid": [...], "mode": [...]}``:

- the directory's path beneath its root is the first N names of the record before, and `path`:
  otherwise a tree 5 000 deep would need a record as long as its path for each of its directories;
- `names` are those of the entries, ``.`` the directory itself; no name holds a slash;
- the columns are in their order, `mode` being the whole st_mode; a column of equal numbers is that
  one number, which is the usual case;
- `to` is the owner that they are about to get, and `migrator.modes.wanted` tells the mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from migrator.errors import Mismatch
from migrator.lines import Appender, exact, path_exact, path_text, text
from migrator.units import Path
from vfs.beneath import check_name

KIND: Final = "old"


@dataclass(frozen=True, slots=True)
class Old:
    """Entries of one directory, as they were before they were changed."""

    root: str
    path: Path
    """The directory, beneath the root."""
    to: tuple[int, int]
    """The owner that they were about to get."""
    names: list[bytes]
    inos: list[int]
    uids: list[int]
    gids: list[int]
    modes: list[int]
    """Types and permission bits, as st_mode has them."""


class Recorder:
    """Appends such records to one file."""

    __slots__ = ("_appender", "_last")

    def __init__(self, appender: Appender) -> None:
        """`appender` stays the caller's, who lets nobody else append to it meanwhile."""
        self._appender = appender
        self._last: Path = ()

    def append(self, old: Old) -> None:
        """Appends one record, which is not durable yet. OSError."""
        keep = shared(self._last, old.path)
        self._appender.append(
            {
                "kind": KIND,
                "root": old.root,
                "keep": keep,
                "path": path_text(old.path[keep:]),
                "to": list(old.to),
                "names": text(b"/".join(old.names)),
                "ino": old.inos,
                "uid": _column(old.uids),
                "gid": _column(old.gids),
                "mode": _column(old.modes),
            }
        )
        self._last = old.path

    def sync(self) -> None:
        """Makes what was appended durable. OSError."""
        self._appender.sync()


def read(records: Iterable[Mapping[str, Any]]) -> Iterator[Old]:
    """What the records of one file tell. Mismatch for a record that cannot be."""
    last: Path = ()
    for record in records:
        if record.get("kind") != KIND:
            continue
        try:
            old = _old(record, last)
        except (AttributeError, KeyError, OSError, TypeError, ValueError):
            raise _mismatch() from None
        yield old
        last = old.path


def _old(record: Mapping[str, Any], last: Path) -> Old:
    names = exact(record["names"]).split(b"/")
    keep = record["keep"]
    down = path_exact(record["path"])
    for name in down:
        check_name(name)
    uid, gid = record["to"]
    count = len(names)
    if not 0 <= keep <= len(last) or {b"", b".."} & set(names) or "\0" in record["names"]:
        raise _mismatch()
    return Old(
        root=record["root"],
        path=last[:keep] + down,
        to=(uid, gid),
        names=names,
        inos=_list(record["ino"], count),
        uids=_list(record["uid"], count),
        gids=_list(record["gid"], count),
        modes=_list(record["mode"], count),
    )


def shared(last: Path, path: Path) -> int:
    """How many names two paths begin with alike."""
    shorter = min(len(last), len(path))
    for count in (shorter, shorter - 1):  # the next one down, or of the same directory, at C's pace
        if count >= 0 and last[:count] == path[:count]:
            return count
    return next(n for n in range(shorter) if last[n] != path[n])


def _column(numbers: list[int]) -> int | list[int]:
    return numbers[0] if numbers.count(numbers[0]) == len(numbers) else numbers


def _list(column: int | list[int], count: int) -> list[int]:
    if isinstance(column, int):
        return [column] * count
    if len(column) != count:
        raise _mismatch()
    return column


def _mismatch() -> Mismatch:
    return Mismatch(
        "a record of old owners and modes is damaged",
        fix="give back the files of the state folder as the migrator left them",
    )
