"""`plan`: what goes where, what waits, what is left, what is in the way; nothing is written."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from migrator import planning
from migrator.claims import Claims, own_name
from migrator.database import Assignment, Change, Conversation, Schema, SkillRow, connect
from migrator.errors import Precondition, Retryable, Usage
from migrator.findings import Finding
from migrator.ids import project_id, workdir_id, workdir_path
from migrator.journal import Journal
from migrator.outcome import Outcome
from migrator.plans import Plan, is_pending
from migrator.request import Request
from migrator.session import places
from migrator.state import FORMAT, fold
from migrator.units import Part, Unit
from tests.migrator import sample
from tests.migrator.saves import Saves
from tests.migrator.trees import snapshot
from vfs.beneath import Directory
from vfs.naming import safe_uid


def conversation(
    number: int, thread: str, uid: str, parent: int | None = None, project: str | None = None
) -> Conversation:
    return Conversation(number, thread, uid, parent, project)


@dataclass
class Rows:
    """A database that is already read."""

    rows: Sequence[Conversation] = ()
    uids: set[str] = field(default_factory=lambda: {"alice", "bob"})
    skill_rows: Sequence[SkillRow] = ()
    state: Any = "legacy"
    names: tuple[str, ...] = ()

    def inspect(self) -> Schema:
        return Schema(self.state, self.names)

    def conversations(self) -> Iterator[Conversation]:
        return iter(self.rows)

    def users(self) -> set[str]:
        return set(self.uids)

    def skills(self) -> list[SkillRow]:
        return list(self.skill_rows)

    def option_keys(self) -> set[str]:
        return set()


class Folder:
    """The folders of one migration, and what is planned for them."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.saves = top / "saves"
        self.saves.mkdir()
        self.request = Request(
            source=os.fsencode(self.saves),
            user_data=os.fsencode(top / "new" / "user-data"),
            skill_store=os.fsencode(top / "new" / "skill-store"),
            skill_projections=os.fsencode(top / "new" / "skill-projections"),
            state=os.fsencode(top / "state"),
            jobs=1,
        )

    def make(self, *names: str | bytes) -> None:
        """Directories where a name ends in a slash, else files; beneath the top of all."""
        for name in map(os.fsencode, names):
            path = os.path.join(os.fsencode(self.top), name)
            os.makedirs(path if name.endswith(b"/") else os.path.dirname(path), exist_ok=True)
            if not name.endswith(b"/"):
                with open(path, "xb"):
                    pass

    def in_place(self) -> None:
        """The new user-data root is the old `threads`, by another name."""
        (self.saves / "threads").mkdir(exist_ok=True)
        (self.top / "alias").symlink_to(self.saves)
        self.request = replace(self.request, user_data=os.fsencode(self.top / "alias" / "threads"))

    def owners(self, text: str) -> None:
        (self.top / "owners.csv").write_text(text)
        self.request = replace(self.request, owners=os.fsencode(self.top / "owners.csv"))

    def plan(self, database: Rows | None = None, **options: Any) -> Plan:
        with Directory.open(self.request.source) as source:
            return planning.plan(self.request, source, database, **options)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def told(plan: Plan | Outcome) -> list[tuple[str, str, str]]:
    return [(finding.severity, finding.code, finding.subject) for finding in plan.findings]


def left(plan: Plan) -> list[bytes]:
    return [b"/".join(left.path) for left in plan.left]


def workdir(uid: str, thread: str, *sources: str, threads: Sequence[str] = ()) -> Unit:
    """The unit of a Workdir; each source goes where its last name says, a workspace to the top."""
    name = workdir_id(uid, thread)
    split = [tuple(os.fsencode(source).split(b"/")) for source in sources]
    return Unit(
        f"workdir-{name}",
        "workdir",
        "user-data",
        (b"shared", safe_uid(uid).encode(), b"workspace", b"projects", name.encode()),
        tuple(Part(path, () if path[-1] == b"workspace" else path[-1:]) for path in split),
        uid,
        tuple(threads or (thread,)),
    )


def workspace(uid: str | None, directory: str, *sources: str) -> Unit:
    return Unit(
        f"workspace-{directory}",
        "workspace",
        "user-data",
        (b"shared", directory.encode(), b"workspace"),
        tuple(
            Part((b"threads", b"shared", os.fsencode(source), b"workspace"), ())
            for source in sources
        ),
        uid,
    )


def assigned(uid: str, thread: str) -> Assignment:
    return Assignment(project_id(uid, thread), uid, workdir_path(uid, thread))


# The samples, against their own answers.


def request_of(saves: Saves) -> Request:
    return Request(
        os.fsencode(saves.source),
        os.fsencode(saves.user_data),
        os.fsencode(saves.skill_store),
        os.fsencode(saves.projections),
        os.fsencode(saves.state),
        database=saves.url,
        owners=None if saves.owners_file is None else os.fsencode(saves.owners_file),
        jobs=1,
    )


def planned(saves: Saves) -> Plan:
    request = request_of(saves)
    with Directory.open(request.source) as source:
        if saves.url is None:
            return planning.plan(request, source)
        with connect(saves.url) as database:
            return planning.plan(request, source, database)


