"""Manifests: what is written is what is read, and what is not whole is refused."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator import manifest
from migrator.errors import Mismatch
from migrator.lines import Appender, records
from migrator.manifest import Entries, Left, Made, Origin, Same, Writer, read
from vfs.beneath import Directory

NAMES = st.binary(min_size=1, max_size=9).filter(lambda name: not {0, 47} & set(name))
PATHS = st.lists(NAMES, max_size=5).map(tuple)
NUMBERS = st.integers(0, 2**63 - 1)


class Lines(list[dict[str, Any]]):
    """Records in memory, as they are when they were read again."""

    def append(self, record: dict[str, Any], /) -> None:
        super().append(json.loads(json.dumps(record)))

    def write(self) -> None:
        """They are there already."""


@given(st.lists(st.tuples(PATHS, st.none() | NUMBERS), max_size=20))
def test_the_paths_of_directories_come_back_in_any_order(
    directories: list[tuple[tuple[bytes, ...], int | None]],
) -> None:
    lines = Lines()
    writer = Writer(lines, "workdir-x", "link")
    origin = Origin(0, 0o40700, 1, 2, 3, 4)
    for path, mtime in directories:
        writer.directory(path, mtime, [origin])
    writer.end()
    assert list(read(lines)) == [Made(path, mtime, (origin,)) for path, mtime in directories]


@given(
    st.lists(
        st.tuples(
            NAMES.map(os.fsdecode),
            NUMBERS,
            NUMBERS,
            st.integers(-(2**63), 2**63 - 1),
            st.tuples(NUMBERS, NUMBERS, NUMBERS),
            NUMBERS,
            st.integers(-(2**63), 2**63 - 1),
            st.text("0123456789abcdef", min_size=1),
            st.none() | st.text("0123456789abcdef", min_size=1),
            st.booleans(),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_entries_come_back_whether_they_were_linked_or_copied(rows: list[manifest.Copied]) -> None:
    lines = Lines()
    writer = Writer(lines, "workdir-x", "copy")
    writer.directory((b"d",), 5, [])
    writer.copied(7, rows)
    writer.linked(8, [row[:5] for row in rows])
    writer.same(9, [row[:4] for row in rows])
    writer.left(Left("special_file", (b"\xff", b"b"), (b"b",)))
    writer.end()
    names = [os.fsencode(row[0]) for row in rows]
    columns = [[row[index] for row in rows] for index in range(1, 5)]
    made, copied, linked, same, left = read(lines)
    assert made == Made((b"d",), 5, ())
    assert copied == Entries(
        (b"d",),
        7,
        names,
        *columns,
        [row[5] for row in rows],
        [row[6] for row in rows],
        [row[7] for row in rows],
        {index: row[8] for index, row in enumerate(rows) if row[8] is not None},
        frozenset(index for index, row in enumerate(rows) if not row[9]),
    )
    assert linked == Entries(
        (b"d",), 8, names, *columns, columns[0], columns[2], None, {}, frozenset()
    )
    assert same == Same((b"d",), 9, names, *columns[:3])
    assert left == Left("special_file", (b"\xff", b"b"), (b"b",))


def test_names_are_exact_whatever_encoding_file_names_are_said_to_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")
    monkeypatch.setattr(os, "fsencode", lambda name: name.encode("latin-1"))
    lines = Lines()
    writer = Writer(lines, "workdir-x", "link")
    writer.linked(0, [("\xc3\xa9", 1, 2, 3, (4, 5, 6))])
    writer.end()
    (entries,) = read(lines)
    assert isinstance(entries, Entries)
    assert entries.names == [b"\xc3\xa9"]


def test_a_wide_directory_is_written_in_several_records(tmp_path: Path) -> None:
    with Directory.open(tmp_path) as directory:
        with Appender.create(directory, b"m") as appender:
            writer = Writer(appender, "workdir-x", "link")
            writer.directory((), 1, [])
            writer.linked(0, [(f"{n}", n, 1, 1, (1, 1, n % 3)) for n in range(10_000)])
            writer.end(files=10_000)
        found = list(read(records(directory, b"m")))
    sizes = [len(record.names) for record in found if isinstance(record, Entries)]
    assert sizes == [4096, 4096, 1808]
    last = found[-1]
    assert isinstance(last, Entries)
    assert (last.names[-1], last.ino[-1], last.attributes[-1]) == (b"9999", 9999, (1, 1, 0))


BEGIN = {"kind": "unit", "format": 1, "key": "x", "method": "link"}
MADE = {"kind": "directory", "keep": 0, "path": [], "mtime": 1, "origins": []}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([], "has no end"),
        ([BEGIN, MADE], "has no end"),
        ([MADE, {"kind": "end"}], "is of another format"),
        ([{**BEGIN, "format": 2}, {"kind": "end"}], "is of another format"),
        ([BEGIN, {"kind": "files"}], "holds a record of an unknown kind, files"),
        ([BEGIN, {"kind": "directory", "keep": 0}], "holds a record that lacks 'path'"),
        ([BEGIN, {**MADE, "origins": [[1, 2]]}], "holds a record that lacks "),
    ],
)
def test_what_is_not_a_whole_manifest_is_refused(lines: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(Mismatch) as caught:
        list(read(lines))
    assert caught.value.message.startswith(f"the manifest of a unit {says}")
