"""What a pinned directory does when nobody is hostile: results, errors, and what errors name."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vfs.calls import ALL
from vfs import linux
from vfs.beneath import Directory, split_path
from vfs.errors import (
    AlreadyExists,
    Busy,
    Changed,
    InvalidPath,
    IsADirectory,
    NoSpace,
    NotADirectory,
    NotEmpty,
    NotFound,
    PermissionDenied,
    VfsError,
)

pytestmark = pytest.mark.usefixtures("way")

NAMES = st.binary(min_size=1, max_size=255).filter(
    lambda name: name not in (b".", b"..") and not {0, ord("/")} & set(name)
)


@given(st.lists(NAMES, max_size=8))
def test_components_come_apart_as_they_were_put_together(parts: list[bytes]) -> None:
    path = b"/".join(parts)
    assert split_path(path) == tuple(parts)
    assert split_path(parts) == tuple(parts)
    assert split_path(os.fsdecode(path)) == tuple(parts)
    if parts:
        assert split_path(path + b"/") == tuple(parts)


@given(st.binary(max_size=600))
def test_what_split_path_takes_names_entries_and_nothing_else(path: bytes) -> None:
    try:
        parts = split_path(path)
    except InvalidPath as error:
        assert error.path == path.removesuffix(b"/") or path.startswith(b"/")
        return
    assert b"/".join(parts) == (b"" if path == b"/" else path.removesuffix(b"/"))
    for name in parts:
        assert name not in (b"", b".", b"..")
        assert not {0, ord("/")} & set(name)
        assert len(name) <= 255


def test_files_are_made_read_written_and_appended_to(folder: Path, root: Directory) -> None:
    fd = root.create_file("new")
    os.write(fd, b"one")
    os.close(fd)
    fd = root.open_file("new", os.O_WRONLY | os.O_APPEND)
    os.write(fd, b" two")
    os.close(fd)
    fd = root.open_file(b"new", os.O_RDWR)
    assert os.read(fd, 100) == b"one two"
    assert os.pwrite(fd, b"ONE", 0) == 3
    os.close(fd)
    assert (folder / "new").read_bytes() == b"ONE two"
    with pytest.raises(AlreadyExists):
        root.create_file("new")
    assert (folder / "new").read_bytes() == b"ONE two"


def test_directories_are_made_with_what_is_missing_above_and_pinned(
    folder: Path, root: Directory
) -> None:
    root.make_directory("a")
    with root.make_directories("a/b/c") as deepest:
        assert deepest.stat().identity == root.stat("a/b/c").identity
        with pytest.raises(AlreadyExists):
            root.make_directory("a/b")
        with pytest.raises(NotFound):
            root.make_directory("x/y")
    os.close(root.create_file("a/file"))
    with pytest.raises(NotADirectory):
        root.make_directories("a/file/d")
    with root.make_directories(()) as same:
        assert same.stat().identity == root.stat().identity
    assert sorted(root.names("a")) == [b"b", b"file"]


def test_the_status_is_the_one_the_system_tells(folder: Path, root: Directory) -> None:
    (folder / "f").write_bytes(b"12345")
    os.utime(folder / "f", ns=(5_000_000_007, 6_000_000_008))
    (folder / "l").symlink_to("f")
    for name, path in (("f", folder / "f"), ("l", folder / "l"), ((), folder)):
        status, native = root.stat(name), path.lstat()
        assert (
            status.mode, status.ino, status.nlink, status.uid, status.gid, status.size,
            status.blocks, status.atime_ns, status.mtime_ns, status.ctime_ns,
            os.makedev(status.dev_major, status.dev_minor),
        ) == (
            native.st_mode, native.st_ino, native.st_nlink, native.st_uid, native.st_gid,
            native.st_size, native.st_blocks, native.st_atime_ns, native.st_mtime_ns,
            native.st_ctime_ns, native.st_dev,
        )  # fmt: skip
        assert status.mnt_id == root.mnt_id


def test_renames_move_replace_refuse_and_exchange(folder: Path, root: Directory) -> None:
    (folder / "a").write_bytes(b"a")
    (folder / "b").write_bytes(b"b")
    root.make_directory("d")
    with pytest.raises(AlreadyExists) as taken:
        root.rename("a", "b", flags=linux.RENAME_NOREPLACE)
    assert taken.value.path == b"b"
    root.rename("a", "b", flags=linux.RENAME_EXCHANGE)
    assert ((folder / "a").read_bytes(), (folder / "b").read_bytes()) == (b"b", b"a")
    root.rename("a", "b")
    assert (folder / "b").read_bytes() == b"b"
    with root.directory("d") as inner:
        root.rename("b", "moved", to=inner)
        assert inner.names() == [b"moved"]
    with pytest.raises(NotFound) as missing:
        root.rename("a", "c")
    assert missing.value.path == b"a"
    with pytest.raises(NotFound) as missing:
        root.rename("d/moved", "nowhere/c")
    assert missing.value.path == b"nowhere/c"
    os.close(root.create_file("f"))
    with pytest.raises(IsADirectory) as in_the_way:
        root.rename("f", "d")
    assert in_the_way.value.path == b"d"
    with pytest.raises(InvalidPath):
        root.rename("d", "d/below")
    assert root.names("d") == [b"moved"]


def test_further_names_are_links_to_the_same_file(root: Directory) -> None:
    os.close(root.create_file("a"))
    root.make_directory("d")
    with root.directory("d") as inner:
        root.link("a", "b", to=inner)
    assert root.stat("d/b").identity == root.stat("a").identity
    with pytest.raises(AlreadyExists) as taken:
        root.link("a", "d/b")
    assert taken.value.path == b"d/b"
    with pytest.raises(NotFound) as missing:
        root.link("x", "y")
    assert missing.value.path == b"x"
    with pytest.raises(PermissionDenied):
        root.link("d", "e")


def test_links_are_made_and_read_as_text(root: Directory) -> None:
    text = b"../any \xff\ntext"
    root.make_link("l", text)
    assert root.read_link("l") == text
    os.close(root.create_file("f"))
    with pytest.raises(InvalidPath):
        root.read_link("f")


def test_removals_take_the_kind_that_they_name(root: Directory) -> None:
    root.make_directory("d")
    os.close(root.create_file("d/f"))
    with pytest.raises(IsADirectory):
        root.unlink("d")
    with pytest.raises(NotEmpty):
        root.remove_directory("d")
    with pytest.raises(NotADirectory):
        root.remove_directory("d/f")
    root.unlink("d/f")
    root.remove_directory("d")
    assert root.names() == []


def test_an_answer_of_eperm_for_a_directory_is_still_said_as_a_directory(
    root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.make_directory("d")
    os.close(root.create_file("f"))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(IsADirectory):
        root.unlink("d")
    with pytest.raises(PermissionDenied):
        root.unlink("f")


def test_modes_owners_and_times_of_the_root_itself_can_be_set(root: Directory) -> None:
    root.change_mode((), 0o2751)
    root.change_owner((), 4, 5)
    root.change_owner((), -1, 6)
    root.change_times((), 1, 2)
    status = root.stat()
    assert (status.mode, status.uid, status.gid) == (stat.S_IFDIR | 0o2751, 4, 6)
    assert (status.atime_ns, status.mtime_ns) == (1, 2)
    root.sync()


# What ext4 stores with inodes of 256 bytes; at its first second it drops the nanoseconds.
TIMES = st.integers((1 - 2**31) * 10**9, 2**33 * 10**9)


@given(TIMES, TIMES)
def test_times_are_set_to_the_nanosecond_before_1970_too(atime: int, mtime: int) -> None:
    with tempfile.TemporaryDirectory() as top, Directory.open(top) as directory:
        directory.make_link("l", b"nowhere")
        os.close(directory.create_file("f"))
        for name in ("l", "f", ()):
            directory.change_times(name, atime, mtime)
            status = directory.stat(name)
            assert (status.atime_ns, status.mtime_ns) == (atime, mtime)


@pytest.mark.parametrize(
    "call",
    ["create_file", "make_directory", "unlink", "remove_directory", "rename", "link", "read_link"],
)
@pytest.mark.parametrize("path", ["", "/", b"", ()])
def test_the_root_itself_is_not_made_moved_or_removed(
    root: Directory, call: str, path: str | bytes | tuple[bytes, ...]
) -> None:
    os.close(root.create_file("f"))
    arguments = (path, "x") if call in ("rename", "link") else (path,)
    with pytest.raises(InvalidPath):
        getattr(root, call)(*arguments)
    if call in ("rename", "link"):
        with pytest.raises(InvalidPath):
            getattr(root, call)("f", path)
    with pytest.raises(IsADirectory):
        root.open_file(path)
    assert root.names() == [b"f"]


def test_an_error_names_the_path_that_was_given_and_no_other(root: Directory) -> None:
    os.close(root.create_file("file"))
    for name, call in ALL.items():
        if name in ("make_directories", "rename to", "link to"):
            continue
        for path in (b"not/there/at-all", b"file/below/it"):
            with pytest.raises((NotFound, NotADirectory)) as caught:
                call(root, path)
            assert caught.value.path == path
            assert path.decode() in str(caught.value)
            assert caught.value.fix
            assert "\n" not in str(caught.value)


def test_a_full_file_system_is_told_as_no_space_and_leaves_no_entry(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fchown", full)
    with pytest.raises(NoSpace):
        root.create_file("f", owner=(1000, 1000))
    with pytest.raises(NoSpace):
        root.make_directory("d", owner=(1000, 1000))
    assert root.names() == []


def test_a_new_directory_that_was_filled_or_replaced_meanwhile_is_left_alone(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "theirs").mkdir(mode=0o755)
    (folder / "theirs" / "f").write_bytes(b"theirs")
    real = os.mkdir

    def replace(name: bytes, mode: int, *, dir_fd: int) -> None:
        real(name, mode, dir_fd=dir_fd)
        os.rmdir(name, dir_fd=dir_fd)
        os.rename("theirs", name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", replace)
    with pytest.raises(Changed):
        root.make_directory("d", 0o700, (1000, 1000))
    status = root.stat("d")
    assert (status.mode, status.uid) == (stat.S_IFDIR | 0o755, 0)
    assert (folder / "d" / "f").read_bytes() == b"theirs"


def test_a_busy_mountpoint_elsewhere_is_told_as_busy(
    folder: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(*_: object, **__: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "rmdir", busy)
    with pytest.raises(Busy):
        root.remove_directory("d")


def test_the_parent_of_a_path_is_given_pinned_with_the_last_name(root: Directory) -> None:
    root.make_directories("a/b").close()
    with root.parent("a/b/new") as (directory, name):
        assert (directory.stat().identity, name) == (root.stat("a/b").identity, b"new")
        held = directory
    assert held.fd == -1
    with root.parent("new") as (directory, name):
        assert (directory, name) == (root, b"new")
    assert root.fd >= 0
    with pytest.raises(VfsError), root.parent("not/there"):
        pytest.fail("there is no such parent")


def test_closing_twice_closes_once(folder: Path) -> None:
    directory = Directory.open(folder)
    directory.close()
    other = os.open(folder, os.O_RDONLY)  # gets the number that is free now
    directory.close()
    assert os.fstat(other)
    os.close(other)


def test_a_descriptor_that_is_no_directory_of_a_mount_is_closed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = os.open(folder, os.O_PATH)

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(linux, "fstatx", fail)
    with pytest.raises(OSError):
        Directory(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
