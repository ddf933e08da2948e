"""Storages, workspaces, Workdirs and scopes: who owns what is made, and what is refused."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.vfs.steps import as_user, before_each_step
from vfs import linux
from vfs.errors import (
    AlreadyExists,
    Changed,
    InvalidName,
    InvalidPath,
    IsADirectory,
    LinkRefused,
    NotADirectory,
    NotEmpty,
    NotFound,
    PermissionDenied,
    SpecialFileRefused,
    TooLarge,
    VfsError,
)
from vfs.naming import safe_uid
from vfs.saving import etag
from vfs.walking import Limits
from vfs.workspace import (
    OWNER,
    Scope,
    Storage,
    Workspace,
    owner_for_process,
)

UUID = "123e4567-e89b-42d3-a456-426614174000"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Where the storage is, or is to be."""
    return tmp_path / "storage"


@pytest.fixture
def storage(top: Path) -> Iterator[Storage]:
    with Storage.create(top) as made:
        yield made


@pytest.fixture
def workspace(storage: Storage) -> Iterator[Workspace]:
    with storage.add_user("alice") as made:
        yield made


@pytest.fixture
def home(workspace: Workspace, top: Path) -> Path:
    """The host path of alice's workspace."""
    return top / "user-data/shared/alice/workspace"


@pytest.fixture
def scope(workspace: Workspace) -> Iterator[Scope]:
    with workspace.scope() as made:
        yield made


def tree(top: Path) -> dict[str, tuple[str, int, int]]:
    """Everything beneath a folder, itself included: mode and owner by path."""
    found = {}
    for path in [top, *top.rglob("*")]:
        status = path.lstat()
        name = str(path.relative_to(top))
        found[name] = (stat.filemode(status.st_mode), status.st_uid, status.st_gid)
    return found


def directories(*paths: str, owner: tuple[int, int] = OWNER) -> dict[str, tuple[str, int, int]]:
    return {path: ("drwx------", *owner) for path in paths}


ROOTS = (".", "user-data", "user-data/shared", "skill-projections")
STORE = ("skill-store", "skill-store/shared")
ALICE = (
    "user-data/shared/alice",
    "user-data/shared/alice/workspace",
    "skill-projections/alice",
)


