"""Whose thread is whose, where nothing in the saves says so: as the operator tells it.

The owners file names threads and uids, in one of these forms (``.json`` in its name: JSON):

- CSV: one ``thread_id,uid`` a line; a first line that says just this is the heading;
- JSON: ``{"<thread_id>": "<uid>", …}``, or ``[{"thread_id": …, "uid": …}, …]``.

It is UTF-8, with or without a byte order mark; bytes that are not UTF-8 stand for themselves in a
thread's id, which is the name of a directory. Nothing is stripped: a space at an end counts.
"""

from __future__ import annotations

import csv
import io
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from migrator.errors import MigratorError, Precondition, Usage
from vfs.errors import InvalidName
from vfs.naming import safe_uid
from vfs.printable import printable

HEADING: Final = ["thread_id", "uid"]


@dataclass(frozen=True, slots=True)
class Owners:
    """The answer to whose a thread is."""

    by_thread: dict[str, str] = field(default_factory=dict)
    """Thread id (surrogate escapes kept) → uid."""
    everybody: str | None = None
    """The uid of every thread that is not named."""

    def of(self, thread: str) -> str | None:
        """The uid that a thread belongs to; None if nobody said."""
        return self.by_thread.get(thread, self.everybody)


def read(file: bytes | None, owner: str | None) -> Owners:
    """The owners that a command line names. Usage for what is no uid or no owners file."""
    if owner is not None:
        _check_uid(owner, "--owner")
    by_thread: dict[str, str] = {}
    for where, thread, uid in _pairs(file) if file is not None else ():
        _check_uid(uid, where)
        if by_thread.setdefault(thread, uid) != uid:
            raise Usage(
                f"{where}: the thread {printable(thread)} has two owners, "
                f"{printable(by_thread[thread])} and {printable(uid)}",
                fix="name each thread once",
            )
    return Owners(by_thread, owner)


def _pairs(file: bytes) -> Iterator[tuple[str, str, str]]:
    """Where it stands, the thread and the uid of each pair in the file."""
    name = printable(file)
    try:
        # A FIFO would be waited for.
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise Precondition(
                    f"the owners file {name} is no file", fix="name it with --owners"
                )
            text = stream.read().decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    except OSError as exc:
        raise Precondition(
            f"cannot read the owners file {name}: {exc.strerror}", fix="name it with --owners"
        ) from None
    return _json(name, text) if file.endswith(b".json") else _csv(name, text)


def _csv(name: str, text: str) -> Iterator[tuple[str, str, str]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            where = f"line {reader.line_num} of {name}"
            if not row or (row == HEADING and reader.line_num == 1):
                continue
            if len(row) != len(HEADING):
                raise _malformed(where, "it is not thread_id,uid")
            yield where, row[0], row[1]
    except csv.Error as exc:
        raise _malformed(f"line {reader.line_num} of {name}", str(exc)) from None


def _json(name: str, text: str) -> Iterator[tuple[str, str, str]]:
    try:
        document = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as exc:
        raise _malformed(name, f"it is no JSON: {exc}") from None
    # A list of pairs is what an object became; so two values of one key are both seen.
    if not isinstance(document, list):
        raise _malformed(name, "it is neither an object nor a list")
    for number, item in enumerate(document, 1):
        where = f"entry {number} of {name}"
        pair = item if isinstance(item, tuple) else _named_pair(item)
        if pair is None or not all(isinstance(text, str) for text in pair):
            raise _malformed(where, 'it is neither "thread": "uid" nor a thread_id with a uid')
        yield where, pair[0], pair[1]


def _named_pair(item: Any) -> tuple[Any, Any] | None:
    """Of ``{"thread_id": …, "uid": …}``, which came as a list of pairs."""
    if not isinstance(item, list) or sorted(key for key, _ in _tuples(item)) != HEADING:
        return None
    found = dict(_tuples(item))
    return found["thread_id"], found["uid"]


def _tuples(items: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return (item for item in items if isinstance(item, tuple))


def _check_uid(uid: str, where: str) -> None:
    try:
        safe_uid(uid)
    except InvalidName as exc:
        raise Usage(f"{where}: {exc.message}", fix=exc.fix) from None


def _malformed(where: str, why: str) -> MigratorError:
    return Usage(f"{where}: {why}", fix="write it as `migrator plan --help` and the runbook show")
