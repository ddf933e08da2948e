"""Links, names that are no names, and mounts: what got through elsewhere gets nothing here.

Each case runs with both resolvers. `outside` compares the outside whole after every test.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vfs.calls import ALL, CHANGING, READING, Call, calls
from tests.vfs.conftest import Mount
from tests.vfs.hostile import snapshot
from vfs.beneath import Directory
from vfs.errors import (
    AlreadyExists,
    Busy,
    InvalidPath,
    IsADirectory,
    LinkRefused,
    NotADirectory,
    NotFound,
)

pytestmark = pytest.mark.usefixtures("way")

# Links, as the way and as its end.


THROUGH_LINKS = [
    b"to-directory/secret", b"to-directory/sub/secret", b"to-parent/outside/secret",
    b"chain/secret", b"loop/secret", b"dir/deep/secret", b"dir/deep/sub/secret",
    b"to-inside/secret",
]  # fmt: skip


@calls(ALL)
def test_no_call_goes_through_a_link(planted: Path, root: Directory, call: Call) -> None:
    before = snapshot(planted)
    for path in THROUGH_LINKS:
        with pytest.raises(LinkRefused):
            call(root, path)
    assert snapshot(planted) == before


@calls(READING | CHANGING)
def test_no_call_opens_or_changes_what_a_link_at_the_end_points_to(
    planted: Path, root: Directory, call: Call
) -> None:
    before = snapshot(planted)
    for name in (b"to-directory", b"to-file", b"chain", b"loop", b"dangling"):
        with pytest.raises(LinkRefused):
            call(root, name)
    assert snapshot(planted) == before


def test_a_trailing_slash_does_not_make_a_link_followed(planted: Path, root: Directory) -> None:
    for path in (b"to-directory/", b"to-inside/", b"chain/"):
        for call in (READING | CHANGING).values():
            with pytest.raises(LinkRefused):
                call(root, path)
        assert stat.S_ISLNK(root.stat(path).mode)


def test_a_link_is_looked_at_read_moved_and_removed_as_itself(
    planted: Path, root: Directory, outside: Path
) -> None:
    assert stat.S_ISLNK(root.stat(b"to-file").mode)
    assert root.read_link(b"to-file") == os.fsencode(outside / "secret")
    root.change_owner(b"to-file", 4, 5)
    root.change_times(b"to-file", 1, 2)
    status = root.stat(b"to-file")
    assert (status.uid, status.gid, status.mtime_ns) == (4, 5, 2)
    root.rename(b"to-file", b"dir/moved")
    root.link(b"dir/moved", b"again")
    assert root.stat(b"again").identity == root.stat(b"dir/moved").identity
    assert stat.S_ISLNK(root.stat(b"again").mode)
    for name in (b"again", b"dir/moved", b"to-directory", b"dangling", b"loop"):
        root.unlink(name)
        with pytest.raises(NotFound):
            root.stat(name)


def test_a_link_to_a_directory_is_not_removed_as_a_directory(
    planted: Path, root: Directory
) -> None:
    with pytest.raises(NotADirectory):
        root.remove_directory(b"to-directory")


@pytest.mark.parametrize("name", [b"dangling", b"to-file", b"to-directory", b"loop"])
def test_nothing_is_created_through_a_link(
    planted: Path, root: Directory, outside: Path, name: bytes
) -> None:
    for call in (Directory.create_file, Directory.make_directory):
        with pytest.raises(AlreadyExists):
            call(root, name)
    with pytest.raises(LinkRefused):
        root.make_directories(name)
    assert not (outside / "not-there").exists()


def test_a_rename_onto_a_link_replaces_the_link(
    planted: Path, root: Directory, outside: Path
) -> None:
    root.rename(b"source", b"to-file")
    assert (planted / "to-file").read_bytes() == b"inside"
    assert not (planted / "to-file").is_symlink()


def test_magic_links_lead_nowhere(folder: Path, root: Directory, outside: Path) -> None:
    fd = os.open(outside, os.O_RDONLY)
    try:
        (folder / "fds").symlink_to("/proc/self/fd")
        (folder / "the-fd").symlink_to(f"/proc/self/fd/{fd}")
        (folder / "proc-root").symlink_to("/proc/self/root")
        assert (folder / "fds" / str(fd) / "secret").read_bytes() == b"outside"
        for path in (f"fds/{fd}", f"fds/{fd}/secret", "the-fd", "the-fd/secret", "proc-root/etc"):
            for call in (READING | CHANGING).values():
                with pytest.raises(LinkRefused):
                    call(root, os.fsencode(path))
    finally:
        os.close(fd)


def test_a_magic_link_met_directly_leads_nowhere() -> None:
    with Directory.open(f"/proc/{os.getpid()}") as process:
        for path in (b"root/etc/passwd", b"cwd/x", b"exe", b"fd/0", b"root"):
            for call in (Directory.open_file, Directory.directory):
                with pytest.raises(LinkRefused):
                    call(process, path)


def test_the_name_of_a_root_may_be_no_link_however_it_ends(planted: Path) -> None:
    for name in ("to-inside", "to-inside/", "to-inside//", "to-inside/.", "to-inside/./"):
        with pytest.raises(LinkRefused):
            Directory.open(os.path.join(planted, name))
    with pytest.raises(NotADirectory):
        Directory.open(planted / "source")
    with pytest.raises(NotFound):
        Directory.open(planted / "not-there")
    with pytest.raises(InvalidPath):
        Directory.open(b"a\0b")
    with Directory.open(f"{planted}/dir/.//") as directory:
        assert set(directory.names()) == {b"secret", b"deep"}


# Names that are no names.


NO_PATHS = [
    b"../outside/secret", b"dir/../../outside/secret", b"dir/../source", b"..", b"../", b".",
    b"./source", b"dir/./secret", b"/etc/passwd", b"//", b"dir//secret", b"dir//", b"/dir",
    b"a\0b", b"source\0", b"x" * 256, b"dir/" + b"x" * 256, "\udfff",
    (b"..", b"outside"), (b"dir/secret",), (b"dir", b""), (b".",), (b"a\0b",), (b"/",),
]  # fmt: skip


@calls(ALL)
def test_no_call_takes_what_is_no_path(
    planted: Path, root: Directory, call: Callable[[Directory, object], object]
) -> None:
    before = snapshot(planted)
    for path in NO_PATHS:
        with pytest.raises(InvalidPath):
            call(root, path)
    assert snapshot(planted) == before


NASTY = [
    b"x" * 255, b"\xff\xfe", b"a\nb", b"\x1b[31mred", b"-rf", b"*", b"a.", b"back\\slash",
    b"two  spaces", b" ", b" lead and trail ", "\u00e9".encode(), "e\u0301".encode(), b"CASE",
    b"case", b"...", b"~", b"$HOME", b"\x01", b"\x7f", "\u202etxt".encode(), "名前".encode(),
    b"con",
]  # fmt: skip


def test_any_name_is_made_listed_read_moved_and_removed_as_its_exact_bytes(
    folder: Path, root: Directory
) -> None:
    for number, name in enumerate(NASTY):
        fd = root.create_file((name,))
        os.write(fd, b"%d" % number)
        os.close(fd)
    assert sorted(root.names()) == sorted(NASTY)
    root.make_directory(b"dir")
    for number, name in enumerate(NASTY):
        assert stat.S_ISREG(root.stat(name).mode)
        fd = root.open_file(os.fsdecode(name))
        assert os.read(fd, 10) == b"%d" % number
        os.close(fd)
        root.rename(name, (b"dir", name))
    assert root.names() == [b"dir"]
    assert sorted(root.names(b"dir")) == sorted(NASTY)
    for name in NASTY:
        root.unlink(b"dir/" + name)
    assert root.names(b"dir/") == []


# Mounts beneath the root.


@pytest.fixture(params=["the same file system", "another file system"])
def mounted(
    request: pytest.FixtureRequest, folder: Path, outside: Path, mount: Mount, tmp_path: Path
) -> Path:
    """A mountpoint `m` beneath the root, with a file `secret` and a directory `sub` in it."""
    point = folder / "m"
    point.mkdir()
    if request.param == "the same file system":
        mount(point, "--bind", outside)
        assert point.stat().st_dev == folder.stat().st_dev
    else:
        mount(point, "-t", "tmpfs", "-o", "size=64k", "none")
        shutil.copytree(outside, point, dirs_exist_ok=True)
    (folder / "source").write_bytes(b"inside")
    return point


@calls(ALL)
def test_no_call_crosses_a_mount(mounted: Path, root: Directory, call: Call) -> None:
    before = snapshot(mounted)
    for path in (b"m/secret/x", b"m/sub/secret", b"m/sub/new", b"m/new/newer"):
        with pytest.raises(InvalidPath, match="mounted"):
            call(root, path)
    assert snapshot(mounted) == before


@calls(ALL)
def test_no_call_acts_on_the_root_of_a_mount(mounted: Path, root: Directory, call: Call) -> None:
    before = snapshot(mounted)
    with pytest.raises((InvalidPath, Busy, AlreadyExists, IsADirectory, NotADirectory)):
        call(root, b"m")
    with pytest.raises(InvalidPath, match="mounted"):
        root.stat(b"m")
    assert snapshot(mounted) == before
    assert b"m" in root.names()


def test_a_file_mounted_over_a_file_is_not_reached(
    folder: Path, root: Directory, outside: Path, mount: Mount
) -> None:
    (folder / "source").write_bytes(b"inside")
    (folder / "f").write_bytes(b"inside")
    mount(folder / "f", "--bind", outside / "secret")
    for call in ALL.values():
        with pytest.raises((InvalidPath, Busy, AlreadyExists, NotADirectory)):
            call(root, b"f")
    assert (folder / "f").read_bytes() == b"outside"


def test_a_root_may_itself_be_a_mount(folder: Path, mount: Mount) -> None:
    mount(folder, "-t", "tmpfs", "-o", "size=64k", "none")
    with Directory.open(folder) as directory:
        with directory.make_directories(b"a/b") as deepest:
            os.close(deepest.create_file(b"f"))
        assert directory.names(b"a/b") == [b"f"]