def moves(plan: Plan) -> set[tuple[bytes, bytes]]:
    """Directory of the saves → directory beneath the user-data root, of all parts."""
    return {
        (b"/".join(part.source), b"/".join((*unit.target, *part.target)))
        for unit in plan.units
        if unit.root == "user-data"
        for part in unit.parts
    }


def expected_moves(saves: Saves) -> set[tuple[bytes, bytes]]:
    """What the sample says, without what is not there and, in place, what stays."""
    top = os.fsencode(saves.source)
    return {
        (old, new)
        for old, new in saves.parts
        if os.path.isdir(path := os.path.join(top, old))
        and os.path.realpath(path) == path
        and not (saves.in_place and old == b"threads/" + new)
    }


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("kind", [sample.minimal, sample.normal])
def test_the_samples_with_a_database(tmp_path: Path, kind: sample.Sample, in_place: bool) -> None:
    saves = kind(tmp_path, in_place=in_place)
    plan = planned(saves)
    assert moves(plan) == expected_moves(saves)
    assert plan.in_place == in_place
    projects = {thread: project for thread, project in saves.rows.conversations.items() if project}
    assert plan.change is not None
    assert {item.project_id for item in plan.change.assignments.values()} == set(projects.values())
    assert len(plan.change.assignments) == plan.to_assign == len(projects)
    assert plan.waiting == len(saves.rows.conversations) - len(projects)
    assert plan.change.options == sample.KNOWN
    targets = {b"/".join(unit.target) for unit in plan.units if unit.kind == "workdir"}
    assert targets == {path for path in saves.empty if b"/projects/" in path}


@pytest.mark.parametrize("in_place", [False, True])
def test_the_hostile_sample(tmp_path: Path, in_place: bool) -> None:
    saves = sample.hostile(tmp_path, in_place=in_place)
    plan = planned(saves)
    # What the sample says is not migrated since `projects` is taken: the plan has it, and says so.
    taken = {move for move in moves(plan) if move[0].startswith((b"threads/of-",))}
    assert moves(plan) - taken == expected_moves(saves)
    assert [f.subject.split("/")[-3:] for f in plan.findings if f.code == "target_taken"] == [
        ["file", "workspace", "projects"],
        ["link", "workspace", "projects"],
    ]
    assert plan.waiting == 2


@pytest.mark.parametrize("layout", ["yuxi", "thread-local", "deerflow"])
def test_the_samples_without_a_database(tmp_path: Path, layout: Any) -> None:
    saves = sample.of_layout(tmp_path, layout)
    plan = planned(saves)
    assert moves(plan) == expected_moves(saves)
    assert (plan.layout, plan.change) == (layout, None)
    assert told(plan) == [("warning", "thread_without_owner", "threads/unowned")]


# Conversations.


def test_every_conversation_gets_a_workdir_files_or_not(folder: Folder) -> None:
    folder.make("saves/threads/t2/user-data/uploads/", "saves/threads/t2/user-data/workspace/x")
    plan = folder.plan(Rows([conversation(1, "t1", "alice"), conversation(2, "t2", "bob")]))
    top = "threads/t2/user-data"
    assert plan.units == (
        workdir("alice", "t1"),
        workdir("bob", "t2", f"{top}/uploads", f"{top}/workspace"),
    )
    assert plan.change == Change({1: assigned("alice", "t1"), 2: assigned("bob", "t2")}, [], {})
    assert (plan.findings, plan.waiting, plan.to_assign) == ((), 0, 2)


def test_sub_agents_work_in_the_workdir_of_their_root_in_the_order_of_ids(folder: Folder) -> None:
    folder.make(*(f"saves/threads/{name}/user-data/outputs/" for name in ("a", "b", "c", "d")))
    rows = [
        conversation(9, "a", "alice"),
        conversation(5, "b", "alice", 7),
        conversation(7, "c", "alice", 9),
        conversation(8, "d", "alice", 9),
        conversation(6, "no files", "alice", 9),
    ]
    plan = folder.plan(Rows(rows))
    files = [f"threads/{name}/user-data/outputs" for name in ("a", "b", "c", "d")]
    assert plan.units == (workdir("alice", "a", *files, threads=("a", "b", "c", "d")),)
    assert plan.change is not None
    assert plan.change.assignments == dict.fromkeys((9, 5, 6, 7, 8), assigned("alice", "a"))


def test_a_parent_of_another_user_shares_nothing(folder: Folder) -> None:
    folder.make("saves/threads/b/user-data/outputs/")
    plan = folder.plan(Rows([conversation(1, "a", "alice"), conversation(2, "b", "bob", 1)]))
    assert plan.units == (
        workdir("alice", "a"),
        workdir("bob", "b", "threads/b/user-data/outputs"),
    )
    assert told(plan) == [("warning", "parent_not_followed", "b")]


def test_a_circle_waits_and_the_rest_goes_on(folder: Folder) -> None:
    folder.make("saves/threads/y1/user-data/outputs/")
    rows = [
        conversation(1, "t", "alice"),
        conversation(2, "y1", "alice", 3),
        conversation(3, "y2", "alice", 2),
    ]
    plan = folder.plan(Rows(rows))
    assert plan.units == (workdir("alice", "t"),)
    assert told(plan) == [
        ("conflict", "conversation_chain_cycle", "y1"),
        ("conflict", "conversation_chain_cycle", "y2"),
    ]
    assert (left(plan), plan.waiting) == ([b"threads/y1"], 2)


