"""Whole runs: the answer that comes with the saves is what the command makes of them."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.outcome import Outcome
from migrator.progress import Progress
from migrator.request import Request
from migrator.running import run
from tests.migrator import rows, sample, trees
from tests.migrator.operator import MARKERS, differences, look, markers, migrator
from tests.migrator.postgres import Server
from tests.migrator.saves import Layout, Saves
from vfs.check import check
from vfs.workspace import Storage

Make = Callable[..., Saves]

SHARED_SAMPLE = Path(__file__).parents[3] / "shared" / "fixtures" / "legacy_saves.py"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, memory: Path) -> Iterator[str]:
    """The URL of an empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{memory / 'saves.db'}"
    else:
        server: Server = request.getfixturevalue("postgres")
        with server.database() as name:
            yield server.url(name)


@pytest.mark.parametrize("in_place", [False, True], ids=["elsewhere", "in place"])
@pytest.mark.parametrize("transfer", ["link", "copy"])
def test_ordinary_saves_become_what_they_should(
    memory: Path, url: str, transfer: str, in_place: bool
) -> None:
    saves = sample.normal(memory / "s", url, in_place=in_place)
    done = migrator(saves, "run", "--transfer", transfer).expect(1)
    assert differences(saves) == []
    assert markers(saves) == MARKERS
    assert {finding for finding in done.findings if finding[0] == "conflict"} == set()
    assert no_staging(saves) == []


@pytest.mark.parametrize("in_place", [False, True], ids=["elsewhere", "in place"])
@pytest.mark.parametrize("transfer", ["link", "copy"])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_hostile_saves_become_what_they_should(
    memory: Path, transfer: str, jobs: str, in_place: bool
) -> None:
    saves = sample.hostile(memory / "s", in_place=in_place)
    migrator(saves, "run", "--transfer", transfer, "--jobs", jobs).expect(6)
    assert differences(saves) == []
    # Somebody's Workdirs are not there yet: those who look for the marker must not start.
    assert markers(saves) == {}
    assert no_staging(saves) == []


@pytest.mark.parametrize("layout", ["yuxi", "thread-local", "deerflow"])
@pytest.mark.parametrize("transfer", ["link", "copy"])
def test_each_layout_becomes_what_it_should(memory: Path, layout: Layout, transfer: str) -> None:
    saves = sample.of_layout(memory / "s", layout)
    migrator(saves, "run", "--transfer", transfer).expect(1)
    assert differences(saves) == []
    assert markers(saves) == MARKERS


def test_a_transfer_that_may_choose_links_on_one_file_system(memory: Path) -> None:
    saves = sample.minimal(memory / "s")
    migrator(saves, "run").expect(1)
    files = saves.source / "threads/t1/user-data"
    assert (files / "outputs/run.sh").stat().st_nlink == 2  # one in the saves, one in the new tree
    assert (files / "uploads/a.txt").stat().st_nlink == 2  # both in the saves: it was copied


@pytest.mark.parametrize(("transfer", "links"), [("copy", 1), ("link", 1)])
def test_a_file_that_two_users_had_in_common_is_each_ones_own_once_it_is_copied(
    memory: Path, transfer: str, links: int
) -> None:
    saves = sample.hostile(memory / "s")
    migrator(saves, "run", "--transfer", transfer).expect(6)
    names = list(saves.user_data.glob("shared/*/workspace/projects/*/uploads/shared"))
    assert [name.stat().st_nlink for name in names] == [links, links]


def test_linked_saves_hold_the_same_bytes_at_the_same_times(memory: Path) -> None:
    saves = sample.hostile(memory / "s")
    before = look(saves).source
    migrator(saves, "run", "--transfer", "link").expect(6)
    after = look(saves).source
    # Owner and mode are the new ones: an inode has them once.
    blank = {path: without_rights(node) for path, node in before.items()}
    assert {path: without_rights(node) for path, node in after.items()} == blank


def without_rights(node: trees.Node) -> tuple[object, ...]:
    return (node.kind, node.mtime_ns, node.size, node.digest, node.text, node.xattrs, node.data)


def test_copied_saves_are_as_they_were(memory: Path) -> None:
    saves = sample.hostile(memory / "s")
    before = look(saves).source
    migrator(saves, "run", "--transfer", "copy").expect(6)
    assert trees.differences(look(saves).source, before) == []


