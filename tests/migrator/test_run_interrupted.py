"""Runs that meet signals, deaths of workers, and targets that are there already."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator import cli
from tests.migrator import sample, trees
from tests.migrator.operator import MARKERS, differences, forked, look, markers, migrator, prepared
from tests.migrator.saves import Saves

TARGET = "shared/alice/workspace/projects/55098e5c-8730-e701-b8cf-5a72d47e551d"
"""Where the Workdir of the minimal saves belongs."""


def at_the_first_link(act: Callable[[], None], *, of_a_worker: bool = False) -> Callable[[], None]:
    """Has something done before the first link is made, in the process that makes it."""

    def before() -> None:
        real, parent = os.link, os.getpid()

        def link(*arguments: object, **options: object) -> None:
            if of_a_worker == (os.getpid() != parent):
                os.link = real
                act()
            real(*arguments, **options)  # type: ignore[arg-type]

        os.link = link

    return before


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_interrupted_says_so_and_is_gone_on_with(
    memory: Path, number: int, status: int
) -> None:
    saves = sample.minimal(memory / "s")

    def action() -> int:
        prepared(saves)
        at_the_first_link(lambda: os.kill(os.getpid(), number))()
        sys.argv = ["migrator", "run", *saves.arguments, "--json", "--jobs", "1"]
        return cli.main()

    done = forked(action, saves.folder)
    assert (done.status, done.error["error"]) == (status, "interrupted")
    migrator(saves, "run").expect(1)
    assert differences(saves) == []


def test_a_run_whose_worker_is_killed_can_be_done_again(memory: Path) -> None:
    saves = sample.normal(memory / "s")
    kill = at_the_first_link(lambda: os.kill(os.getpid(), signal.SIGKILL), of_a_worker=True)
    done = migrator(saves, "run", "--transfer", "link", "--jobs", "2", before=kill)
    assert (done.status, done.error["error"]) == (5, "retryable")
    migrator(saves, "run", "--transfer", "link", "--jobs", "2").expect(1)
    assert differences(saves) == []


def test_workers_do_not_outlive_a_run_that_is_killed(memory: Path) -> None:
    saves = sample.normal(memory / "s")
    pids = memory / "pids"

    def act() -> None:
        pids.write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()

    before = at_the_first_link(act, of_a_worker=True)
    done = migrator(saves, "run", "--transfer", "link", "--jobs", "2", before=before)
    assert done.status == -signal.SIGKILL
    migrator(saves, "run", "--transfer", "link", "--jobs", "2").expect(1)
    assert differences(saves) == []
    assert not Path(f"/proc/{pids.read_text()}/cwd").exists()


def planted(saves: Saves) -> Path:
    """What a run would make of the thread, made beforehand."""
    target = saves.user_data / TARGET
    target.parent.mkdir(parents=True)
    shutil.copytree(saves.source / "threads/t1/user-data", target, symlinks=True)
    return target


def test_a_target_that_holds_the_same_is_adopted_and_stays_when_all_is_rolled_back(
    memory: Path,
) -> None:
    saves = sample.minimal(memory / "s")
    # The workspace as well: it would be in the way of the Workdir otherwise.
    planted(saves)
    shutil.copytree(
        saves.source / "threads/shared/alice/workspace",
        saves.user_data / "shared/alice/workspace",
        dirs_exist_ok=True,
    )
    before = look(saves)
    done = migrator(saves, "run", "--transfer", "copy").expect(1)
    assert done.json["numbers"]["adopted"] == 2
    assert markers(saves) == MARKERS
    migrator(saves, "rollback").expect(0)
    assert trees.differences(look(saves).user_data, before.user_data) == []
    assert trees.differences(look(saves).source, before.source) == []


def test_a_target_that_holds_something_else_is_a_conflict_and_untouched(memory: Path) -> None:
    saves = sample.normal(memory / "s")
    taken = saves.user_data / "shared/bob_2/workspace/projects"
    (project,) = (p for p in saves.rows.projects.values() if p["uid"] == "bob_2")
    target = taken.parent / project["workdir_path"]
    target.mkdir(parents=True)
    (target / "mine").write_bytes(b"mine")
    migrator(saves, "run").expect(6)
    assert [path.name for path in target.iterdir()] == ["mine"]
    assert (target / "mine").read_bytes() == b"mine"
    (target / "mine").unlink()
    migrator(saves, "run").expect(1)
    assert differences(saves) == []
