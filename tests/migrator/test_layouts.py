"""Which layout old saves have, and what each survey finds, leaves and says."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator import layouts
from migrator.errors import Precondition, Usage
from migrator.findings import Finding
from migrator.layouts import deerflow, thread_local, yuxi
from migrator.layouts.base import Left, Survey, Thread
from migrator.layouts.threads import directory_of
from migrator.units import Part
from vfs.beneath import Directory
from vfs.errors import VfsError

NOTHING: frozenset[tuple[bytes, ...]] = frozenset()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "saves"
    path.mkdir()
    return path


@pytest.fixture
def source(folder: Path) -> Iterator[Directory]:
    with Directory.open(folder) as directory:
        yield directory


def make(folder: Path, *names: str | bytes) -> None:
    """Directories where a name ends in a slash, else files."""
    for name in map(os.fsencode, names):
        path = os.path.join(os.fsencode(folder), name)
        os.makedirs(path if name.endswith(b"/") else os.path.dirname(path), exist_ok=True)
        if not name.endswith(b"/"):
            with open(path, "xb"):
                pass


def told(survey: Survey) -> list[tuple[str, str, str]]:
    return [(finding.severity, finding.code, finding.subject) for finding in survey.findings]


def parts(*paths: str) -> tuple[Part, ...]:
    """Parts of threads: each goes where its last name says, a workspace to the top."""
    split = [tuple(path.encode().split(b"/")) for path in paths]
    return tuple(Part(path, () if path[-1] == b"workspace" else path[-1:]) for path in split)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["threads/shared/alice/workspace/"], "yuxi"),
        (["threads/shared/"], "yuxi"),
        (["skills/"], "yuxi"),
        (["config/base.toml"], "yuxi"),
        (["threads/t/user-data/", "skills/"], "yuxi"),
        (["threads/t/user-data/uploads/x"], "thread-local"),
        (["threads/t/user-data/", "config/other", "users/"], "thread-local"),
        (["users/u/threads/"], "deerflow"),
        (["users/u/threads/t/user-data/", "threads/t/user-data/", "skills/"], "deerflow"),
    ],
)
def test_a_layout_is_known_by_what_it_has(
    folder: Path, source: Directory, names: list[str], expected: str
) -> None:
    make(folder, *names)
    assert layouts.find(source, None, has_database=False).name == expected


@pytest.mark.parametrize("names", [[], ["threads/t/user-data/uploads/x"]])
def test_with_a_database_the_saves_are_those_of_yuxi(
    folder: Path, source: Directory, names: list[str]
) -> None:
    make(folder, *names)
    assert layouts.find(source, None, has_database=True) is yuxi.LAYOUT


@pytest.mark.parametrize("names", [[], ["threads/"], ["threads/t/"], ["users/u/"], ["other"]])
def test_saves_without_any_sign_are_refused_with_what_was_looked_for(
    folder: Path, source: Directory, names: list[str]
) -> None:
    make(folder, *names)
    with pytest.raises(Precondition) as refused:
        layouts.find(source, None, has_database=False)
    assert refused.value.message == (
        "the source holds no old saves; looked for users/*/threads (deerflow); "
        "threads/shared, skills or config/base.toml (yuxi); threads/*/user-data (thread-local)"
    )


def test_saves_with_the_signs_of_two_layouts_need_to_be_told(
    folder: Path, source: Directory
) -> None:
    make(folder, "users/u/threads/", "threads/shared/")
    with pytest.raises(Precondition, match="--layout deerflow or yuxi"):
        layouts.find(source, None, has_database=False)
    assert layouts.find(source, "yuxi", has_database=False) is yuxi.LAYOUT
    assert layouts.find(source, "deerflow", has_database=False) is deerflow.LAYOUT


def test_a_name_insists_whatever_is_there(source: Directory) -> None:
    assert layouts.find(source, "thread-local", has_database=False) is thread_local.LAYOUT


def test_a_name_that_is_no_layout_is_refused(source: Directory) -> None:
    with pytest.raises(Usage, match="no layout is called x\\\\x0a; use one of deerflow, yuxi, th"):
        layouts.find(source, "x\n", has_database=False)


@pytest.mark.parametrize("name", ["thread-local", "deerflow"])
def test_only_yuxi_has_a_database(source: Directory, name: str) -> None:
    with pytest.raises(Usage, match=f"saves of the layout {name} have no database"):
        layouts.find(source, name, has_database=True)


def test_users_threads_and_a_database_do_not_go_together(folder: Path, source: Directory) -> None:
    make(folder, "users/u/threads/")
    with pytest.raises(Usage, match="deerflow have no database"):
        layouts.find(source, None, has_database=True)


def test_the_whole_of_yuxi(folder: Path, source: Directory) -> None:
    make(
        folder,
        "config/base.toml",
        "config/models.yaml",
        "skills/chart/SKILL.md",
        "skills/stray.txt",
        "skills/Not A Slug/",
        "skill_import_drafts/d/",
        "uploads/",
        "agents/",
        "knowledge_base_data/",
        "logs/",
        "whatever",
        ".storage-migration-quiesced",
        "threads/shared/alice/workspace/",
        "threads/shared/alice/tmp/",
        "threads/shared/nothing/",
        "threads/t.1/user-data/uploads/attachments/a.md",
        "threads/t.1/user-data/outputs/",
        "threads/t.1/user-data/workspace/",
        "threads/t.1/skills/local/SKILL.md",
        "threads/t2/",
    )
    top = "threads/t.1/user-data"
    found = yuxi.survey(source, NOTHING)
    assert found.threads == [
        Thread("t.1", (b"threads", b"t.1"), parts(f"{top}/uploads", f"{top}/outputs")),
        Thread("t2", (b"threads", b"t2")),
    ]
    assert found.workspaces == {b"alice": (b"threads", b"shared", b"alice", b"workspace")}
    assert found.skills == {"chart": (b"skills", b"chart")}
    assert found.settings == (b"config", b"base.toml")
    assert (found.in_doubt, found.all_in_doubt) == (set(), False)
    assert told(found) == [
        ("note", "not_migrated", "agents"),
        ("note", "unknown_entry", "config/models.yaml"),
        ("note", "not_migrated", "knowledge_base_data"),
        ("note", "not_migrated", "logs"),
        ("note", "not_migrated", "skill_import_drafts"),
        ("warning", "skill_name_invalid", "skills/Not A Slug"),
        ("warning", "skill_not_a_directory", "skills/stray.txt"),
        ("note", "thread_skills_left", "threads"),
        ("warning", "unknown_entry", "threads/shared/alice/tmp"),
        ("note", "not_migrated", "uploads"),
        ("note", "unknown_entry", "whatever"),
    ]
    left = {left.path for left in found.left}
    assert left == {
        (b"agents",),
        (b"config", b"models.yaml"),
        (b"knowledge_base_data",),
        (b"logs",),
        (b"skill_import_drafts",),
        (b"skills", b"Not A Slug"),
        (b"skills", b"stray.txt"),
        (b"threads", b"t.1", b"skills"),
        (b"threads", b"shared", b"alice", b"tmp"),
        (b"uploads",),
        (b"whatever",),
    }


def test_many_copies_of_skills_are_one_note(folder: Path, source: Directory) -> None:
    make(folder, *(f"threads/t{n}/skills/" for n in range(3)))
    found = yuxi.survey(source, NOTHING)
    assert found.findings == [
        Finding(
            "thread_skills_left",
            "note",
            "threads",
            "3 of its threads have copies of skills of their own: left alone",
        )
    ]
    assert found.left == [
        Left((b"threads", b"t%d" % n, b"skills"), "thread_skills_left") for n in range(3)
    ]


def test_what_is_no_part_of_the_saves_is_passed_by(folder: Path, source: Directory) -> None:
    make(folder, "state/", "threads/.v072-runtime-identity", "threads/t/", "skills/shared/")
    passed = frozenset(
        ((b"state",), (b"threads", b".v072-runtime-identity"), (b"skills", b"shared"))
    )
    found = yuxi.survey(source, passed)
    assert ([thread.id for thread in found.threads], found.skills, found.findings) == (
        ["t"],
        {},
        [],
    )


def test_the_staging_folder_of_a_user_is_not_told_of(folder: Path, source: Directory) -> None:
    make(folder, "threads/shared/alice/.gemspace-migration/links/")
    assert told(yuxi.survey(source, NOTHING)) == []


def test_everything_a_thread_had_becomes_parts_in_a_fixed_order(
    folder: Path, source: Directory
) -> None:
    top = "threads/t/user-data"
    names = ("workspace/x", "large_tool_results/", "outputs/", "uploads/")
    make(folder, *(f"{top}/{name}" for name in names))
    for survey in (yuxi.survey, thread_local.survey, deerflow.survey):
        [thread] = survey(source, NOTHING).threads
        assert thread.parts == parts(
            f"{top}/uploads", f"{top}/outputs", f"{top}/large_tool_results", f"{top}/workspace"
        )


def test_an_empty_workspace_of_a_thread_is_only_what_was_mounted_on(
    folder: Path, source: Directory
) -> None:
    make(folder, "threads/t/user-data/workspace/")
    found = thread_local.survey(source, NOTHING)
    assert (found.threads, found.findings) == ([Thread("t", (b"threads", b"t"))], [])


def test_what_threads_never_had_is_left_with_a_warning(folder: Path, source: Directory) -> None:
    make(folder, "threads/t/user-data/tmp/", "threads/t/user-data/.DS_Store", "threads/t/notes")
    found = thread_local.survey(source, NOTHING)
    assert found.threads == [Thread("t", (b"threads", b"t"))]
    assert told(found) == [
        ("warning", "unknown_entry", "threads/t/notes"),
        ("warning", "unknown_entry", "threads/t/user-data/.DS_Store"),
        ("warning", "unknown_entry", "threads/t/user-data/tmp"),
    ]


NAMES = [b"back\\slash", b"new\nline", b"-rf", b" a ", b"\xff\xfe", b"x" * 255, b"...", b"\x1b[31m"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_threads_are_exact_bytes(folder: Path, source: Directory, name: bytes) -> None:
    make(folder, b"threads/%s/user-data/uploads/" % name, b"threads/%s/odd\n" % name)
    found = thread_local.survey(source, NOTHING)
    part = Part((b"threads", name, b"user-data", b"uploads"), (b"uploads",))
    assert found.threads == [Thread(os.fsdecode(name), (b"threads", name), (part,))]
    assert directory_of(found.threads[0].id) == name
    assert found.findings[0].subject.isprintable()


@pytest.mark.parametrize("thread", ["", ".", "..", "a/b", "/", "a\0b", "é" * 128, "\ud800"])
def test_ids_that_no_directory_can_have_as_a_name(thread: str) -> None:
    assert directory_of(thread) is None


def plant_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def plant_dangling(path: Path, outside: Path) -> None:
    path.symlink_to("nowhere")


def plant_file(path: Path, outside: Path) -> None:
    path.write_bytes(b"")


def plant_fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


PLANT = pytest.mark.parametrize("plant", [plant_link, plant_dangling, plant_file, plant_fifo])
Plant = Callable[[Path, Path], None]


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A tree that looks like all that is looked for, and must not be looked into."""
    path = tmp_path / "outside"
    make(
        path,
        "user-data/uploads/secret",
        "uploads/secret",
        "workspace/secret",
        "alice/workspace/secret",
        "chart/SKILL.md",
        "t/user-data/uploads/secret",
        "threads/t/user-data/uploads/secret",
    )
    return path


