"""At its limits and after accidents the mount answers an errno, and lives or is mounted anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mount.posix_mount import Mounted, is_mounted, mounted, program, serving, until
from tests.mount.posix_peer import Peer
from tests.mount.posix_tree import sh

CREATE = os.O_CREAT | os.O_RDWR


def with_descriptors(soft: int, hard: int) -> tuple[str, ...]:
    """The command that runs another with these limits of open files."""
    return ("prlimit", f"--nofile={soft}:{hard}")


def descriptors(made: Mounted) -> int:
    """How many files the server has open now."""
    return len(os.listdir(f"/proc/{made.process.pid}/fd"))


def make_wide(folder: Path, width: int) -> None:
    """`width` directories of two levels, each with a file."""
    for number in range(width):
        deep = folder / f"{number % 20}" / f"{number}"
        deep.mkdir(parents=True)
        (deep / "file").write_bytes(b"%d" % number)


@pytest.mark.slow
@pytest.mark.parametrize(("soft", "hard"), [(1024, 4096), (256, 256)])
def test_find_over_more_directories_than_descriptors_works(
    transport: str, tmp_path: Path, soft: int, hard: int
) -> None:
    width = 3000
    with mounted(tmp_path, transport, run_by=with_descriptors(soft, hard)) as made:
        view, disk = made.folder("wide")
        make_wide(disk, width)
        wanted = sh("find . -type f | sort | sha256sum; find . | wc -l", disk)
        for _ in range(2):
            assert sh("find . -type f | sort | sha256sum; find . | wc -l", view) == wanted
        assert sh("cat */*/file | wc -c", view) == sh("cat */*/file | wc -c", disk)
        assert descriptors(made) < hard
        (disk / "0" / "0" / "file").write_bytes(b"changed")
        until(lambda: (view / "0" / "0" / "file").read_bytes() == b"changed", "the change", 5)
        sh("rm -r *", view)
        assert os.listdir(disk) == []


@pytest.mark.slow
def test_more_open_files_than_descriptors_are_refused_and_nothing_else(
    transport: str, tmp_path: Path
) -> None:
    hard = 2000
    with mounted(tmp_path, transport, run_by=with_descriptors(1024, hard)) as made:
        view, disk = made.folder("many")
        (disk / "f").write_bytes(b"content")
        with Peer(view) as peer, Peer(view) as other:
            assert other.call("open", b"f", os.O_RDONLY, 0, "f") == "0o100000"
            opened, error = peer.call("open_many", b"f", 10_000)
            assert (error, opened > hard // 2, opened < hard) == ("EMFILE", True, True)
            # Whoever has a file open goes on; whoever wants one is told.
            assert other.call("pread", "f", 10, 0) == b"content"
            assert other.call("fstat", "f")["size"] == 7
            assert other.call("stat", b"f")["size"] == 7
            assert other.call("open", b"new", CREATE, 0o644) == "EMFILE"
            assert other.call("open", b"f", os.O_RDONLY) == "EMFILE"
            assert peer.call("close_all") is None
            until(lambda: other.call("open", b"new", CREATE, 0o644) == "0o100002", "room", 5)
            assert sorted(os.listdir(view)) == ["f", "new"]
            assert peer.call("open_many", b"f", hard // 2) == (hard // 2, "")
        until(lambda: descriptors(made) < 100, "all files are closed again", 5)
        assert made.process.poll() is None


DIG = """
import os
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
open("leaf", "w").close()
"""


@pytest.mark.slow
def test_a_deep_and_a_wide_tree_are_walked_and_removed(transport: str, tmp_path: Path) -> None:
    look = "find deep | wc -l; find deep -name leaf | wc -c; ls -f wide | sort | sha256sum"
    try:
        with mounted(tmp_path, transport, run_by=with_descriptors(256, 256)) as made:
            view, disk = made.folder("trees")
            for folder in ("deep", "wide"):
                (disk / folder).mkdir()
            subprocess.run([sys.executable, "-c", DIG], cwd=disk / "deep", check=True)
            for number in range(10_000):
                (disk / "wide" / f"{number:0100}").touch()
            assert sh(look, view) == sh(look, disk)
            sh("rm -r deep wide", view)
            assert os.listdir(disk) == []
    finally:
        # What is left of a tree as deep as this, nothing written in Python removes.
        subprocess.run(["rm", "-rf", "--one-file-system", tmp_path / "storage"], check=True)


# Operations that raise.


@pytest.fixture(scope="module")
def faulty(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """A mount whose operation fails that the file `fault` beside it names."""
    folder = tmp_path_factory.mktemp("faulty")
    storage, point = folder / "storage", folder / "mnt"
    storage.mkdir()
    point.mkdir()
    arguments = program("posix_faulty", transport, storage, point, folder / "fault")
    with serving(transport, storage, point, arguments) as made:
        yield made


MADE = (
    ("open", b"f", CREATE, 0o644, "f"),
    ("write", "f", b"content"),
    ("open", b"g", CREATE, 0o644, "g"),
    ("setxattr", b"f", b"user.a", b"1"),
    ("mkdir", b"d", 0o755),
    ("open", b"d", os.O_RDONLY, 0, "d"),
)

CALLS: dict[str, tuple[object, ...]] = {
    "lookup": ("stat", b"f"),
    "getattr": ("fstat", "d"),
    "setattr": ("chmod", b"f", 0o600),
    "mknod": ("mknod", b"new", 0o100644),
    "mkdir": ("mkdir", b"new", 0o755),
    "symlink": ("symlink", b"f", b"new"),
    "unlink": ("unlink", b"f"),
    "rmdir": ("rmdir", b"d"),
    "rename": ("rename", b"f", b"new"),
    "link": ("link", b"f", b"new"),
    "open": ("open", b"f", os.O_RDONLY),
    "create": ("open", b"new", CREATE, 0o644),
    "fsync": ("fsync", "f"),
    "opendir": ("open", b"d", os.O_RDONLY | os.O_DIRECTORY),
    "readdir": ("listdir", b"d"),
    "fsyncdir": ("fsync", "d"),
    "statfs": ("statvfs", b"f"),
    "getxattr": ("getxattr", b"f", b"user.a"),
    "setxattr": ("setxattr", b"f", b"user.a", b"2"),
    "listxattr": ("listxattr", b"f"),
    "removexattr": ("removexattr", b"f", b"user.a"),
}
"""Operation to a call that needs it."""

ON_ONE_TRANSPORT: dict[str, dict[str, tuple[object, ...]]] = {
    # What is written is written by the kernel itself, and only small files are read by us.
    "device": {
        "fallocate": ("fallocate", "f", 0, 0, 10),
        "lseek": ("lseek", "f", 0, os.SEEK_DATA),
        "copy_file_range": ("copy_file_range", "f", "g", 3, 0, 0),
    },
    "pyfuse3": {"read": ("pread", "f", 3, 0), "write": ("write", "f", b"more")},
}


def alive(peer: Peer) -> None:
    """Every kind of use works."""
    for number, call in enumerate(MADE[:1] + MADE[2:4]):
        assert not str(peer.call(*call)).startswith("E"), (number, call)
    assert peer.call("read", "f", 0) == b""
    assert peer.call("stat", b"f")["type"] == "file"
    assert (b"f", False, False) in peer.call("listdir", b".")


def test_an_operation_that_raises_gives_eio_and_a_log_and_the_mount_lives(
    faulty: Mounted,
) -> None:
    fault = faulty.point.parent / "fault"
    calls = {**CALLS, **ON_ONE_TRANSPORT[faulty.transport]}
    results = {}
    for number, (operation, call) in enumerate(calls.items()):
        folder = faulty.point / str(number)
        folder.mkdir()
        with Peer(folder) as peer:
            for made in MADE:
                assert not str(peer.call(*made)).startswith("E"), made
            peer.call("close", "g")
            peer.call("open", b"g", os.O_RDWR, 0, "g")
            fault.write_text(operation)
            results[operation] = peer.call(*call)
            fault.unlink()
            alive(peer)
    assert results == dict.fromkeys(calls, "EIO")
    for operation in calls:
        assert f"ValueError: {operation} is made to fail" in faulty.output(), operation
    assert faulty.process.poll() is None


@pytest.mark.parametrize("operation", ["forget", "release", "releasedir", "adopt"])
def test_what_nobody_waits_for_may_raise_and_the_mount_lives(
    faulty: Mounted, operation: str
) -> None:
    fault = faulty.point.parent / "fault"
    folder = faulty.point / operation
    folder.mkdir()
    with Peer(folder) as peer:
        for made in MADE:
            peer.call(*made)
        fault.write_text(operation)
        peer.call("close", "f")
        peer.call("listdir", b".")
        peer.call("unlink", b"g")
        peer.call("close", "g")
        fault.unlink()
        alive(peer)
    assert faulty.process.poll() is None


# The server's end.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_unmounts_with_files_open_and_nothing_lost(
    transport: str, tmp_path: Path, number: signal.Signals
) -> None:
    size = 8 << 20  # more than one request carries, and than is in flight at once
    with mounted(tmp_path, transport) as made:
        view, disk = made.folder("open")
        with Peer(view) as peer:
            peer.call("open", b"written", CREATE, 0o644, "w")
            assert peer.call("write", "w", b"W" * 300_000) == 300_000
            peer.call("open", b"mapped", CREATE, 0o644, "m")
            peer.call("ftruncate", "m", size)
            peer.call("map_keep", "m", size)
            peer.call("map_put", "m", 0, b"M" * size)
            made.process.send_signal(number)
            assert made.process.wait(20) == 0
            until(lambda: not is_mounted(made.point), "the mount is gone", 5)
            assert str(peer.call("open", b"new", CREATE)) in ("ENOTCONN", "ECONNABORTED", "ENOENT")
        assert (disk / "written").read_bytes() == b"W" * 300_000
        assert (disk / "mapped").read_bytes() == b"M" * size
        assert os.listdir(made.point) == []


def test_umount_ends_the_server(transport: str, tmp_path: Path) -> None:
    with mounted(tmp_path, transport) as made:
        (made.data / "f").write_bytes(b"kept")
        subprocess.run(["umount", made.point], check=True)
        assert made.process.wait(20) == 0
        assert (made.workspace / "f").read_bytes() == b"kept"


def test_a_killed_server_is_replaced_by_mounting_again(transport: str, tmp_path: Path) -> None:
    with mounted(tmp_path, transport) as made, Peer(tmp_path) as peer:
        view, disk = made.folder("killed")
        peer.call("open", b"mnt/user-data/killed/f", CREATE, 0o644, "f")
        assert peer.call("write", "f", b"before") == 6
        made.process.kill()
        made.process.wait(20)
        assert is_mounted(made.point)
        assert peer.call("stat", b"mnt/user-data/killed/f") == "ENOTCONN"
        with mounted(tmp_path, transport) as again:
            assert (view / "f").read_bytes() == b"before"
            assert peer.call("pwrite", "f", b"after", 0) in ("ENOTCONN", "EIO", "EBADF", 5)
            (view / "g").write_bytes(b"again")
            assert again.stop() == 0
        assert not is_mounted(made.point)
        assert (disk / "g").read_bytes() == b"again"
