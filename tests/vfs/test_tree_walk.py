"""Walks: what they find, in which order, what they leave out and say so, how little they hold."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vfs.conftest import Mount
from tests.vfs.hostile import NOBODY, run_python
from tests.vfs.trees import Plan, entries_of, plant
from vfs import descent, linux
from vfs.beneath import Directory
from vfs.errors import (
    Changed,
    InvalidPath,
    LinkRefused,
    NotADirectory,
    NotFound,
    StorageFailure,
    VfsError,
)
from vfs.tree import Cut, Limits, visit, walk

pytestmark = pytest.mark.usefixtures("way")

TREE: Plan = {
    "a": {"deep": {"deeper": {"f": b"1"}, "g": b""}, "l": "/etc", "z": b"22"},
    "B": {"é": b"", "empty": {}},
    "file": b"333",
    "link": "a",
    "a.txt": b"",
}


def paths(directory: Directory, path: object = (), **options: object) -> list[bytes]:
    return [b"/".join(entry.path) for entry in walk(directory, path, **options)]


# What is found.


def test_entries_come_by_name_and_a_directory_before_what_it_holds(
    folder: Path, root: Directory
) -> None:
    plant(folder, TREE)
    assert [entry.path for entry in walk(root)] == entries_of(TREE)
    assert paths(root, "a/deep") == [
        b"a/deep/deeper",
        b"a/deep/deeper/f",
        b"a/deep/g",
    ]
    assert paths(root, "B/empty") == []


def encodable(name: str) -> bool:
    try:
        return len(name.encode()) <= 255
    except UnicodeEncodeError:
        return False


NAMES = st.text(min_size=1, max_size=5).filter(
    lambda name: name not in (".", "..") and not {"\0", "/"} & set(name)
)
PLANS = st.recursive(
    st.binary(max_size=5) | st.just("/etc/passwd"),
    lambda inner: st.dictionaries(NAMES.filter(encodable), inner, max_size=4),
    max_leaves=12,
).filter(lambda plan: isinstance(plan, dict))


@settings(max_examples=40)
@given(PLANS)
def test_any_tree_is_walked_whole(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as top, Directory.open(top) as directory:
        plant(Path(top), plan)
        assert [entry.path for entry in walk(directory)] == entries_of(plan)
        held = descent.HELD
        try:
            descent.HELD = 1
            assert [entry.path for entry in walk(directory)] == entries_of(plan)
        finally:
            descent.HELD = held


def test_an_entry_tells_its_own_status_and_kind(folder: Path, root: Directory) -> None:
    plant(folder, {"dir": {}, "file": b"12", "link": "file"})
    os.mkfifo(folder / "fifo")
    os.mknod(folder / "null", stat.S_IFCHR, os.makedev(1, 3))
    seen = {entry.name: entry for entry in walk(root)}
    assert {name: entry.kind for name, entry in seen.items()} == {
        b"dir": "directory",
        b"fifo": "fifo",
        b"file": "file",
        b"link": "link",
        b"null": "character device",
    }
    for name, entry in seen.items():
        again = root.stat(name)  # between the two, the walk may have moved the time of access
        assert entry.status._replace(atime=again.atime, atime_nsec=again.atime_nsec) == again
        assert (entry.is_dir, entry.is_file, entry.is_link, entry.is_special) == (
            name == b"dir",
            name == b"file",
            name == b"link",
            name in (b"fifo", b"null"),
        )


def test_only_a_directory_can_be_walked_and_no_link_to_one(folder: Path, root: Directory) -> None:
    plant(folder, TREE)
    for path, error in (
        ("link", LinkRefused),
        ("link/deep", LinkRefused),
        ("file", NotADirectory),
        ("nothing", NotFound),
        ("..", InvalidPath),
    ):
        with pytest.raises(error):
            paths(root, path)


def test_visits_hand_out_the_pinned_directory_of_each_entry(folder: Path, root: Directory) -> None:
    plant(folder, TREE)
    seen = 0
    for here, entry in visit(root):
        assert linux.statx(here.fd, entry.name) == entry.status
        assert here.stat(entry.name).identity == root.stat(entry.path).identity
        seen += 1
    assert seen == len(entries_of(TREE))


# Limits: each is counted where it bites, and nothing is cut without a count.


def unlimited(**limits: int) -> Limits:
    return Limits(**{**dict.fromkeys(Limits.__slots__, 10**9), **limits})


@pytest.mark.parametrize(
    ("limits", "expected", "cut"),
    [
        (unlimited(), entries_of(TREE), Cut()),
        (unlimited(depth=4), entries_of(TREE), Cut()),
        (unlimited(depth=3), [p for p in entries_of(TREE) if len(p) <= 3], Cut(depth=1)),
        (unlimited(depth=1), [p for p in entries_of(TREE) if len(p) <= 1], Cut(depth=2)),
        (unlimited(directories=6), entries_of(TREE), Cut()),
        (unlimited(directories=3), [p for p in entries_of(TREE) if p[0] != b"a" or len(p) == 1],
         Cut(directories=1)),
        (unlimited(directories=1), [p for p in entries_of(TREE) if len(p) == 1],
         Cut(directories=2)),
        (unlimited(entries=13), entries_of(TREE), Cut()),
        (unlimited(entries=12), entries_of(TREE)[:12], Cut(entries=1)),
        (unlimited(entries=0), [], Cut(entries=1)),
        (unlimited(entries_per_directory=5), entries_of(TREE), Cut()),
    ],
)  # fmt: skip
def test_a_limit_cuts_where_it_bites_and_is_counted(
    folder: Path, root: Directory, limits: Limits, expected: list[tuple[bytes, ...]], cut: Cut
) -> None:
    plant(folder, TREE)
    told = Cut()
    assert [entry.path for entry in walk(root, limits=limits, cut=told)] == expected
    assert told == cut
    assert bool(told) == (told != Cut())


def test_a_wide_directory_is_looked_at_up_to_its_limit(folder: Path, root: Directory) -> None:
    plant(folder, {"wide": {f"{number:02}": b"" for number in range(20)}, "x": b""})
    cut = Cut()
    seen = paths(root, limits=unlimited(entries_per_directory=7), cut=cut)
    assert len(seen) == 2 + 7
    assert seen == sorted(seen)
    assert cut == Cut(entries_per_directory=1)
    cut = Cut()
    assert len(paths(root, limits=unlimited(entries_per_directory=20), cut=cut)) == 22
    assert cut == Cut()


def test_the_limits_are_the_ones_that_users_are_told_of() -> None:
    assert Limits() == Limits(
        depth=15, directories=600, entries_per_directory=500, entries=10_000, hits=100
    )


# What cannot be read, and what lies elsewhere.


def test_what_cannot_be_read_is_counted_told_or_raised(folder: Path) -> None:
    plant(folder, {"closed": {"x": b""}, "blind": {"x": b"", "y": {}}, "open": {"x": b""}})
    os.chmod(folder, 0o755)
    os.chmod(folder / "closed", 0o300)
    os.chmod(folder / "blind", 0o744)
    answer = run_python(
        "import json, os, sys\n"
        "from vfs.beneath import Directory\n"
        "from vfs.errors import VfsError\n"
        "from vfs.tree import Cut, walk\n"
        "root = Directory.open(sys.argv[1])\n"
        f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
        "cut, told = Cut(), []\n"
        "tell = lambda path, error: told.append([b'/'.join(path).decode(), error.kind])\n"
        "def names(**options):\n"
        "    return [b'/'.join(entry.path).decode() for entry in walk(root, **options)]\n"
        "counted = names(cut=cut)\n"
        "assert names(on_error=tell) == counted\n"
        "try: names()\n"
        "except VfsError as error: raised = [error.kind, error.path.decode()]\n"
        "print(json.dumps([counted, cut.to_json(), told, raised]))\n",
        folder,
    )
    assert answer == [
        ["blind", "closed", "open", "open/x"],
        Cut(unreadable=3).to_json(),
        [["blind/x", "permission"], ["blind/y", "permission"], ["closed", "permission"]],
        ["permission", "blind/x"],
    ]


def test_a_mount_is_neither_shown_nor_crossed_and_counted(
    folder: Path, root: Directory, outside: Path, mount: Mount
) -> None:
    plant(folder, {"a": {"m": {}, "f": b""}, "file": b"", "t": {}, "z": b""})
    mount(folder / "a" / "m", "--bind", outside)
    mount(folder / "file", "--bind", outside / "secret")
    mount(folder / "t", "-t", "tmpfs", "none")
    cut, told = Cut(), {}
    seen = paths(root, cut=cut, on_error=lambda path, error: told.update({path: error.kind}))
    assert seen == [b"a", b"a/f", b"z"]
    assert cut == Cut(mounts=3)
    assert told == dict.fromkeys([(b"a", b"m"), (b"file",), (b"t",)], "invalid_path")
    with pytest.raises(InvalidPath):
        paths(root)


def test_a_failing_disk_is_told_and_a_failing_process_ends_the_walk(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"a": {"f": b""}, "b": b""})
    real = os.listdir

    def failing(number: int) -> Callable[[int], list[str]]:
        def fail(fd: int) -> list[str]:
            if "f" in (names := real(fd)):
                raise OSError(number, os.strerror(number))
            return names

        return fail

    monkeypatch.setattr(os, "listdir", failing(errno.EIO))
    cut = Cut()
    assert paths(root, cut=cut) == [b"a", b"b"]
    assert cut == Cut(unreadable=1)
    for number in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        monkeypatch.setattr(os, "listdir", failing(number))
        with pytest.raises(StorageFailure):
            paths(root, cut=Cut())


# What changes meanwhile.


def test_what_vanishes_meanwhile_is_skipped(folder: Path, root: Directory) -> None:
    plant(folder, {name: {"x": {"y": b""}, "z": b""} for name in "abcdef"})
    seen = []
    for entry in walk(root):
        seen.append(b"/".join(entry.path))
        if entry.name == b"a":
            shutil.rmtree(folder / "a")  # the one that would be entered next
        elif entry.path == (b"b", b"x"):
            shutil.rmtree(folder / "b")  # the one it stands in
        elif entry.path == (b"c",):
            (folder / "c" / "z").unlink()
            shutil.rmtree(folder / "d")
            (folder / "e").rename(folder / "c" / "w")
    assert seen == [b"a", b"b", b"b/x", b"c", b"c/w", b"c/w/x", b"c/w/x/y", b"c/w/z",
                    b"c/x", b"c/x/y", b"f", b"f/x", b"f/x/y", b"f/z"]  # fmt: skip


def test_a_directory_that_is_a_link_by_now_is_not_entered(
    folder: Path, root: Directory, outside: Path
) -> None:
    plant(folder, {name: {"x": b""} for name in "abc"})
    seen = []
    for entry in walk(root):
        seen.append(b"/".join(entry.path))
        if entry.name == b"b":
            shutil.rmtree(folder / "b")
            (folder / "b").symlink_to(outside)
    assert seen == [b"a", b"a/x", b"b", b"c", b"c/x"]


def test_a_visitor_may_remove_rename_and_fill_what_it_is_given(
    folder: Path, root: Directory
) -> None:
    plant(folder, {"a": {"x": b""}, "b": {"x": b""}, "c": {}, "d": b""})
    seen = []
    for here, entry in visit(root):
        seen.append(b"/".join(entry.path))
        if entry.path == (b"a",):
            here.rename(b"a", b"aa")
        elif entry.path == (b"c",):
            os.close(here.create_file(b"c/new"))
        elif entry.is_file:
            here.unlink(entry.name)
    assert seen == [b"a", b"b", b"b/x", b"c", b"c/new", b"d"]
    assert paths(root) == [b"aa", b"aa/x", b"b", b"c"]


DEEP = descent.HELD + 8
"""Deep enough that the upper directories are not held any more."""


def test_a_tree_deeper_than_is_held_is_walked_to_its_end(folder: Path, root: Directory) -> None:
    plan: Plan = {"end": b""}
    for _ in range(DEEP):
        plan = {"a": b"", "d": plan, "z": b""}
    plant(folder, plan)
    assert [entry.path for entry in walk(root)] == entries_of(plan)


def test_a_directory_moved_meanwhile_far_above_is_found_again_or_told(
    folder: Path, root: Directory, outside: Path
) -> None:
    def again() -> Path:
        shutil.rmtree(folder / "d", ignore_errors=True)
        plan: Plan = {"end": b""}
        for _ in range(DEEP):
            plan = {"d": plan, "z": b""}
        plant(folder, plan["d"] and {"d": plan})
        return folder / "d" / "d"

    # Its parent is another now, and `..` leads there; the names still lead to the old one.
    at = again()
    cut = Cut()
    seen = []
    for entry in walk(root, cut=cut):
        seen.append(entry.path)
        if entry.name == b"end":
            (at / "d").rename(folder / "moved")
    assert cut == Cut()
    assert len(seen) == 2 * (DEEP + 1) and seen[-1] == (b"d", b"z")

    # Neither `..` nor the names lead to it: what it still holds is told as left out.
    shutil.rmtree(folder / "moved")
    at = again()
    told: list[tuple[tuple[bytes, ...], type[VfsError]]] = []
    seen = []
    for entry in walk(root, on_error=lambda path, error: told.append((path, type(error)))):
        seen.append(entry.path)
        if entry.name == b"end":
            at.rename(folder / "elsewhere")
            at.symlink_to(outside)
            (folder / "elsewhere" / "d").rename(folder / "moved")
    assert told == [((b"d", b"d"), Changed)]
    assert (b"d", b"d", b"z") not in seen and seen[-1] == (b"d", b"z")


# Depth, width and descriptors.

LITTLE = """
import json, os, resource, sys
from vfs import tree
from vfs.beneath import Directory
root = Directory.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
print(json.dumps(sum(1 for _ in tree.walk(root))))
assert len(os.listdir("/proc/self/fd")) < 8
"""


def test_5_000_levels_are_walked_with_50_descriptors(memory: Directory, folder: Path) -> None:
    with memory.make_directories([b"d"] * 5000) as deepest:
        os.close(deepest.create_file(b"f"))
    for index in (1, 10, 33, 2500, 4999):
        os.close(memory.create_file([*[b"d"] * index, b"z"]))
    assert run_python(LITTLE, folder) == 5006


@pytest.mark.slow
def test_100_000_entries_are_walked_with_50_descriptors(memory: Directory, folder: Path) -> None:
    for number in range(1000):
        memory.make_directory(b"%d" % number)
    for number in range(99_000):
        os.close(os.open(b"f%d" % number, os.O_CREAT | os.O_WRONLY, dir_fd=memory.fd))
    assert run_python(LITTLE, folder) == 100_000


def test_a_walk_that_is_given_up_releases_its_descriptors(folder: Path, root: Directory) -> None:
    plant(folder, TREE)
    held = os.listdir("/proc/self/fd")
    walking = walk(root)
    for entry in walking:
        if entry.name == b"deeper":
            break
    assert len(os.listdir("/proc/self/fd")) > len(held)
    walking.close()
    assert os.listdir("/proc/self/fd") == held