@PLANT
@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("threads/t", "thread_not_a_directory"),
        ("threads/t/user-data", "part_not_a_directory"),
        ("threads/t/user-data/uploads", "part_not_a_directory"),
        ("threads/t/user-data/workspace", "part_not_a_directory"),
    ],
)
def test_a_thread_and_its_parts_must_be_directories(
    folder: Path, source: Directory, outside: Path, plant: Plant, where: str, code: str
) -> None:
    make(folder, f"{os.path.dirname(where)}/")
    plant(folder / where, outside)
    for survey in (yuxi.survey, thread_local.survey, deerflow.survey):
        found = survey(source, NOTHING)
        [thread] = found.threads
        assert (thread.parts, thread.readable) == ((), True)
        assert thread.is_directory == (where != "threads/t")
        assert told(found) == [("warning", code, where)]
        assert found.left == [Left(tuple(where.encode().split(b"/")), code)]


@PLANT
@pytest.mark.parametrize("where", ["threads/shared/alice", "threads/shared/alice/workspace"])
def test_what_stands_in_the_place_of_a_workspace_puts_its_user_in_doubt(
    folder: Path, source: Directory, outside: Path, plant: Plant, where: str
) -> None:
    make(folder, f"{os.path.dirname(where)}/", "threads/shared/bob/workspace/")
    plant(folder / where, outside)
    found = yuxi.survey(source, NOTHING)
    assert list(found.workspaces) == [b"bob"]
    assert found.in_doubt == {b"alice"}
    assert [(severity, subject) for severity, _, subject in told(found)] == [("warning", where)]


