"""The system calls, each against what the standard library or the kernel says of the same thing."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vfs.hostile import run_python
from vfs import linux


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 10_000)
    return path


def test_statx_tells_what_stat_tells(tmp_path: Path, file: Path) -> None:
    os.link(file, tmp_path / "again")
    (tmp_path / "link").symlink_to("f")
    os.mknod(tmp_path / "device", stat.S_IFCHR | 0o640, os.makedev(300, 70_000))
    os.chown(file, 70_000, 80_000)
    os.chmod(file, 0o6751)
    os.utime(file, ns=(1_000_000_000_123_456_789, -5_000_000_001))
    fd = os.open(tmp_path, os.O_PATH)
    for name in ("f", "link", "device", "."):
        status = linux.statx(fd, os.fsencode(name))
        native = os.lstat(tmp_path / name)
        assert (
            status.mode, status.ino, status.nlink, status.uid, status.gid, status.size,
            status.blocks, status.blksize, status.rdev,
            os.makedev(status.dev_major, status.dev_minor),
            status.atime_ns, status.mtime_ns, status.ctime_ns,
        ) == (
            native.st_mode, native.st_ino, native.st_nlink, native.st_uid, native.st_gid,
            native.st_size, native.st_blocks, native.st_blksize, native.st_rdev, native.st_dev,
            native.st_atime_ns, native.st_mtime_ns, native.st_ctime_ns,
        )  # fmt: skip
        assert status.mask & linux.STATX_BASIC_STATS == linux.STATX_BASIC_STATS
    again = linux.statx(fd, b"again")
    assert again.identity == linux.statx(fd, b"f").identity != linux.statx(fd, b"link").identity
    os.close(fd)


def test_statx_follows_a_link_only_when_asked_to(tmp_path: Path, file: Path) -> None:
    (tmp_path / "link").symlink_to("f")
    name = os.fsencode(tmp_path / "link")
    assert stat.S_ISLNK(linux.statx(linux.AT_FDCWD, name).mode)
    assert stat.S_ISREG(linux.statx(linux.AT_FDCWD, name, 0).mode)


def test_statx_tells_the_mount_that_the_kernel_lists(file: Path) -> None:
    fd = os.open(file, os.O_PATH)
    status = linux.fstatx(fd)
    fields = dict(
        line.split(":\t", 1) for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    )
    os.close(fd)
    assert status.mask & linux.STATX_MNT_ID
    assert status.mnt_id == int(fields["mnt_id"])


def test_statx_tells_immutable_and_append_only(tmp_path: Path, file: Path) -> None:
    name = os.fsencode(file)
    both = linux.STATX_ATTR_IMMUTABLE | linux.STATX_ATTR_APPEND
    assert linux.statx(linux.AT_FDCWD, name).attributes & both == 0
    for letter, attribute in (("i", linux.STATX_ATTR_IMMUTABLE), ("a", linux.STATX_ATTR_APPEND)):
        assert os.spawnlp(os.P_WAIT, "chattr", "chattr", f"+{letter}", file) == 0
        try:
            assert linux.statx(linux.AT_FDCWD, name).attributes & both == attribute
        finally:
            assert os.spawnlp(os.P_WAIT, "chattr", "chattr", f"-{letter}", file) == 0


def test_openat2_opens_close_on_exec_and_resolves_as_told(tmp_path: Path, file: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "up").symlink_to("../f")
    root = os.open(tmp_path / "d", os.O_PATH)
    resolve = linux.RESOLVE_BENEATH | linux.RESOLVE_NO_SYMLINKS
    fd = linux.openat2(linux.AT_FDCWD, os.fsencode(file), os.O_RDONLY, linux.RESOLVE_NO_SYMLINKS)
    assert not os.get_inheritable(fd)
    assert os.fstat(fd).st_ino == file.stat().st_ino
    os.close(fd)
    for path, number in ((b"up", errno.ELOOP), (b"../f", errno.EXDEV), (b"/", errno.EXDEV)):
        with pytest.raises(OSError) as caught:
            linux.openat2(root, path, os.O_RDONLY, resolve)
        assert (caught.value.errno, caught.value.filename) == (number, path)
    fd = linux.openat2(root, b"new", os.O_CREAT | os.O_WRONLY, resolve, 0o640)
    os.close(fd)
    assert stat.S_IMODE((tmp_path / "d" / "new").stat().st_mode) == 0o640
    os.close(root)


def test_renameat2_exchanges_and_does_not_replace(tmp_path: Path, file: Path) -> None:
    fd = os.open(tmp_path, os.O_PATH)
    (tmp_path / "g").write_bytes(b"g")
    linux.renameat2(fd, b"f", fd, b"g", linux.RENAME_EXCHANGE)
    assert file.read_bytes() == b"g"
    with pytest.raises(FileExistsError):
        linux.renameat2(fd, b"f", fd, b"g", linux.RENAME_NOREPLACE)
    linux.renameat2(fd, b"f", fd, b"h", linux.RENAME_NOREPLACE)
    assert sorted(os.listdir(tmp_path)) == ["g", "h"]
    os.close(fd)


def test_fallocate_reserves_and_punches(file: Path) -> None:
    fd = os.open(file, os.O_RDWR)
    linux.fallocate(fd, 0, 0, 1 << 20)
    assert os.fstat(fd).st_size == 1 << 20
    linux.fallocate(fd, 3, 0, 4096)  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
    assert os.pread(fd, 4097, 0) == bytes(4096) + b"x"
    with pytest.raises(OSError) as caught:
        linux.fallocate(fd, 0, -1, 1)
    assert caught.value.errno == errno.EINVAL
    os.close(fd)


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_held_inodes_owner_is_set_and_minus_one_keeps_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    if kind == "link":
        path.symlink_to(tmp_path / "target")
        (tmp_path / "target").write_bytes(b"")
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"")
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    linux.fchown_held(fd, 2**32 - 2, 5)
    assert (path.lstat().st_uid, path.lstat().st_gid) == (2**32 - 2, 5)
    linux.fchown_held(fd, -1, 6)
    assert (path.lstat().st_uid, path.lstat().st_gid) == (2**32 - 2, 6)
    if kind == "link":
        assert (tmp_path / "target").lstat().st_uid == 0
    os.close(fd)


@pytest.mark.parametrize(
    "call",
    [
        lambda: linux.statx(linux.AT_FDCWD, b"/etc\0x"),
        lambda: linux.openat2(linux.AT_FDCWD, b"/etc\0x", os.O_PATH, 0),
        lambda: linux.renameat2(linux.AT_FDCWD, b"/etc\0x", linux.AT_FDCWD, b"y", 1),
        lambda: linux.renameat2(linux.AT_FDCWD, b"x", linux.AT_FDCWD, b"/etc\0y", 1),
        lambda: linux.fchmodat2(linux.AT_FDCWD, b"/etc\0x", 0o755),
    ],
)
def test_a_nul_byte_does_not_cut_a_name_short(call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    "call",
    [
        lambda: linux.statx(-1, b"x"),
        lambda: linux.fstatx(-1),
        lambda: linux.openat2(-1, b"x", os.O_PATH, 0),
        lambda: linux.renameat2(-1, b"x", -1, b"y", 1),
        lambda: linux.fallocate(-1, 0, 0, 1),
        lambda: linux.fchown_held(-1, 0, 0),
        lambda: linux.fchmodat2(-1, b"x", 0),
    ],
)
def test_an_error_is_an_oserror_with_the_kernels_number(call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:
        call()
    assert caught.value.errno == errno.EBADF
    assert caught.value.strerror == os.strerror(errno.EBADF)


@pytest.mark.parametrize("name", ["f", "d", "fifo"])
def test_fchmodat2_sets_the_whole_mode_of_an_entry(tmp_path: Path, file: Path, name: str) -> None:
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "fifo")
    fd = os.open(tmp_path, os.O_PATH)
    for mode in (0o6751, 0o1000, 0o600):
        linux.fchmodat2(fd, os.fsencode(name), mode)
        assert stat.S_IMODE((tmp_path / name).lstat().st_mode) == mode
    os.close(fd)


def test_fchmodat2_never_changes_a_links_target(tmp_path: Path, file: Path) -> None:
    (tmp_path / "link").symlink_to("f")
    before = file.stat()
    with pytest.raises(OSError) as caught:
        linux.fchmodat2(linux.AT_FDCWD, os.fsencode(tmp_path / "link"), 0o600)
    assert caught.value.errno == errno.EOPNOTSUPP
    assert file.stat() == before


def test_a_child_is_told_of_its_parents_death() -> None:
    code = """
import os, signal
from vfs import linux
reading, writing = os.pipe()
if os.fork() == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    linux.set_parent_death_signal(signal.SIGUSR1)
    os.write(writing, b"x")
    print(signal.sigwait([signal.SIGUSR1]), flush=True)
    os._exit(0)
os.read(reading, 1)
os._exit(0)
"""
    assert run_python(code) == signal.SIGUSR1