# A storage.


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_a_new_storage_belongs_to_1000_whatever_the_umask(top: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with Storage.create(top) as storage, storage.add_user("alice") as workspace:
            workspace.workdir(f"projects/{UUID}").close()
            with workspace.scope() as scope:
                scope.make_directory("/a/b", parents=True)
                scope.make_directory("/c")
                scope.save("/a/file", b"")
    finally:
        os.umask(before)
    work = "user-data/shared/alice/workspace"
    assert tree(top) == {
        **directories(*ROOTS, *STORE, *ALICE),
        **directories(f"{work}/projects", f"{work}/projects/{UUID}"),
        **directories(f"{work}/a", f"{work}/a/b", f"{work}/c"),
        f"{work}/a/file": ("-rw-------", *OWNER),
    }


def test_what_a_plain_user_makes_is_theirs(tmp_path: Path, top: Path) -> None:
    os.chown(tmp_path, 1234, 1234)
    for above in tmp_path.parents[:2]:
        above.chmod(0o755)

    def make() -> None:
        with Storage.create(top) as storage, storage.add_user("alice") as workspace:
            assert owner_for_process() is None
            with workspace.scope(f"projects/{UUID}") as scope:
                scope.save("/file", b"")

    assert as_user(make, uid=1234) == 0
    work = f"user-data/shared/alice/workspace/projects/{UUID}"
    expected = directories(*ROOTS, *STORE, *ALICE, str(Path(work).parent), work, owner=(1234, 1234))
    assert tree(top) == {**expected, f"{work}/file": ("-rw-------", 1234, 1234)}


def test_at_no_step_is_anything_open_to_somebody_else(
    tmp_path: Path, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's own and closed to others, or its owner's: nothing else, at any time."""
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        for path in tmp_path.rglob("*"):
            status = path.lstat()
            assert (status.st_uid, status.st_gid) in (OWNER, (0, 0))
            assert status.st_mode & 0o077 == 0

    before = os.umask(0)
    try:
        with monkeypatch.context() as patch:
            before_each_step(look, patch.setattr)
            with (
                Storage.create(top) as storage,
                storage.add_user("alice") as workspace,
                workspace.scope(f"projects/{UUID}") as scope,
            ):
                scope.save("/file", b"content")
                scope.save("/file", b"changed")
                scope.make_directory("/made")
    finally:
        os.umask(before)
    assert looks > 100
    assert {owner[1:] for owner in tree(top).values()} == {OWNER}


def test_create_leaves_what_is_there_as_it_is(top: Path) -> None:
    with Storage.create(top) as storage:
        storage.add_user("alice").close()
    (top / "user-data").chmod(0o750)
    os.chown(top / "skill-store", 7, 7)
    (top / "note").write_text("kept")
    before = tree(top)
    with Storage.create(top) as storage:
        assert storage.users() == ["alice"]
    assert tree(top) == before


def test_create_completes_what_is_missing(top: Path) -> None:
    Storage.create(top).close()
    (top / "skill-projections").rmdir()
    (top / "user-data/shared").rmdir()
    Storage.create(top).close()
    assert tree(top) == directories(*ROOTS, *STORE)


def at_once(action: Callable[[], object], times: int = 4) -> list[str]:
    """Runs `action` in as many threads, which begin together; what came of each, sorted."""
    barrier = threading.Barrier(times)
    outcomes: list[str] = []

    def run() -> None:
        barrier.wait()
        try:
            action()
        except VfsError as exc:
            outcomes.append(exc.kind)
        else:
            outcomes.append("done")

    threads = [threading.Thread(target=run) for _ in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(outcomes)


def test_many_that_create_and_fill_at_once_have_one_storage(tmp_path: Path) -> None:
    for number in range(20):
        top = tmp_path / str(number)

        def create(top: Path = top) -> None:
            with Storage.create(top) as storage, suppress(AlreadyExists):
                storage.add_user("alice").close()

        assert at_once(create) == ["done"] * 4
        assert tree(top) == directories(*ROOTS, *STORE, *ALICE)


def test_many_that_make_and_fill_one_directory_at_once_share_it(
    workspace: Workspace, scope: Scope, home: Path
) -> None:
    for number in range(20):

        def fill(path: str = f"/{number}/a/b/c") -> None:
            scope.make_directory(path, parents=True)
            scope.save(f"{path}/{threading.get_ident()}", b"")

        def work(text: str = f"projects/{UUID[:-2]}{number:02}") -> None:
            with workspace.scope(text) as below:
                below.save(f"/{threading.get_ident()}", b"")

        assert at_once(fill) == at_once(work) == ["done"] * 4
    owners = {entry[1:] for entry in tree(home).values()}
    modes = {entry[0] for entry in tree(home).values()}
    assert (owners, modes) == ({OWNER}, {"drwx------", "-rw-------"})


@pytest.mark.parametrize("spelling", ["{}", "{}/", "{}//", "{}/.", "{}/./"])
def test_a_storage_is_made_and_opened_however_its_folder_is_written(
    top: Path, spelling: str
) -> None:
    path = spelling.format(top)
    Storage.create(path).close()
    Storage.open(path.encode()).close()
    assert tree(top) == directories(*ROOTS, *STORE)


def test_a_folder_is_made_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Storage.create("storage").close()
    Storage.create(".").close()
    assert sorted(os.listdir(tmp_path)) == sorted(
        ["storage", "user-data", "skill-projections", "skill-store"]
    )


def test_each_root_can_be_somewhere_else(tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("one", "two", "three")}
    roots = {
        "user_data": places["one"],
        "skill_projections": places["two"],
        "skill_store": places["three"],
    }
    with Storage.create(**roots) as storage:
        storage.add_user("alice").close()
    with Storage.open(tmp_path / "not there", **roots) as storage:
        assert storage.users() == ["alice"]
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "one",
        "one/shared",
        "one/shared/alice",
        "one/shared/alice/workspace",
        "three",
        "three/shared",
        "two",
        "two/alice",
    ]


def test_one_root_named_apart_leaves_the_others_in_the_folder(tmp_path: Path, top: Path) -> None:
    Storage.create(top, skill_store=tmp_path / "store").close()
    with Storage.open(top, skill_store=tmp_path / "store") as storage:
        assert storage.skill_store.names() == [b"shared"]
    assert tree(top) == directories(*ROOTS)


def test_a_root_may_be_a_file_system_of_its_own(top: Path) -> None:
    Storage.create(top).close()
    subprocess.run(["mount", "-t", "tmpfs", "none", top / "user-data"], check=True)
    try:
        with Storage.create(top) as storage, storage.add_user("alice") as workspace:
            assert workspace.directory.names() == []
    finally:
        subprocess.run(["umount", top / "user-data"], check=True)


def no_storage(top: Path) -> None:
    pass


def a_file(top: Path) -> None:
    top.write_text("")


def a_link(top: Path) -> None:
    Storage.create(top.parent / "real").close()
    top.symlink_to("real")


def a_dangling_link(top: Path) -> None:
    top.symlink_to("nowhere")


def no_root(top: Path) -> None:
    Storage.create(top).close()
    (top / "skill-projections").rmdir()


def a_root_that_is_a_link(top: Path) -> None:
    Storage.create(top).close()
    (top / "user-data").rename(top / "elsewhere")
    (top / "user-data").symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("prepare", "error", "message"),
    [
        (
            no_storage,
            NotFound,
            "the storage is not there; make it with `vfs init`, or name another folder",
        ),
        (a_file, NotADirectory, "the storage is not a directory; name a directory"),
        (a_link, LinkRefused, "the storage is a symbolic link; name the real directory"),
        (a_dangling_link, LinkRefused, "the storage is a symbolic link; name the real directory"),
        (
            no_root,
            NotFound,
            "skill-projections is not there; make it with `vfs init`, or name another folder",
        ),
        (
            a_root_that_is_a_link,
            LinkRefused,
            "user-data is a symbolic link; name the real directory",
        ),
    ],
)
def test_what_is_no_storage_is_not_opened(
    top: Path, prepare: Callable[[Path], None], error: type[VfsError], message: str
) -> None:
    prepare(top)
    before = tree(top.parent)
    descriptors = os.listdir("/proc/self/fd")
    for spelling in (top, f"{top}/"):
        with pytest.raises(error) as caught:
            Storage.open(spelling)
        assert str(caught.value) == message
    assert tree(top.parent) == before
    assert os.listdir("/proc/self/fd") == descriptors


@pytest.mark.parametrize(
    ("prepare", "error"),
    [
        (a_file, NotADirectory),
        (a_link, LinkRefused),
        (a_dangling_link, LinkRefused),
        (a_root_that_is_a_link, LinkRefused),
    ],
)
def test_what_is_no_storage_is_not_made_into_one(
    top: Path, prepare: Callable[[Path], None], error: type[VfsError]
) -> None:
    prepare(top)
    before = tree(top.parent)
    with pytest.raises(error):
        Storage.create(top)
    assert tree(top.parent) == before


def test_the_folders_above_are_not_made(top: Path) -> None:
    with pytest.raises(NotFound) as caught:
        Storage.create(top / "below")
    assert str(caught.value) == (
        "the folder in which the storage should be made is not there; make it first"
    )
    assert not top.exists()


def test_nothing_is_made_when_one_root_cannot_be(tmp_path: Path, top: Path) -> None:
    with pytest.raises(NotFound) as caught:
        Storage.create(top, skill_store=tmp_path / "missing/store")
    assert str(caught.value) == (
        "the folder in which skill-store should be made is not there; make it first"
    )
    assert os.listdir(tmp_path) == []
    top.mkdir()
    (top / "skill-store").write_text("")
    with pytest.raises(NotADirectory):
        Storage.create(top)
    assert os.listdir(top) == ["skill-store"]
    Storage.create(top, skill_store=tmp_path / "store").close()
    assert sorted(os.listdir(top)) == ["skill-projections", "skill-store", "user-data"]


@pytest.mark.parametrize("bad", ["", "a\0b", "a" * 256])
def test_a_host_path_that_is_none_is_refused(bad: str) -> None:
    for door in (Storage.open, Storage.create):
        with pytest.raises((NotFound, InvalidPath)):
            door(bad)


def test_a_root_without_a_place_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidPath, match="no folder is named for skill-store"):
        Storage.open(user_data=tmp_path, skill_projections=tmp_path)


# Users.


def test_users_are_the_directories_that_a_uid_can_have(storage: Storage, top: Path) -> None:
    hashed = safe_uid("a.b")
    for uid in ("bob", "alice", "a.b", "-rf"):
        storage.add_user(uid).close()
    shared = top / "user-data/shared"
    (shared / "not a name").mkdir()
    (shared / "file").write_text("")
    (shared / "link").symlink_to("alice")
    (shared / ".hidden").mkdir()
    assert storage.users() == ["-rf", "alice", "bob", hashed]


def test_a_storage_without_the_folder_of_users_has_none(storage: Storage, top: Path) -> None:
    (top / "user-data/shared").rmdir()
    assert storage.users() == []
    storage.add_user("alice").close()
    assert storage.users() == ["alice"]


@pytest.mark.parametrize(
    "uid", ["alice", "a.b", "oidc:x", "../../etc", "é", "a\0b", "uid-" + "0" * 64]
)
def test_a_user_is_added_once_and_found_again(storage: Storage, top: Path, uid: str) -> None:
    with storage.add_user(uid) as made, storage.workspace(uid) as found:
        assert (made.uid, made.name) == (found.uid, found.name) == (uid, safe_uid(uid))
        assert made.directory.stat().identity == found.directory.stat().identity
    before = tree(top)
    with pytest.raises(AlreadyExists):
        storage.add_user(uid)
    assert tree(top) == before


def test_an_interrupted_addition_is_completed(storage: Storage, top: Path) -> None:
    storage.add_user("alice").close()
    before = tree(top)
    (top / "user-data/shared/alice/workspace").rmdir()
    (top / "skill-projections/alice").rmdir()
    with pytest.raises(NotFound):
        storage.workspace("alice")
    storage.add_user("alice").close()
    assert tree(top) == before


def test_of_many_that_add_a_user_at_once_one_succeeds(storage: Storage) -> None:
    for number in range(20):

        def add(uid: str = f"user-{number}") -> None:
            storage.add_user(uid).close()

        assert at_once(add) == [*["already_exists"] * 3, "done"]


def test_a_file_system_without_rename_flags_has_directories_too(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(linux, "renameat2", refuse)
    with (
        Storage.create(top) as storage,
        storage.add_user("alice") as workspace,
        workspace.scope() as scope,
    ):
        scope.make_directory("/made")
        with pytest.raises(AlreadyExists):
            scope.make_directory("/made")
    assert tree(top) == directories(*ROOTS, *STORE, *ALICE, "user-data/shared/alice/workspace/made")


@pytest.mark.parametrize(
    ("uid", "error", "message"),
    [
        (
            "bob",
            NotFound,
            "there is no user bob; check the uid, or add the user: vfs user add bob",
        ),
        (
            "a\nb",
            NotFound,
            "there is no user a\\x0ab; check the uid, or add the user: vfs user add a\\x0ab",
        ),
        ("", InvalidName, "the user id is empty; give a user id"),
        (
            "\ud800",
            InvalidName,
            "the user id cannot be written as UTF-8: \\ud800; give it as valid Unicode text",
        ),
    ],
)
def test_who_is_no_user_is_told_and_nothing_is_made(
    storage: Storage, top: Path, uid: str, error: type[VfsError], message: str
) -> None:
    before = tree(top)
    with pytest.raises(error) as caught:
        storage.workspace(uid)
    assert str(caught.value) == message
    assert tree(top) == before


@pytest.mark.parametrize("level", ["", "/workspace"])
@pytest.mark.parametrize("what", ["link", "file"])
def test_a_users_directory_that_is_none_is_refused(
    storage: Storage, top: Path, level: str, what: str
) -> None:
    storage.add_user("alice").close()
    storage.add_user("mallory").close()
    place = top / f"user-data/shared/mallory{level}"
    for path in sorted(place.rglob("*"), reverse=True):
        path.rmdir()
    place.rmdir()
    if what == "link":
        place.symlink_to(top / f"user-data/shared/alice{level}")
    else:
        place.write_text("")
    error = {"link": LinkRefused, "file": NotADirectory}[what]
    with pytest.raises(error) as caught:
        storage.workspace("mallory")
    assert str(caught.value) == (
        "the workspace of mallory is not a real directory; put the directory itself in its place"
    )
    before = tree(top)
    with pytest.raises((error, AlreadyExists)):
        storage.add_user("mallory")
    assert tree(top) == before


# Workdirs.


@pytest.mark.parametrize("text", [f"projects/{UUID}", f"projects/{UUID.upper()}"])
def test_a_managed_workdir_is_made_when_it_is_needed(
    workspace: Workspace, home: Path, text: str
) -> None:
    with pytest.raises(NotFound) as caught:
        workspace.workdir(text, create=False)
    assert str(caught.value) == (
        f"there is no Workdir projects/{UUID}; it is made when it is first written to"
    )
    assert tree(home) == directories(".")
    with workspace.workdir(text) as made, workspace.workdir(text, create=False) as found:
        assert made.path == found.path
        assert made.path.text == f"projects/{UUID}"
        assert made.directory.stat().identity == found.directory.stat().identity
    assert tree(home) == directories(".", "projects", f"projects/{UUID}")


@pytest.mark.parametrize(
    "text", ["notes", "notes/2024", "projects", f"projects/{UUID}/below", "projects/not-a-uuid"]
)
def test_a_linked_workdir_must_be_there_and_is_never_made(
    workspace: Workspace, home: Path, text: str
) -> None:
    for create in (True, False):
        with pytest.raises(NotFound) as caught:
            workspace.workdir(text, create=create)
        assert str(caught.value) == (
            f"there is no Workdir {text}; make the directory first, or use projects/<uuid>"
        )
    assert tree(home) == directories(".")
    (home / text).mkdir(parents=True)
    with workspace.workdir(text) as found:
        assert found.path.kind == "linked"
        assert found.directory.stat().ino == (home / text).stat().st_ino


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "/notes",
        "/home/gem/user-data/notes",
        "..",
        "notes/..",
        "notes/",
        "notes//a",
        "./notes",
        "agents",
        "agents/skills",
        "notes\\a",
        "file://notes",
        "notes\n",
        "notes\0",
        b"notes\0",
        "\ud800",
    ],
)
def test_what_is_no_workdir_path_is_refused(
    workspace: Workspace, home: Path, text: str | bytes
) -> None:
    (home / "notes").mkdir()
    (home / "agents").mkdir()
    before = tree(home)
    with pytest.raises(InvalidPath):
        workspace.workdir(text)
    assert tree(home) == before


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("link", LinkRefused),
        ("link/below", LinkRefused),
        ("dangling", LinkRefused),
        ("file", NotADirectory),
        ("file/below", NotADirectory),
        ("fifo", NotADirectory),
        ("a" * 256, InvalidPath),
    ],
)
def test_a_workdir_is_a_real_directory(
    workspace: Workspace, home: Path, text: str, error: type[VfsError]
) -> None:
    (home / "real/below").mkdir(parents=True)
    (home / "link").symlink_to("real")
    (home / "dangling").symlink_to("nowhere")
    (home / "file").write_text("")
    os.mkfifo(home / "fifo")
    with pytest.raises(error):
        workspace.workdir(text)


@pytest.mark.parametrize("name", ["projects", f"projects/{UUID}"])
def test_a_managed_workdir_is_not_made_through_a_link(
    workspace: Workspace, home: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "outside").mkdir()
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).symlink_to(tmp_path / "outside")
    with pytest.raises(LinkRefused):
        workspace.workdir(f"projects/{UUID}")
    assert os.listdir(tmp_path / "outside") == []


def test_a_workdir_stays_the_same_directory_when_it_is_renamed(
    workspace: Workspace, home: Path
) -> None:
    with workspace.scope(f"projects/{UUID}") as scope:
        (home / f"projects/{UUID}").rename(home / "moved")
        scope.save("/file", b"content")
    assert (home / "moved/file").read_bytes() == b"content"


# Scopes.


def test_a_scope_starts_at_the_workspace_or_at_a_workdir(workspace: Workspace, home: Path) -> None:
    (home / "notes").mkdir()
    with workspace.scope() as whole, workspace.scope("notes") as notes:
        whole.save("/a", b"1")
        notes.save("/a", b"2")
        assert (whole.read("/a"), whole.read("/notes/a"), notes.read("/a")) == (b"1", b"2", b"2")
    with workspace.workdir("notes") as workdir, workdir.scope() as notes:
        assert notes.read((b"a",)) == b"2"


EACH_DOOR: list[Callable[[Scope, Any], object]] = [
    lambda scope, path: scope.stat(path),
    lambda scope, path: scope.list(path),
    lambda scope, path: list(scope.walk(path)),
    lambda scope, path: scope.search(path, pattern="x"),
    lambda scope, path: scope.usage(path),
    lambda scope, path: scope.open(path),
    lambda scope, path: scope.read(path),
    lambda scope, path: scope.read_link(path),
    lambda scope, path: scope.save(path, b""),
    lambda scope, path: scope.make_directory(path),
    lambda scope, path: scope.make_directory(path, parents=True),
    lambda scope, path: scope.move(path, "/target"),
    lambda scope, path: scope.move("/source", path),
    lambda scope, path: scope.remove(path),
    lambda scope, path: scope.unlink(path),
]


@pytest.mark.parametrize("door", EACH_DOOR)
@pytest.mark.parametrize(
    "path",
    [
        "/home/gem/user-data/source",
        "/home/gem",
        "source",
        "",
        "/a/../source",
        "/a//source",
        "/source\0",
        b"/home/gem/user-data",
        (b"..", b"source"),
        (b"a/b",),
        (b"",),
        (b"a\0b",),
        (b"a" * 256,),
    ],
)
def test_what_is_no_scope_path_is_refused(
    scope: Scope, home: Path, door: Callable[[Scope, Any], object], path: Any
) -> None:
    (home / "source").mkdir()
    before = tree(home)
    with pytest.raises(InvalidPath):
        door(scope, path)
    assert tree(home) == before


@pytest.mark.parametrize("door", EACH_DOOR)
def test_no_door_goes_through_a_link(
    scope: Scope, home: Path, tmp_path: Path, door: Callable[[Scope, Any], object]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (home / "source").mkdir()
    (home / "link").symlink_to(outside)
    before = tree(tmp_path)
    with pytest.raises(LinkRefused):
        door(scope, "/link/secret")
    assert tree(tmp_path) == before


def test_the_directory_home_gem_of_a_workdir_is_named_by_its_exact_names(scope: Scope) -> None:
    scope.make_directory((b"home", b"gem"), parents=True)
    scope.save((b"home", b"gem", b"file"), b"content")
    assert scope.read((b"home", b"gem", b"file")) == b"content"


def test_entries_are_listed_walked_and_searched(scope: Scope, home: Path) -> None:
    scope.make_directory("/b/Deep", parents=True)
    scope.save("/a", b"1")
    scope.save("/b/Deep/report", b"22")
    (home / "link").symlink_to("a")
    names = [entry.name for entry in scope.list().entries]
    assert names == [b"b", b"a", b"link"]
    assert [entry.path for entry in scope.walk()] == [
        (b"a",),
        (b"b",),
        (b"b", b"Deep"),
        (b"b", b"Deep", b"report"),
        (b"link",),
    ]
    assert [entry.path for entry in scope.list("/b").entries] == [(b"b", b"Deep")]
    found = {
        options: [b"/".join(entry.path) for entry in scope.search(**dict(options)).entries]
        for options in (
            (("pattern", "DEEP"),),
            (("pattern", "*"), ("kind", "directory")),
            (("kind", "link"),),
            (("path", "/b"), ("kind", "file")),
            (("pattern", "nothing"),),
        )
    }
    assert list(found.values()) == [
        [b"b/Deep"],
        [b"b", b"b/Deep"],
        [b"link"],
        [b"b/Deep/report"],
        [],
    ]
    usage = scope.usage()
    assert (usage.files, usage.directories, usage.links, usage.size) == (2, 3, 1, 3)


def test_listings_and_searches_say_where_they_were_cut(scope: Scope) -> None:
    for number in range(5):
        scope.save(f"/{number}", b"")
    few = Limits(entries_per_directory=3)
    assert len(scope.list(limits=few).entries) == 3
    assert scope.list(limits=few).cut.entries_per_directory == 1
    assert scope.search(limits=Limits(hits=2)).cut.hits == 1


def test_a_file_is_read_whole_or_not_at_all(scope: Scope, home: Path) -> None:
    scope.save("/file", b"0123456789")
    assert scope.read("/file") == scope.read("/file", limit=10) == b"0123456789"
    with pytest.raises(TooLarge) as caught:
        scope.read("/file", limit=9)
    assert str(caught.value) == "file has more than 9 bytes; read it in parts"
    os.truncate(home / "file", 1 << 42)
    with pytest.raises(TooLarge):
        scope.read("/file", limit=1000)


def test_an_open_file_is_read_only_and_not_inherited(scope: Scope) -> None:
    scope.save("/file", b"content")
    fd = scope.open("/file")
    try:
        assert (os.read(fd, 100), os.get_inheritable(fd)) == (b"content", False)
        with pytest.raises(OSError):
            os.write(fd, b"x")
    finally:
        os.close(fd)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/", IsADirectory),
        ("/directory", IsADirectory),
        ("/link", LinkRefused),
        ("/fifo", SpecialFileRefused),
        ("/missing", NotFound),
        ("/file/below", NotADirectory),
    ],
)
def test_only_regular_files_are_opened(
    scope: Scope, home: Path, path: str, error: type[VfsError]
) -> None:
    (home / "directory").mkdir()
    (home / "link").symlink_to("file")
    (home / "file").write_text("")
    os.mkfifo(home / "fifo")
    for door in (scope.open, scope.read):
        with pytest.raises(error):
            door(path)
    assert scope.read_link("/link") == b"file"


def test_a_save_keeps_its_promises_here_too(scope: Scope) -> None:
    status = scope.save("/file", b"1", mode=0o640)
    with pytest.raises(AlreadyExists):
        scope.save("/file", b"2", clobber=False)
    changed = scope.save("/file", b"2", if_match=etag(status))
    assert stat.S_IMODE(changed.mode) == 0o640
    with pytest.raises(Changed):
        scope.save("/file", b"3", if_match=etag(status))
    with pytest.raises(NotFound):
        scope.save("/missing/file", b"")
    assert scope.read("/file") == b"2"


def test_a_move_replaces_only_what_it_may(scope: Scope, home: Path) -> None:
    scope.save("/a", b"a")
    scope.save("/b", b"b")
    scope.make_directory("/full/below", parents=True)
    scope.make_directory("/empty")
    with pytest.raises(AlreadyExists):
        scope.move("/a", "/b")
    scope.move("/a", "/b", exchange=True)
    assert (scope.read("/a"), scope.read("/b")) == (b"b", b"a")
    scope.move("/a", "/b", clobber=True)
    assert scope.read("/b") == b"b"
    scope.move("/b", "/full/b")
    with pytest.raises(NotEmpty):
        scope.move("/empty", "/full", clobber=True)
    with pytest.raises(NotFound):
        scope.move("/missing", "/x")
    with pytest.raises(NotFound):
        scope.move("/missing", "/full", exchange=True)
    scope.move("/full", "/empty", clobber=True)
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*")) == [
        "empty",
        "empty/b",
        "empty/below",
    ]


@pytest.mark.parametrize("options", [{}, {"clobber": True}, {"exchange": True}], ids=repr)
@pytest.mark.parametrize(("source", "target"), [("/a", "/a/b/c"), ("/a/b", "/a"), ("/a", "/a/b")])
def test_a_directory_is_not_moved_into_itself(
    scope: Scope, home: Path, source: str, target: str, options: dict[str, bool]
) -> None:
    (home / "a/b").mkdir(parents=True)
    with pytest.raises(InvalidPath) as caught:
        scope.move(source, target, **options)
    assert str(caught.value) == (
        f"cannot move {source} to {target}: one would be inside itself; name a place outside of it"
    )


def test_a_name_that_another_begins_with_is_another_place(scope: Scope) -> None:
    scope.make_directory("/a")
    scope.move("/a", "/ab")
    assert [entry.name for entry in scope.list().entries] == [b"ab"]


def test_links_are_moved_and_removed_as_links(scope: Scope, home: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("kept")
    (home / "link").symlink_to(tmp_path / "outside")
    (home / "directory").mkdir()
    scope.move("/link", "/directory/moved")
    assert os.readlink(home / "directory/moved") == str(tmp_path / "outside")
    scope.remove("/directory")
    assert os.listdir(home) == []
    assert (tmp_path / "outside/file").read_text() == "kept"


def test_the_root_itself_stays(scope: Scope) -> None:
    for door in (
        lambda: scope.remove("/"),
        lambda: scope.move("/", "/a"),
        lambda: scope.make_directory("/"),
        lambda: scope.save("/", b""),
    ):
        with pytest.raises(InvalidPath):
            door()


def test_the_reserved_directory_is_filled_and_not_taken_away(
    workspace: Workspace, scope: Scope, home: Path
) -> None:
    for door in (lambda: scope.save("/agents", b""), lambda: scope.move("/x", "/agents")):
        with pytest.raises(PermissionDenied):
            door()
    scope.make_directory("/agents")
    scope.save("/agents/AGENTS.md", b"rules")
    scope.make_directory("/x/agents", parents=True)
    refused: list[Callable[[], object]] = [
        lambda: scope.remove("/agents"),
        lambda: scope.unlink("/agents"),
        lambda: scope.move("/agents", "/y"),
        lambda: scope.move("/x", "/agents", clobber=True),
        lambda: scope.move("/x", "/agents", exchange=True),
        lambda: scope.save("/agents", b""),
    ]
    for door in refused:
        with pytest.raises(PermissionDenied) as caught:
            door()
        assert str(caught.value) == (
            "/agents is reserved: it cannot be removed, renamed or replaced; "
            "change what is in it instead"
        )
    scope.remove("/agents/AGENTS.md")
    scope.remove("/x/agents")
    assert sorted(os.listdir(home)) == ["agents", "x"]
    # In a Workdir the name means nothing.
    with workspace.scope("x") as below:
        below.make_directory("/agents")
        below.remove("/agents")


def test_everything_held_is_released(storage: Storage, top: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with (
        storage.add_user("alice") as workspace,
        workspace.workdir(f"projects/{UUID}") as workdir,
        workdir.scope() as scope,
        workspace.scope(),
    ):
        scope.save("/file", b"")
        list(scope.walk())
    with pytest.raises(NotFound):
        storage.workspace("bob")
    with Storage.open(top) as other:
        other.close()
    assert os.listdir("/proc/self/fd") == before