@PLANT
def test_what_stands_in_the_place_of_all_workspaces_puts_every_user_in_doubt(
    folder: Path, source: Directory, outside: Path, plant: Plant
) -> None:
    make(folder, "threads/t/user-data/uploads/")
    plant(folder / "threads" / "shared", outside)
    found = yuxi.survey(source, NOTHING)
    assert (found.workspaces, found.all_in_doubt) == ({}, True)
    assert told(found) == [("conflict", "users_not_a_directory", "threads/shared")]


@PLANT
def test_what_stands_in_the_place_of_a_skill_is_left(
    folder: Path, source: Directory, outside: Path, plant: Plant
) -> None:
    make(folder, "skills/")
    plant(folder / "skills" / "chart", outside)
    found = yuxi.survey(source, NOTHING)
    assert found.skills == {}
    assert told(found) == [("warning", "skill_not_a_directory", "skills/chart")]


@PLANT
def test_what_stands_in_the_place_of_all_skills_is_left(
    folder: Path, source: Directory, outside: Path, plant: Plant
) -> None:
    plant(folder / "skills", outside)
    found = yuxi.survey(source, NOTHING)
    assert found.skills == {}
    assert told(found) == [("warning", "skill_not_a_directory", "skills")]


@PLANT
def test_without_the_folder_of_threads_nothing_is_begun(
    folder: Path, source: Directory, outside: Path, plant: Plant
) -> None:
    plant(folder / "threads", outside)
    for survey in (yuxi.survey, thread_local.survey, deerflow.survey):
        with pytest.raises(Precondition, match="stands at threads in the source, where the folder"):
            survey(source, NOTHING)


