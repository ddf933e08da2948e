"""A target that was adopted is proved by what is in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator import adopting, removing
from migrator.manifest import Method
from migrator.units import Unit
from tests.migrator.transferring import OLD, SECOND, Bench, Plan, part, plant

SAME: Plan = {"f": b"one", "g": b"two", "l": "f", "d": {"h": b"3"}, "holes": b""}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


@pytest.fixture(params=["link", "copy"])
def adopted(request: pytest.FixtureRequest, bench: Bench) -> tuple[Unit, Path]:
    """A unit, and the target that it was adopted from, which is of another time."""
    method: Method = request.param
    for top in (bench.saves / "t1", bench.data / "was-there"):
        plant(top, SAME, OLD if top.name == "t1" else OLD + SECOND)
        with open(top / "holes", "wb") as file:
            file.truncate(1 << 20)
            file.write(b"data")
    unit = bench.unit(part("t1"))
    bench.stage(unit, method)
    bench.published(unit).parent.mkdir(parents=True)
    (bench.data / "was-there").rename(bench.published(unit))
    removing.unstage(unit, bench.root)
    return unit, bench.published(unit)


def verify(bench: Bench, unit: Unit, *, source: bool = True) -> list[tuple[str, str]]:
    found = adopting.verify(
        unit,
        bench.root,
        bench.records(unit),
        source=bench.source if source else None,
        count=bench.count,
    )
    return sorted((os.fsdecode(b"/".join(one.path[len(unit.target) :])), one.code) for one in found)


def test_what_was_adopted_is_proved_with_and_without_the_saves(
    bench: Bench, adopted: tuple[Unit, Path]
) -> None:
    unit, top = adopted
    plant(top / "more", {"x": b"1"})
    assert verify(bench, unit) == []
    assert verify(bench, unit, source=False) == []


Change = Callable[[Path], object]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda top: (top / "f").unlink(), ("f", "missing")),
        (lambda top: (top / "f").write_bytes(b"ONE"), ("f", "content")),
        (
            lambda top: (top / "holes").write_bytes(b"DATA" + bytes((1 << 20) - 4)),
            ("holes", "content"),
        ),
        (lambda top: (top / "f").write_bytes(b"longer"), ("f", "size")),
        (lambda top: (top / "d" / "h").rename(top / "g") and (top / "d").rmdir(), ("d", "missing")),
        (lambda top: ((top / "l").unlink(), (top / "l").symlink_to("g")), ("l", "content")),
        (lambda top: ((top / "l").unlink(), (top / "l").write_bytes(b"f")), ("l", "type")),
    ],
)
def test_a_change_of_what_was_adopted_is_told(
    bench: Bench, adopted: tuple[Unit, Path], change: Change, expected: tuple[str, str]
) -> None:
    unit, top = adopted
    change(top)
    assert expected in verify(bench, unit)


def test_the_saves_of_what_was_adopted_are_removed_when_that_is_asked_for(
    bench: Bench, adopted: tuple[Unit, Path]
) -> None:
    unit, _ = adopted
    removed = removing.remove_source(unit, bench.source, bench.records(unit), last_names="remove")
    assert removed.stayed == 0
    assert os.listdir(bench.saves) == []
    assert verify(bench, unit, source=False) == []
