"""`status`: where the migration stands, told at any time, with nothing changed."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import Mismatch, Precondition
from migrator.findings import Finding
from migrator.journal import Journal
from migrator.locks import Locks
from migrator.outcome import Outcome
from migrator.progress import Progress
from migrator.request import Request
from migrator.status import status
from tests.vfs.steps import ended
from vfs.beneath import Directory

GO_ON = "migrator run, which goes on where it was (or back: migrator rollback)"


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """A command line whose state folder is there and whose other folders are not."""
    (tmp_path / "state").mkdir()
    place = os.fsencode(tmp_path)
    return Request(
        source=place + b"/saves",
        user_data=place + b"/user-data",
        skill_store=place + b"/skill-store",
        skill_projections=place + b"/skill-projections",
        state=place + b"/state",
    )


@pytest.fixture
def folder(request_: Request) -> Iterator[Directory]:
    with Directory.open(request_.state) as directory:
        yield directory


def recorded(folder: Directory, *some: dict[str, Any]) -> None:
    with Journal.open(folder) as journal:
        if not journal.state.begun:
            journal.begin(
                run="4be1",
                time=1_700_000_000.5,
                layout="yuxi",
                method="auto",
                database="sqlite:////srv/gem.db",
                places={"source": b"/srv/saves\xff"},
            )
        for record in some:
            journal.record(**record)


def parts(*names: str) -> list[dict[str, Any]]:
    return [
        {"kind": "phase", "name": name, "state": state}
        for name in names
        for state in ("begun", "done")
    ]


def unit(key: str, step: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "unit", "key": key, "step": step, **fields}


ALL = ("stage", "verify", "publish", "database", "ownership", "markers")


@pytest.mark.parametrize("there", [True, False])
def test_where_nothing_was_begun_it_says_so_and_makes_nothing(
    request_: Request, tmp_path: Path, there: bool
) -> None:
    if not there:
        (tmp_path / "state").rmdir()
    assert status(request_) == Outcome(
        "status",
        "nothing",
        "no migration was begun",
        "see what would be done: migrator plan",
        numbers={"units": 0, "published": 0, "files": 0, "bytes": 0},
        details={"running": False, "process": None},
    )
    assert [path.name for path in tmp_path.rglob("*")] == (["state"] if there else [])


def test_an_unfinished_migration_is_told_with_all_its_parts(
    request_: Request, folder: Directory
) -> None:
    recorded(
        folder,
        *parts("stage", "verify"),
        unit("workdir-a", "staged", files=3, bytes=1000, unit={"uid": "ann"}),
        unit("workdir-b", "staged", files=4, bytes=100),
        unit("workspace-c", "staged", files=5, bytes=10),
        unit("workdir-a", "published"),
        unit("workspace-c", "adopted"),
        unit("workdir-b", "publishing"),
        {"kind": "phase", "name": "publish", "state": "begun"},
        {"kind": "cut_over", "step": "recorded"},
        {"kind": "marker", "root": "user-data", "name": ".mark\udcff"},
    )
    assert status(request_) == Outcome(
        "status",
        "verified",
        "the migration is not finished",
        GO_ON,
        numbers={"units": 3, "published": 2, "files": 8, "bytes": 1010},
        details={
            "running": False,
            "process": None,
            "migration": {
                "run": "4be1",
                "begun": "2023-11-14T22:13:20+00:00",
                "program": f"gemspace {version('gemspace')}",
                "layout": "yuxi",
                "method": "auto",
                "database": "sqlite:////srv/gem.db",
                "source": "/srv/saves\\xff",
            },
            "phases": {"stage": "done", "verify": "done", "publish": "begun"},
            "units": {"published": 1, "publishing": 1, "adopted": 1},
            "database": "recorded",
            "ownership": None,
            "markers": [".mark\\xff"],
        },
    )


def test_what_was_not_taken_over_is_found_with_its_reason(
    request_: Request, folder: Directory
) -> None:
    recorded(
        folder,
        unit("workdir-a", "conflict", reason="a file\nstands there"),
        unit("workdir-b", "failed"),
    )
    outcome = status(request_)
    assert outcome.findings == [
        Finding(
            "target_taken",
            "conflict",
            "workdir-a",
            "it was not taken over: a file\\x0astands there",
            "move away what stands there, then run again",
        ),
        Finding(
            "unit_failed",
            "warning",
            "workdir-b",
            "it was not taken over: see the output of the run",
            "put that right, then run again",
        ),
    ]
    assert outcome.exit_status == 6


@pytest.mark.parametrize(
    ("some", "state", "summary", "following"),
    [
        (
            parts(*ALL),
            "done",
            "the migration is done; the old saves are as they were",
            "look at the result, then remove the old saves: migrator finalize",
        ),
        (
            [*parts(*ALL), {"kind": "rollback", "step": "begun"}],
            "rolling-back",
            "the migration is being rolled back",
            "migrator rollback, which goes on where it was",
        ),
        (
            [unit("a", "conflict"), {"kind": "rollback", "step": "done"}],
            "rolled-back",
            "the migration was rolled back; everything is as it was before",
            None,
        ),
        (
            [*parts(*ALL), {"kind": "finalize", "step": "begun"}],
            "finalizing",
            "the old saves are being removed",
            "migrator finalize, which goes on where it was",
        ),
        (
            [*parts(*ALL), {"kind": "finalize", "step": "done"}],
            "finalized",
            "the migration is done, and the old saves are removed",
            None,
        ),
    ],
)
def test_each_end_of_a_migration_has_its_words(
    request_: Request,
    folder: Directory,
    some: list[dict[str, Any]],
    state: str,
    summary: str,
    following: str | None,
) -> None:
    recorded(folder, *some)
    outcome = status(request_)
    assert (outcome.state, outcome.summary, outcome.next) == (state, summary, following)
    assert outcome.exit_status == 0


def test_a_running_migration_is_told_with_its_process_and_progress(
    request_: Request, folder: Directory
) -> None:
    """Asked from another process, while this one has the locks and the journal open."""
    process = os.getpid()

    def look() -> None:
        outcome = status(request_)
        assert outcome.state == "staged"
        assert outcome.summary == f"the migration is not finished; process {process} is at work"
        assert outcome.next is None
        assert outcome.details["running"] is True
        assert outcome.details["process"] == process
        assert outcome.details["progress"] == {
            "pid": process,
            "time": 5.0,
            "phase": "verify",
            "files": 0,
            "bytes": 0,
            "files_total": 100,
            "bytes_total": None,
            "files_per_second": 0.0,
            "bytes_per_second": 0.0,
            "seconds_left": None,
        }

    with Locks.take(folder, []), Progress(io.StringIO(), wall=lambda: 5.0) as progress:
        progress.save_in(folder)
        recorded(folder, *parts("stage"))
        progress.phase("verify", files=100)
        assert ended(look) == 0
    assert "progress" not in status(request_).details


def test_the_progress_of_an_earlier_process_is_not_told(
    request_: Request, folder: Directory, tmp_path: Path
) -> None:
    for content in (b'{"pid": 1, "files": 3}', b"", b"{", b"[]"):
        (tmp_path / "state" / "progress.json").write_bytes(content)
        with Locks.take(folder, []):
            outcome = status(request_)
        assert outcome.details == {"running": True, "process": os.getpid()}


def test_a_killed_migrator_is_not_running(request_: Request, folder: Directory) -> None:
    def migrate() -> None:
        Locks.take(folder, [])
        recorded(folder, *parts("stage"))
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(migrate) == -signal.SIGKILL
    outcome = status(request_)
    assert (outcome.state, outcome.details["running"], outcome.next) == ("staged", False, GO_ON)


def test_to_look_changes_nothing(request_: Request, folder: Directory, tmp_path: Path) -> None:
    recorded(folder, *parts("stage"))
    Locks.take(folder, []).close()
    with open(tmp_path / "state" / "journal.jsonl", "ab") as file:
        file.write(b"0123abcd {torn")

    def everything() -> dict[str, tuple[bytes, int, int]]:
        return {
            path.name: (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_ino)
            for path in (tmp_path / "state").iterdir()
        }

    before, of_folder = everything(), (tmp_path / "state").stat().st_mtime_ns
    assert status(request_).state == "staged"
    assert everything() == before
    assert (tmp_path / "state").stat().st_mtime_ns == of_folder


def test_a_damaged_journal_is_told(request_: Request, folder: Directory, tmp_path: Path) -> None:
    recorded(folder)
    path = tmp_path / "state" / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"4be1", b"4be2"))
    with pytest.raises(Mismatch):
        status(request_)


def test_a_state_folder_that_is_none_is_told(request_: Request, tmp_path: Path) -> None:
    (tmp_path / "state").rmdir()
    (tmp_path / "state").symlink_to(".")
    with pytest.raises(Precondition):
        status(request_)
    (tmp_path / "state").unlink()
    (tmp_path / "state").touch()
    with pytest.raises(Precondition):
        status(request_)
