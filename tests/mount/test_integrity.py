"""No byte is lost or mixed up: random operations against a model, and processes side by side."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import subprocess
from pathlib import Path

import pytest

from tests.mount.posix_mount import ROOT, Mounted, program
from tests.mount.posix_peer import Peer

SEEDS = range(1, 7)
STEPS = 8000


def fsx(view: Path, disk: Path, seed: int, *more: object) -> tuple[int, str]:
    """Status and output of a run of `posix_fsx`."""
    done = subprocess.run(
        program("posix_fsx", view, disk, seed, *more),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_random_operations_leave_every_byte_right(shared_mount: Mounted, seed: int) -> None:
    view, disk = shared_mount.folder(f"fsx{seed}")
    status, output = fsx(view, disk, seed, STEPS)
    assert status == 0, output


def test_random_operations_find_one_wrong_byte(tmp_path: Path) -> None:
    for seed in range(4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        status, output = fsx(folder, folder, seed, 300, "--flip", 297)
        assert status == 1
        assert f"seed {seed}" in output


@pytest.mark.slow
def test_random_operations_of_four_processes_on_their_own_files(shared_mount: Mounted) -> None:
    runs = []
    for seed in range(100, 104):
        view, disk = shared_mount.folder(f"fsx{seed}")
        command = program("posix_fsx", view, disk, seed, STEPS // 8)
        runs.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
    for run in runs:
        output, _ = run.communicate(timeout=120)
        assert run.returncode == 0, output


def peers_at(mounted: Mounted, name: str) -> tuple[Peer, Peer, Path]:
    """Two processes in a new folder of the mount, and that folder on the disk."""
    view, disk = mounted.folder(name)
    return Peer(view), Peer(view), disk


CREATE = os.O_CREAT | os.O_RDWR


def test_appends_of_two_processes_are_whole(shared_mount: Mounted) -> None:
    one, two, disk = peers_at(shared_mount, "append")
    count = 1500
    with one, two:
        for peer, tag in ((one, b"one"), (two, b"two")):
            assert isinstance(peer.call("open", b"f", CREATE | os.O_APPEND, 0o644, "f"), str)
            peer.send("append_records", "f", tag, count)
        written = one.receive() + two.receive()
    lines = (disk / "f").read_bytes().splitlines()
    assert sum(len(line) + 1 for line in lines) == written
    for tag in (b"one", b"two"):
        found = [line for line in lines if line.startswith(tag)]
        assert found == [b"%s %d %s" % (tag, n, b"x" * (n * 7 % 500)) for n in range(count)]


def test_flock_excludes_and_wakes(shared_mount: Mounted) -> None:
    one, two, _ = peers_at(shared_mount, "flock")
    with one, two:
        for peer in (one, two):
            peer.call("open", b"f", CREATE, 0o644, "f")
        assert one.call("flock", "f", fcntl.LOCK_EX) is None
        assert two.call("flock", "f", fcntl.LOCK_EX | fcntl.LOCK_NB) == "EAGAIN"
        assert two.call("flock", "f", fcntl.LOCK_SH | fcntl.LOCK_NB) == "EAGAIN"
        two.send("flock", "f", fcntl.LOCK_EX)
        assert two.waits()
        assert one.call("flock", "f", fcntl.LOCK_UN) is None
        assert two.receive() is None
        one.send("flock", "f", fcntl.LOCK_SH)
        assert one.waits()
        assert two.call("close", "f") is None  # which gives the lock up
        assert one.receive() is None


def test_locks_of_ranges_exclude_where_they_overlap(shared_mount: Mounted) -> None:
    one, two, _ = peers_at(shared_mount, "setlk")
    with one, two:
        for peer in (one, two):
            peer.call("open", b"f", CREATE, 0o644, "f")
        assert one.call("setlk", "f", fcntl.F_WRLCK, 10, 10) is None
        assert two.call("setlk", "f", fcntl.F_WRLCK, 0, 10) is None
        assert two.call("setlk", "f", fcntl.F_RDLCK, 19, 5) == "EAGAIN"
        assert two.call("getlk", "f", fcntl.F_RDLCK, 19, 5) == fcntl.F_WRLCK
        assert one.call("getlk", "f", fcntl.F_WRLCK, 100, 5) == fcntl.F_UNLCK
        assert two.call("setlk_open", "f", fcntl.F_WRLCK, 15, 1) == "EAGAIN"
        two.send("setlk", "f", fcntl.F_WRLCK, 15, 10, True)
        assert two.waits()
        assert one.call("setlk", "f", fcntl.F_UNLCK, 0, 0) is None
        assert two.receive() is None
        assert one.call("setlk", "f", fcntl.F_RDLCK, 0, 0) == "EAGAIN"
        # Two that wait for each other: one is told.
        assert one.call("setlk", "f", fcntl.F_WRLCK, 1000, 1) is None
        two.send("setlk", "f", fcntl.F_WRLCK, 1000, 1, True)
        assert two.waits()
        assert one.call("setlk", "f", fcntl.F_WRLCK, 0, 1, True) == errno.errorcode[errno.EDEADLK]
        assert one.call("setlk", "f", fcntl.F_UNLCK, 1000, 1) is None
        assert two.receive() is None


def test_mappings_and_descriptors_of_two_processes_agree(shared_mount: Mounted) -> None:
    one, two, disk = peers_at(shared_mount, "mapping")
    size = 3 * mmap.PAGESIZE
    with one, two:
        one.call("open", b"f", CREATE, 0o644, "f")
        one.call("ftruncate", "f", size)
        two.call("open", b"f", os.O_RDWR, 0, "f")
        for peer in (one, two):
            assert peer.call("map_keep", "f", size) is None
        for number, (offset, length) in enumerate([(0, 5), (4090, 20), (8192, 4096), (12000, 288)]):
            data = b"%d" % number * length
            one.call("map_put", "f", offset, data)
            assert two.call("map_get", "f", offset, length) == data
            assert two.call("pread", "f", length, offset) == data
            two.call("pwrite", "f", data[::-1], offset)
            assert one.call("map_get", "f", offset, length) == data[::-1]
            two.call("map_put", "f", offset, data.lower() + b"")
            assert one.call("pread", "f", length, offset) == data
        assert one.call("map_sync", "f") is None
        seen = two.call("map_get", "f", 0, size)
    assert (disk / "f").read_bytes() == seen


def test_a_file_that_is_renamed_and_linked_while_written_is_whole(shared_mount: Mounted) -> None:
    one, two, disk = peers_at(shared_mount, "renamed")
    count, size = 1500, 700
    names = (b"a", b"b", b"d/c")
    with one, two:
        one.call("mkdir", b"d", 0o755)
        one.call("open", b"a", CREATE, 0o644, "f")
        one.send("pwrite_records", "f", count, size)
        renames = 0
        while one.waits(0) or renames < 6:
            old, new = names[renames % 3], names[(renames + 1) % 3]
            assert two.call("rename", old, new) is None
            assert two.call("link", new, b"again") is None
            assert two.call("rename", b"again", new) is None  # links of one file: both stay
            assert two.call("unlink", b"again") is None
            renames += 1
        assert one.receive() is None
        name = names[renames % 3]
        expected = b"".join((b"%d." % number * size)[:size] for number in range(count))
        assert two.call("open", name, os.O_RDONLY, 0, "g")
        assert two.call("pread", "g", count * size + 1, 0) == expected
        assert one.call("pread", "f", count * size + 1, 0) == expected
        found = two.call("stat", name)
        assert (found["nlink"], found["size"]) == (1, count * size)
    assert (disk / os.fsdecode(name)).read_bytes() == expected
    assert renames >= 6


def test_names_made_by_two_processes_are_won_by_one(shared_mount: Mounted) -> None:
    one, two, disk = peers_at(shared_mount, "exclusive")
    with one, two:
        for number in range(200):
            name = b"%d" % number
            calls = (("mkdir", name, 0o755), ("open", name, CREATE | os.O_EXCL, 0o644))
            for peer, call in zip((one, two) if number % 2 else (two, one), calls, strict=True):
                peer.send(*call)
            results = [one.receive(), two.receive()]
            assert sorted(r == "EEXIST" for r in results) == [False, True], results
    assert len(os.listdir(disk)) == 200
