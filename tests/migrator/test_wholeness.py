"""A state folder that lost something is found out before anything else is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.migrator import sample, trees
from tests.migrator.operator import migrator


def state_of(folder: Path) -> Path:
    (found,) = (path.parent for path in folder.rglob("journal.jsonl"))
    return found


def ownership(state: Path) -> Path:
    return max(state.glob("ownership-*.jsonl"), key=lambda path: path.stat().st_size)


LOST: dict[str, Callable[[Path], Path]] = {
    "old rows": lambda state: state / "rows.jsonl",
    "what was written": lambda state: state / "change.jsonl",
    "old owners": ownership,
    "a manifest": lambda state: min((state / "units").iterdir()),
}


@pytest.mark.parametrize("how", ["removed", "cut"])
@pytest.mark.parametrize("what", LOST)
def test_what_is_missing_in_the_state_folder_stops_every_verb(
    memory: Path, what: str, how: str
) -> None:
    saves = sample.minimal(memory / "s")
    migrator(saves, "run").expect(0, 1)
    lost = LOST[what](state_of(memory))
    if how == "removed":
        lost.unlink()
    else:
        lines = lost.read_bytes().splitlines(keepends=True)
        lost.write_bytes(b"".join(lines[:-1]))
    before = [trees.snapshot(folder) for folder in (saves.source, saves.user_data)]
    for verb in ("verify", "rollback", "finalize", "run"):
        error = migrator(saves, verb).expect(4).error
        assert lost.name in error["message"]
    assert [trees.snapshot(folder) for folder in (saves.source, saves.user_data)] == before


def test_records_without_a_journal_are_not_begun_over(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    migrator(saves, "run").expect(0, 1)
    state = state_of(memory)
    rows = (state / "rows.jsonl").read_bytes()
    for damage in (lambda: (state / "journal.jsonl").write_bytes(b""),
                   (state / "journal.jsonl").unlink):  # fmt: skip
        damage()
        assert "no journal" in migrator(saves, "run").expect(4).error["message"]
    assert (state / "rows.jsonl").read_bytes() == rows


def test_after_a_rollback_there_is_nothing_to_verify(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    migrator(saves, "run").expect(0, 1)
    migrator(saves, "rollback").expect(0)
    assert "rolled back" in migrator(saves, "verify").expect(3).error["message"]
