"""Requests that would end badly are refused before anything is changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from migrator.database import connect
from migrator.errors import MigratorError
from tests.migrator import sample, trees
from tests.migrator.operator import migrator
from tests.migrator.postgres import Server


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--skill-store", "new/user-data/shared"), "--skill-store"),
        (("--skill-projections", "new/user-data"), "--skill-projections"),
        (("--skill-store", "new/a", "--skill-projections", "new/a"), "--skill-projections"),
    ],
)
def test_roots_in_each_other_are_refused(memory: Path, options: tuple[str, ...], said: str) -> None:
    saves = sample.minimal(memory / "s")
    places = [
        option if option.startswith("--") else str(saves.user_data.parent / option[4:])
        for option in options
    ]
    before = trees.snapshot(saves.source)
    assert said in migrator(saves, "plan", *places).expect(3).error["message"]
    for verb in ("check", "run"):
        migrator(saves, verb, *places).expect(3)
    assert trees.snapshot(saves.source) == before


def test_an_owners_file_that_is_a_fifo_is_not_waited_for(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    os.mkfifo(memory / "owners")
    error = migrator(saves, "plan", "--owners", str(memory / "owners")).expect(3).error
    assert "is no file" in error["message"]


def test_a_locked_table_is_not_waited_for_without_end(
    postgres: Server, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.database.engine.LOCK_TIMEOUT", 0.05)
    with postgres.database() as name:
        url = postgres.url(name)
        sample.minimal(memory / "s", url)
        with postgres.connect(name) as other, other.transaction():
            other.execute("LOCK conversations IN ACCESS EXCLUSIVE MODE")
            with connect(url) as database, pytest.raises(MigratorError, match="lock"):
                list(database.conversations())


def test_check_knows_a_state_folder_of_another_migration(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    migrator(saves, "run").expect(1)
    other = str(saves.user_data.parent / "another store")
    assert ("blocker", "precondition") in migrator(saves, "check", "--skill-store", other).expect(
        3
    ).findings