@PLANT
def test_without_the_folder_of_users_nothing_is_begun(
    folder: Path, source: Directory, outside: Path, plant: Plant
) -> None:
    plant(folder / "users", outside)
    with pytest.raises(Precondition, match="stands at users in the source, where the folder"):
        deerflow.survey(source, NOTHING)


def test_deerflow_has_threads_of_users_and_older_ones(folder: Path, source: Directory) -> None:
    make(
        folder,
        "users/li.wei/threads/t/user-data/uploads/",
        "users/li.wei/threads/t/acp-workspace/",
        "users/li.wei/memory.json",
        "users/bob/",
        "users/stray",
        b"users/\xff/threads/t/",
        "threads/t/user-data/outputs/",
        "memory.json",
    )
    found = deerflow.survey(source, NOTHING)
    new = (b"users", b"li.wei", b"threads", b"t")
    assert found.threads == [
        Thread("t", (b"threads", b"t"), parts("threads/t/user-data/outputs")),
        Thread("t", new, parts("users/li.wei/threads/t/user-data/uploads"), "li.wei"),
    ]
    assert told(found) == [
        ("note", "unknown_entry", "memory.json"),
        ("note", "unknown_entry", "users/li.wei/memory.json"),
        ("warning", "unknown_entry", "users/li.wei/threads/t/acp-workspace"),
        ("warning", "user_not_a_directory", "users/stray"),
        ("warning", "uid_unusable", "users/\\xff"),
    ]


def failing_at(monkeypatch: pytest.MonkeyPatch, *where: bytes) -> None:
    """Listing that directory fails as a bad disk does."""
    listing = Directory.open_listing

    def open_listing(self: Directory, path: tuple[bytes, ...] = ()) -> int:
        if tuple(path) == where:
            raise VfsErrorOfDisk("cannot list it: the storage failed", path=b"/".join(where))
        return listing(self, path)

    monkeypatch.setattr(Directory, "open_listing", open_listing)


class VfsErrorOfDisk(VfsError):
    kind = "io"
    errno = 5


@pytest.mark.parametrize(
    "where",
    [
        "threads/t",
        "threads/t/user-data",
        "threads/t/user-data/workspace",
    ],
)
def test_a_thread_that_cannot_be_read_is_a_conflict_and_not_taken_for_empty(
    folder: Path, source: Directory, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    make(folder, "threads/t/user-data/workspace/x", "threads/t/user-data/uploads/", "threads/u/")
    failing_at(monkeypatch, *where.encode().split(b"/"))
    found = yuxi.survey(source, NOTHING)
    assert [(thread.id, thread.readable) for thread in found.threads] == [("t", False), ("u", True)]
    assert told(found) == [("conflict", "unreadable", where)]


def test_a_user_that_cannot_be_read_is_in_doubt(
    folder: Path, source: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(folder, "threads/shared/alice/workspace/", "threads/shared/bob/workspace/")
    failing_at(monkeypatch, b"threads", b"shared", b"alice")
    found = yuxi.survey(source, NOTHING)
    assert (list(found.workspaces), found.in_doubt) == ([b"bob"], {b"alice"})
    assert told(found) == [("conflict", "unreadable", "threads/shared/alice")]


@pytest.mark.parametrize("where", [(), (b"threads",), (b"threads", b"shared")])
def test_what_everything_hangs_on_must_be_readable(
    folder: Path, source: Directory, monkeypatch: pytest.MonkeyPatch, where: tuple[bytes, ...]
) -> None:
    make(folder, "threads/shared/alice/workspace/", "threads/t/")
    failing_at(monkeypatch, *where)
    with pytest.raises(VfsErrorOfDisk):
        yuxi.survey(source, NOTHING)


@pytest.mark.slow
def test_many_threads_need_few_descriptors(folder: Path, source: Directory) -> None:
    count = 20_000
    make(folder, "threads/")
    for number in range(count):
        os.makedirs(folder / f"threads/t{number}/user-data/uploads")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        found = yuxi.survey(source, NOTHING)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(found.threads) == count
    assert all(len(thread.parts) == 1 for thread in found.threads)
    assert found.findings == []
