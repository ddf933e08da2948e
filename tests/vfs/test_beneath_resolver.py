"""Which resolver a process gets, and that both answer alike where the kernel is old or strict."""

from __future__ import annotations

import errno
import os
from io import StringIO
from pathlib import Path

import pytest

from tests.vfs.conftest import Mount
from tests.vfs.hostile import REFUSE_SYSTEM_CALL, run_python
from vfs import linux, resolving
from vfs.beneath import Directory, Openat2, Resolver, Walk, mount_id, resolver
from vfs.errors import Busy, InvalidPath, Unavailable
from vfs.linux import Status
from vfs.resolving import O_ENTER, O_LIST, O_LOOK

WORK = """
import json, os, sys
from vfs import linux
from vfs.beneath import Directory, resolver
from vfs.errors import VfsError
def errno_of(call, *arguments):
    try: return os.close(call(*arguments)) or 0
    except OSError as error: return error.errno
def kind_of(call, *arguments):
    try: call(*arguments)
    except VfsError as error: return error.kind
    return None
root = Directory.open(sys.argv[1])
with root.make_directories("a/b") as made:
    os.close(made.create_file("f"))
print(json.dumps({
    "openat2": errno_of(linux.openat2, root.fd, b"a", os.O_PATH, linux.RESOLVE_BENEATH),
    "resolver": type(resolver()).__name__,
    "file": kind_of(root.open_file, "a/b/f"),
    "link": kind_of(root.open_file, "link/passwd"),
    "size": root.stat("a/b/f").size,
}))
"""


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_where_a_seccomp_filter_refuses_openat2_paths_are_walked(folder: Path, number: int) -> None:
    (folder / "link").symlink_to("/etc")
    code = REFUSE_SYSTEM_CALL + f"refuse(437, {number})\n" + WORK
    assert run_python(code, folder, GEMSPACE_NO_OPENAT2="") == {
        "openat2": number,
        "resolver": "Walk",
        "file": None,
        "link": "link_refused",
        "size": 0,
    }


@pytest.mark.parametrize("value", ["", "0", "yes"])
def test_openat2_is_used_where_it_is_allowed(folder: Path, value: str) -> None:
    (folder / "link").symlink_to("/etc")
    assert run_python(WORK, folder, GEMSPACE_NO_OPENAT2=value) == {
        "openat2": 0,
        "resolver": "Openat2",
        "file": None,
        "link": "link_refused",
        "size": 0,
    }


def test_gemspace_no_openat2_makes_paths_walked(folder: Path) -> None:
    (folder / "link").symlink_to("/etc")
    found = run_python(WORK, folder, GEMSPACE_NO_OPENAT2="1")
    assert (found["openat2"], found["resolver"], found["link"]) == (0, "Walk", "link_refused")


def test_walking_makes_no_openat2_call(folder: Path) -> None:
    # SECCOMP_RET_KILL_PROCESS instead of an errno: the call would end the process.
    deadly = REFUSE_SYSTEM_CALL.replace("0x00050000 | errno", "0x80000000") + "refuse(437, 0)\n"
    work = WORK.replace("errno_of(linux.openat2,", "repr((").replace("BENEATH)", "BENEATH))")
    found = run_python(deadly + work, folder, GEMSPACE_NO_OPENAT2="1")
    assert (found["resolver"], found["file"]) == ("Walk", None)


@pytest.mark.parametrize("way_to_open", [Openat2(), Walk()])
def test_both_resolvers_refuse_a_last_link_or_hold_it_whatever_the_flags(
    folder: Path, root: Directory, outside: Path, way_to_open: Resolver
) -> None:
    (folder / "link").symlink_to(outside)
    for flags in (os.O_DIRECTORY, os.O_DIRECTORY | os.O_PATH, O_LIST, O_ENTER):
        with pytest.raises(OSError) as refused:
            way_to_open.open(root.fd, root.mnt_id, (b"link",), flags)
        assert refused.value.errno == errno.ELOOP
    for flags in (os.O_PATH, O_LOOK):
        fd = way_to_open.open(root.fd, root.mnt_id, (b"link",), flags)
        assert linux.fstatx(fd).identity == root.stat("link").identity
        assert not os.get_inheritable(fd)
        os.close(fd)


class Interrupted:
    """openat2 that fails some times before it is asked for real."""

    def __init__(self, number: int, times: int) -> None:
        self.number = number
        self.left = times
        self.real = linux.openat2

    def __call__(self, dirfd: int, path: bytes, flags: int, resolve: int, mode: int = 0) -> int:
        if self.left:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number), path)
        return self.real(dirfd, path, flags, resolve, mode)


@pytest.mark.parametrize(
    ("number", "times"), [(errno.EAGAIN, 50), (errno.EINTR, 50), (errno.EXDEV, 9)]
)
def test_a_resolution_that_raced_or_was_interrupted_is_tried_again(
    root: Directory, monkeypatch: pytest.MonkeyPatch, number: int, times: int
) -> None:
    os.close(root.create_file("f"))
    interrupted = Interrupted(number, times)
    monkeypatch.setattr(linux, "openat2", interrupted)
    fd = Openat2().open(root.fd, root.mnt_id, (b"f",), O_LOOK)
    os.close(fd)
    assert interrupted.left == 0


def test_a_resolution_that_races_for_ever_is_busy(
    root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMSPACE_NO_OPENAT2", raising=False)
    resolver.cache_clear()
    assert type(resolver()) is Openat2
    interrupted = Interrupted(errno.EAGAIN, 10**9)
    monkeypatch.setattr(linux, "openat2", interrupted)
    with pytest.raises(Busy):
        root.stat("f")
    assert 10**9 - interrupted.left < 10_000
    resolver.cache_clear()


def without_mount_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the kernel one before 5.8, whose statx does not tell the mount."""
    real = linux.statx

    def old(dirfd: int, name: bytes, flags: int = linux.AT_SYMLINK_NOFOLLOW) -> Status:
        status = real(dirfd, name, flags)
        return status._replace(mask=status.mask & ~linux.STATX_MNT_ID, mnt_id=0)

    monkeypatch.setattr(linux, "statx", old)


def test_before_linux_5_8_the_mount_is_read_from_proc(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = os.open(folder, os.O_PATH)
    told = mount_id(fd)
    without_mount_ids(monkeypatch)
    assert mount_id(fd) == told
    os.close(fd)


def test_before_linux_5_8_no_mount_is_crossed_either(
    folder: Path, outside: Path, mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "m").mkdir()
    mount(folder / "m", "--bind", outside)
    without_mount_ids(monkeypatch)
    monkeypatch.setenv("GEMSPACE_NO_OPENAT2", "1")
    resolver.cache_clear()
    with Directory.open(folder) as root:
        assert type(resolver()) is Walk
        for path in ("m/secret", "m"):
            with pytest.raises(InvalidPath, match="mounted"):
                root.stat(path)
        root.make_directory("d")
        assert root.names("d") == []
    resolver.cache_clear()


def test_a_mount_that_nobody_tells_is_unavailable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_mount_ids(monkeypatch)
    monkeypatch.setattr(resolving, "open", lambda _path: StringIO("pos:\t0\n"), raising=False)
    with pytest.raises(Unavailable):
        Directory.open(folder)
