"""Copies: what is kept and what is not, and that a copy that fails leaves nothing."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vfs.conftest import Mount
from tests.vfs.hostile import NOBODY, deadline, run_python, snapshot
from tests.vfs.trees import Plan, found, plant
from vfs import copying, descent
from vfs.beneath import Directory
from vfs.errors import (
    AlreadyExists,
    InvalidPath,
    LinkRefused,
    NoSpace,
    NotADirectory,
    NotFound,
    SpecialFileRefused,
    TooLarge,
    VfsError,
)
from vfs.saving import is_temporary
from vfs.tree import Entry, Modes, copy, digest, walk

pytestmark = pytest.mark.usefixtures("way")

TREE: Plan = {"a": {"f": b"one", "empty": {}, "b": {"g": b"x" * 3_000_000}}, "run": b"#!"}


def test_a_tree_is_copied_whole(folder: Path, root: Directory) -> None:
    plant(folder, {"t": TREE})
    (folder / os.fsdecode(b"t/a/\xff\n")).write_bytes(b"odd")
    copy(root, "t", root, "c")
    assert found(folder / "c") == found(folder / "t")
    assert digest(root, "c") == digest(root, "t")
    assert sorted(root.names()) == [b"c", b"t"]


def test_a_single_file_is_copied_and_so_is_a_whole_root(folder: Path, root: Directory) -> None:
    plant(folder, {"f": b"one", "d": {"x": {"y": b""}}, "to": {}})
    copy(root, "f", root, "to/g")
    assert (folder / "to" / "g").read_bytes() == b"one"
    with root.directory("d") as source, root.directory("to") as target:
        copy(source, (), target, "all")
    assert found(folder / "to") == {"g": b"one", "all": {"x": {"y": b""}}}


def test_times_and_the_executable_bit_are_kept_and_set_id_bits_are_not(
    folder: Path, root: Directory
) -> None:
    plant(folder, {"t": {"d": {"f": b"", "x": b""}}})
    os.chmod(folder / "t" / "d" / "f", 0o6646)
    os.chmod(folder / "t" / "d" / "x", 0o4754)
    os.chmod(folder / "t" / "d", 0o2775)
    times = {"t/d/f": 111, "t/d/x": 10**18 + 1, "t/d": 333, "t": 10**18 + 4}
    for name, time in times.items():
        os.utime(folder / name, ns=(5, time))
    copy(root, "t", root, "private")
    copy(root, "t", root, "public", modes=Modes(directory=0o555, file=0o444, executable=0o555))
    copy(root, "t", root, "same", modes="keep")
    modes = {
        top: [stat.S_IMODE(root.stat(top + name).mode) for name in ("", "/d", "/d/f", "/d/x")]
        for top in ("private", "public", "same")
    }
    assert modes == {
        "private": [0o700, 0o700, 0o600, 0o700],
        "public": [0o555, 0o555, 0o444, 0o555],
        "same": [stat.S_IMODE(root.stat("t").mode), 0o775, 0o646, 0o754],
    }
    for top in modes:
        assert {name: root.stat(name.replace("t", top, 1)).mtime_ns for name in times} == times


def test_everything_is_given_to_the_owner(folder: Path, root: Directory) -> None:
    plant(folder, {"t": {"d": {"f": b"", "l": "f"}}})
    copy(root, "t", root, "c", links="keep", owner=(1000, 1001))
    owners = {(entry.status.uid, entry.status.gid) for entry in walk(root, "c")}
    assert owners == {(1000, 1001)}
    assert (root.stat("c").uid, root.stat("c").gid) == (1000, 1001)


def test_hard_links_within_the_tree_stay_hard_links(folder: Path, root: Directory) -> None:
    plant(folder, {"t": {"a": {"f": b"shared"}, "b": {}}, "outside-it": b""})
    os.link(folder / "t" / "a" / "f", folder / "t" / "b" / "g")
    os.link(folder / "t" / "a" / "f", folder / "t" / "h")
    os.link(folder / "t" / "a" / "f", folder / "beside")
    copy(root, "t", root, "c")
    names = ("c/a/f", "c/b/g", "c/h")
    assert len({root.stat(name).identity for name in names}) == 1
    assert root.stat("c/h").nlink == 3
    assert root.stat("c/h").identity != root.stat("t/h").identity
    copy(root, "beside", root, "single")
    assert root.stat("single").nlink == 1


def test_holes_stay_holes(folder: Path, root: Directory) -> None:
    (folder / "t").mkdir()
    with open(folder / "t" / "sparse", "wb") as file:
        file.truncate(1 << 30)
        for offset in (1 << 20, 1 << 29):
            file.seek(offset)
            file.write(b"data" * 5000)
    with open(folder / "t" / "hole", "wb") as file:
        file.truncate(1 << 40)
    copy(root, "t", root, "c")
    assert digest(root, "c/sparse") == digest(root, "t/sparse")
    for name in ("sparse", "hole"):
        before, after = root.stat(f"t/{name}"), root.stat(f"c/{name}")
        assert after.size == before.size
        assert after.blocks <= before.blocks + 16


def test_content_is_copied_where_the_kernel_cannot_copy_by_itself(
    folder: Path, root: Directory, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": TREE, "m": {}})
    mount(folder / "m", "-t", "tmpfs", "-o", "size=16m", "none")
    with Directory.open(folder / "m") as other:
        copy(root, "t", other, "c")
        assert found(folder / "m" / "c") == TREE
    for number in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, None):

        def refuse(*_: int, number: int | None = number) -> int:
            if number is None:
                return 0  # what some file systems say instead of copying
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "copy_file_range", refuse)
        copy(root, "t", root, f"c{number}")
        assert found(folder / f"c{number}") == TREE


def test_links_are_refused_or_kept_and_never_followed(
    folder: Path, root: Directory, outside: Path
) -> None:
    plant(folder, {"t": {"d": {"l": str(outside), "f": b""}}, "one": "/etc/passwd"})
    os.utime(folder / "t" / "d" / "l", ns=(1, 222), follow_symlinks=False)
    for path in ("t", "one"):
        with pytest.raises(LinkRefused) as refused:
            copy(root, path, root, "c")
        assert refused.value.path in (b"t/d/l", b"one")
    assert sorted(root.names()) == [b"one", b"t"]
    copy(root, "t", root, "c", links="keep")
    copy(root, "one", root, "two", links="keep")
    assert found(folder / "c") == found(folder / "t")
    assert root.stat("c/d/l").mtime_ns == 222
    assert root.read_link("two") == b"/etc/passwd"
    with pytest.raises(LinkRefused):
        copy(root, "t/d/l/sub", root, "d")


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_a_special_file_is_refused_by_name(folder: Path, root: Directory, kind: int) -> None:
    plant(folder, {"t": {"a": b"", "d": {}}})
    os.mknod(folder / "t" / "d" / "s", kind | 0o600, os.makedev(1, 3))
    with deadline(20):
        for path in ("t", "t/d/s"):
            with pytest.raises(SpecialFileRefused) as refused:
                copy(root, path, root, "c")
            assert refused.value.path == b"t/d/s"
    assert root.names() == [b"t"]


def test_a_mount_within_the_tree_is_refused(
    folder: Path, root: Directory, outside: Path, mount: Mount
) -> None:
    plant(folder, {"t": {"m": {}}})
    mount(folder / "t" / "m", "--bind", outside)
    with pytest.raises(InvalidPath):
        copy(root, "t", root, "c")
    assert root.names() == [b"t"]


def test_a_copy_replaces_nothing(folder: Path, root: Directory, outside: Path) -> None:
    plant(folder, {"t": TREE, "file": b"kept", "dir": {}, "link": str(outside), "dangling": "no"})
    before = snapshot(folder)
    for name in ("file", "dir", "link", "dangling", "t"):
        for source in ("t", "t/run"):
            with pytest.raises(AlreadyExists) as taken:
                copy(root, source, root, name)
            assert taken.value.path == name.encode()
    for name, error in (
        ("no/where", NotFound),
        ("file/x", NotADirectory),
        ("link/x", LinkRefused),
        ("", InvalidPath),
        ("../x", InvalidPath),
    ):
        with pytest.raises(error):
            copy(root, "t", root, name)
    with pytest.raises(NotFound):
        copy(root, "nothing", root, "c")
    assert snapshot(folder) == before


def test_a_name_taken_meanwhile_is_not_replaced(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": TREE})
    real = copying.rename

    def late(*arguments: object) -> None:
        (folder / "c").write_bytes(b"theirs")
        real(*arguments)

    monkeypatch.setattr(copying, "rename", late)
    with pytest.raises(AlreadyExists) as taken:
        copy(root, "t", root, "c", modes=Modes(directory=0o555))
    assert taken.value.path == b"c"
    assert found(folder) == {"t": TREE, "c": b"theirs"}


def test_a_tree_is_not_copied_into_itself(folder: Path, root: Directory) -> None:
    plant(folder, {"t": TREE})
    for target in ("t/c", "t/a/c", "t/a/b/c"):
        with deadline(20), pytest.raises(InvalidPath, match="into itself"):
            copy(root, "t", root, target)
    assert found(folder) == {"t": TREE}
    with root.directory("t") as source, pytest.raises(InvalidPath, match="into itself"):
        copy(source, (), source, "a/c")
    assert found(folder) == {"t": TREE}


def test_a_full_disk_leaves_nothing_half_made(folder: Path, root: Directory, mount: Mount) -> None:
    plant(folder, {"m": {}, "t": {"a": {"f": b"x" * 900_000}, "b": {"g": b"y" * 900_000}}})
    mount(folder / "m", "-t", "tmpfs", "-o", "size=1m", "none")
    with Directory.open(folder / "m") as full:
        os.close(full.create_file("kept"))
        free = os.statvfs(folder / "m").f_bfree
        for path, modes in (("t", Modes()), ("t", Modes(directory=0o500, file=0o400))):
            with pytest.raises(NoSpace) as error:
                copy(root, path, full, "c", modes=modes)
            assert error.value.path == b"t/b/g"
            assert full.names() == [b"kept"]
            assert os.statvfs(folder / "m").f_bfree == free
        copy(root, "t/a", full, "c")


def test_no_inode_left_leaves_nothing_half_made(
    folder: Path, root: Directory, mount: Mount
) -> None:
    plant(folder, {"m": {}, "t": {f"{number}": {"f": b""} for number in range(20)}})
    mount(folder / "m", "-t", "tmpfs", "-o", "nr_inodes=30", "none")
    with Directory.open(folder / "m") as full:
        with pytest.raises(NoSpace):
            copy(root, "t", full, "c")
        assert full.names() == []


def test_a_file_larger_than_the_target_takes_is_too_large(
    tmp_path: Path, memory: Directory
) -> None:
    fd = memory.create_file("f")
    os.truncate(fd, 2**63 - 1)  # where a disk's file systems end much earlier
    os.close(fd)
    (tmp_path / "disk").mkdir()
    with Directory.open(tmp_path / "disk") as disk:
        with pytest.raises(TooLarge):
            copy(memory, "f", disk, "c")
        assert disk.names() == []


def test_what_another_user_may_not_read_or_write_leaves_nothing(folder: Path) -> None:
    plant(folder, {"t": {"a": b"1", "closed": b"2"}, "mine": {}, "not-mine": {}})
    os.chmod(folder, 0o755)
    os.chmod(folder / "t" / "a", 0o644)
    os.chmod(folder / "t" / "closed", 0o600)
    os.chown(folder / "mine", NOBODY, NOBODY)
    answers = run_python(
        "import json, os, sys\n"
        "from vfs.beneath import Directory\n"
        "from vfs.errors import VfsError\n"
        "from vfs.tree import Entry, Modes, copy\n"
        "root = Directory.open(sys.argv[1])\n"
        f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
        "def kind(*arguments, **options):\n"
        "    try: copy(root, *arguments, **options)\n"
        "    except VfsError as error: return [error.kind, error.path.decode()]\n"
        "closed = Modes(directory=0o500, file=0o400)\n"
        "print(json.dumps([\n"
        "    kind('t', root, 'mine/c'),\n"
        "    kind('t', root, 'mine/c', modes=closed),\n"
        "    kind('t/a', root, 'not-mine/c'),\n"
        "    kind('t/a', root, 'mine/c', owner=(0, 0)),\n"
        "    kind('t/a', root, 'mine/c'),\n"
        "]))\n",
        folder,
    )
    assert answers == [
        ["permission", "t/closed"],
        ["permission", "t/closed"],
        ["permission", "t/a"],
        ["permission", "t/a"],
        None,
    ]
    assert found(folder / "mine") == {"c": b"1"}
    assert found(folder / "not-mine") == {}


def test_what_vanishes_meanwhile_is_not_in_the_copy(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": {"a": b"", "b": b"", "d": {"x": b""}, "l": "a", "z": b""}})
    real = copying._Copy.add

    def add(self: copying._Copy, here: Directory, entry: Entry, depth: int) -> None:
        name = entry.name
        if name in (b"b", b"l"):
            os.unlink(folder / "t" / os.fsdecode(name))
        real(self, here, entry, depth)
        if name == b"d":
            shutil.rmtree(folder / "t" / "d")

    monkeypatch.setattr(copying._Copy, "add", add)
    copy(root, "t", root, "c", links="keep")
    assert found(folder / "c") == {"a": b"", "d": {}, "z": b""}


def test_a_file_that_shrinks_or_grows_meanwhile_is_copied_as_far_as_it_goes(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = copying._copy_bytes
    for size in (10, 100_000):
        (folder / "f").write_bytes(b"x" * 50_000)

        def resize(source: int, target: int, status: object, size: int = size) -> None:
            os.truncate(folder / "f", size)
            real(source, target, status)

        monkeypatch.setattr(copying, "_copy_bytes", resize)
        copy(root, "f", root, f"c{size}")
    assert (folder / "c10").read_bytes() == b"x" * 10
    assert (folder / "c100000").read_bytes() == b"x" * 50_000


def test_a_killed_copy_leaves_at_most_what_is_known_as_temporary(
    folder: Path, root: Directory
) -> None:
    plant(folder, {"t": {f"{number}": {"f": secrets.token_bytes(100)} for number in range(2000)}})
    code = (
        "import sys\nfrom vfs.beneath import Directory\nfrom vfs.tree import copy\n"
        "root = Directory.open(sys.argv[1])\nprint('ready', flush=True)\n"
        "copy(root, 't', root, 'c')\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with deadline(60):
            while len(os.listdir(folder)) < 2:
                pass
        process.send_signal(signal.SIGKILL)
    left = [name for name in root.names() if name != b"t"]
    assert len(left) == 1
    assert is_temporary(left[0]) or found(folder / "c") == found(folder / "t")


def test_an_interrupted_copy_leaves_nothing(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(folder, {"t": TREE})
    held = os.listdir("/proc/self/fd")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(copying, "_copy_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        copy(root, "t", root, "c")
    assert root.names() == [b"t"]
    assert os.listdir("/proc/self/fd") == held


LITTLE = """
import json, os, resource, sys
from vfs import tree
from vfs.beneath import Directory
root = Directory.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (90, 90))
tree.copy(root, "d", root, "c", modes=tree.Modes(directory=0o500))
print(json.dumps(tree.digest(root, "c") == tree.digest(root, "d")))
"""


@pytest.mark.slow
def test_5_000_levels_are_copied_with_90_descriptors(memory: Directory, folder: Path) -> None:
    with memory.make_directories([b"d"] * 5000) as deepest:
        os.close(deepest.create_file(b"f"))
    for depth in (1, 40, 2500, 4999):
        path = [b"d"] * depth
        os.close(memory.create_file([*path, b"a"]))
        memory.link([*path, b"a"], [*path[:-1], b"z"] if depth > 1 else [*path, b"z"])
    assert run_python(LITTLE, folder) is True


@pytest.mark.parametrize("held", [1, 2, descent.HELD])
def test_few_held_directories_change_nothing_about_a_copy(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    plan: Plan = {"end": b"1"}
    for level in range(6):
        plan = {"a": {"f": b"%d" % level}, "m": plan, "z": {"l": {"x": b""}}}
    plant(folder, {"t": plan})
    monkeypatch.setattr(descent, "HELD", held)
    copy(root, "t", root, "c")
    assert found(folder / "c") == plan


@pytest.mark.parametrize("name", ["fchmod", "fchown", "utime", "mkdir", "ftruncate"])
def test_whatever_fails_leaves_nothing(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plant(folder, {"t": {"a": {"b": {"f": b"1"}}, "z": {}}})
    with open(folder / "t" / "sparse", "wb") as file:
        file.truncate(1 << 20)
    real = getattr(os, name)
    for fail_at in range(1, 20):
        calls = 0

        def fail(*arguments: object, fail_at: int = fail_at, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == fail_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, name, fail)
            try:
                copy(root, "t", root, "c", owner=(0, 0))
            except VfsError:
                assert root.names() == [b"t"]
            else:
                break
    assert fail_at > 1
    assert digest(root, "c") == digest(root, "t")