def test_a_conversation_of_nobody_waits_with_its_files_and_the_sub_agents(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/", "saves/threads/s/user-data/uploads/")
    rows = [
        conversation(1, "t", "gone"),
        conversation(2, "s", "gone", 1),
        conversation(3, "u", "alice"),
    ]
    plan = folder.plan(Rows(rows))
    assert plan.units == (workdir("alice", "u"),)
    assert plan.findings == (
        Finding(
            "conversation_without_user",
            "warning",
            "t",
            "no user has the uid gone: it is left, and its files",
            "add the user's row, or delete the conversation, then run again",
        ),
    )
    assert (left(plan), plan.waiting) == ([b"threads/t", b"threads/s"], 2)


def test_a_uid_that_is_none_waits(folder: Folder) -> None:
    plan = folder.plan(Rows([conversation(1, "t", "")], {""}))
    assert (plan.units, plan.waiting) == ((), 1)
    assert told(plan) == [("warning", "conversation_without_user", "t")]


@pytest.mark.parametrize("thread", ["a/b", "shared", "..", ".", "é" * 128, "a\0b"])
def test_an_id_that_no_directory_can_have_costs_the_files_alone(
    folder: Folder, thread: str
) -> None:
    folder.make("saves/threads/shared/alice/workspace/")
    plan = folder.plan(Rows([conversation(1, thread, "alice")]))
    assert plan.units[1:] == (workdir("alice", thread),)
    assert [code for _, code, _ in told(plan)] == ["thread_name_unusable"]


def test_two_pairs_with_one_project_id_are_a_conflict_for_the_second(folder: Folder) -> None:
    rows = [conversation(1, "b:c", "a"), conversation(2, "c", "a:b")]
    plan = folder.plan(Rows(rows, {"a", "a:b"}))
    assert plan.units == (workdir("a", "b:c"),)
    assert (told(plan), plan.waiting) == ([("conflict", "project_id_taken", "c")], 1)


def test_a_conversation_that_has_this_project_already_keeps_its_unit(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/")
    rows = [conversation(1, "t", "alice", None, project_id("alice", "t"))]
    plan = folder.plan(Rows(rows, state="migrated"))
    assert plan.units == (workdir("alice", "t", "threads/t/user-data/uploads"),)
    assert (plan.to_assign, plan.waiting, plan.findings) == (0, 0, ())


def test_a_conversation_of_the_new_version_is_left_alone(folder: Folder) -> None:
    folder.make("saves/threads/old/user-data/uploads/")
    rows = [
        conversation(1, "new", "alice", None, "some project"),
        conversation(2, "old", "alice", None, "another project"),
    ]
    plan = folder.plan(Rows(rows, state="migrated"))
    assert plan.units == ()
    assert told(plan) == [("warning", "conversation_has_project", "old")]
    assert left(plan) == [b"threads/old"]


def test_a_thread_that_cannot_be_read_holds_back_its_family_alone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.make(*(f"saves/threads/{name}/user-data/outputs/" for name in ("a", "b", "c")))
    failing_at(monkeypatch, b"threads", b"b", b"user-data")
    rows = [
        conversation(1, "a", "alice"),
        conversation(2, "b", "alice", 1),
        conversation(3, "c", "alice"),
    ]
    plan = folder.plan(Rows(rows))
    assert plan.units == (workdir("alice", "c", "threads/c/user-data/outputs"),)
    assert told(plan) == [("conflict", "unreadable", "threads/b/user-data")]
    assert (left(plan), plan.waiting) == ([b"threads/b/user-data", b"threads/a"], 2)


def failing_at(monkeypatch: pytest.MonkeyPatch, *where: bytes) -> None:
    """Listing that directory fails as a bad disk does."""
    real = os.scandir
    opened = Directory.open_listing
    bad: set[int] = set()

    def open_listing(self: Directory, path: Any = ()) -> int:
        fd = opened(self, path)
        bad.discard(fd)
        if tuple(path) == where:
            bad.add(fd)
        return fd

    def scandir(fd: Any) -> Any:
        if fd in bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd)

    monkeypatch.setattr(Directory, "open_listing", open_listing)
    monkeypatch.setattr(os, "scandir", scandir)


def test_without_a_database_too_a_thread_that_cannot_be_read_is_not_taken_for_empty(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.make(*(f"saves/threads/{name}/user-data/outputs/" for name in ("a", "b")))
    failing_at(monkeypatch, b"threads", b"a", b"user-data")
    folder.request = replace(folder.request, owner="alice")
    plan = folder.plan()
    assert plan.units == (workdir("alice", "b", "threads/b/user-data/outputs"),)
    assert told(plan) == [("conflict", "unreadable", "threads/a/user-data")]


def test_threads_that_cannot_be_listed_end_the_plan(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.make("saves/threads/t/")
    failing_at(monkeypatch, b"threads")
    with pytest.raises(Retryable, match="cannot look at the old saves: cannot list threads"):
        folder.plan(Rows())


# Threads without a conversation, and owners.


def test_a_thread_without_a_conversation_is_left(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/", "saves/threads/a file")
    plan = folder.plan(Rows())
    assert plan.units == ()
    assert told(plan) == [
        ("warning", "thread_not_a_directory", "threads/a file"),
        ("warning", "thread_without_conversation", "threads/t"),
    ]
    assert left(plan) == [b"threads/a file", b"threads/t"]


def test_a_thread_without_a_conversation_goes_to_the_owner_that_is_named(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/", "saves/threads/u/", "saves/threads/v/")
    folder.owners("t,carol\nv,carol\n")
    plan = folder.plan(Rows([conversation(1, "v", "alice")]))
    assert plan.units == (
        workdir("alice", "v"),
        workdir("carol", "t", "threads/t/user-data/uploads"),
    )
    assert plan.change is not None
    assert plan.change.assignments == {1: assigned("alice", "v")}
    assert told(plan) == [
        ("warning", "thread_without_conversation", "threads/u"),
        ("warning", "owner_not_heeded", "v"),
    ]


def test_owners_of_threads_that_are_not_there_are_told_of(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/")
    folder.owners("t,alice\nT,alice\n")
    plan = folder.plan()
    assert plan.units == (workdir("alice", "t", "threads/t/user-data/uploads"),)
    assert told(plan) == [("warning", "owner_of_no_thread", "T")]


def test_one_owner_has_all_threads_and_a_name_that_is_not_utf_8_is_exact(folder: Folder) -> None:
    folder.make(b"saves/threads/\xff/user-data/uploads/")
    folder.request = replace(folder.request, owner="a.b")
    [unit] = folder.plan().units
    name = hashlib.md5(b"a.b:\xff").hexdigest()
    assert unit.key.replace("-", "") == f"workdir{name}"
    assert unit.parts == (Part((b"threads", b"\xff", b"user-data", b"uploads"), (b"uploads",)),)
    assert unit.target[1] == safe_uid("a.b").encode()


def test_two_directories_of_one_thread_are_one_workdir_the_users_own_last(folder: Folder) -> None:
    folder.make(
        "saves/users/alice/threads/t/user-data/uploads/",
        "saves/users/bob/threads/t/user-data/uploads/",
        "saves/threads/t/user-data/uploads/",
    )
    folder.owners("t,alice\n")
    old, new = "threads/t/user-data/uploads", "users/alice/threads/t/user-data/uploads"
    assert folder.plan().units == (
        workdir("alice", "t", old, new),
        workdir("bob", "t", "users/bob/threads/t/user-data/uploads"),
    )


# Workspaces.

HASHED = safe_uid("a.b")
"""A directory name; also a uid that somebody could have registered."""


@pytest.mark.parametrize(
    ("uids", "directories", "expected"),
    [
        (["alice"], ["alice"], [workspace("alice", "alice", "alice")]),
        (["a.b"], ["a.b"], [workspace("a.b", HASHED, "a.b")]),
        (["a.b"], [HASHED], [workspace("a.b", HASHED, HASHED)]),
        (["a.b"], [HASHED, "a.b"], [workspace("a.b", HASHED, "a.b", HASHED)]),
        (
            ["z.z"],
            ["z.z", safe_uid("z.z")],
            [workspace("z.z", safe_uid("z.z"), "z.z", safe_uid("z.z"))],
        ),
        ([HASHED], [HASHED], [workspace(HASHED, safe_uid(HASHED), HASHED)]),
        ([HASHED], [safe_uid(HASHED)], [workspace(HASHED, safe_uid(HASHED), safe_uid(HASHED))]),
        (["é x"], ["é x"], [workspace("é x", safe_uid("é x"), "é x")]),
    ],
)
def test_a_workspace_goes_to_the_safe_name_of_its_user(
    folder: Folder, uids: list[str], directories: list[str], expected: list[Unit]
) -> None:
    folder.make(*(f"saves/threads/shared/{name}/workspace/" for name in directories))
    plan = folder.plan(Rows(uids=set(uids)))
    assert (plan.units, plan.kept, plan.findings) == (tuple(expected), (), ())


def test_a_directory_that_two_users_claim_is_that_of_the_hashed_one(folder: Folder) -> None:
    folder.make(f"saves/threads/shared/{HASHED}/workspace/")
    plan = folder.plan(Rows(uids={"a.b", HASHED}))
    assert plan.units == (workspace("a.b", HASHED, HASHED),)
    assert told(plan) == [("warning", "directory_shared_by_two", HASHED)]


def test_the_users_of_conversations_count_as_known(folder: Folder) -> None:
    folder.make("saves/threads/shared/a.b/workspace/")
    plan = folder.plan(Rows([conversation(1, "t", "a.b")], set()))
    assert plan.units == (workspace("a.b", HASHED, "a.b"),)
    assert told(plan) == [("warning", "conversation_without_user", "t")]


def test_a_workspace_of_nobody_keeps_a_name_that_a_user_can_have(folder: Folder) -> None:
    names = ("gone", HASHED, "not plain")
    folder.make(*(f"saves/threads/shared/{name}/workspace/" for name in names))
    plan = folder.plan(Rows())
    assert plan.units == (workspace("gone", "gone", "gone"), workspace(None, HASHED, HASHED))
    assert told(plan) == [
        ("warning", "workspace_of_nobody", "threads/shared/gone/workspace"),
        ("warning", "workspace_name_unusable", "threads/shared/not plain/workspace"),
        ("warning", "workspace_of_nobody", f"threads/shared/{HASHED}/workspace"),
    ]
    assert left(plan) == [b"threads/shared/not plain/workspace"]


def test_without_a_database_the_name_of_a_workspace_is_the_user(folder: Folder) -> None:
    names = (b"alice", b"a.b", HASHED.encode(), b"\xff")
    folder.make(*(b"saves/threads/shared/%s/workspace/" % name for name in names))
    plan = folder.plan()
    assert plan.units == (
        workspace(None, HASHED, "a.b", HASHED),
        workspace("alice", "alice", "alice"),
    )
    assert told(plan) == [("warning", "workspace_name_unusable", "threads/shared/\\xff/workspace")]


def test_in_place_a_workspace_stays_unless_its_name_is_another(folder: Folder) -> None:
    folder.in_place()
    folder.make(
        "saves/threads/shared/alice/workspace/",
        "saves/threads/shared/a.b/workspace/",
        "saves/threads/.v072-runtime-identity",
    )
    plan = folder.plan(Rows(uids={"alice", "a.b"}))
    assert plan.in_place
    assert plan.units == (workspace("a.b", HASHED, "a.b"),)
    assert plan.kept == ((b"shared", b"alice", b"workspace"),)
    assert plan.findings == ()


def test_in_place_an_older_name_of_a_live_workspace_is_in_the_way(folder: Folder) -> None:
    folder.in_place()
    folder.make(
        f"saves/threads/shared/{HASHED}/workspace/live", "saves/threads/shared/a.b/workspace/old"
    )
    plan = folder.plan(Rows(uids={"a.b"}))
    assert plan.units == (workspace("a.b", HASHED, "a.b"),)
    assert plan.kept == ((b"shared", HASHED.encode(), b"workspace"),)
    assert told(plan) == [("conflict", "target_taken", f"user-data/shared/{HASHED}/workspace")]


@pytest.mark.parametrize("where", ["alice", "alice/workspace"])
def test_a_workspace_out_of_reach_holds_back_its_user_alone(folder: Folder, where: str) -> None:
    folder.make(
        "saves/threads/shared/alice/",
        "saves/threads/shared/stray",
        "saves/threads/t/user-data/uploads/",
    )
    path = folder.saves / "threads" / "shared" / where
    if path.is_dir():
        path.rmdir()
    path.symlink_to(folder.top)
    rows = [
        conversation(1, "t", "alice"),
        conversation(2, "s", "alice"),
        conversation(3, "u", "bob"),
    ]
    plan = folder.plan(Rows(rows))
    assert plan.units == (workdir("bob", "u"),)
    assert told(plan)[-1] == ("conflict", "workspace_out_of_reach", "alice")
    assert plan.findings[-1].message == (
        "the user's old workspace cannot be taken over, so 2 Workdirs wait for it"
    )
    assert (plan.waiting, b"threads/t" in left(plan)) == (2, True)


def test_without_the_folder_of_users_everybody_waits(folder: Folder) -> None:
    folder.make("saves/threads/shared", "saves/threads/t/user-data/uploads/")
    plan = folder.plan(Rows([conversation(1, "t", "alice"), conversation(2, "u", "bob")]))
    assert (plan.units, plan.waiting) == ((), 2)
    assert told(plan) == [
        ("conflict", "users_not_a_directory", "threads/shared"),
        ("conflict", "workspace_out_of_reach", "alice"),
        ("conflict", "workspace_out_of_reach", "bob"),
    ]


@pytest.mark.parametrize("known", [["a.b"], ["a.b", HASHED], ["x" * 300, "", "\ud800"]])
def test_claims_of_a_name(known: list[str]) -> None:
    claims = Claims(known)
    owner = "a.b" if "a.b" in known else None
    assert claims.owner(HASHED.encode()) == owner
    assert claims.rival(HASHED.encode()) == (HASHED if HASHED in known else None)
    assert claims.owner(b"nobody") is claims.rival(b"nobody") is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"alice", b"alice"),
        (HASHED.encode(), HASHED.encode()),
        (b"a.b", HASHED.encode()),
        (b"\xff", None),
    ],
)
def test_the_directory_of_whom_nothing_is_known(name: bytes, expected: bytes | None) -> None:
    assert own_name(name) == expected


# Skills.


def test_skills_and_their_rows(folder: Folder) -> None:
    folder.make("saves/skills/chart/", "saves/skills/no-row/", "saves/skills/done/")
    rows = [
        SkillRow("chart", "builtin", "skills/chart"),
        SkillRow("gone", "upload", "skills/gone"),
        SkillRow("done", "upload", "shared/done"),
        SkillRow("odd", "remote", "/srv/odd\n"),
        SkillRow("No Slug", "remote", "skills/No Slug"),
    ]
    plan = folder.plan(Rows(skill_rows=rows))
    assert plan.units == tuple(
        Unit(
            f"skill-{slug}",
            "skill",
            "skill-store",
            (b"shared", slug.encode()),
            (Part((b"skills", slug.encode()), ()),),
        )
        for slug in ("chart", "done", "no-row")
    )
    assert plan.change is not None
    assert plan.change.skills == ["chart", "gone"]
    assert told(plan) == [
        ("warning", "skill_without_files", "gone"),
        ("warning", "skill_row_unusual", "odd"),
        ("warning", "skill_row_unusual", "No Slug"),
        ("note", "skill_without_row", "no-row"),
    ]


def test_the_skill_store_may_be_the_old_folder_of_skills(folder: Folder) -> None:
    folder.make(
        "saves/skills/chart/", "saves/skills/shared/", "saves/skills/.legacy-migration-complete"
    )
    folder.request = replace(folder.request, skill_store=os.fsencode(folder.saves / "skills"))
    plan = folder.plan(Rows(skill_rows=[SkillRow("chart", "builtin", "skills/chart")]))
    assert ([unit.key for unit in plan.units], plan.findings) == (["skill-chart"], ())


# Settings.


def test_settings_go_to_the_database_or_stay_in_the_report(folder: Folder) -> None:
    folder.make("saves/config/base.toml")
    (folder.saves / "config/base.toml").write_text("fast_model = 'x'\n")
    plan = folder.plan(Rows())
    assert plan.change is not None
    assert (plan.change.options, plan.findings) == ({"fast_model": "x"}, ())
    plan = folder.plan()
    assert told(plan) == [("warning", "settings_without_database", "config/base.toml")]
    assert plan.settings.known == {"fast_model": "x"}


# What is in the way.


def test_what_stands_at_a_target_is_told_unless_an_earlier_run_put_it_there(
    folder: Folder,
) -> None:
    folder.make("saves/threads/shared/alice/workspace/", "saves/skills/chart/")
    rows = [conversation(number, f"t{number}", "alice") for number in range(4)]
    targets = [b"/".join(workdir("alice", f"t{number}").target) for number in range(4)]
    root = b"new/user-data/"
    folder.make(
        root + targets[0] + b"/x",
        root + targets[1],
        root + targets[2] + b"/",
        "new/skill-store/shared",
    )
    plan = folder.plan(Rows(rows))
    place = "user-data/shared/alice/workspace"
    expected = [
        ("conflict", "target_taken", place),
        ("conflict", "target_taken", f"user-data/{targets[0].decode()}"),
        ("conflict", "target_taken", f"user-data/{targets[1].decode()}"),
        ("conflict", "target_taken", "skill-store/shared"),
    ]
    assert [item for item in told(plan) if item[0] == "conflict"] == expected
    keys = {unit.key for unit in plan.units}
    assert len(keys) == 6
    done = {"workspace-alice", "skill-chart", workdir("alice", "t0").key}
    plan = folder.plan(Rows(rows), done=done)
    assert [item for item in told(plan) if item[0] == "conflict"] == expected[2:3]


@pytest.mark.parametrize("depth", range(4))
def test_what_is_no_directory_on_the_way_to_targets_is_one_conflict(
    folder: Folder, depth: int
) -> None:
    way = ["shared", "alice", "workspace", "projects"][: depth + 1]
    folder.make("/".join(("new/user-data", *way)))
    plan = folder.plan(Rows([conversation(1, "t1", "alice"), conversation(2, "t2", "alice")]))
    assert plan.findings == (
        Finding(
            "target_taken",
            "conflict",
            "/".join(("user-data", *way)),
            "a file stands where a directory belongs, that of 2 to be taken over",
            "move it away, then run again",
        ),
    )
    assert len(plan.units) == 2


def test_workdirs_that_an_old_workspace_brings_along_are_in_the_way(folder: Folder) -> None:
    name = workdir_id("alice", "t1")
    folder.make(f"saves/threads/shared/alice/workspace/projects/{name}/x")
    plan = folder.plan(Rows([conversation(1, "t1", "alice"), conversation(2, "t2", "alice")]))
    assert told(plan) == [
        ("conflict", "target_taken", f"threads/shared/alice/workspace/projects/{name}")
    ]
    # Once the workspace has its place it is looked at there.
    assert (
        folder.plan(Rows([conversation(1, "t1", "alice")]), done={"workspace-alice"}).findings == ()
    )


@pytest.mark.parametrize(
    ("root", "where"),
    [
        ("user_data", "threads/new"),
        ("user_data", ""),
        ("skill_store", "skills/store"),
        ("skill_projections", "threads/t/user-data"),
        ("skill_projections", "../alias/threads/t"),
        ("state", "threads/state"),
    ],
)
def test_a_root_within_what_is_taken_over_is_refused(folder: Folder, root: str, where: str) -> None:
    (folder.top / "alias").symlink_to(folder.saves)
    folder.request = replace(folder.request, **{root: os.fsencode(folder.saves / where)})
    with pytest.raises(Precondition, match="is in what is taken over"):
        folder.plan(Rows())


def test_only_yuxi_is_migrated_in_place(folder: Folder) -> None:
    folder.in_place()
    folder.make("saves/threads/t/user-data/uploads/")
    with pytest.raises(Precondition, match="which the layout thread-local cannot have"):
        folder.plan()


def test_what_belongs_to_the_migration_is_no_part_of_the_saves(folder: Folder) -> None:
    folder.make("saves/.state/", "saves/new/user-data/", "saves/threads/shared/")
    folder.request = replace(
        folder.request,
        state=os.fsencode(folder.saves / ".state"),
        user_data=os.fsencode(folder.saves / "new"),
    )
    assert folder.plan(Rows()).findings == ()


@pytest.mark.parametrize("state", ["unreleased", "unknown"])
def test_a_schema_that_is_not_known_is_refused_with_its_names(folder: Folder, state: str) -> None:
    with pytest.raises(Precondition) as refused:
        folder.plan(Rows(state=state, names=("table project_workdirs is in the way",)))
    assert refused.value.message == (
        f"the database has a schema that is {state}: table project_workdirs is in the way"
    )


def test_a_database_without_a_layout_for_it_is_refused(folder: Folder) -> None:
    folder.make("saves/users/u/threads/")
    with pytest.raises(Usage):
        folder.plan(Rows())


# Room and time.


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder on another file system."""
    path = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield path
    shutil.rmtree(path)


def test_on_one_file_system_files_are_linked_and_take_no_room(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/")
    (folder.saves / "threads/t/user-data/uploads/big").write_bytes(b"x" * (1 << 20))
    plan = folder.plan(rows := Rows([conversation(1, "t", "alice")]))
    assert plan.methods == {"user-data": "link", "skill-store": "link"}
    with Directory.open(folder.request.source) as source:
        measure = planning.measure(plan, folder.request, source)
        [space] = measure.spaces
        copied = replace(folder.request, transfer="copy")
        copies = planning.measure(planning.plan(copied, source, rows), copied, source)  # type: ignore[arg-type]
    assert (measure.totals.all.files, measure.totals.all.bytes) == (1, 1 << 20)
    assert measure.need < 1 << 16
    assert space.suffices
    assert copies.need > 1 << 20
    assert copies.seconds > measure.seconds > 0


def test_on_another_file_system_files_are_copied_and_each_is_measured(
    folder: Folder, elsewhere: Path
) -> None:
    folder.make("saves/threads/t/user-data/uploads/")
    file = folder.saves / "threads/t/user-data/uploads/big"
    file.write_bytes(b"x" * (1 << 20))
    os.link(file, file.with_name("twin"))
    with open(file.with_name("hole"), "wb") as hole:
        hole.truncate(1 << 34)
    folder.request = replace(
        folder.request,
        user_data=os.fsencode(elsewhere / "user-data"),
        skill_store=os.fsencode(elsewhere / "skill-store"),
    )
    plan = folder.plan(Rows([conversation(1, "t", "alice")]))
    assert plan.methods == {"user-data": "copy", "skill-store": "copy"}
    with Directory.open(folder.request.source) as source:
        measure = planning.measure(plan, folder.request, source)
    state, target = measure.spaces
    room = os.statvfs(elsewhere)
    assert target.path == str(elsewhere / "user-data")
    # The twin and the hole take nothing.
    assert 1 << 20 <= target.need < (1 << 20) + (1 << 16)
    assert target.free <= room.f_blocks * room.f_frsize
    assert (target.inodes, state.inodes) == (5, 1)
    assert measure.totals.all.bytes == (1 << 20) + (1 << 34)


def test_no_room_is_a_warning(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.statvfs

    def full(path: Any) -> os.statvfs_result:
        return os.statvfs_result((*real(path)[:4], 0, *real(path)[5:]))

    folder.make("saves/threads/t/user-data/uploads/")
    folder.request = replace(folder.request, owner="alice")
    monkeypatch.setattr(os, "statvfs", full)
    outcome = planning.plan_verb(folder.request)
    assert told(outcome) == [("warning", "no_space", str(folder.top / "state"))]
    assert "0 B" in outcome.findings[0].message


@pytest.mark.parametrize("jobs", [1, 2])
def test_files_are_counted_by_kind(tmp_path: Path, jobs: int) -> None:
    saves = sample.hostile(tmp_path)
    request = replace(request_of(saves), jobs=jobs)
    plan = planned(saves)
    with Directory.open(request.source) as source:
        measure = planning.measure(plan, request, source)
    counted = {kind: count.files for kind, count in measure.totals.kinds.items()}
    expected = dict.fromkeys(("workspace", "workdir", "skill"), 0)
    for unit in plan.units:
        for part in unit.parts:
            tree = snapshot(os.path.join(request.source, *part.source))
            expected[unit.kind] += sum(node.kind == "file" for node in tree.values())
    assert counted == expected
    assert measure.totals.all.special == 1
    assert [finding.code for finding in measure.findings] == ["special_file_left"]


# The verb.


def tree_of(saves: Saves) -> object:
    return snapshot(saves.folder)


@pytest.mark.parametrize("in_place", [False, True])
def test_plan_writes_nothing_and_says_that_changes_are_pending(
    tmp_path: Path, in_place: bool
) -> None:
    saves = sample.minimal(tmp_path, in_place=in_place)
    before = tree_of(saves)
    outcome = planning.plan_verb(request_of(saves), with_units=True)
    assert tree_of(saves) == before
    assert (outcome.state, outcome.details["pending"], outcome.exit_status) == ("planned", True, 0)
    assert outcome.numbers["conversations"] == 1
    units = {unit["key"] for unit in outcome.details["units"]}
    assert ("workspace-alice" in units) == (not in_place)
    assert outcome.details["unknown_settings"] == {"unknown_key": 1}


def test_a_plan_without_anything_odd_exits_with_0(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/x")
    outcome = planning.plan_verb(replace(folder.request, owner="alice"))
    assert (outcome.exit_status, outcome.details["pending"]) == (0, True)
    assert outcome.summary == "to take over: 1 Workdir; 1 file, 0 B, by link, in about 1 s"
    assert "units" not in outcome.details


def test_names_in_the_answer_are_printable(folder: Folder) -> None:
    folder.make(b"saves/threads/\xff\n/user-data/uploads/")
    outcome = planning.plan_verb(replace(folder.request, owner="a\nb"), with_units=True)
    [unit] = outcome.details["units"]
    assert unit["sources"] == ["threads/\\xff\\x0a/user-data/uploads"]
    assert (unit["uid"], unit["threads"]) == ("a\\x0ab", ["\\xff\\x0a"])


def journaled(folder: Folder, *records: dict[str, Any]) -> None:
    """A journal of these steps."""
    os.makedirs(folder.request.state)
    with Directory.open(folder.request.state) as state, Journal.open(state) as journal:
        journal.begin(
            run="r",
            time=0.0,
            layout="thread-local",
            method="link",
            database=None,
            places=places(folder.request),
        )
        for record in records:
            journal.record(**record)


BEGUN = [
    {
        "kind": "begin",
        "format": FORMAT,
        "run": "r",
        "time": 0.0,
        "program": "p",
        "layout": "yuxi",
        "method": "link",
        "database": None,
        "places": {},
    }
]
DONE = [
    {"kind": "phase", "name": part, "state": "done"}
    for part in ("stage", "verify", "publish", "database", "ownership", "markers")
]


def test_after_a_complete_run_nothing_is_pending(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/")
    folder.request = replace(folder.request, owner="alice")
    unit = workdir("alice", "t")
    folder.make(b"new/user-data/" + b"/".join(unit.target) + b"/uploads/")
    journaled(folder, {"kind": "unit", "key": unit.key, "step": "published"}, *DONE)
    outcome = planning.plan_verb(folder.request)
    assert (outcome.state, outcome.details["pending"]) == ("done", False)
    assert (outcome.findings, outcome.exit_status, outcome.next) == ([], 0, None)
    folder.make("saves/threads/new/user-data/uploads/")
    assert planning.plan_verb(folder.request).details["pending"]


def test_an_interrupted_run_is_pending(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/")
    folder.request = replace(folder.request, owner="alice")
    journaled(folder, {"kind": "unit", "key": workdir("alice", "t").key, "step": "published"})
    outcome = planning.plan_verb(folder.request)
    assert (outcome.details["pending"], outcome.next) == (
        True,
        "migrator run, which goes on where it was",
    )


def test_a_run_that_was_rolled_back_counts_for_nothing(folder: Folder) -> None:
    folder.make("saves/threads/t/user-data/uploads/")
    folder.request = replace(folder.request, owner="alice")
    unit = workdir("alice", "t")
    rolled_back = [{"kind": "rollback", "step": step} for step in ("begun", "done")]
    journaled(folder, {"kind": "unit", "key": unit.key, "step": "published"}, *DONE, *rolled_back)
    outcome = planning.plan_verb(folder.request)
    assert (outcome.state, outcome.details["pending"]) == ("planned", True)


def test_when_the_old_saves_are_removed_there_is_nothing_to_do(folder: Folder) -> None:
    finalized = [{"kind": "finalize", "step": step} for step in ("begun", "done")]
    journaled(folder, *DONE, *finalized)
    outcome = planning.plan_verb(folder.request)
    assert (outcome.state, outcome.details, outcome.exit_status) == (
        "finalized",
        {"pending": False},
        0,
    )


def test_a_source_that_is_not_there_is_refused(folder: Folder) -> None:
    missing = replace(folder.request, source=os.fsencode(folder.top / "missing"))
    with pytest.raises(Precondition, match="is not there"):
        planning.plan_verb(missing)


def test_a_plan_of_many_threads_opens_few_directories(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two listings a thread, and one look for each target: so many thousands take seconds."""
    count = 500
    folder.make(*(f"saves/threads/t{number}/user-data/uploads/" for number in range(count)))
    calls = []
    opened = Directory.open_listing

    def counting(self: Directory, path: Any = ()) -> int:
        calls.append(path)
        return opened(self, path)

    monkeypatch.setattr(Directory, "open_listing", counting)
    rows = [conversation(number, f"t{number}", "alice") for number in range(count)]
    assert len(folder.plan(Rows(rows)).units) == count
    assert len(calls) < 2 * count + 20


@pytest.mark.parametrize(
    ("rows", "state", "pending"),
    [
        ([conversation(1, "t", "alice", None, project_id("alice", "t"))], "migrated", False),
        ([conversation(1, "t", "alice", None, project_id("alice", "t"))], "partly", True),
        ([conversation(1, "t", "alice")], "partly", True),
        ([conversation(1, "t", "nobody")], "partly", False),
        ([conversation(1, "t", "alice"), conversation(2, "u", "nobody")], "partly", True),
        ([conversation(1, "new", "alice", None, "of the new version")], "migrated", False),
    ],
)
def test_after_a_complete_run_the_database_tells_what_is_pending(
    folder: Folder, rows: Sequence[Conversation], state: str, pending: bool
) -> None:
    done = fold(
        [*BEGUN, {"kind": "unit", "key": workdir("alice", "t").key, "step": "adopted"}, *DONE]
    )
    assert is_pending(folder.plan(Rows(rows, state=state)), done) == pending
