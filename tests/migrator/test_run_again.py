"""What comes after a run: a second one, `verify`, `rollback`, `finalize`; what may be read only."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.migrator import rows, sample, trees
from tests.migrator.operator import (
    MARKERS,
    Done,
    Found,
    differences,
    look,
    markers,
    migrator,
)
from tests.migrator.postgres import Server
from tests.migrator.saves import Saves

Make = Callable[..., Saves]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, memory: Path) -> Iterator[str]:
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{memory / 'saves.db'}"
    else:
        server: Server = request.getfixturevalue("postgres")
        with server.database() as name:
            yield server.url(name)


def compare(found: Found, expected: Found) -> list[str]:
    """What differs of the trees and of the database, a line each."""
    lines = []
    for name in ("source", "user_data", "skill_store", "projections"):
        lines += trees.differences(getattr(found, name), getattr(expected, name))
    if found.database != expected.database:
        lines.append(f"database: {found.database} instead of {expected.database}")
    return lines


@pytest.mark.parametrize("in_place", [False, True], ids=["elsewhere", "in place"])
@pytest.mark.parametrize("transfer", ["link", "copy"])
def test_a_second_run_changes_nothing(
    memory: Path, url: str, transfer: str, in_place: bool
) -> None:
    saves = sample.normal(memory / "s", url, in_place=in_place)
    migrator(saves, "run", "--transfer", transfer).expect(1)
    before = look(saves)
    migrator(saves, "run", "--transfer", transfer).expect(1)
    assert compare(look(saves), before) == []


def test_a_second_run_with_conflicts_changes_nothing(memory: Path) -> None:
    saves = sample.hostile(memory / "s")
    migrator(saves, "run").expect(6)
    before = look(saves)
    migrator(saves, "run").expect(6)
    assert compare(look(saves), before) == []


@contextmanager
def read_only(folder: Path, at: Path) -> Iterator[Path]:
    """A read-only bind mount of a folder."""
    at.mkdir()
    subprocess.run(["mount", "--bind", "-o", "ro", folder, at], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


@pytest.mark.parametrize("transfer", ["auto", "copy"])
def test_a_source_that_is_mounted_read_only_is_copied_and_as_before(
    memory: Path, transfer: str
) -> None:
    saves = sample.normal(memory / "s")
    before = trees.snapshot(saves.source)
    with read_only(saves.source, memory / "mounted") as mounted:
        place = ["--source", str(mounted), "--transfer", transfer]
        migrator(saves, "plan", *place).expect(0, 1)
        assert trees.differences(trees.snapshot(saves.source), before) == []
        migrator(saves, "run", *place).expect(1)
    assert differences(saves) == []
    assert trees.differences(trees.snapshot(saves.source), before) == []


@pytest.mark.parametrize("in_place", [False, True], ids=["elsewhere", "in place"])
@pytest.mark.parametrize("transfer", ["link", "copy"])
@pytest.mark.parametrize("make", [sample.normal, sample.hostile])
def test_a_rollback_gives_back_all_that_was(
    memory: Path, make: Make, transfer: str, in_place: bool
) -> None:
    saves = make(memory / "s", in_place=in_place)
    before = look(saves)
    migrator(saves, "run", "--transfer", transfer).expect(1, 6)
    migrator(saves, "rollback").expect(0)
    assert compare(look(saves), before) == []


def test_a_rollback_gives_back_the_rows_of_postgresql(memory: Path, postgres_url: str) -> None:
    saves = sample.normal(memory / "s", postgres_url)
    before = look(saves)
    migrator(saves, "run").expect(1)
    migrator(saves, "rollback").expect(0)
    assert compare(look(saves), before) == []


def test_after_a_rollback_a_run_begins_anew(memory: Path) -> None:
    saves = sample.normal(memory / "s")
    for _ in range(2):
        migrator(saves, "run").expect(1)
        assert differences(saves) == []
        migrator(saves, "rollback").expect(0)
    migrator(saves, "run").expect(1)
    assert differences(saves) == []
    assert markers(saves) == MARKERS


def test_a_rollback_leaves_what_was_written_since(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    before = look(saves)
    migrator(saves, "run", "--transfer", "copy").expect(1)
    outputs = next((saves.user_data / "shared/alice/workspace/projects").glob("*/outputs"))
    (outputs / "new").write_bytes(b"new")
    (outputs / "run.sh").write_bytes(b"changed since")
    migrator(saves, "rollback").expect(1)
    assert sorted(path.name for path in outputs.iterdir()) == ["new", "run.sh"]
    assert (outputs / "run.sh").read_bytes() == b"changed since"
    assert trees.differences(look(saves).source, before.source) == []


@pytest.mark.parametrize("in_place", [False, True], ids=["elsewhere", "in place"])
@pytest.mark.parametrize("transfer", ["link", "copy"])
def test_finalize_removes_what_was_taken_over_and_nothing_else(
    memory: Path, transfer: str, in_place: bool
) -> None:
    saves = sample.normal(memory / "s", in_place=in_place)
    migrator(saves, "run", "--transfer", transfer).expect(1)
    migrator(saves, "finalize").expect(0, 1)
    assert differences(saves) == []
    left = {
        path
        for path, node in trees.snapshot(saves.source).items()
        if node.kind != "directory" and not (in_place and path.startswith(b"threads/shared/"))
    }
    assert left - {b"threads/.v072-runtime-identity"} == {
        b"agents/not ours",
        b"config/base.toml",
        b"knowledge_base_data/not ours",
        b"logs/not ours",
        b"skill_import_drafts/draft/SKILL.md",
        b"skills/stray.txt",
        b"threads/alice.v0:legacy/skills/local/SKILL.md",
        b"threads/of nobody/user-data/uploads/of nobody.md",
        b"threads/without a row/user-data/uploads/orphan.md",
        b"uploads/not ours",
    }


@pytest.mark.parametrize("transfer", ["link", "copy"])
def test_finalize_keeps_what_lost_or_could_not_be_taken_over(memory: Path, transfer: str) -> None:
    saves = sample.hostile(memory / "s")
    old = trees.snapshot(saves.source)
    migrator(saves, "run", "--transfer", transfer).expect(6)
    migrator(saves, "finalize").expect(6)
    assert trees.snapshot(saves.source).keys() == old.keys()
    migrator(saves, "finalize", "--despite-conflicts").expect(1)
    assert differences(saves) == []
    left = trees.snapshot(saves.source)
    kept = {
        node.digest for tree in (left, trees.snapshot(saves.user_data)) for node in tree.values()
    }
    assert {node.digest for node in old.values()} - kept == set()
    for path in (
        b"threads/t1/user-data/uploads/a fifo",
        b"threads/c1/user-data/outputs/newer wins",
        b"threads/c2/user-data/outputs/older stays",
        b"threads/c1/user-data/outputs/file and directory",
        b"threads/y1/user-data/outputs/in a circle",
        b"threads/of-file/user-data/uploads/stays",
        b"threads/linked",
        b"threads/half/user-data/uploads",
    ):
        assert path in left
    assert (saves.folder / "outside/user-data/uploads/secret").read_bytes() == b"secret"


def test_once_the_conflicts_are_put_right_a_run_completes_what_it_left(memory: Path) -> None:
    saves = sample.hostile(memory / "s")
    url = str(saves.url)
    migrator(saves, "run").expect(6)
    for uid in ("file", "link"):
        (saves.user_data / f"shared/{uid}/workspace/projects").unlink()
    with rows.connection(url) as opened:
        # y1 is y2's sub-agent no longer, but y2 is y1's.
        opened.execute(text("DELETE FROM subagent_threads WHERE child_thread_id = 'y1'"))
    migrator(saves, "run").expect(1)
    assert markers(saves) == MARKERS
    projects = rows.read(url).conversations
    assert None not in projects.values()
    assert projects["y1"] == projects["y2"]
    for uid in ("file", "link"):
        (kept,) = saves.user_data.glob(f"shared/{uid}/workspace/projects/*/uploads/stays")
        assert kept.stat().st_size == 10
    (column,) = (
        text for text in rows.dump(url)["conversations"]["columns"] if "project_id" in text
    )
    assert "'nullable': 'False'" in column
    # That `projects` is another thing now is a change of the new tree.
    migrator(saves, "finalize", "--accept-changes").expect(0, 1)


def test_after_finalize_nothing_is_rolled_back_or_removed(memory: Path) -> None:
    saves = sample.normal(memory / "s")
    migrator(saves, "run").expect(1)
    migrator(saves, "finalize").expect(0, 1)
    before = look(saves)
    migrator(saves, "rollback").expect(3)
    migrator(saves, "finalize").expect(0, 1)
    assert compare(look(saves), before) == []


@pytest.mark.parametrize("what", ["bytes", "missing", "row"])
def test_finalize_removes_nothing_when_the_new_tree_is_not_what_it_was(
    memory: Path, what: str
) -> None:
    saves = sample.minimal(memory / "s")
    migrator(saves, "run", "--transfer", "copy").expect(1)
    (file,) = (saves.user_data / "shared/alice/workspace/projects").glob("*/outputs/run.sh")
    if what == "bytes":
        file.write_bytes(b"x" * file.stat().st_size)
    elif what == "missing":
        file.unlink()
    else:
        subprocess.run(
            ["sqlite3", saves.folder / "saves.db", "UPDATE projects SET workdir_path = 'x'"],
            check=True,
        )
    before = look(saves)
    migrator(saves, "verify").expect(4)
    migrator(saves, "finalize").expect(4)
    assert compare(look(saves), before) == []


def test_verify_finds_nothing_after_a_run_and_writes_nothing(memory: Path) -> None:
    saves = sample.normal(memory / "s")
    migrator(saves, "run").expect(1)
    before = look(saves)
    migrator(saves, "verify").expect(0, 1)
    assert compare(look(saves), before) == []


def status(saves: Saves) -> Done:
    return migrator(saves, "status").expect(0, 1)


def test_status_says_where_it_stands(memory: Path) -> None:
    saves = sample.normal(memory / "s")
    seen = [status(saves).json["state"]]
    for verb in ("run", "rollback", "run", "finalize"):
        migrator(saves, verb).expect(0, 1)
        seen.append(status(saves).json["state"])
    assert seen == ["nothing", "done", "rolled-back", "done", "finalized"]


def test_status_can_be_asked_while_a_run_is_at_work(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    answer = memory / "answer"

    def before() -> None:
        real = os.link

        def ask(*arguments: object, **options: object) -> None:
            os.link = real
            answer.write_bytes(status(saves).out)
            real(*arguments, **options)  # type: ignore[arg-type]

        os.link = ask

    migrator(saves, "run", "--transfer", "link", "--jobs", "1", before=before).expect(1)
    assert json.loads(answer.read_bytes())["state"] == "begun"


@pytest.mark.parametrize(
    ("option", "status"),
    [
        (["--source", "/nowhere/at/all"], 3),
        (["--layout", "deerflow"], 2),
        (["--database", "nonsense"], 2),
        (["--database", "postgresql://nobody@127.0.0.1:1/x"], 3),
    ],
)
@pytest.mark.parametrize("verb", ["plan", "check", "run"])
def test_bad_input_is_one_line_and_changes_nothing(
    memory: Path, verb: str, option: list[str], status: int
) -> None:
    saves = sample.minimal(memory / "s")
    before = look(saves)
    done = migrator(saves, verb, *option)
    assert done.status == status, (done.out, done.err)
    assert b"Traceback" not in done.err
    assert done.err.count(b"\n") <= 1
    assert compare(look(saves), before) == []
    assert not saves.state.exists()


def test_a_schema_that_was_never_released_is_refused_by_name(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    subprocess.run(
        ["sqlite3", saves.folder / "saves.db", "CREATE TABLE project_workdirs (id INTEGER)"],
        check=True,
    )
    before = look(saves)
    done = migrator(saves, "run").expect(3)
    assert b"project_workdirs" in done.out + done.err
    assert compare(look(saves), before) == []


def test_a_run_without_the_token_of_downtime_is_refused(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    before = look(saves)
    migrator(
        saves, "run", environment={"YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN": "another"}
    ).expect(3)
    assert compare(look(saves), before) == []


def test_a_run_is_refused_while_a_program_has_a_file_open(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    before = look(saves)
    with open(saves.source / "threads/t1/user-data/uploads/a.txt", "rb"):
        done = migrator(saves, "run").expect(3)
    assert str(os.getpid()).encode() in done.out + done.err
    assert compare(look(saves), before) == []
