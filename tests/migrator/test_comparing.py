"""Verification: whatever is not as it was recorded is told, and nothing else is."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator import comparing
from migrator.errors import Mismatch, Retryable
from migrator.manifest import Method
from tests.migrator.transferring import OLD, SECOND, Bench, Plan, age, part, plant

SAME: Plan = {"f": b"one", "g": b"two", "l": "f", "d": {"h": b"3"}, "e": {}}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        plant(bench.saves / "t1", SAME)
        yield bench


@pytest.fixture(params=["link", "copy"])
def method(request: pytest.FixtureRequest) -> Method:
    chosen: Method = request.param
    return chosen


def replaced(path: Path, data: bytes) -> None:
    """Puts another file of that name and that time there."""
    path.rename(path.with_name("kept-elsewhere"))
    written(path, data)


def written(path: Path, data: bytes) -> None:
    """Writes it without a trace in its time."""
    path.write_bytes(data)
    age(path, OLD)


def no_file(path: Path, make: Callable[[Path], None]) -> None:
    """Puts something else there."""
    path.unlink()
    make(path)


def linked(path: Path) -> None:
    """Puts a link in the place of a directory."""
    path.rmdir()
    path.symlink_to("d")


def moved(path: Path) -> None:
    """Gives it another name."""
    path.rename(path.with_name("elsewhere"))


Change = Callable[[Path], None]

CHANGES: dict[str, tuple[Change, tuple[str, str]]] = {
    "a file is gone": (lambda top: (top / "f").unlink(), ("f", "missing")),
    "a link is gone": (lambda top: (top / "l").unlink(), ("l", "missing")),
    "a file is another": (lambda top: replaced(top / "f", b"one"), ("f", "another_file")),
    "a file was written": (lambda top: age(top / "f", OLD + 1), ("f", "time")),
    "a file is longer": (lambda top: written(top / "f", b"longer"), ("f", "size")),
    "a link is a file": (lambda top: replaced(top / "l", b"f"), ("l", "type")),
    "a file is a link": (
        lambda top: no_file(top / "f", lambda path: path.symlink_to("g")),
        ("f", "type"),
    ),
    "a file is a directory": (lambda top: no_file(top / "f", os.mkdir), ("f", "type")),
    "a file is a fifo": (lambda top: no_file(top / "f", os.mkfifo), ("f", "type")),
    "a directory is gone": (lambda top: (top / "e").rmdir(), ("e", "missing")),
    "a directory was moved": (lambda top: moved(top / "d"), ("d", "missing")),
    "a directory is a link": (lambda top: linked(top / "e"), ("e", "missing")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_told_and_nothing_but_it(bench: Bench, method: Method, change: str) -> None:
    unit = bench.unit(part("t1"))
    bench.stage(unit, method)
    top = bench.publish(unit)
    assert bench.verify(unit) == []
    make, expected = CHANGES[change]
    make(top)
    assert bench.verify(unit, source=False) == [expected]


def test_a_copy_with_other_bytes_or_attributes_is_told(bench: Bench) -> None:
    os.setxattr(bench.saves / "t1" / "g", "user.x", b"1")
    unit = bench.unit(part("t1"))
    bench.stage(unit, "copy")
    top = bench.staged(unit)
    written(top / "f", b"ONE")
    os.setxattr(top / "g", "user.x", b"2")
    assert sorted(bench.verify(unit)) == [("f", "content"), ("g", "attributes")]


def test_a_copy_whose_source_changed_since_is_told(bench: Bench) -> None:
    unit = bench.unit(part("t1"))
    bench.stage(unit, "copy")
    (bench.saves / "t1" / "f").write_bytes(b"new")
    (bench.saves / "t1" / "g").unlink()
    (bench.saves / "t1" / "d").rename(bench.saves / "moved")
    expected = [("d", "source_changed"), ("f", "source_changed"), ("g", "source_changed")]
    assert sorted(bench.verify(unit)) == expected
    assert bench.verify(unit, source=False) == []


def test_times_of_directories_are_compared_while_staged_alone(bench: Bench, method: Method) -> None:
    unit = bench.unit(part("t1"))
    bench.stage(unit, method)
    age(bench.staged(unit) / "e", OLD + SECOND)
    assert bench.verify(unit) == [("e", "time")]
    bench.publish(unit)
    assert bench.verify(unit) == []


def test_what_came_later_is_no_difference(bench: Bench, method: Method) -> None:
    unit = bench.unit(part("t1"))
    bench.stage(unit, method)
    top = bench.publish(unit)
    plant(top / "later", {"x": b"new"})
    (top / "f").chmod(0o600)
    os.chown(top / "f", 1000, 1000)
    assert bench.verify(unit) == []


def test_a_missing_unit_is_one_difference(bench: Bench) -> None:
    unit = bench.unit(part("t1"))
    bench.stage(unit)
    bench.publish(unit).rename(bench.data / "away")
    assert bench.verify(unit) == [("", "missing")]


def test_differences_beyond_what_is_told_are_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "TOLD", 2)
    plant(bench.saves / "t2", {f"{n}": b"" for n in range(9)})
    unit = bench.unit(part("t2"))
    bench.stage(unit)
    top = bench.publish(unit)
    for path in top.iterdir():
        path.unlink()
    found = comparing.verify(
        unit, unit.target, bench.root, bench.records(unit), source=None, count=bench.count
    )
    assert [difference.code for difference in found] == ["missing", "missing", "more"]
    shown = "shared/u1/workspace/projects/one"
    assert str(found[-1]) == f"{shown} holds 7 more that differ"
    assert str(found[0]).startswith(f"{shown}/")
    assert str(found[0]).endswith(" is missing")


def test_what_cannot_be_read_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = bench.unit(part("t1"))
    bench.stage(unit, "copy")

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(Retryable, match=r"cannot verify shared/.*/workdir-one/[fg]: Input/output"):
        bench.verify(unit)


def test_a_manifest_without_its_end_proves_nothing(bench: Bench) -> None:
    unit = bench.unit(part("t1"))
    bench.stage(unit)
    path = bench.state / unit.key
    path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:-1]))
    with pytest.raises(Mismatch):
        bench.verify(unit)
    plant(bench.published(unit), SAME)
    with pytest.raises(Mismatch):
        comparing.same_as(unit, bench.root, bench.records(unit))


@pytest.mark.parametrize(
    ("target", "same"),
    [
        (SAME, True),
        ({**SAME, "more": {"x": b"1"}, "y": b"2"}, True),
        ({**SAME, "f": b"ONE"}, False),
        ({**SAME, "f": b"longer"}, False),
        ({**SAME, "l": "g"}, False),
        ({**SAME, "l": b"f"}, False),
        ({**SAME, "e": b""}, False),
        ({**SAME, "d": "e"}, False),
        ({name: what for name, what in SAME.items() if name != "g"}, False),
        ({name: what for name, what in SAME.items() if name != "e"}, False),
        ({}, False),
    ],
)
def test_a_target_is_adopted_only_if_it_holds_everything_byte_for_byte(
    bench: Bench, method: Method, target: Plan, same: bool
) -> None:
    unit = bench.unit(part("t1"))
    bench.stage(unit, method)
    plant(bench.published(unit), target, OLD + SECOND)
    assert comparing.same_as(unit, bench.root, bench.records(unit)) is same


def test_a_target_that_is_a_link_is_not_followed(bench: Bench) -> None:
    unit = bench.unit(part("t1"))
    bench.stage(unit)
    bench.published(unit).parent.mkdir(parents=True)
    bench.published(unit).symlink_to(bench.saves / "t1")
    assert comparing.same_as(unit, bench.root, bench.records(unit)) is False
    assert stat.S_ISLNK(os.lstat(bench.published(unit)).st_mode)