@pytest.mark.parametrize("command", ["plan", "check"])
@pytest.mark.parametrize("make", [sample.normal, sample.hostile])
def test_a_plan_and_a_check_write_nothing(memory: Path, make: Make, command: str) -> None:
    saves = make(memory / "s")
    database = (memory / "s" / "saves.db").read_bytes()
    before = look(saves)
    done = migrator(saves, command).expect(0, 1, 6)
    assert look(saves) == before
    assert (memory / "s" / "saves.db").read_bytes() == database
    assert not saves.state.exists()
    assert done.json["verb"] == command


def no_staging(saves: Saves) -> list[bytes]:
    """What is left of places where something was staged."""
    return [
        path
        for top in (saves.user_data, saves.skill_store, saves.projections)
        if top.exists()
        for path in trees.snapshot(top)
        if b".gemspace-migration" in path
    ]


def test_the_verb_function_does_what_the_command_does(memory: Path) -> None:
    saves = sample.normal(memory / "s")
    outcome = by_function(saves)
    assert (outcome.verb, outcome.state, outcome.exit_status) == ("run", "done", 1)
    assert differences(saves) == []


def by_function(saves: Saves) -> Outcome:
    request = Request(
        source=os.fsencode(saves.source),
        user_data=os.fsencode(saves.user_data),
        skill_store=os.fsencode(saves.skill_store),
        skill_projections=os.fsencode(saves.projections),
        state=os.fsencode(saves.state),
        database=saves.url,
        jobs=1,
    )
    with quiesced(saves), Progress() as progress:
        return run(request, progress)


@contextmanager
def quiesced(saves: Saves) -> Iterator[None]:
    """The token of downtime, in the environment and in a file."""
    file = saves.folder / "quiesced"
    file.write_text("token")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN", "token")
        patch.setenv("YUXI_STORAGE_MIGRATION_QUIESCENCE_FILE", str(file))
        yield


def test_the_new_tree_is_a_storage_in_which_nothing_is_wrong(memory: Path) -> None:
    saves = sample.normal(memory / "s")
    migrator(saves, "run").expect(1)
    storage = Storage.open(
        user_data=saves.user_data,
        skill_projections=saves.projections,
        skill_store=saves.skill_store,
    )
    with storage:
        # The saves hold links that lead out, and so does what is made of them.
        found = [finding for finding in check(storage) if finding.kind not in ("link", "links")]
    assert found == []


def test_an_independent_sample_becomes_its_own_answer(memory: Path) -> None:
    # Where that sample is not at hand, our own stands in for it.
    if not SHARED_SAMPLE.exists():
        saves = sample.normal(memory / "s")
        migrator(saves, "run").expect(1)
        assert differences(saves) == []
        return
    spec = importlib.util.spec_from_file_location("legacy_saves", SHARED_SAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = memory / "s"
    module.build(folder, 3, 4, 24, f"sqlite:{folder / 'saves.db'}", "0:0")
    answer = json.loads((folder / "expected.json").read_text())
    saves = Saves(folder, url=f"sqlite:///{folder / 'saves.db'}", existing_source=True)
    migrator(saves, "run").expect(1)
    assert as_answered(saves, answer["user_data"]) == answer["user_data"]
    found = rows.read(f"sqlite:///{folder / 'saves.db'}")
    assert found.conversations == answer["rows"]["conversations"]
    assert found.projects == answer["rows"]["projects"]
    assert found.skills == answer["skills"]
    assert found.options == answer["settings"]
    assert {
        thread: [
            {"path": entry["path"], "original_path": entry["original_path"]}
            for entry in metadata["attachments"]
        ]
        for thread, metadata in found.metadata.items()
    } == answer["rows"]["attachments"]
    artifacts = [given["filepaths"] for given in found.inputs.values()]
    assert artifacts == list(answer["rows"]["artifacts"].values())


def as_answered(saves: Saves, answer: dict[str, Any]) -> dict[str, Any]:
    """What was made, in the form of the sample's answer, of the paths that this names."""
    made = {}
    for path, expected in answer.items():
        place = saves.user_data / path
        status = place.lstat()
        assert (status.st_uid, status.st_gid) == (1000, 1000)
        facts: dict[str, Any] = {
            "type": {stat.S_IFREG: "file", stat.S_IFLNK: "symlink", stat.S_IFDIR: "directory"}[
                stat.S_IFMT(status.st_mode)
            ],
            "mode": f"{stat.S_IMODE(status.st_mode):04o}",
            "size": status.st_size,
            "mtime_ns": status.st_mtime_ns,
        }
        if facts["type"] == "symlink":
            facts["to"] = os.readlink(place)
        if facts["type"] == "file":
            facts["sha256"] = trees.digest(place)
        made[path] = {name: facts.get(name) for name in expected}
    return made
