"""The pyfuse3 transport on real mounts, each served by a process of its own."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vfs import linux
from vfs.beneath import Directory
from vfs.errors import Busy, Unavailable
from vfs.mount import attach, fusermount, table
from vfs.mount.libfuse import LibfuseSession
from vfs.mount.operations import Operations, Options
from vfs.mount.view import Branch, Export

DAEMON = Path(__file__).with_name("libfuse_daemon.py")
DEVICE = "/dev/fuse"
NOBODY = 65534
SECONDS = 20.0


class Mounted:
    """A folder, and the mount that shows it."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.folder = folder / "folder"
        self.mnt = folder / "mnt"
        self.folder.mkdir()
        self.mnt.mkdir()
        if "user" in options:
            os.chown(self.folder, NOBODY, NOBODY)
            os.chown(self.mnt, NOBODY, NOBODY)
        arguments = [str(self.folder), str(self.mnt), json.dumps(options)]
        self.process = subprocess.Popen(
            [sys.executable, str(DAEMON), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "mounted\n":
            pytest.fail(self.process.communicate()[1])

    def mount(self) -> table.Mount:
        found = table.at(os.fsencode(self.mnt))
        assert found is not None
        return found

    def is_mounted(self) -> bool:
        return table.at(os.fsencode(self.mnt)) is not None

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Exit status, the rest of stdout, and stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, out, _RELEASED_LATE.sub("", err)

    def clean(self) -> None:
        if self.process.returncode is None:
            try:
                self.end()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()
        if self.is_mounted():
            subprocess.run(["umount", "--lazy", "--", self.mnt], check=False)


# What libfuse says of a release that is answered when the mount has just gone; nothing is lost.
_RELEASED_LATE = re.compile(
    r"ERROR:pyfuse3:fuse_release(dir)?\(\): fuse_reply_\* failed with No such file or directory\n"
)

Mounting = Callable[..., Mounted]


@pytest.fixture
def mounting(tmp_path: Path) -> Iterator[Mounting]:
    """Mounts a fresh folder with the daemon's options."""
    made: list[Mounted] = []

    def mount(folder: Path = tmp_path, **options: object) -> Mounted:
        made.append(Mounted(folder, **options))
        return made[-1]

    try:
        yield mount
    finally:
        for mounted in made:
            mounted.clean()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can reach, while all can open the device, as by udev's rules."""
    folder = os.open("/dev", os.O_RDONLY | os.O_DIRECTORY)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="gs") as name:
        os.chmod(name, 0o755)
        # One run at a time: else one would find, and put back, what another has set.
        fcntl.flock(folder, fcntl.LOCK_EX)
        mode = stat.S_IMODE(os.stat(DEVICE).st_mode)
        os.chmod(DEVICE, 0o666)
        try:
            yield Path(name)
        finally:
            os.chmod(DEVICE, mode)
            os.close(folder)


def refusal(call: Callable[[], object]) -> int | None:
    """The errno of a call; None when it succeeds."""
    try:
        call()
    except OSError as exc:
        return exc.errno
    return None


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_mount_shows_its_type_source_and_locks(mounting: Mounting) -> None:
    found = mounting(fsname="a,b c\\,é").mount()
    assert (found.type, found.source) == ("fuse.gemspace", "a,b c\\,é".encode())
    assert {"rw", "nosuid", "nodev", "nosymfollow"} <= set(found.options)


def test_a_file_is_made_read_changed_renamed_and_removed(mounting: Mounting) -> None:
    mounted = mounting()
    file, other = mounted.mnt / "file", mounted.mnt / "other"
    file.write_bytes(b"first")
    with file.open("r+b") as opened:
        opened.seek(0, os.SEEK_END)
        opened.write(b" second")
        opened.truncate(8)
        os.fsync(opened.fileno())
        os.fdatasync(opened.fileno())
    os.chmod(file, 0o640)
    os.utime(file, ns=(1_000_000_001, -1_500_000_000))
    os.rename(file, other)
    os.link(other, file)
    found, real = os.stat(other), os.stat(mounted.folder / "other")
    assert (mounted.folder / "file").read_bytes() == file.read_bytes() == b"first se"
    assert (found.st_mode, found.st_nlink) == (stat.S_IFREG | 0o640, 2)
    assert (found.st_atime_ns, found.st_mtime_ns) == (1_000_000_001, -1_500_000_000)
    assert [getattr(found, name) == getattr(real, name) for name in STAT_FIELDS] == [True] * 11
    os.unlink(file)
    os.unlink(other)
    assert os.listdir(mounted.folder) == []


STAT_FIELDS = (
    "st_ino", "st_mode", "st_nlink", "st_uid", "st_gid", "st_size",
    "st_blocks", "st_blksize", "st_atime_ns", "st_mtime_ns", "st_ctime_ns",
)  # fmt: skip


def test_directories_are_made_listed_synced_and_removed(mounting: Mounting) -> None:
    mounted = mounting()
    os.mkdir(mounted.mnt / "d", 0o750)
    with open(mounted.mnt / "d" / "f", "x"):
        pass
    assert refusal(lambda: os.rmdir(mounted.mnt / "d")) == errno.ENOTEMPTY
    dirfd = os.open(mounted.mnt / "d", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(dirfd)
    os.close(dirfd)
    os.unlink(mounted.mnt / "d" / "f")
    os.rmdir(mounted.mnt / "d")
    assert os.listdir(mounted.mnt) == []


def test_renames_without_replacing_and_exchanges_are_done(mounting: Mounting) -> None:
    mounted = mounting()
    for name in ("a", "b"):
        (mounted.mnt / name).write_text(name)
    dirfd = os.open(mounted.mnt, os.O_PATH)

    def rename(flags: int) -> None:
        linux.renameat2(dirfd, b"a", dirfd, b"b", flags)

    try:
        assert refusal(lambda: rename(linux.RENAME_NOREPLACE)) == errno.EEXIST
        assert refusal(lambda: rename(linux.RENAME_WHITEOUT)) == errno.EINVAL
        rename(linux.RENAME_EXCHANGE)
    finally:
        os.close(dirfd)
    assert [(mounted.folder / name).read_text() for name in ("a", "b")] == ["b", "a"]


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_every_entry_is_listed_once(mounting: Mounting, count: int) -> None:
    mounted = mounting()
    names = sorted(f"{number:04d}" + "x" * (number % 200) for number in range(count))
    for name in names:
        (mounted.folder / name).touch()
    with os.scandir(mounted.mnt) as entries:
        found = sorted((entry.name, entry.inode(), entry.is_file()) for entry in entries)
    inodes = [os.stat(mounted.folder / name).st_ino for name in names]
    assert found == list(zip(names, inodes, [True] * count, strict=True))
    shown = subprocess.run(
        ["ls", "-fa", mounted.mnt], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert sorted(shown) == [".", "..", *names]


def test_what_was_listed_is_forgotten_when_the_kernel_drops_it(mounting: Mounting) -> None:
    mounted = mounting(timeout=0)
    for number in range(500):
        (mounted.folder / str(number)).touch()

    def known() -> int:
        return int(os.getxattr(mounted.mnt, "user.known"))

    before = known()
    os.listdir(mounted.mnt)
    for number in range(500):
        os.stat(mounted.mnt / str(number))
    os.listdir(mounted.mnt)
    assert known() == before + 500
    Path("/proc/sys/vm/drop_caches").write_text("2")
    eventually(lambda: known() == before)


def test_names_that_are_on_no_disk_are_listed_and_entered(mounting: Mounting) -> None:
    mounted = mounting(branch=True)
    (mounted.folder / "f").write_text("x")
    with os.scandir(mounted.mnt) as entries:
        found = sorted((e.name, e.is_dir(), e.inode() == e.stat().st_ino) for e in entries)
    assert found == [("one", True, True), ("two", True, True)]
    assert (mounted.mnt / "two" / "f").read_text() == "x"
    assert refusal(lambda: os.stat(mounted.mnt / "three")) == errno.ENOENT


def test_names_of_any_bytes_pass(mounting: Mounting) -> None:
    mounted = mounting()
    names = [b"a\nb", b"\xff\xfe", b"-rf", b"back\\slash", b" two  spaces ", b"x" * 255]
    folder = os.fsencode(mounted.mnt)
    for name in names:
        with open(os.path.join(folder, name), "xb") as file:
            file.write(name)
    assert sorted(os.listdir(folder)) == sorted(names)
    assert [Path(os.fsdecode(folder + b"/" + n)).read_bytes() for n in names] == names
    assert refusal(lambda: os.stat(folder + b"/" + b"x" * 256)) == errno.ENAMETOOLONG


@pytest.mark.parametrize("timeout", [0, 600])
def test_an_absence_holds_as_long_as_the_timeout(mounting: Mounting, timeout: int) -> None:
    mounted = mounting(timeout=timeout)
    assert refusal(lambda: os.stat(mounted.mnt / "later")) == errno.ENOENT
    (mounted.folder / "later").touch()
    expected = errno.ENOENT if timeout else None
    assert refusal(lambda: os.stat(mounted.mnt / "later")) == expected


def test_a_link_is_shown_and_refused(mounting: Mounting) -> None:
    mounted = mounting()
    os.symlink("/etc/passwd", mounted.folder / "link")
    link = mounted.mnt / "link"
    assert link.is_symlink()
    assert refusal(lambda: os.readlink(link)) == errno.ELOOP
    assert refusal(link.read_bytes) == errno.ELOOP
    assert refusal(lambda: os.symlink("x", mounted.mnt / "new")) == errno.EPERM


def test_user_attributes_are_kept_and_others_are_not_there(mounting: Mounting) -> None:
    file = mounting().mnt / "file"
    file.touch()
    assert refusal(lambda: os.setxattr(file, "user.a", b"0", os.XATTR_REPLACE)) == errno.ENODATA
    os.setxattr(file, "user.a", b"1", os.XATTR_CREATE)
    os.setxattr(file, "user.a", b"12", os.XATTR_REPLACE)
    os.setxattr(file, "user.b", b"")
    assert refusal(lambda: os.setxattr(file, "user.a", b"3", os.XATTR_CREATE)) == errno.EEXIST
    found = {name: os.getxattr(file, name) for name in os.listxattr(file)}
    assert found == {"user.a": b"12", "user.b": b""}
    os.removexattr(file, "user.b")
    assert os.listxattr(file) == ["user.a"]
    for name in ("security.capability", "trusted.x"):
        assert refusal(lambda name=name: os.getxattr(file, name)) == errno.EOPNOTSUPP


def test_the_sizes_of_the_disk_are_shown(mounting: Mounting) -> None:
    mounted = mounting()
    found, real = os.statvfs(mounted.mnt), os.statvfs(mounted.folder)
    fields = ("f_bsize", "f_frsize", "f_blocks", "f_files", "f_namemax")
    assert [getattr(found, name) for name in fields] == [getattr(real, name) for name in fields]


def test_a_read_only_mount_refuses_to_write(mounting: Mounting) -> None:
    mounted = mounting(read_only=True)
    (mounted.folder / "f").write_text("x")
    assert {"ro", "noexec"} <= set(mounted.mount().options)
    assert "ro" in mounted.mount().super_options
    assert refusal((mounted.mnt / "f").touch) == errno.EROFS
    assert (mounted.mnt / "f").read_text() == "x"


def test_the_kernel_reads_ahead_as_far_as_one_request_goes(mounting: Mounting) -> None:
    mounted = mounting()
    os.stat(mounted.mnt)
    knob = Path(f"/sys/class/bdi/{mounted.mount().dev}/read_ahead_kb")
    eventually(lambda: knob.read_text() == "1024\n")


def test_a_bug_answers_eio_and_is_logged(mounting: Mounting) -> None:
    mounted = mounting()
    assert refusal(lambda: os.stat(mounted.mnt / "bug")) == errno.EIO
    (mounted.mnt / "file").write_text("the mount lives")
    assert (mounted.mnt / "file").read_text() == "the mount lives"
    status, out, log = mounted.end()
    assert (status, out) == (0, "closed\n")
    assert "Traceback" in log and log.endswith("ValueError: planted\n")


def test_an_errno_is_answered_as_it_is_and_one_that_the_kernel_does_not_take_as_eio(
    mounting: Mounting,
) -> None:
    mounted = mounting()
    wanted = {13: errno.EACCES, 116: errno.ESTALE, 0: errno.EIO, 524: errno.EIO, -5: errno.EIO}
    found = {n: refusal(lambda n=n: os.stat(mounted.mnt / f"errno-{n}")) for n in wanted}
    assert found == wanted
    assert mounted.end() == (0, "closed\n", "")


def test_syncs_that_wait_hold_up_nothing_else(mounting: Mounting) -> None:
    mounted = mounting()
    synced = threading.Event()
    files = [mounted.mnt / str(number) for number in range(10)]
    for file in files:
        file.write_bytes(b"stuck")

    def sync(file: Path) -> None:
        fd = os.open(file, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)
        synced.set()

    threads = [threading.Thread(target=sync, args=(file,), daemon=True) for file in files]
    for thread in threads:
        thread.start()
    for number in range(100):
        (mounted.mnt / f"other-{number}").write_bytes(b"x")
    assert len(os.listdir(mounted.mnt)) == 110
    assert not synced.is_set()
    for file in files:
        # Not through the mount: the kernel locks a file while it is synced.
        (mounted.folder / file.name).write_bytes(b"moves")
    for thread in threads:
        thread.join(SECONDS)
    assert synced.is_set()
    assert mounted.end() == (0, "closed\n", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_stopping_takes_the_mount_away(mounting: Mounting, number: int) -> None:
    mounted = mounting()
    (mounted.mnt / "file").write_text("x")
    assert mounted.end(number) == (0, "closed\n", "")
    assert not mounted.is_mounted()
    assert (mounted.folder / "file").read_text() == "x"


def test_a_mount_in_use_is_taken_away_from_its_users(mounting: Mounting) -> None:
    mounted = mounting()
    (mounted.mnt / "file").write_text("x")
    with open(mounted.mnt / "file", "rb") as file:
        assert mounted.end() == (0, "closed\n", "")
        assert not mounted.is_mounted()
        assert refusal(lambda: os.pread(file.fileno(), 1, 0)) == errno.ENOTCONN


def test_what_was_written_through_a_mapping_is_kept_when_stopped(mounting: Mounting) -> None:
    mounted = mounting()
    (mounted.mnt / "file").write_bytes(b"." * 8192)
    with open(mounted.mnt / "file", "r+b") as file, mmap.mmap(file.fileno(), 8192) as mapping:
        mapping[4095:4097] = b"##"
        assert mounted.end() == (0, "closed\n", "")
    assert (mounted.folder / "file").read_bytes() == b"." * 4095 + b"##" + b"." * 4095


def test_an_umount_from_outside_ends_the_server(mounting: Mounting) -> None:
    mounted = mounting()
    (mounted.mnt / "file").write_text("x")
    subprocess.run(["umount", "--", mounted.mnt], check=True)
    assert mounted.process.communicate(timeout=SECONDS) == ("closed\n", "")
    assert mounted.process.returncode == 0


def test_an_aborted_connection_ends_the_server_and_leaves_no_dead_mount(
    mounting: Mounting,
) -> None:
    mounted = mounting()
    os.stat(mounted.mnt)
    minor = mounted.mount().dev.partition(":")[2]
    with contextlib.ExitStack() as stack:
        if not Path("/sys/fs/fuse/connections").is_mount():
            control = ["mount", "-t", "fusectl", "none", "/sys/fs/fuse/connections"]
            subprocess.run(control, check=True)
            stack.callback(subprocess.run, ["umount", control[-1]], check=True)
        Path(f"/sys/fs/fuse/connections/{minor}/abort").write_text("1")
    assert mounted.process.communicate(timeout=SECONDS) == ("closed\n", "")
    assert not mounted.is_mounted()


@pytest.mark.slow
def test_clients_that_are_killed_amid_their_requests_do_no_harm(mounting: Mounting) -> None:
    mounted = mounting(timeout=0)
    (mounted.folder / "file").touch()
    program = "import os\nwhile True: os.stat('file'); os.listdir()"
    for _ in range(40):
        clients = [
            subprocess.Popen([sys.executable, "-SIc", program], cwd=mounted.mnt) for _ in range(3)
        ]
        os.stat(mounted.mnt / "file")
        for client in clients:
            client.kill()
        for client in clients:
            client.wait()
    assert os.listdir(mounted.mnt) == ["file"]
    assert mounted.end() == (0, "closed\n", "")


# Without root.


def test_an_ordinary_user_mounts_by_the_helper(mounting: Mounting, open_folder: Path) -> None:
    mounted = mounting(open_folder, user=NOBODY, fsname="a,b\\ c")
    found = mounted.mount()
    assert (found.type, found.source) == ("fuse.gemspace", b"a,b\\ c")
    assert {"nosuid", "nodev"} <= set(found.options)
    script = "echo hello > file && sync file && cat file && stat -c %u file && ls"
    done = subprocess.run(
        ["sh", "-c", script], cwd="/", user=NOBODY, group=NOBODY, extra_groups=[],
        capture_output=True, text=True, check=False,
        preexec_fn=lambda: os.chdir(mounted.mnt),
    )  # fmt: skip
    assert (done.stdout, done.stderr) == (f"hello\n{NOBODY}\nfile\n", "")
    assert refusal(lambda: os.stat(mounted.mnt)) == errno.EACCES
    assert mounted.end() == (0, "closed\n", "")
    assert not mounted.is_mounted()


def started_in_vain(folder: Path, **options: object) -> str:
    """What the daemon says that cannot mount; the mountpoint is as it was before."""
    (folder / "folder").mkdir(mode=0o755)
    (folder / "mnt").mkdir(mode=0o755)
    if options.pop("owned", True):
        os.chown(folder / "mnt", NOBODY, NOBODY)
    arguments = [str(folder / "folder"), str(folder / "mnt"), json.dumps(options)]
    done = subprocess.run(
        [sys.executable, DAEMON, *arguments], capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert table.at(os.fsencode(folder / "mnt")) is None
    return done.stderr


def test_what_the_helper_refuses_is_one_line_with_the_fix(open_folder: Path) -> None:
    assert started_in_vain(open_folder, user=NOBODY, owned=False) == (
        "PermissionDenied: fusermount3 refuses: user has no write access to mountpoint "
        f"{open_folder}/mnt; choose a directory of yours as the mountpoint\n"
    )


def test_a_device_that_is_not_for_users_is_named(open_folder: Path) -> None:
    os.chmod(DEVICE, 0o600)
    assert started_in_vain(open_folder, user=NOBODY) == (
        "PermissionDenied: fusermount3 refuses: failed to open /dev/fuse: Permission denied; "
        "let users open it: chmod 666 /dev/fuse\n"
    )


def test_other_users_are_let_in_only_where_the_system_allows_it(open_folder: Path) -> None:
    with open("/etc/fuse.conf") as file:
        assert "\nuser_allow_other" not in file.read()
    assert started_in_vain(open_folder, user=NOBODY, allow_other=True) == (
        "PermissionDenied: fusermount3 refuses: option allow_other only allowed if "
        "'user_allow_other' is set in /etc/fuse.conf; "
        "add the line user_allow_other to /etc/fuse.conf\n"
    )


# What is missing.


def session(folder: Path) -> LibfuseSession:
    (folder / "data").mkdir(exist_ok=True)
    (folder / "point").mkdir(exist_ok=True)
    operations = Operations(Branch(), Options())
    return LibfuseSession(
        operations,
        os.fsencode(folder / "point"),
        read_only=True,
        allow_other=False,
        nosymfollow=True,
        fsname=b"test",
    )


def test_without_pyfuse3_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyfuse3", None)
    monkeypatch.delitem(sys.modules, "vfs.mount.libfuse_server", raising=False)
    monkeypatch.delitem(sys.modules, "vfs.mount.libfuse_handlers", raising=False)
    with pytest.raises(Unavailable) as caught:
        session(tmp_path).mount()
    assert caught.value.fix is not None
    assert caught.value.fix.startswith("pip install 'gemspace[fuse]'")


def test_without_the_device_the_error_says_how_to_load_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach, "DEVICE", str(tmp_path / "none"))
    with pytest.raises(Unavailable) as caught:
        session(tmp_path).mount()
    assert caught.value.fix == "load it: modprobe fuse"


def test_without_the_helper_the_error_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fusermount, "PROGRAM", "fusermount-of-none")
    with pytest.raises(Unavailable) as caught:
        fusermount.mount(b"/", fsname=b"", subtype=b"x", allow_other=False, read_only=True)
    assert caught.value.fix == "install it: apt-get install fuse3"


def test_a_process_serves_one_mount_and_the_next_after_it_is_closed(tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    first, second = session(tmp_path), session(tmp_path)
    first.mount()
    try:
        with pytest.raises(Busy):
            second.mount()
    finally:
        first.close()
    second.mount()
    second.close()
    second.close()
    assert table.at(os.fsencode(tmp_path / "point")) is None
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_missing_mountpoint_changes_nothing(tmp_path: Path) -> None:
    mounted = session(tmp_path)
    shutil.rmtree(tmp_path / "point")
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        mounted.mount()
    assert sorted(os.listdir("/proc/self/fd")) == before
    os.mkdir(tmp_path / "point")
    mounted.mount()
    mounted.close()


def test_a_mountpoint_may_be_a_descriptor(tmp_path: Path) -> None:
    (tmp_path / "point").mkdir()
    point = os.open(tmp_path / "point", os.O_PATH | os.O_DIRECTORY)
    with Directory.open(tmp_path) as directory:
        operations = Operations(Export(directory), Options())
        mounted = LibfuseSession(
            operations, point, read_only=True, allow_other=True, nosymfollow=False, fsname=b"x"
        )
        mounted.mount()
        found = table.at(os.fsencode(tmp_path / "point"))
        mounted.close()
        operations.close()
    os.close(point)
    assert found is not None
    assert {"allow_other", "default_permissions"} <= set(found.super_options)
    assert "nosymfollow" not in found.options
