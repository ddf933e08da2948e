"""Records of old owners and modes: what is read is what was written, whatever its shape."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import Mismatch
from migrator.lines import Appender, records
from migrator.oldowners import Old, Recorder, read
from vfs.beneath import Directory

FILE = b"ownership-0.jsonl"


def old(
    path: tuple[bytes, ...] = (), names: tuple[bytes, ...] = (b"a",), mode: int = 0o100644
) -> Old:
    count = len(names)
    return Old(
        root="user-data",
        path=path,
        to=(1000, 1000),
        names=list(names),
        inos=list(range(7, 7 + count)),
        uids=[0] * count,
        gids=[0] * count,
        modes=[mode] * count,
    )


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Directory]:
    with Directory.open(tmp_path) as directory:
        yield directory


def write(state: Directory, *olds: Old) -> None:
    with Appender.open(state, FILE, fsync=lambda _: None) as appender:
        recorder = Recorder(appender)
        for one in olds:
            recorder.append(one)
        recorder.sync()


def found(state: Directory) -> list[Old]:
    return list(read(records(state, FILE)))


name = st.binary(min_size=1, max_size=6).filter(
    lambda name: not {0, 0x2F} & set(name) and name not in (b".", b"..")
)
path = st.lists(st.sampled_from([b"a", b"b", b"\xff", b"\n"]), max_size=6).map(tuple)
number = st.integers(0, 2**32 - 2)


@st.composite
def one(draw: st.DrawFn) -> Old:
    names = draw(st.lists(name, min_size=1, max_size=4, unique=True))

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=len(names), max_size=len(names)))

    return Old(
        root=draw(st.sampled_from(["user-data", "skill-store"])),
        path=draw(path),
        to=(draw(number), draw(number)),
        names=names,
        inos=column(st.integers(1, 2**64 - 1)),
        uids=column(st.sampled_from([0, 5])),
        gids=column(number),
        modes=column(st.integers(0, 0o177777)),
    )


@given(st.lists(st.lists(one(), max_size=5), max_size=3))
def test_what_is_read_is_what_was_written_in_one_or_several_goes(goes: list[list[Old]]) -> None:
    with tempfile.TemporaryDirectory() as folder, Directory.open(folder) as state:
        for go in goes:
            write(state, *go)
        assert (found(state) if goes else []) == [one for go in goes for one in go]


def test_a_deep_tree_has_short_records(state: Directory, tmp_path: Path) -> None:
    olds = [old((b"directory",) * depth) for depth in range(2_000)]
    write(state, *olds, old(), *reversed(olds))
    assert found(state) == [*olds, old(), *reversed(olds)]
    # One record alone holds a whole path: the first on the way back up.
    assert os.path.getsize(tmp_path / os.fsdecode(FILE)) < 4_000 * 150 + 2_000 * 12


def test_equal_numbers_are_one_number(state: Directory) -> None:
    write(state, old(names=(b"a", b"b")))
    assert list(records(state, FILE)) == [
        {
            "kind": "old",
            "root": "user-data",
            "keep": 0,
            "path": [],
            "to": [1000, 1000],
            "names": "a/b",
            "ino": [7, 8],
            "uid": 0,
            "gid": 0,
            "mode": 0o100644,
        }
    ]


GOOD: dict[str, Any] = {
    "kind": "old", "root": "r", "keep": 0, "path": [], "to": [1, 2],
    "names": "a/b", "ino": [7, 8], "uid": 0, "gid": 0, "mode": 0,
}  # fmt: skip


def test_records_of_other_kinds_are_passed_over() -> None:
    (only,) = read([{"kind": "later"}, GOOD, {}])
    assert only.names == [b"a", b"b"]


@pytest.mark.parametrize(
    "change",
    [
        {"keep": 1},
        {"keep": -1},
        {"names": "a/.."},
        {"names": "a//b"},
        {"names": "a/b\0"},
        {"names": 5},
        {"ino": [7]},
        {"uid": None},
        {"mode": [1, 2, 3]},
        {"to": [1]},
        {"path": 5},
        {"path": [".."]},
        {"path": ["a/b"]},
    ],
)
def test_a_record_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Mismatch):
        list(read([GOOD | change]))


@pytest.mark.parametrize("field", sorted(GOOD.keys() - {"kind"}))
def test_a_record_without_a_field_is_refused(field: str) -> None:
    with pytest.raises(Mismatch):
        list(read([{name: value for name, value in GOOD.items() if name != field}]))
