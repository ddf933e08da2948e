"""Where a migration stands by its records: folded one by one, and only for what they say."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from migrator.errors import Mismatch, Precondition
from migrator.lines import path_text
from migrator.state import Facts, State, Touched, UnitState, fold

BEGIN: dict[str, Any] = {
    "kind": "begin",
    "format": 1,
    "program": "gemspace 0.1.0",
    "run": "4be1",
    "time": 1_700_000_000.5,
    "layout": "yuxi",
    "method": "auto",
    "database": None,
    "places": {"source": "/srv/saves\udcff"},
}
PARTS = ("stage", "verify", "publish", "database", "ownership", "markers")


def after(*some: dict[str, Any]) -> State:
    return fold([BEGIN, *some])


def phase(name: str, state: str) -> dict[str, Any]:
    return {"kind": "phase", "name": name, "state": state}


def unit(key: str, step: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "unit", "key": key, "step": step, **fields}


def one_run() -> list[dict[str, Any]]:
    return [phase(part, state) for part in PARTS for state in ("begun", "done")]


def test_without_records_nothing_is_begun() -> None:
    state = fold([])
    assert state == State()
    assert (state.begun, state.done, state.word) == (False, False, "nothing")


def test_the_first_record_tells_the_facts() -> None:
    assert after().facts == Facts(
        run="4be1",
        time=1_700_000_000.5,
        program="gemspace 0.1.0",
        layout="yuxi",
        method="auto",
        database=None,
        places={"source": b"/srv/saves\xff"},
    )


def test_the_word_follows_a_run_part_by_part() -> None:
    words = [after(*one_run()[:count]).word for count in range(13)]
    assert words == [
        "begun",  # nothing but the first record
        "begun",
        "staged",
        "staged",
        "verified",
        "verified",
        "published",
        "published",
        "cut-over",
        "cut-over",
        "owned",
        "owned",
        "done",
    ]
    assert after(*one_run()).done
    assert not after(*one_run()[:-1]).done


def test_a_second_run_is_not_done_before_its_own_end() -> None:
    for count in range(1, 12):
        state = after(*one_run(), *one_run()[:count])
        assert not state.done, count
        assert state.word == after(*one_run()[:count]).word
    assert after(*one_run(), *one_run()).done


def test_a_run_that_leaves_a_part_out_is_not_done() -> None:
    assert after(*one_run()[:4], *one_run()[6:]).word == "verified"


def test_a_rollback_and_a_finalize_have_their_own_words() -> None:
    begun, done = {"step": "begun"}, {"step": "done"}
    for kind, doing, did in (
        ("rollback", "rolling-back", "rolled-back"),
        ("finalize", "finalizing", "finalized"),
    ):
        state = after(*one_run(), {"kind": kind, **begun}, {"kind": kind, "step": "markers"})
        assert state.word == doing
        assert not state.done
        state.fold({"kind": kind, **done})
        assert state.word == did
        assert not state.done
    state = after({"kind": "rollback", **begun}, {"kind": "rollback", "step": "markers"})
    assert state.rollback == ["begun", "markers"]
    assert (state.rolling_back, state.rolled_back) == (True, False)
    assert (state.finalizing, state.finalized) == (False, False)


def test_of_a_unit_the_last_step_is_kept_and_what_its_steps_told() -> None:
    state = after(
        unit("a", "staged", files=3, method="link"),
        unit("b", "conflict", reason="a file is there"),
        unit("a", "verified"),
        unit("a", "published", reason=""),
    )
    assert {key: (known.step, known.fields) for key, known in state.units.items()} == {
        "a": ("published", {"files": 3, "method": "link", "reason": ""}),
        "b": ("conflict", {"reason": "a file is there"}),
    }
    assert state.steps() == {"published": 1, "conflict": 1}


def test_a_unit_that_is_staged_again_starts_anew() -> None:
    state = after(
        unit("a", "staged", files=3, method="link"),
        unit("a", "failed", reason="no space"),
        unit("a", "staged", files=4),
    )
    assert state.units == {"a": UnitState("staged", '{"files":4}')}


def test_names_that_are_not_utf8_are_exact() -> None:
    place = {"root": "user-data", "path": path_text((b"shared", b"\xff\n"))}
    touched = {"uid": 1, "gid": 2, "mode": 0o755, "mtime_ns": 10**18 + 1, "atime_ns": 5}
    state = after(
        {"kind": "touched", **place, **touched, "ino": 7},
        {"kind": "made", **place},
        {"kind": "marker", "root": "user-data", "name": ".mark\udcfe"},
        unit("workdir-\udcff", "staged", path="\udcff"),
    )
    assert state.touched == {("user-data", (b"shared", b"\xff\n")): Touched(**touched, ino=7)}
    assert list(state.made) == [("user-data", (b"shared", b"\xff\n"))]
    assert list(state.markers) == [("user-data", b".mark\xfe")]
    assert state.units["workdir-\udcff"].fields == {"path": "\udcff"}


def test_only_the_first_look_at_a_directory_was_before_the_migration() -> None:
    record = {"kind": "touched", "root": "user-data", "path": [], "uid": 0, "gid": 0}
    state = after(
        {**record, "mode": 0o755, "mtime_ns": 1, "atime_ns": 1},
        {**record, "mode": 0o700, "mtime_ns": 2, "atime_ns": 2},
    )
    assert state.touched == {("user-data", ()): Touched(0, 0, 0o755, 1, 1)}


def test_directories_and_markers_keep_their_order() -> None:
    state = after(
        *({"kind": "made", "root": "r", "path": path} for path in (["b"], ["b", "a"], ["a"])),
        {"kind": "made", "root": "r", "path": ["b"]},
        {"kind": "marker", "root": "r", "name": "z"},
        {"kind": "marker", "root": "r", "name": "a"},
        {"kind": "marker", "root": "r", "name": "z"},
    )
    assert list(state.made) == [("r", (b"b",)), ("r", (b"b", b"a")), ("r", (b"a",))]
    assert list(state.markers) == [("r", b"z"), ("r", b"a")]


def test_database_and_ownership_are_as_told_last() -> None:
    state = after(
        {"kind": "cut_over", "step": "recorded"},
        {"kind": "cut_over", "step": "committed", "counts": {}},
        {"kind": "ownership", "step": "begun", "file": "ownership-1.jsonl"},
    )
    assert (state.cut_over, state.ownership) == ("committed", "begun")
    state.fold({"kind": "ownership", "step": "begun", "file": "ownership-2.jsonl"})
    state.fold({"kind": "ownership", "step": "begun", "file": "ownership-1.jsonl"})
    state.fold({"kind": "ownership", "step": "done", "file": None})
    assert state.ownership_files == ["ownership-1.jsonl", "ownership-2.jsonl"]
    assert state.ownership == "done"


def test_kinds_that_are_not_known_are_counted_and_passed_over() -> None:
    state = after({"kind": "weather", "rain": True}, {"kind": "weather"}, {"kind": "moon"})
    assert state.unknown == {"weather": 2, "moon": 1}
    state.unknown.clear()
    assert state == after()


@pytest.mark.parametrize(
    "some",
    [
        [unit("a", "staged")],
        [phase("stage", "begun"), BEGIN],
        [BEGIN, BEGIN],
        [{}],
        [{"kind": None}],
        [BEGIN, {}],
        [BEGIN, {"kind": []}],
        [{name: value for name, value in BEGIN.items() if name != "places"}],
        [{**BEGIN, "places": []}],
        [{**BEGIN, "places": {"source": "\ud800"}}],
        [BEGIN, {"kind": "unit", "key": "a"}],
        [BEGIN, {"kind": "unit", "key": [], "step": "staged"}],
        [BEGIN, {"kind": "phase", "name": "stage"}],
        [BEGIN, {"kind": "made", "root": "r", "path": [7]}],
        [BEGIN, {"kind": "touched", "root": "r", "path": []}],
        [BEGIN, {"kind": "marker", "root": "r"}],
        [BEGIN, {"kind": "rollback"}],
    ],
)
def test_records_that_cannot_be_are_damage(some: list[dict[str, Any]]) -> None:
    with pytest.raises(Mismatch) as damaged:
        fold(some)
    assert damaged.value.message.startswith("the journal in the state folder is damaged: ")


def test_another_format_is_refused_whatever_else_it_has() -> None:
    with pytest.raises(Precondition) as refused:
        fold([{"kind": "begin", "format": 2, "program": "gemspace 9.1"}])
    assert str(refused.value) == (
        "the journal in the state folder has format 2, this program knows 1;"
        " use the version that began the migration: gemspace 9.1"
    )


@pytest.mark.slow
def test_a_unit_takes_less_than_a_kilobyte() -> None:
    """100 000 of them must leave room in the 300 MB that the whole program may have."""
    count = 5000
    tracemalloc.start()
    try:
        state = fold([BEGIN])
        for number in range(count):
            thread = f"{number:08}-0000-4000-8000-000000000000"
            key = f"workdir-{thread}"
            parts = [
                [["threads", thread, "user-data", kind], [kind]] for kind in ("uploads", "out")
            ]
            target = ["shared", "somebody", "workspace", "projects", thread]
            told = {"key": key, "kind": "workdir", "target": target, "parts": parts}
            state.fold(unit(key, "staged", unit=told, ino=number, files=10, bytes=10**6))
            state.fold(unit(key, "published", reason=""))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(state.units) == count
    assert taken / count < 1000
