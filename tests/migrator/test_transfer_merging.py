"""Parts laid over each other: who wins, what is not needed, what is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.errors import Retryable
from migrator.manifest import Method
from tests.migrator.transferring import OLD, SECOND, Bench, age, part, plant, told
from tests.migrator.trees import snapshot


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


@pytest.fixture(params=["link", "copy"])
def method(request: pytest.FixtureRequest) -> Method:
    chosen: Method = request.param
    return chosen


def contents(top: Path) -> dict[str, bytes | str | None]:
    """Every path beneath: a file's bytes, a link's text, None for a directory."""
    return {
        str(path.relative_to(top)): os.readlink(path)
        if path.is_symlink()
        else None
        if path.is_dir()
        else path.read_bytes()
        for path in top.rglob("*")
    }


def test_of_two_files_the_newer_wins_whichever_part_it_is_in(bench: Bench, method: Method) -> None:
    plant(bench.saves / "t1", {"a": b"old", "b": b"new"})
    plant(bench.saves / "t2", {"a": b"newer", "b": b"older"})
    age(bench.saves / "t2" / "a", OLD + 1)
    age(bench.saves / "t2" / "b", OLD - 1)
    unit = bench.unit(part("t1", "uploads"), part("t2", "uploads"))
    staged = bench.stage(unit, method)
    assert contents(bench.staged(unit) / "uploads") == {"a": b"newer", "b": b"new"}
    assert told(staged.left) == [
        ("name_taken_by_newer_file", "t1/a", "uploads/a"),
        ("name_taken_by_newer_file", "t2/b", "uploads/b"),
    ]
    assert bench.verify(unit) == []


def test_of_two_files_of_one_time_the_later_part_wins(bench: Bench, method: Method) -> None:
    for number in range(3):
        plant(bench.saves / f"t{number}", {"a": b"%d" % number})
    unit = bench.unit(*(part(f"t{number}") for number in range(3)))
    staged = bench.stage(unit, method)
    assert contents(bench.staged(unit)) == {"a": b"2"}
    assert [left.source[0] for left in staged.left] == [b"t0", b"t1"]


def test_what_is_the_same_byte_for_byte_is_taken_once_and_nothing_is_told(
    bench: Bench, method: Method
) -> None:
    large = os.urandom(200_000)
    plant(bench.saves / "t1", {"a": b"one", "l": "to", "large": large, "twin": b"x"})
    plant(bench.saves / "t2", {"a": b"one", "l": "to", "large": large})
    os.link(bench.saves / "t1" / "twin", bench.saves / "t2" / "twin")
    age(bench.saves / "t1" / "a", OLD + SECOND)
    unit = bench.unit(part("t1"), part("t2"))
    staged = bench.stage(unit, method)
    assert (staged.files, staged.same, staged.left) == (4, 4, [])
    assert os.stat(bench.staged(unit) / "a").st_mtime_ns == OLD + SECOND
    assert bench.verify(unit) == []


def test_files_of_one_size_and_links_of_other_texts_differ(bench: Bench, method: Method) -> None:
    plant(bench.saves / "t1", {"a": b"one", "l": "to", "m": "to", "z": bytes(70_000)})
    plant(bench.saves / "t2", {"a": b"two", "l": "no", "m": b"to", "z": bytes(69_999) + b"z"})
    unit = bench.unit(part("t1"), part("t2"))
    left = bench.stage(unit, method).left
    assert sorted(one.path[0] for one in left) == [b"a", b"l", b"m", b"z"]


def test_a_directory_beats_a_file_and_a_link(bench: Bench, method: Method) -> None:
    plant(bench.saves / "t1", {"a": {"f": b"one"}, "b": b"file", "c": "t2"})
    plant(bench.saves / "t2", {"a": b"newer", "b": {"g": b"two"}, "c": {}})
    age(bench.saves / "t2" / "a", OLD + SECOND)
    unit = bench.unit(part("t1"), part("t2"))
    staged = bench.stage(unit, method)
    assert contents(bench.staged(unit)) == {
        "a": None,
        "a/f": b"one",
        "b": None,
        "b/g": b"two",
        "c": None,
    }
    assert told(staged.left) == [
        ("name_taken_by_directory", "t1/b", "b"),
        ("name_taken_by_directory", "t1/c", "c"),
        ("name_taken_by_directory", "t2/a", "a"),
    ]


def test_directories_become_one_that_was_changed_when_the_newest_was(
    bench: Bench, method: Method
) -> None:
    plant(bench.saves / "t1", {"d": {"e": {"f": b"1"}}}, OLD)
    plant(bench.saves / "t2", {"d": {"e": {"g": b"2"}, "h": b"3"}}, OLD)
    age(bench.saves / "t1" / "d", OLD + 5)
    age(bench.saves / "t2" / "d" / "e", OLD + 7)
    os.setxattr(bench.saves / "t1" / "d", "user.one", b"1")
    os.setxattr(bench.saves / "t2" / "d", "user.two", b"2")
    unit = bench.unit(part("t1", "in/up"), part("t2", "in/up"))
    bench.stage(unit, method)
    found = snapshot(bench.staged(unit))
    times = {path: node.mtime_ns for path, node in found.items() if node.kind == "directory"}
    assert times == {
        b"": OLD,
        b"in": OLD,
        b"in/up": OLD,
        b"in/up/d": OLD + 5,
        b"in/up/d/e": OLD + 7,
    }
    assert found[b"in/up/d"].xattrs == (("user.one", b"1"), ("user.two", b"2"))
    assert sorted(contents(bench.staged(unit) / "in/up/d")) == ["e", "e/f", "e/g", "h"]
    assert bench.verify(unit) == []


def test_a_part_may_begin_within_what_another_part_has(bench: Bench, method: Method) -> None:
    plant(
        bench.saves / "t1",
        {
            "workspace": {"a": b"1", "uploads": {"x": b"mine"}, "outputs": b"a file"},
            "uploads": {"x": b"other", "y": {"z": b"2"}},
            "outputs": {},
        },
    )
    age(bench.saves / "t1" / "workspace" / "uploads" / "x", OLD + 1)
    unit = bench.unit(
        part("t1/workspace"), part("t1/uploads", "uploads"), part("t1/outputs", "outputs")
    )
    staged = bench.stage(unit, method)
    assert contents(bench.staged(unit)) == {
        "a": b"1",
        "outputs": None,
        "uploads": None,
        "uploads/x": b"mine",
        "uploads/y": None,
        "uploads/y/z": b"2",
    }
    assert told(staged.left) == [
        ("name_taken_by_directory", "t1/workspace/outputs", "outputs"),
        ("name_taken_by_newer_file", "t1/uploads/x", "uploads/x"),
    ]
    assert bench.verify(unit) == []


def test_a_special_file_wins_over_nothing(bench: Bench, method: Method) -> None:
    plant(bench.saves / "t1", {"a": b"one"})
    plant(bench.saves / "t2", {})
    os.mkfifo(bench.saves / "t2" / "a")
    unit = bench.unit(part("t1"), part("t2"))
    assert told(bench.stage(unit, method).left) == [("special_file", "t2/a", "a")]
    assert contents(bench.staged(unit)) == {"a": b"one"}


def test_files_that_cannot_be_compared_are_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(bench.saves / "t1", {"a": b"one"})
    plant(bench.saves / "t2", {"a": b"two"})

    def broken(fd: int, size: int, position: int) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(Retryable, match="cannot take over t1/a: Input/output error"):
        bench.stage(bench.unit(part("t1"), part("t2")))
