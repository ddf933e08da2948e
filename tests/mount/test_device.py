"""The transport over /dev/fuse, on real mounts that another process serves."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from vfs.beneath import Directory
from vfs.errors import VfsError
from vfs.mount import mountapi, table
from vfs.mount.device import DeviceSession
from vfs.mount.operations import Operations, Options
from vfs.mount.view import Export

DAEMON = Path(__file__).with_name("device_daemon.py")
DEADLINE = 30.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Polls until another process has brought the condition about."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {DEADLINE} s"
        time.sleep(0.005)


class Served:
    """A folder, its mount, and the process that serves it."""

    def __init__(self, folder: Path, source: Path, options: dict[str, Any]) -> None:
        self.source = source
        self.point = folder / "mnt"
        self.point.mkdir(exist_ok=True)
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, DAEMON, source, self.point, json.dumps(options)],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"mounted\n", self.log.read_text()

    def counts(self) -> dict[str, int]:
        """Ends the process by SIGTERM; the calls of each operation that it counted."""
        self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=DEADLINE)
        assert self.process.returncode == 0, self.log.read_text()
        assert not is_mounted(self.point)
        counts: dict[str, int] = json.loads(output)
        return counts


def is_mounted(point: Path) -> bool:
    return table.at(os.fsencode(point)) is not None


@contextmanager
def served(folder: Path, source: Path | None = None, **options: Any) -> Iterator[Served]:
    """A mount that is gone at the end, whatever happened to it."""
    if source is None:
        source = folder / "source"
        source.mkdir(exist_ok=True)
    made = Served(folder, source, options)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.kill()
        made.process.wait(DEADLINE)
        assert made.process.stdout is not None
        made.process.stdout.close()
        while is_mounted(made.point):
            mountapi.umount(os.fsencode(made.point), mountapi.MNT_DETACH)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Served]:
    """A writable mount with short validity."""
    with served(tmp_path, timeout=0.05) as made:
        yield made


@pytest.fixture
def stacked(tmp_path: Path) -> Iterator[Path]:
    """A folder on a stacked filesystem, for which the kernel refuses pass-through (ELOOP)."""
    base = tmp_path / "stack"
    base.mkdir()
    mountapi.mount(b"tmpfs", os.fsencode(base), b"tmpfs", 0, b"size=64m")
    try:
        for name in ("lower", "upper", "work", "merged"):
            (base / name).mkdir()
        layers = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
        merged = os.fsencode(base / "merged")
        mountapi.mount(b"overlay", merged, b"overlay", 0, os.fsencode(layers))
        try:
            yield base / "merged"
        finally:
            mountapi.umount(merged, mountapi.MNT_DETACH)
    finally:
        mountapi.umount(os.fsencode(base), mountapi.MNT_DETACH)


def content(top: Path) -> dict[str, bytes | None]:
    """Every path beneath `top` with its bytes, None for a directory."""
    return {
        str(path.relative_to(top)): None if path.is_dir() else path.read_bytes()
        for path in sorted(top.rglob("*"))
    }


# What it serves.


def test_what_is_done_on_the_mount_is_what_is_on_the_disk(mount: Served) -> None:
    point = mount.point
    (point / "a" / "b").mkdir(parents=True)
    (point / "a" / "one").write_bytes(b"1" * 10)
    (point / "a" / "two").write_bytes(b"2" * 100_000)
    with open(point / "a" / "one", "ab") as file:
        file.write(b"+")
    os.truncate(point / "a" / "two", 5)
    os.rename(point / "a" / "one", point / "a" / "b" / "uno")
    os.link(point / "a" / "b" / "uno", point / "eins")
    os.chmod(point / "eins", 0o640)
    (point / "gone").write_bytes(b"")
    (point / "gone").unlink()
    (point / "dir").mkdir()
    (point / "dir").rmdir()
    os.setxattr(point / "eins", "user.note", b"n" * 300)

    expected = {
        "a": None,
        "a/b": None,
        "a/b/uno": b"1" * 10 + b"+",
        "a/two": b"22222",
        "eins": b"1" * 10 + b"+",
    }
    assert content(mount.source) == content(point) == expected
    os.utime(point / "eins", ns=(1_000_000_001, -2_000_000_003))
    seen, real = os.stat(point / "eins"), os.stat(mount.source / "eins")
    assert seen[:7] == (real.st_mode, real.st_ino, seen.st_dev, 2, real.st_uid, real.st_gid, 11)
    assert seen.st_mode & 0o7777 == 0o640
    assert (seen.st_atime_ns, seen.st_mtime_ns) == (1_000_000_001, -2_000_000_003)
    assert seen.st_ctime_ns == real.st_ctime_ns
    assert os.listxattr(point / "eins") == ["user.note"]
    assert os.getxattr(point / "eins", "user.note") == b"n" * 300
    os.removexattr(point / "eins", "user.note")
    assert os.listxattr(mount.source / "eins") == []
    ours, theirs = os.statvfs(point), os.statvfs(mount.source)
    assert (ours.f_blocks, ours.f_bsize, ours.f_namemax) == (
        theirs.f_blocks, theirs.f_bsize, theirs.f_namemax,
    )  # fmt: skip


def test_errors_are_the_operations_errnos(mount: Served) -> None:
    (mount.point / "file").write_bytes(b"x")
    (mount.point / "full").mkdir()
    (mount.point / "full" / "entry").write_bytes(b"")
    wrong: list[tuple[Callable[[], object], int]] = [
        (lambda: os.stat(mount.point / "missing"), errno.ENOENT),
        (lambda: os.stat(mount.point / "file" / "below"), errno.ENOTDIR),
        (lambda: os.rmdir(mount.point / "full"), errno.ENOTEMPTY),
        (lambda: os.mkdir(mount.point / "full"), errno.EEXIST),
        (lambda: os.stat(mount.point / ("n" * 256)), errno.ENAMETOOLONG),
        (lambda: os.mkfifo(mount.point / "fifo"), errno.EPERM),
        (lambda: os.getxattr(mount.point / "file", "user.none"), errno.ENODATA),
        (lambda: os.symlink("file", mount.point / "link"), errno.EPERM),
    ]
    for call, number in wrong:
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == number


def test_five_thousand_small_files_are_made_listed_and_read(mount: Served) -> None:
    wanted = {f"file {number}": b"%d\n" % number * 7 for number in range(5000)}
    for name, data in wanted.items():
        (mount.point / name).write_bytes(data)
    assert sorted(os.listdir(mount.point)) == sorted(wanted)
    with os.scandir(mount.point) as entries:
        assert {entry.name: entry.stat().st_size for entry in entries} == {
            name: len(data) for name, data in wanted.items()
        }
    assert content(mount.source) == content(mount.point) == wanted


def test_names_are_exact_bytes(mount: Served) -> None:
    names = [b"\xff\xfe", b"a\nb", b"-rf", b" ", "ö".encode(), b"back\\slash", b"x" * 255]
    for name in names:
        with open(os.fsencode(mount.point) + b"/" + name, "wb") as file:
            file.write(name)
    assert sorted(os.listdir(os.fsencode(mount.source))) == sorted(names)
    assert sorted(os.listdir(os.fsencode(mount.point))) == sorted(names)
    for name in names:
        with open(os.fsencode(mount.point) + b"/" + name, "rb") as file:
            assert file.read() == name


def test_calls_on_open_files_work(mount: Served) -> None:
    size = 1 << 20
    with open(mount.point / "holes", "w+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, 4096)
        file.seek(size)
        file.write(b"end")
        assert os.lseek(file.fileno(), 4096, os.SEEK_DATA) == size
        os.fsync(file.fileno())
        os.fdatasync(file.fileno())
        with open(mount.point / "copy", "wb", buffering=0) as copy:
            assert os.copy_file_range(file.fileno(), copy.fileno(), 100, size, 5) == 3
        os.unlink(mount.point / "holes")
        os.ftruncate(file.fileno(), size + 1)
        assert os.fstat(file.fileno()).st_size == size + 1
        assert os.pread(file.fileno(), 10, size) == b"e"
    directory = os.open(mount.point, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(directory)
    os.close(directory)
    assert content(mount.source) == {"copy": b"\0\0\0\0\0end"}


def test_absent_names_are_remembered_no_longer_than_the_timeout(mount: Served) -> None:
    assert not (mount.point / "later").exists()
    (mount.source / "later").write_bytes(b"here")
    until((mount.point / "later").exists, "a file made outside shows")
    assert (mount.point / "later").read_bytes() == b"here"


# Listings.


def test_a_listing_is_taken_from_the_kernel_while_its_attributes_are_good(tmp_path: Path) -> None:
    with served(tmp_path, timeout=3600) as mount:
        (mount.source / "folder").mkdir()
        for number in range(300):
            (mount.source / "folder" / f"{number}").write_bytes(b"x" * number)
        before = sorted((e.name, e.stat().st_size) for e in os.scandir(mount.point / "folder"))
        for _ in range(5):
            again = sorted((e.name, e.stat().st_size) for e in os.scandir(mount.point / "folder"))
            assert again == before
        # What is done on the mount shows at once all the same.
        (mount.point / "folder" / "new").write_bytes(b"")
        (mount.point / "folder" / "7").unlink()
        expected = {f"{number}" for number in range(300)} - {"7"} | {"new"}
        assert set(os.listdir(mount.point / "folder")) == expected
        counts = mount.counts()
    assert counts["opendir"] == 8  # once by the server itself, at its end
    # Twice was it read, each time to its end; of the files only `folder` and `7` were looked up.
    assert counts["readdir"] <= 8
    assert counts["lookup"] <= 5


def test_a_listing_shows_what_was_made_outside_after_the_timeout(mount: Served) -> None:
    for number in range(3):
        (mount.source / f"outside {number}").write_bytes(b"")
        until(lambda: len(os.listdir(mount.point)) == number + 1, "the new file is listed")  # noqa: B023


# Pass-through.


def test_large_files_are_read_and_written_by_the_kernel_itself(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(8 << 20)
    with served(tmp_path, timeout=0.05) as mount:
        (mount.point / "large").write_bytes(data)
        with open(mount.point / "large", "rb") as file:
            assert hashlib.file_digest(file, "sha256").digest() == hashlib.sha256(data).digest()
        assert (mount.source / "large").read_bytes() == data
        assert os.stat(mount.point / "large").st_size == len(data)
        counts = mount.counts()
    assert (counts.get("read", 0), counts.get("write", 0)) == (0, 0)


def test_random_writes_through_mappings_reach_the_disk(mount: Served) -> None:
    size = 1 << 20
    rng = random.Random(2)
    model = bytearray(rng.randbytes(size))
    (mount.point / "mapped").write_bytes(model)
    with open(mount.point / "mapped", "r+b") as file, mmap.mmap(file.fileno(), size) as mapping:
        for _ in range(500):
            start = rng.randrange(size)
            part = rng.randbytes(min(rng.randrange(1, 9000), size - start))
            model[start : start + len(part)] = part
            if rng.random() < 0.5:
                mapping[start : start + len(part)] = part
            else:
                os.pwrite(file.fileno(), part, start)
            probe = rng.randrange(size)
            assert os.pread(file.fileno(), 100, probe) == model[probe : probe + 100]
            assert mapping[probe : probe + 100] == model[probe : probe + 100]
    assert (mount.source / "mapped").read_bytes() == model
    assert (mount.point / "mapped").read_bytes() == model


def test_cached_and_passed_through_opens_of_one_file_may_mix(mount: Served) -> None:
    (mount.source / "mixed").write_bytes(b"small")
    small = os.open(mount.point / "mixed", os.O_RDONLY)  # cached, for it is small
    assert os.read(small, 10) == b"small"
    writer = os.open(mount.point / "mixed", os.O_RDWR)  # would be passed through by itself
    assert os.pwrite(writer, b"S" * 200_000, 0) == 200_000
    late = os.open(mount.point / "mixed", os.O_RDONLY)  # large by now
    assert os.pread(late, 300_000, 0) == os.pread(small, 300_000, 0) == b"S" * 200_000
    for fd in (small, writer, late):
        os.close(fd)
    writer = os.open(mount.point / "mixed", os.O_RDWR | os.O_TRUNC)
    reader = os.open(mount.point / "mixed", os.O_RDONLY)  # small again, and passed through
    os.write(writer, b"new")
    assert os.read(reader, 10) == b"new"
    os.close(writer)
    os.close(reader)
    assert (mount.point / "mixed").read_bytes() == (mount.source / "mixed").read_bytes() == b"new"


def test_a_cached_page_does_not_outlive_a_passed_through_write(tmp_path: Path) -> None:
    with served(tmp_path, timeout=3600) as mount:
        (mount.source / "file").write_bytes(b"old content")
        assert (mount.point / "file").read_bytes() == b"old content"
        with open(mount.point / "file", "r+b") as file:
            file.write(b"new")
        assert (mount.point / "file").read_bytes() == b"new content"


def test_a_program_may_drop_direct_access_midway(mount: Served) -> None:
    block = mmap.mmap(-1, 4096)  # at a page's boundary, as direct access wants it
    block.write(b"d" * 4096)
    file = os.open(mount.point / "direct", os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    assert os.write(file, block) == 4096
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_DIRECT)
    assert os.write(file, b"end") == 3
    os.close(file)
    assert (mount.source / "direct").read_bytes() == b"d" * 4096 + b"end"


def test_a_stacked_filesystem_is_served_without_pass_through(tmp_path: Path, stacked: Path) -> None:
    data = random.Random(3).randbytes(3 << 20)
    with served(tmp_path, stacked, timeout=0.05) as mount:
        (mount.point / "large").write_bytes(data)
        assert (mount.point / "large").read_bytes() == (stacked / "large").read_bytes() == data
        with open(mount.point / "large", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapping:
            mapping[5000:5003] = b"map"
        assert (stacked / "large").read_bytes() == data[:5000] + b"map" + data[5003:]
        counts = mount.counts()
    assert counts["write"] >= 3


def test_small_files_are_read_without_being_asked_for(tmp_path: Path) -> None:
    wanted = {f"{number}": b"%d" % number * 1000 for number in range(50)}
    source = tmp_path / "source"
    source.mkdir()
    for name, data in wanted.items():
        (source / name).write_bytes(data)
    with served(tmp_path, source, read_only=True, timeout=3600) as mount:
        assert content(mount.point) == wanted
        counts = mount.counts()
    assert (counts["open"], counts.get("read", 0)) == (50, 0)


def test_opening_a_file_of_a_writable_mount_does_not_read_it(mount: Served) -> None:
    (mount.source / "file").write_bytes(b"content")
    os.utime(mount.source / "file", ns=(1, 2))
    os.close(os.open(mount.point / "file", os.O_RDONLY))
    assert os.stat(mount.source / "file").st_atime_ns == 1


def test_readers_may_come_while_a_small_file_is_written(tmp_path: Path, stacked: Path) -> None:
    # Cached, a write holds its page locked until the server answers: a server that waited for the
    # page, to fill it for a first reader, would wait for ever.
    with served(tmp_path, stacked, timeout=0.05) as mount:
        done = threading.Event()

        def write(file: int, enough: threading.Event) -> None:
            while not enough.is_set():
                os.pwrite(file, b"0" * 100, 0)

        def read() -> None:
            for number in range(200):
                path, enough = mount.point / f"{number}", threading.Event()
                file = os.open(path, os.O_WRONLY | os.O_CREAT)
                os.write(file, b"0" * 100)
                writer = threading.Thread(target=write, args=(file, enough))
                writer.start()
                assert path.read_bytes() == b"0" * 100
                enough.set()
                writer.join()
                os.close(file)
            done.set()

        threading.Thread(target=read, daemon=True).start()
        assert done.wait(DEADLINE)


# What the mount forbids.


def test_a_read_only_mount_refuses_changes_and_programs(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "tool").write_text("#!/bin/sh\n")
    (source / "tool").chmod(0o755)
    (source / "link").symlink_to("tool")
    with served(tmp_path, read_only=True, fsname="a name", links="contained") as mount:
        assert (mount.point / "tool").read_text() == "#!/bin/sh\n"
        wrong: list[tuple[Callable[[], object], int]] = [
            (lambda: (mount.point / "new").write_bytes(b""), errno.EROFS),
            (lambda: (mount.point / "tool").unlink(), errno.EROFS),
            (lambda: os.chmod(mount.point / "tool", 0o700), errno.EROFS),
            (lambda: os.open(mount.point / "tool", os.O_RDWR), errno.EROFS),
            (lambda: subprocess.run([mount.point / "tool"], check=True), errno.EACCES),
            # The kernel follows no link, though the operations would let it be read.
            (lambda: os.open(mount.point / "link", os.O_RDONLY), errno.ELOOP),
        ]
        for call, number in wrong:
            with pytest.raises(OSError) as caught:
                call()
            assert caught.value.errno == number
        assert os.readlink(mount.point / "link") == "tool"
        line = table.at(os.fsencode(mount.point))
        assert line is not None
        assert (line.type, line.source) == ("fuse.gemspace", b"a name")
        assert {"ro", "nosuid", "nodev", "noexec", "nosymfollow"} <= set(line.options)


def test_only_the_mounting_user_enters_unless_others_are_allowed(tmp_path: Path) -> None:
    def as_other(path: Path) -> int:
        script = "import os, sys; os.setgid(1234); os.setuid(1234); os.listdir(sys.argv[1])"
        return subprocess.run(
            [sys.executable, "-I", "-c", script, path], stderr=subprocess.DEVNULL
        ).returncode

    os.chmod(tmp_path, 0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and not parent.stat().st_mode & 0o001:
            os.chmod(parent, parent.stat().st_mode | 0o011)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "open").mkdir(mode=0o755)
    (tmp_path / "source" / "closed").mkdir(mode=0o700)
    with served(tmp_path, allow_other=False) as mount:
        assert as_other(mount.point / "open") == 1
        mount.counts()
    with served(tmp_path, allow_other=True) as mount:
        assert as_other(mount.point / "open") == 0
        assert as_other(mount.point / "closed") == 1
        mount.counts()


def test_root_may_run_only_what_somebody_may_run(mount: Served) -> None:
    (mount.point / "script").write_text("#!/bin/sh\nexit 7\n")
    (mount.point / "script").chmod(0o600)
    assert not os.access(mount.point / "script", os.X_OK)
    assert os.access(mount.point / "script", os.R_OK | os.W_OK)
    assert os.access(mount.point, os.X_OK)
    with pytest.raises(PermissionError):
        subprocess.run([mount.point / "script"])
    (mount.point / "script").chmod(0o700)
    assert os.access(mount.point / "script", os.X_OK)
    assert subprocess.run([mount.point / "script"]).returncode == 7


def test_the_mountpoint_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with Directory.open(tmp_path) as base:
        operations = Operations(Export(base), Options())
        session = DeviceSession(
            operations, os.fsencode(tmp_path / "link"),
            read_only=True, allow_other=False, nosymfollow=True, fsname=b"tests",
        )  # fmt: skip
        with pytest.raises((OSError, VfsError)) as caught:
            session.mount()
        operations.close()
    assert caught.value.errno == errno.ENOTDIR
    assert not is_mounted(tmp_path / "real")


def test_a_mountpoint_held_by_a_descriptor_may_be_swapped_for_a_link(tmp_path: Path) -> None:
    (tmp_path / "point").mkdir()
    (tmp_path / "elsewhere").mkdir()
    held = os.open(tmp_path / "point", os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
    (tmp_path / "point").rename(tmp_path / "moved")
    (tmp_path / "point").symlink_to("elsewhere")
    with Directory.open(tmp_path) as base:
        operations = Operations(Export(base), Options())
        session = DeviceSession(
            operations, held,
            read_only=True, allow_other=False, nosymfollow=True, fsname=b"tests",
        )  # fmt: skip
        session.mount()
        try:
            assert is_mounted(tmp_path / "moved")
            assert not is_mounted(tmp_path / "elsewhere")
        finally:
            session.close()
            operations.close()
            os.close(held)
    assert not is_mounted(tmp_path / "moved")


# How it lives and ends.


def test_a_fault_of_a_handler_is_logged_and_the_mount_lives(mount: Served) -> None:
    with pytest.raises(OSError) as caught:
        os.stat(mount.point / "bug")
    assert caught.value.errno == errno.EIO
    (mount.point / "still").write_bytes(b"alive")
    assert (mount.source / "still").read_bytes() == b"alive"
    mount.counts()
    assert "RuntimeError: planted" in mount.log.read_text()


def test_a_sync_that_waits_does_not_hold_up_the_mount(mount: Served) -> None:
    # Read-only and small, so that the write that frees it is seen by both.
    (mount.source / "file").write_bytes(b"stuck")
    file = os.open(mount.point / "file", os.O_RDONLY)
    waiting = threading.Thread(target=os.fsync, args=(file,))
    waiting.start()
    for number in range(100):
        (mount.point / f"{number}").write_bytes(b"meanwhile")
        assert waiting.is_alive()
    (mount.source / "file").write_bytes(b"freed")
    waiting.join(DEADLINE)
    assert not waiting.is_alive()
    os.close(file)


def test_a_killed_server_leaves_a_mount_that_can_be_taken_away(mount: Served) -> None:
    os.stat(mount.point)
    mount.process.kill()
    mount.process.wait(DEADLINE)
    with pytest.raises(OSError) as caught:
        os.listdir(mount.point)
    assert caught.value.errno == errno.ENOTCONN
    mountapi.umount(os.fsencode(mount.point))
    assert not is_mounted(mount.point)
    assert os.listdir(mount.point) == []


def test_a_mount_taken_away_from_outside_ends_its_server(mount: Served) -> None:
    (mount.point / "file").write_bytes(b"x")
    mountapi.umount(os.fsencode(mount.point))
    assert mount.process.wait(DEADLINE) == 0


def test_sigterm_ends_a_mount_that_is_in_use(mount: Served) -> None:
    file = os.open(mount.point / "file", os.O_RDWR | os.O_CREAT)
    os.write(file, b"written")
    directory = os.open(mount.point, os.O_RDONLY | os.O_DIRECTORY)
    mount.counts()
    with pytest.raises(OSError) as caught:
        os.stat("file", dir_fd=directory)
    assert caught.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    with suppress(OSError):  # the server that would be told is gone
        os.close(file)
    os.close(directory)
    assert content(mount.source) == {"file": b"written"}


def test_sigterm_ends_a_mount_that_another_namespace_still_has(mount: Served) -> None:
    script = f"mount --make-rprivate / && echo ready && read line && stat {mount.point}"
    other = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "unchanged", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "ready\n"
    mount.counts()
    _, errors = other.communicate("go on\n", timeout=DEADLINE)
    assert "not connected" in errors


def test_what_was_written_through_a_mapping_is_kept_by_sigterm(
    tmp_path: Path, stacked: Path
) -> None:
    size = 8000 * 4096
    (stacked / "mapped").write_bytes(bytes(size))
    with served(tmp_path, stacked) as mount:
        file = os.open(mount.point / "mapped", os.O_RDWR)
        mapping = mmap.mmap(file, size)
        for page in range(0, size, 4096):
            mapping[page : page + 4] = b"kept"
        mount.counts()
    assert (stacked / "mapped").read_bytes() == (b"kept" + bytes(4092)) * 8000
    mapping.close()
    with suppress(OSError):  # the server that would be told is gone
        os.close(file)


def test_an_idle_mount_sleeps(mount: Served) -> None:
    for number in range(100):
        (mount.point / f"{number}").write_bytes(b"busy")

    def state() -> str:
        return Path(f"/proc/{mount.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    until(lambda: state() == "S", "the server sleeps")


def test_the_kernel_forgets_what_it_is_told_to(tmp_path: Path) -> None:
    with served(tmp_path, timeout=3600) as mount:
        (mount.source / "watched").write_bytes(b"before")
        assert os.stat(mount.point / "watched").st_size == 6
        (mount.source / "watched").write_bytes(b"afterwards")
        assert os.stat(mount.point / "watched").st_size == 6
        mount.process.send_signal(signal.SIGUSR1)
        until(lambda: os.stat(mount.point / "watched").st_size == 10, "the change shows")
        assert (mount.point / "watched").read_bytes() == b"afterwards"
