"""Removals: all of it, or nothing and the reason; and never anything else."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vfs.conftest import Mount
from tests.vfs.hostile import NOBODY, deadline, run_python, snapshot
from tests.vfs.trees import Plan, found, plant
from vfs import descent, removal
from vfs.beneath import Directory
from vfs.errors import (
    Busy,
    Changed,
    InvalidPath,
    LinkRefused,
    NotADirectory,
    NotFound,
    PermissionDenied,
    ReadOnly,
    StorageFailure,
)
from vfs.tree import remove

pytestmark = pytest.mark.usefixtures("way")

TREE: Plan = {"a": {"f": b"1", "empty": {}, "b": {"c": {"g": b"2"}}}, "h": b""}


def test_a_tree_is_removed_and_nothing_beside_it(folder: Path, root: Directory) -> None:
    plant(folder, {"t": TREE, "kept": TREE})
    (folder / os.fsdecode(b"t/a/\xff\n")).write_bytes(b"")
    os.chmod(folder / "t" / "a", 0)  # no obstacle to root
    os.mkfifo(folder / "t" / "a" / "p")
    os.mknod(folder / "t" / "a" / "c", stat.S_IFCHR, os.makedev(1, 3))
    with deadline(20):
        remove(root, "t")
    assert found(folder) == {"kept": TREE}
    remove(root, "kept/a/b/")
    assert found(folder) == {"kept": {"a": {"f": b"1", "empty": {}}, "h": b""}}


def test_files_links_and_empty_directories_are_removed_as_themselves(
    folder: Path, root: Directory, outside: Path
) -> None:
    plant(folder, {"f": b"", "l": str(outside), "dangling": "no", "d": {}, "in": {"l": "../d"}})
    for name in ("f", "l", "dangling", "in/l", "in"):
        remove(root, name)
    assert found(folder) == {"d": {}}


def test_links_in_a_tree_go_as_links(folder: Path, root: Directory, outside: Path) -> None:
    plant(folder, {"t": {"d": {"l": str(outside), "up": ".."}, "loop": "loop"}, "x": b""})
    remove(root, "t")
    assert found(folder) == {"x": b""}


def test_further_names_of_a_file_stay(folder: Path, root: Directory, outside: Path) -> None:
    plant(folder, {"t": {"f": b"kept"}})
    os.link(folder / "t" / "f", folder / "again")
    remove(root, "t")
    assert found(folder) == {"again": b"kept"}


@pytest.mark.parametrize(
    ("path", "error"),
    [("nothing", NotFound), ("a/nothing", NotFound), ("h/x", NotADirectory), ("", InvalidPath),
     ("/", InvalidPath), ("..", InvalidPath), ("a/..", InvalidPath), ("l/secret", LinkRefused)],
)  # fmt: skip
def test_what_is_not_there_or_not_beneath_removes_nothing(
    folder: Path, root: Directory, outside: Path, path: str, error: type[Exception]
) -> None:
    plant(folder, {**TREE, "l": str(outside)})
    before = found(folder)
    with pytest.raises(error):
        remove(root, path)
    assert found(folder) == before


# What stands in the way is said before anything is deleted.


@pytest.fixture
def chattr(folder: Path) -> Iterator[Callable[[str, str], None]]:
    """`chattr(flags, name)` in the folder; all of it can be removed again after the test."""

    def change(flags: str, name: str) -> None:
        subprocess.run(["chattr", flags, folder / name], check=True)

    yield change
    subprocess.run(["chattr", "-R", "-ia", folder], check=True)


@pytest.mark.parametrize(("flags", "word"), [("+i", "immutable"), ("+a", "append-only")])
@pytest.mark.parametrize("name", ["t", "t/a", "t/a/b/c/g", "t/h", "t/a/empty"])
def test_an_unchangeable_entry_is_named_with_everything_still_in_place(
    folder: Path,
    root: Directory,
    chattr: Callable[[str, str], None],
    flags: str,
    word: str,
    name: str,
) -> None:
    plant(folder, {"t": TREE})
    chattr(flags, name)
    before = snapshot(folder)
    with pytest.raises(PermissionDenied, match=f"{name} is {word}") as refused:
        remove(root, "t")
    assert refused.value.path == name.encode()
    assert "chattr -" in str(refused.value)
    assert snapshot(folder) == before


def test_an_unchangeable_directory_keeps_even_a_single_file_of_it(
    folder: Path, root: Directory, chattr: Callable[[str, str], None]
) -> None:
    plant(folder, {"t": TREE})
    chattr("+i", "t/a")
    with pytest.raises(PermissionDenied, match="t/a is immutable"):
        remove(root, "t/a/f")
    chattr("-i", "t/a")
    remove(root, "t/a/f")
    chattr("+a", ".")
    with pytest.raises(PermissionDenied, match="its directory is append-only"):
        remove(root, "t")


def test_further_obstacles_are_counted(
    folder: Path, root: Directory, chattr: Callable[[str, str], None]
) -> None:
    plant(folder, {"t": TREE})
    chattr("+i", "t/a/f")
    chattr("+i", "t/a/b/c/g")
    chattr("+a", "t/h")
    with pytest.raises(PermissionDenied, match="t/a/b/c/g is immutable, and 2 more"):
        remove(root, "t")


@pytest.mark.parametrize("kind", ["directory", "file", "top", "tmpfs"])
def test_a_mount_is_named_with_everything_still_in_place(
    folder: Path, root: Directory, outside: Path, mount: Mount, kind: str
) -> None:
    plant(folder, {"t": TREE})
    name = {"directory": "t/a/empty", "file": "t/a/f", "top": "t", "tmpfs": "t/a/b"}[kind]
    if kind == "tmpfs":
        mount(folder / name, "-t", "tmpfs", "none")
    else:
        mount(folder / name, "--bind", outside / "secret" if kind == "file" else outside)
    before = snapshot(folder)
    with pytest.raises(InvalidPath) as refused:
        remove(root, "t")
    assert refused.value.path == name.encode()
    assert "unmount" in str(refused.value)
    assert snapshot(folder) == before


def test_a_read_only_file_system_is_told_as_such(folder: Path, mount: Mount) -> None:
    mount(folder, "-t", "tmpfs", "none")
    plant(folder, {"t": TREE})
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    with Directory.open(folder) as directory:
        for path in ("t", "t/h"):
            with pytest.raises(ReadOnly):
                remove(directory, path)
    assert found(folder) == {"t": TREE}


AS_NOBODY = (
    "import json, os, sys\n"
    "from vfs.beneath import Directory\n"
    "from vfs.errors import VfsError\n"
    "from vfs.tree import remove\n"
    "root = Directory.open(sys.argv[1])\n"
    f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
    "def answer(path):\n"
    "    try: remove(root, path)\n"
    "    except VfsError as error: return [error.kind, error.path.decode()]\n"
    "print(json.dumps([answer(path) for path in sys.argv[2:]]))\n"
)


def test_what_another_user_may_not_remove_is_named_with_everything_still_in_place(
    folder: Path,
) -> None:
    top = folder / "top"
    top.mkdir()
    plan: Plan = {
        "unreadable": {"a": b"", "d": {"x": b""}},
        "unwritable": {"a": b"", "d": {"x": b""}},
        "unsearchable": {"a": b"", "d": {"x": b""}},
        "sticky": {"a": b"", "d": {"theirs": b""}},
        "unwritable-but-empty": {"a": b"", "d": {}},
        "unreadable-file": {"a": b""},
    }
    plant(top, plan)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", top], check=True)
    for name, mode in (("unreadable", 0o300), ("unwritable", 0o500), ("unsearchable", 0o600)):
        os.chmod(top / name / "d", mode)
    os.chmod(top / "unwritable-but-empty" / "d", 0o500)
    os.chmod(top / "unreadable-file" / "a", 0)
    os.chown(top / "sticky" / "d", 7, 7)
    os.chown(top / "sticky" / "d" / "theirs", 7, 7)
    os.chmod(top / "sticky" / "d", 0o1777)
    assert run_python(AS_NOBODY, top, *plan) == [
        ["permission", "unreadable/d"],
        ["permission", "unwritable/d"],
        ["permission", "unsearchable/d/x"],
        ["permission", "sticky/d/theirs"],
        None,
        None,
    ]
    assert found(top) == {
        name: plan[name] for name in ("unreadable", "unwritable", "unsearchable", "sticky")
    }
    os.chown(top, 0, 0)
    os.chmod(top, 0o755)
    assert run_python(AS_NOBODY, top, "unwritable") == [["permission", ""]]


def test_a_process_without_descriptors_removes_nothing(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": TREE})
    real = os.listdir

    def fail(fd: int) -> list[str]:
        if "g" in (names := real(fd)):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return names

    monkeypatch.setattr(os, "listdir", fail)
    with pytest.raises(StorageFailure):
        remove(root, "t")
    monkeypatch.undo()
    assert found(folder) == {"t": TREE}


# What changes meanwhile.


class Meddler:
    """Does something the first time that the removal reaches a name."""

    def __init__(self, patch: pytest.MonkeyPatch, name: bytes, act: Callable[[], object]) -> None:
        self._real = os.unlink
        self._name = name
        self._act: Callable[[], object] | None = act
        patch.setattr(os, "unlink", self)

    def __call__(self, name: bytes, *, dir_fd: int) -> None:
        if name == self._name and self._act is not None:
            act, self._act = self._act, None
            act()
        self._real(name, dir_fd=dir_fd)


def test_what_vanishes_meanwhile_is_as_good_as_removed(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": TREE})
    Meddler(
        monkeypatch, b"g", lambda: subprocess.run(["rm", "-rf", folder / "t" / "a"], check=True)
    )
    remove(root, "t")
    assert found(folder) == {}


def test_what_is_added_meanwhile_goes_as_well(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": TREE})
    Meddler(monkeypatch, b"g", lambda: plant(folder / "t" / "a" / "b", {"new": {"er": b""}}))
    remove(root, "t")
    assert found(folder) == {}


def test_what_is_added_for_ever_ends_as_busy(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": {"d": {}}})
    real = os.rmdir

    def refill(name: bytes, *, dir_fd: int) -> None:
        if name == b"d":
            (folder / "t" / "d" / "new").touch()
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", refill)
    with deadline(60), pytest.raises(Busy):
        remove(root, "t")


def test_a_directory_that_is_a_link_by_now_goes_as_the_link(
    folder: Path, root: Directory, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": {"a": {"x": b""}, "b": {"secret": b""}}})

    for first, other in (("x", "b"), ("secret", "a")):

        def swap_other(other: str = other) -> None:
            if (folder / "t" / other).exists():
                (folder / "t" / other).rename(folder / "moved")
                (folder / "t" / other).symlink_to(outside)

        Meddler(monkeypatch, first.encode(), swap_other)
    remove(root, "t")
    assert sorted(root.names()) == [b"moved"]


def test_a_directory_that_is_a_link_when_it_is_empty_goes_as_the_link(
    folder: Path, root: Directory, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": {"d": {}}})
    real = os.rmdir

    def swap(name: bytes, *, dir_fd: int) -> None:
        if name == b"d" and not (folder / "moved").exists():
            (folder / "t" / "d").rename(folder / "moved")
            (folder / "t" / "d").symlink_to(outside)
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "rmdir", swap)
    remove(root, "t")
    assert found(folder) == {"moved": {}}


def test_a_directory_moved_away_from_beneath_the_removal_ends_it(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan: Plan = {"end": b""}
    for _ in range(6):
        plan = {"d": plan, "z": b""}
    plant(folder, {"t": plan})
    monkeypatch.setattr(descent, "HELD", 1)
    away = folder / "away"

    def move() -> None:
        (folder / "t/d/d/d").rename(away)
        (folder / "t/d/d").rename(folder / "other")

    Meddler(monkeypatch, b"end", move)
    with pytest.raises(Changed):
        remove(root, "t")
    assert found(folder)["other"] == {"z": b""}


def test_an_answer_of_eperm_for_a_directory_is_understood(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": {"d": {"f": b""}}})
    real_unlink, real_scan = os.unlink, removal._some_names

    def unlink(name: bytes, *, dir_fd: int) -> None:
        try:
            real_unlink(name, dir_fd=dir_fd)
        except IsADirectoryError:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM)) from None

    monkeypatch.setattr(os, "unlink", unlink)
    monkeypatch.setattr(
        removal, "_some_names", lambda fd: [(name, False) for name, _ in real_scan(fd)]
    )
    remove(root, "t")
    assert found(folder) == {}


# Depth, width and descriptors.

LITTLE = """
import json, os, resource, sys
from vfs import tree
from vfs.beneath import Directory
root = Directory.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
tree.remove(root, "t")
print(json.dumps(os.listdir(sys.argv[1])))
"""


@pytest.mark.slow
def test_5_000_levels_are_removed_with_50_descriptors(memory: Directory, folder: Path) -> None:
    with memory.make_directories([b"t"] * 5000) as deepest:
        os.close(deepest.create_file(b"f"))
    for depth in (1, 10, 33, 2500, 4999):
        memory.make_directories([*[b"t"] * depth, b"a", b"b"]).close()
        os.close(memory.create_file([*[b"t"] * depth, b"z"]))
    assert run_python(LITTLE, folder) == []


@pytest.mark.slow
def test_100_000_entries_are_removed_with_50_descriptors(memory: Directory, folder: Path) -> None:
    with memory.make_directories("t") as top:
        for number in range(2_000):
            top.make_directory(b"%d" % number)
        for number in range(98_000):
            os.close(os.open(b"f%d" % number, os.O_CREAT | os.O_WRONLY, dir_fd=top.fd))
    assert run_python(LITTLE, folder) == []


def test_no_descriptor_is_left_by_a_removal_that_ends_early(
    folder: Path, root: Directory, mount: Mount, outside: Path
) -> None:
    plant(folder, {"t": TREE})
    mount(folder / "t" / "a" / "empty", "--bind", outside)
    held = os.listdir("/proc/self/fd")
    with pytest.raises(InvalidPath):
        remove(root, "t")
    assert os.listdir("/proc/self/fd") == held
