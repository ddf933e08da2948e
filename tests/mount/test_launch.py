"""`vfs mount`, `umount` and `mounts`: what they say, what is mounted then, and what ends it."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, SECONDS, Done, Forker, Vfs, until
from vfs.mount import registry, table

NOBODY = 65534
DEVICE = Path("/dev/fuse")


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    """The process that commands are forked from."""
    with closing(Forker()) as process:
        yield process


@pytest.fixture
def vfs(forker: Forker, tmp_path: Path) -> Iterator[Vfs]:
    """The command, on a storage of alice's; what it mounts is taken away at the end."""
    made = Vfs(forker, tmp_path / "storage")
    made.good("init")
    made.good("user", "add", "alice")
    yield made
    take_away(tmp_path)


@pytest.fixture
def point(tmp_path: Path) -> Path:
    """An empty directory."""
    made = tmp_path / "mnt"
    made.mkdir()
    return made


def take_away(folder: Path) -> None:
    """Unmounts what is mounted beneath a folder, and ends the processes that serve it."""
    beneath = {mount.point for mount in table.beneath(os.fsencode(folder))}
    pids = [record.pid for record in registry.entries() if record.point in beneath]
    for mounted in reversed(table.beneath(os.fsencode(folder))):
        subprocess.run(["umount", "--lazy", "--", mounted.point], check=True)
    for pid in pids:
        if pid is not None:
            until(lambda pid=pid: is_gone(pid), "the process of a mount ends")  # type: ignore[misc]


def is_gone(pid: int) -> bool:
    """Whether no such process runs; one that waits to be reaped does not."""
    try:
        return b") Z" in Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it may end between the open and the read
        return True


def close_late(fd: int) -> None:
    """Closes a file of a mount whose process has gone, which the kernel reports."""
    with suppress(OSError):
        os.close(fd)


def is_mounted(path: Path) -> bool:
    return table.at(os.fsencode(path)) is not None


def workspace(vfs: Vfs, user: str = "alice") -> Path:
    return vfs.storage / "user-data" / "shared" / user / "workspace"


def write(vfs: Vfs, path: str, content: bytes = b"content") -> Path:
    """A file in alice's workspace."""
    vfs.good("put", "alice", path, "-", "--mkdirs", stdin=content)
    return workspace(vfs) / path.lstrip("/")


def project(vfs: Vfs, *slugs: str) -> None:
    """Skills in alice's projection, as the projector makes them."""
    for slug in slugs:
        folder = vfs.storage / "skill-projections" / "alice" / slug
        folder.mkdir()
        (folder / "SKILL.md").write_text(slug)


def only_mount(vfs: Vfs) -> dict[str, object]:
    """What `vfs mounts` tells of the one mount beneath the test's folder."""
    folder = str(vfs.storage.parent)
    mounts = vfs("mounts", "--json").json["mounts"]
    (mine,) = [mount for mount in mounts if mount["point"].startswith(folder)]
    return dict(mine)


def refusal(done: Done) -> tuple[int, str]:
    """Exit status and the one line of a command that failed."""
    assert done.out == b""
    return done.status, done.err.decode()


FUSE = ("--engine", "fuse")

# What is shown


def test_root_gets_the_kernel_engine_for_a_read_only_mount(vfs: Vfs, point: Path) -> None:
    write(vfs, "/f")
    os.symlink("/etc/passwd", workspace(vfs) / "l")
    done = vfs.real("mount", "alice", point)
    assert (done.status, done.err, done.out.decode()) == (
        0,
        b"",
        f"alice at {point}, read-only, by the kernel engine\n",
    )
    assert sorted(os.listdir(point)) == ["skills", "user-data"]
    assert (point / "user-data" / "f").read_bytes() == b"content"
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        (point / "user-data" / "l").read_bytes()
    with pytest.raises(OSError, match="Read-only"):
        (point / "user-data" / "new").touch()
    assert vfs.good("umount", point) == b""
    assert (os.listdir(point), is_mounted(point)) == ([], False)


def test_fuse_shows_the_same(vfs: Vfs, point: Path) -> None:
    write(vfs, "/f")
    os.symlink("/etc/passwd", workspace(vfs) / "l")
    done = vfs.real("mount", "alice", point, *FUSE)
    assert (done.status, done.err, done.out.decode()) == (
        0,
        b"",
        f"alice at {point}, read-only, by the FUSE engine on device\n",
    )
    assert sorted(os.listdir(point)) == ["skills", "user-data"]
    status = (point / "user-data" / "f").stat()
    assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
    assert (point / "user-data" / "f").read_bytes() == b"content"
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        (point / "user-data" / "l").read_bytes()
    with pytest.raises(OSError, match="Read-only"):
        (point / "user-data" / "new").touch()
    assert vfs.good("umount", point) == b""


@pytest.mark.parametrize("transport", ["device", "pyfuse3"])
def test_what_is_made_on_a_writable_mount_belongs_to_1000(
    vfs: Vfs, point: Path, transport: str
) -> None:
    vfs.good("mount", "alice", point, "--writable", "--transport", transport)
    made = point / "user-data" / "f"
    subprocess.run(["sh", "-c", f"umask 027; echo x > {made}; mkdir {made}.d"], check=True)
    vfs.good("umount", point)
    shown = {
        path.name: (stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid)
        for path in workspace(vfs).iterdir()
        for s in [path.stat()]
    }
    assert shown == {"f": (0o640, 1000, 1000), "f.d": (0o750, 1000, 1000)}


def test_a_workdir_can_be_the_root(vfs: Vfs, point: Path) -> None:
    write(vfs, "/notes/2024/f")
    for options in ((), FUSE):
        vfs.good("mount", "alice", point, "--workdir", "notes", *options)
        assert [os.listdir(point), os.listdir(point / "2024")] == [["2024"], ["f"]]
        vfs.good("umount", point)


def test_a_managed_workdir_is_made_by_a_writable_mount_alone(vfs: Vfs, point: Path) -> None:
    managed = "projects/0b0e3a52-7c1d-4c8e-9d5f-6a3b1f2e4d5c"
    options = ("--workdir", managed)
    assert vfs("mount", "alice", point, *options).status == 3
    assert os.listdir(workspace(vfs)) == []
    assert vfs("mount", "alice", point / "missing", *options, "--writable").status == 3
    assert os.listdir(workspace(vfs)) == []
    vfs.good("mount", "alice", point, *options, "--writable")
    (point / "f").touch()
    assert (workspace(vfs) / managed / "f").exists()


def test_skills_can_be_chosen(vfs: Vfs, point: Path) -> None:
    project(vfs, "csv", "pdf", "xls")
    for given, shown in (("pdf,csv", ["csv", "pdf"]), ("", [])):
        vfs.good("mount", "alice", point, "--skills", given)
        assert sorted(os.listdir(point / "skills")) == shown
        vfs.good("umount", point)


def test_all_shows_every_user(vfs: Vfs, point: Path) -> None:
    vfs.good("user", "add", "bob@example.org")
    write(vfs, "/f")
    done = vfs("mount", "--all", point)
    assert done.out.decode().splitlines() == [
        f"all users at {point}, read-only, by the FUSE engine on device",
        "  passed over: the kernel engine shows one user at a time",
    ]
    users = vfs.good("users").decode().split()
    assert sorted(os.listdir(point)) == users
    assert sorted(os.listdir(point / "alice")) == ["skills", "user-data"]
    assert (point / "alice" / "user-data" / "f").read_bytes() == b"content"
    assert only_mount(vfs)["uid"] is None


def test_all_lists_no_user_that_it_cannot_show(vfs: Vfs, point: Path) -> None:
    (vfs.storage / "user-data" / "shared" / "begun").mkdir()
    vfs.good("mount", "--all", point)
    assert os.listdir(point) == ["alice"]
    assert not (point / "begun").exists()


def test_owners_can_be_kept(vfs: Vfs, point: Path) -> None:
    write(vfs, "/f")
    for options in ((), FUSE):
        vfs.good("mount", "alice", point, "--owner", "keep", *options)
        assert (point / "user-data" / "f").stat().st_uid == 1000
        vfs.good("umount", point)


def test_links_can_be_hidden_or_followed_inside(vfs: Vfs, point: Path) -> None:
    write(vfs, "/f")
    os.symlink("f", workspace(vfs) / "inside")
    os.symlink("/etc/passwd", workspace(vfs) / "outside")
    vfs.good("mount", "alice", point, "--links", "hide")
    assert os.listdir(point / "user-data") == ["f"]
    vfs.good("umount", point)
    vfs.good("mount", "alice", point, "--links", "contained")
    assert (point / "user-data" / "inside").read_bytes() == b"content"
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        (point / "user-data" / "outside").read_bytes()


# Which engine


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--writable",), "is read-only"),
        (("--skills", "pdf"), "cannot choose among skills"),
        (("--links", "hide"), "can only show links"),
        (("--transport", "device"), "has no transport"),
        (("--log", "/dev/null"), "has no process that could log"),
    ],
)
def test_auto_says_why_the_kernel_engine_was_passed_over(
    vfs: Vfs, point: Path, options: tuple[str, ...], reason: str
) -> None:
    project(vfs, "pdf")
    lines = vfs.good("mount", "alice", point, *options).decode().splitlines()
    assert lines[0].endswith(", by the FUSE engine on device")
    assert lines[1:] == [f"  passed over: the kernel engine {reason}"]
    vfs.good("umount", point)
    assert refusal(vfs("mount", "alice", point, *options, "--engine", "kernel")) == (
        17,
        f"vfs: the kernel engine {reason}; use --engine fuse\n",
    )
    assert not is_mounted(point)


def test_the_kernel_engine_leaves_what_it_cannot_show_right_to_fuse(
    vfs: Vfs, point: Path, tmp_path: Path
) -> None:
    def reason() -> str:
        done = vfs("mount", "alice", point)
        assert done.status == 0
        vfs.good("umount", point)
        return done.out.decode().partition("passed over: the kernel engine ")[2].rstrip()

    assert reason() == ""
    workspace(vfs).chmod(0o755)
    assert reason() == "cannot keep others out, and the directory is open to them"
    vfs.good("mount", "alice", point, "--allow-other", "--engine", "kernel")
    vfs.good("umount", point)
    workspace(vfs).chmod(0o700)
    os.chown(workspace(vfs), 1001, 1000)
    assert reason() == "can show as the caller's what belongs to 1000:1000 alone"
    os.chown(workspace(vfs), 1000, 1000)
    (vfs.storage / "skill-projections" / "alice").rmdir()
    assert reason() == "needs the user's skill projection, which is not there"


def test_json_tells_what_was_mounted(vfs: Vfs, point: Path) -> None:
    assert vfs("mount", "alice", point, "--json").json == {
        "point": str(point), "uid": "alice", "engine": "kernel", "transport": None,
        "writable": False, "pid": None, "passed_over": {},
    }  # fmt: skip
    assert only_mount(vfs) == {
        "point": str(point), "uid": "alice", "engine": "kernel", "transport": None,
        "writable": False, "pid": None, "state": "alive",
    }  # fmt: skip
    assert vfs("umount", point, "--json").json == {"point": str(point), "dead": False}
    document = vfs("--json", "mount", "alice", point, "--writable").json
    pid = document.pop("pid")
    assert document == {
        "point": str(point), "uid": "alice", "engine": "fuse", "transport": "device",
        "writable": True, "passed_over": {"kernel": "the kernel engine is read-only"},
    }  # fmt: skip
    assert only_mount(vfs) == {
        "point": str(point), "uid": "alice", "engine": "fuse", "transport": "device",
        "writable": True, "pid": pid, "state": "alive",
    }  # fmt: skip


def test_mounts_is_a_table_of_ours(vfs: Vfs, point: Path) -> None:
    other = point.parent / "a\x1bb c"
    other.mkdir()
    vfs.good("mount", "alice", point)
    pid = vfs("mount", "alice", other, "--writable", "--json").json["pid"]
    header, *lines = vfs.good("mounts").decode().splitlines()
    lines = [line for line in lines if str(point.parent) in line]
    assert [line.split(maxsplit=5) for line in lines] == [
        ["alice", "kernel", "ro", "-", "alive", str(point)],
        ["alice", "fuse/device", "rw", str(pid), "alive", f"{point.parent}/a\\x1bb c"],
    ]
    assert header.split() == ["USER", "ENGINE", "MODE", "PID", "STATE", "MOUNTPOINT"]
    assert {line.index("alive") for line in lines} == {header.index("STATE")}
    vfs.good("umount", other)
    vfs.good("umount", point)
    assert str(point.parent).encode() not in vfs.good("mounts")


# The process of a mount


def test_the_process_has_left_everything_it_came_from(vfs: Vfs, point: Path) -> None:
    done = subprocess.run(
        [PROGRAM, "mount", "alice", "mnt", "--writable", "--json"],
        cwd=point.parent, env=vfs.environment, capture_output=True, check=True,
    )  # fmt: skip
    pid = json.loads(done.stdout)["pid"]
    proc = Path(f"/proc/{pid}")
    assert os.readlink(proc / "cwd") == "/"
    assert {os.readlink(proc / "fd" / fd) for fd in "012"} == {os.devnull}
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    assert status["Umask"] == "0000"
    assert os.getsid(pid) not in (os.getsid(0), pid)
    held = {os.readlink(fd) for fd in (proc / "fd").iterdir()}
    assert not any(str(point) in path for path in held)
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    assert soft == hard
    vfs.good("umount", point)
    assert is_gone(pid)


@pytest.mark.parametrize("transport", ["device", "pyfuse3"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_unmounts(vfs: Vfs, point: Path, transport: str, number: int) -> None:
    options = ("--writable", "--transport", transport)
    pid = vfs("mount", "alice", point, *options, "--json").json["pid"]
    written = point / "user-data" / "f"
    fd = os.open(written, os.O_WRONLY | os.O_CREAT)
    try:
        os.write(fd, b"before the end")
        os.kill(pid, number)
        until(lambda: is_gone(pid), "the process ends")
        assert not is_mounted(point)
    finally:
        close_late(fd)
    assert (workspace(vfs) / "f").read_bytes() == b"before the end"
    assert vfs.good("mounts").find(os.fsencode(point)) == -1


def in_foreground(vfs: Vfs, point: Path, *options: str) -> subprocess.Popen[bytes]:
    """A mount whose command stays, once it is live."""
    process = subprocess.Popen(
        [PROGRAM, "mount", "alice", point, "--foreground", *options],
        env=vfs.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(lambda: is_mounted(point) or process.poll() is not None, "the mount comes")
    return process


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, None])
def test_in_the_foreground_it_stays_until_it_is_unmounted(
    vfs: Vfs, point: Path, number: int | None
) -> None:
    with in_foreground(vfs, point) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.decode() == f"alice at {point}, read-only, by the FUSE engine on device\n"
        assert process.stdout.readline().decode() == (
            "  passed over: the kernel engine has no process that could stay in the foreground\n"
        )
        assert sorted(os.listdir(point)) == ["skills", "user-data"]
        if number is None:
            vfs.good("umount", point)
        else:
            process.send_signal(number)
        out, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, out, err, is_mounted(point)) == (0, b"", b"", False)


def test_the_log_is_a_file_where_one_is_named(vfs: Vfs, point: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = vfs("mount", "alice", point, "--log", log / "no" / "such")
    assert refusal(done) == (
        3,
        f"vfs: cannot open the log {log}/no/such: no such file or directory; "
        "check the spelling, upper and lower case included\n",
    )
    assert not is_mounted(point)
    vfs.good("mount", "alice", point, "--log", log)
    assert log.exists()


# Mounts that are dead, and busy ones


@pytest.mark.parametrize("transport", ["device", "pyfuse3"])
def test_a_mount_whose_process_was_killed_is_replaced(
    vfs: Vfs, point: Path, transport: str
) -> None:
    write(vfs, "/f")
    pid = vfs("mount", "alice", point, "--transport", transport, "--json").json["pid"]
    fd = os.open(point / "user-data" / "f", os.O_RDONLY)
    try:
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_gone(pid), "the process ends")
        with pytest.raises(OSError, match="Transport endpoint is not connected"):
            os.listdir(point)
        assert only_mount(vfs)["state"] == "dead"
        vfs.good("mount", "alice", point)
        assert (point / "user-data" / "f").read_bytes() == b"content"
        assert only_mount(vfs)["engine"] == "kernel"
    finally:
        close_late(fd)
    vfs.good("umount", point)
    assert not is_mounted(point)


def test_a_dead_mount_is_taken_away_whoever_uses_it(vfs: Vfs, point: Path) -> None:
    write(vfs, "/f")
    pid = vfs("mount", "alice", point, *FUSE, "--json").json["pid"]
    fd = os.open(point / "user-data" / "f", os.O_RDONLY)
    try:
        os.kill(pid, signal.SIGKILL)
        until(lambda: is_gone(pid), "the process ends")
        assert vfs("umount", point, "--json").json == {"point": str(point), "dead": True}
    finally:
        close_late(fd)
    assert not is_mounted(point)


@pytest.mark.parametrize("engine", ["kernel", "fuse"])
def test_a_mount_in_use_goes_only_lazily(vfs: Vfs, point: Path, engine: str) -> None:
    write(vfs, "/f")
    vfs.good("mount", "alice", point, "--engine", engine)
    with open(point / "user-data" / "f", "rb") as file:
        status, said = refusal(vfs("umount", point))
        assert (status, is_mounted(point)) == (15, True)
        assert said.startswith("vfs: the ") and "is in use" in said
        vfs.good("umount", "--lazy", point)
        assert not is_mounted(point)
        assert file.read() == b"content"


def test_umount_takes_away_nothing_of_others(vfs: Vfs, point: Path) -> None:
    assert refusal(vfs("umount", point)) == (
        3,
        f"vfs: nothing is mounted at {point}; `vfs mounts` lists what is\n",
    )
    subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
    assert refusal(vfs("umount", point)) == (
        3,
        f"vfs: what is mounted at {point} (tmpfs) is none of ours; `vfs mounts` lists those of "
        "`vfs mount`; take others away with umount\n",
    )
    assert is_mounted(point)


# Mountpoints that are none


def missing(vfs: Vfs, point: Path) -> str:
    point.rmdir()
    return f"the mountpoint {point} does not exist; make it: mkdir {point}"


def a_file(vfs: Vfs, point: Path) -> str:
    point.rmdir()
    point.touch()
    return f"the mountpoint {point} is not a directory; give an empty directory"


def a_link(vfs: Vfs, point: Path) -> str:
    real = point.with_name("real")
    point.rename(real)
    point.symlink_to(real)
    return f"the mountpoint {point} is a symbolic link; name the directory itself"


def not_empty(vfs: Vfs, point: Path) -> str:
    (point / ".hidden").touch()
    return f"the mountpoint {point} is not empty; give an empty directory, or a new one"


def mounted_by_us(vfs: Vfs, point: Path) -> str:
    vfs.good("mount", "alice", point)
    return f"a workspace is mounted at {point} already; vfs umount {point}"


def served_by_us(vfs: Vfs, point: Path) -> str:
    vfs.good("mount", "alice", point, *FUSE)
    return f"a workspace is mounted at {point} already; vfs umount {point}"


def mounted_by_others(vfs: Vfs, point: Path) -> str:
    subprocess.run(["mount", "-t", "tmpfs", "none", point], check=True)
    return f"something else (tmpfs) is mounted at {point}; give an empty directory, or unmount that"


def holding_the_storage(vfs: Vfs, point: Path) -> str:
    vfs.storage.rename(point / "storage")
    vfs.environment["GEMSPACE_STORAGE"] = str(point / "storage")
    return (
        f"the storage is inside the mountpoint {point}, and would be hidden; "
        "give an empty directory elsewhere"
    )


@pytest.mark.parametrize(
    ("spoil", "status"),
    [
        (missing, 3),
        (a_file, 6),
        (a_link, 8),
        (not_empty, 16),
        (mounted_by_us, 4),
        (served_by_us, 4),
        (mounted_by_others, 4),
        (holding_the_storage, 7),
    ],
)
def test_a_mountpoint_that_will_not_do_is_refused_and_nothing_changes(
    vfs: Vfs, point: Path, spoil: Callable[[Vfs, Path], str], status: int
) -> None:
    message = spoil(vfs, point)
    folder = os.fsencode(point.parent)
    before = table.beneath(folder)
    for options in ((), FUSE, ("--writable",)):
        done = vfs("mount", "alice", point, *options)
        assert refusal(done) == (status, f"vfs: {message}\n")
    assert table.beneath(folder) == before


def test_a_link_with_a_slash_behind_it_is_a_link_still(vfs: Vfs, point: Path) -> None:
    message = a_link(vfs, point).replace(str(point), f"{point}//")
    assert refusal(vfs("mount", "alice", f"{point}//")) == (8, f"vfs: {message}\n")


@pytest.mark.parametrize(
    "path", [".", "mnt", "user-data", "user-data/shared/alice/workspace", "skill-store/shared"]
)
def test_a_mountpoint_inside_the_storage_is_refused(vfs: Vfs, path: str) -> None:
    point = vfs.storage / path / "here"
    point.mkdir(parents=True)
    assert refusal(vfs("mount", "alice", point)) == (
        7,
        f"vfs: the mountpoint {point} is inside the storage; give a directory outside of it\n",
    )


def test_the_storage_is_recognised_under_another_name(vfs: Vfs, tmp_path: Path) -> None:
    inside = vfs.storage / "user-data" / "shared" / "here"
    inside.mkdir()
    detour = tmp_path / "detour"
    detour.symlink_to(vfs.storage / "user-data")
    assert vfs("mount", "alice", detour / "shared" / "here").status == 7
    bound = tmp_path / "bound"
    bound.mkdir()
    subprocess.run(["mount", "--bind", vfs.storage / "user-data", bound], check=True)
    assert vfs("mount", "alice", bound / "shared" / "here").status == 7


def test_a_root_named_apart_is_storage_too(vfs: Vfs, tmp_path: Path) -> None:
    apart = tmp_path / "apart"
    os.rename(vfs.storage / "user-data", apart)
    (apart / "here").mkdir()
    options = ("--user-data", apart)
    assert vfs(*options, "mount", "alice", apart / "here").status == 7


def test_a_mountpoint_inside_a_mounted_workspace_is_refused(
    vfs: Vfs, point: Path, tmp_path: Path
) -> None:
    vfs.good("mkdir", "alice", "/d")
    vfs.good("mkdir", "alice", "/d/e")
    message = f"vfs: the mountpoint {point}/user-data/d/e is inside a mounted workspace; "
    for engine in ("kernel", "fuse"):
        vfs.good("mount", "alice", point, "--engine", engine)
        done = vfs("mount", "alice", point / "user-data" / "d" / "e")
        assert refusal(done) == (7, f"{message}give a directory outside of it\n")
        vfs.good("umount", point)


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_a_path_that_is_none_is_refused(
    vfs: Vfs, path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from vfs.cli import run

    assert run(["--storage", str(vfs.storage), "mount", "alice", path]) == 7
    said = {
        "": "vfs: the mountpoint's path is empty; give an empty directory\n",
        "a\0b": "vfs: the mountpoint's path holds a NUL byte; give another\n",
    }
    assert capfd.readouterr() == ("", said[path])


def test_a_mountpoint_may_have_any_name_and_be_named_from_here(vfs: Vfs, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\n\\134 -x")
    (tmp_path / name).mkdir()
    for options in ((), FUSE):
        vfs.good("mount", "alice", *options, "--", name, cwd=tmp_path)
        assert sorted(os.listdir(tmp_path / name)) == ["skills", "user-data"]
        assert only_mount(vfs)["point"] == rf"{tmp_path}/\xff\x0a\134 -x"
        vfs.good("umount", "--", name, cwd=tmp_path)


# Other bad input


def test_what_is_not_there_is_said_before_anything_is_mounted(vfs: Vfs, point: Path) -> None:
    cases = {
        ("bob",): (
            3,
            "there is no user bob; check the uid, or add the user: vfs user add bob",
        ),
        ("",): (19, "the user id is empty; give a user id"),
        ("alice", "--workdir", "nowhere"): (
            3,
            "there is no Workdir nowhere; make the directory first, or use projects/<uuid>",
        ),
        ("alice", "--workdir", "/abs"): (
            7,
            "not a Workdir path: /abs: it begins with a slash; give it relative to the workspace, "
            "as projects/<uuid> or notes/2024",
        ),
        ("alice", "--skills", "pdf"): (
            3,
            "no skill pdf is projected for alice; `vfs skills verify` says what is; "
            "`vfs skills project` projects more",
        ),
        ("alice", "--skills", "../x"): (
            19,
            "not a skill slug: ../x; use words of a-z and 0-9 joined by single hyphens, at most "
            "128 characters",
        ),
    }
    for (uid, *options), (status, message) in cases.items():
        done = vfs("mount", *options, uid, point)
        assert refusal(done) == (status, f"vfs: {message}\n")
    assert not is_mounted(point)


@pytest.mark.parametrize(
    "arguments",
    [
        ("alice",),
        ("alice", "a", "b"),
        ("--all", "alice", "a"),
        ("--all", "a", "--workdir", "x"),
        ("alice", "a", "--workdir", "x", "--skills", "y"),
        ("alice", "a", "--cache", "-1"),
        ("alice", "a", "--cache", "nan"),
        ("alice", "a", "--cache", "1e9"),
        ("alice", "a", "--links", "follow"),
        ("alice", "a", "--engine", "floppy"),
    ],
)
def test_wrong_usage_has_status_2(vfs: Vfs, arguments: tuple[str, ...]) -> None:
    done = vfs("mount", *arguments)
    assert (done.status, done.out, done.err.count(b"\n")) == (2, b"", 1)


def test_of_two_commands_at_once_one_mounts(vfs: Vfs, point: Path) -> None:
    commands = [
        subprocess.Popen(
            [PROGRAM, "mount", "alice", point, "--writable"],
            env=vfs.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        for _ in range(4)
    ]  # fmt: skip
    statuses = sorted(command.wait(SECONDS) for command in commands)
    assert statuses[0] == 0
    assert set(statuses[1:]) <= {4, 15}
    assert [mount.point for mount in table.mounts()].count(os.fsencode(point)) == 1


# What the machine lacks


def in_own_namespace(vfs: Vfs, setup: str, *arguments: str | Path) -> tuple[int, str]:
    """Runs `vfs` where `setup` (shell) has changed what is mounted, for it alone."""
    script = f'set -e; {setup}; shift 0; exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh",
         PROGRAM, *arguments],
        env=vfs.environment, capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.stdout == b""
    return done.returncode, done.stderr.decode()


BARE_DEV = "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/urandom c 1 9"


def test_without_the_fuse_device_it_says_how_to_get_it(vfs: Vfs, point: Path) -> None:
    status, said = in_own_namespace(vfs, BARE_DEV, "mount", "alice", point, "--writable")
    assert (status, said) == (17, "vfs: this machine has no /dev/fuse; load it: modprobe fuse\n")


def test_without_the_right_to_open_the_fuse_device_it_says_so(vfs: Vfs, point: Path) -> None:
    setup = f"{BARE_DEV}; mknod -m 0 /dev/fuse c 10 229"
    # Root without the capability to pass over modes.
    for path in [vfs.storage, *vfs.storage.rglob("*")]:
        os.chown(path, 0, 0)
    setup += '; set -- setpriv --bounding-set=-dac_override,-dac_read_search "$@"'
    status, said = in_own_namespace(vfs, setup, "mount", "alice", point, "--writable")
    assert (status, said.count("\n")) == (10, 1)
    assert "--device /dev/fuse" in said


def test_root_without_the_right_to_mount_is_told_what_to_add(vfs: Vfs, point: Path) -> None:
    setup = 'set -- setpriv --bounding-set=-sys_admin "$@"'
    for options in ((), ("--writable",), FUSE):
        status, said = in_own_namespace(vfs, setup, "mount", "alice", point, *options)
        assert (status, said.count("\n")) == (10, 1)
        assert "--cap-add SYS_ADMIN" in said


def test_a_mount_that_cannot_be_written_down_is_undone(vfs: Vfs, point: Path) -> None:
    setup = "mount -t tmpfs none /run; mkdir -m 777 /run/gemspace"
    for options in ((), ("--writable",)):
        status, said = in_own_namespace(vfs, setup, "mount", "alice", point, *options)
        assert (status, said) == (
            10,
            "vfs: the records of mounts in /run/gemspace are not yours alone; "
            "remove that folder, or have its owner remove it, and try again\n",
        )


# Others than root


@pytest.fixture
def mine(vfs: Vfs) -> Iterator[Vfs]:
    """The command as another user, on a storage of its own, while all can open the device."""
    mode = stat.S_IMODE(DEVICE.stat().st_mode)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="gs") as name:
        folder = Path(name)
        os.chown(folder, NOBODY, NOBODY)
        made = vfs.by(NOBODY, folder / "storage")
        made.environment["TMPDIR"] = name
        made.environment.pop("XDG_RUNTIME_DIR", None)
        made.good("init")
        made.good("user", "add", "alice")
        (folder / "mnt").mkdir()
        os.chown(folder / "mnt", NOBODY, NOBODY)
        DEVICE.chmod(0o666)
        try:
            yield made
        finally:
            DEVICE.chmod(mode)
            for mounted in reversed(table.beneath(os.fsencode(folder))):
                subprocess.run(["umount", "--lazy", "--", mounted.point], check=True)


def test_others_than_root_mount_by_pyfuse3(mine: Vfs, vfs: Vfs) -> None:
    point = mine.storage.parent / "mnt"
    mine.good("put", "alice", "/f", "-", stdin=b"mine")
    assert mine.good("mount", "alice", point, "--writable").decode().splitlines() == [
        f"alice at {point}, writable, by the FUSE engine on pyfuse3",
        "  passed over: the kernel engine needs root",
        "  passed over: the device transport needs root",
    ]
    shown = only_mount(mine)
    assert (shown["transport"], shown["state"]) == ("pyfuse3", "alive")
    read = subprocess.run(
        ["sh", "-c", f"cat {point}/user-data/f; echo new > {point}/user-data/g"],
        cwd="/", user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=True,
    )  # fmt: skip
    assert (read.stdout, read.stderr) == (b"mine", b"")
    made = workspace(mine) / "g"
    assert (made.read_bytes(), made.stat().st_uid) == (b"new\n", NOBODY)
    mine.good("umount", point)
    assert not is_mounted(point)


def test_anothers_dead_mount_is_replaced_by_its_owner(mine: Vfs) -> None:
    point = mine.storage.parent / "mnt"
    pid = mine("mount", "alice", point, "--json").json["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid), "the process ends")
    assert only_mount(mine)["state"] == "dead"
    mine.good("mount", "alice", point)
    mine.good("umount", point)
    assert not is_mounted(point)


def test_others_than_root_cannot_unmount_what_root_mounted(mine: Vfs, vfs: Vfs) -> None:
    point = mine.storage.parent / "roots"
    point.mkdir(mode=0o755)
    vfs.good("mount", "alice", point, *FUSE)
    status, said = refusal(mine("umount", point))
    assert (status, is_mounted(point)) == (10, True)
    assert said.endswith("have whoever mounted it, or root, unmount it\n")
    vfs.good("umount", point)


def test_root_unmounts_what_others_mounted(mine: Vfs, vfs: Vfs) -> None:
    point = mine.storage.parent / "mnt"
    mine.good("mount", "alice", point)
    vfs.good("umount", point)
    assert not is_mounted(point)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--engine", "kernel"), "the kernel engine needs root; use --engine fuse"),
        (
            ("--transport", "device"),
            "FUSE may not be used here; mount as root, or use --transport pyfuse3",
        ),
        (
            ("--allow-other",),
            "fusermount3 refuses: option allow_other only allowed if 'user_allow_other' is set in "
            "/etc/fuse.conf; add the line user_allow_other to /etc/fuse.conf",
        ),
    ],
)
def test_what_takes_root_is_said(mine: Vfs, options: tuple[str, ...], message: str) -> None:
    point = mine.storage.parent / "mnt"
    assert refusal(mine("mount", "alice", point, *options))[1] == f"vfs: {message}\n"
    assert not is_mounted(point)


# The process's parts


def test_the_log_is_safe_on_a_terminal() -> None:
    program = (
        "import logging; from vfs.mount.daemon import log_to; log_to(None, foreground=True)\n"
        "try: raise ValueError('\\x1b[2J\\nforged')\n"
        "except ValueError: logging.getLogger('vfs.mount').exception('a\\x1bb')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    lines = done.stderr.decode().splitlines()
    assert lines[0].endswith(r" vfs: ERROR: a\x1bb")
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-2:] == [r"ValueError: \x1b[2J", "forged"]


def test_what_nobody_waits_for_any_more_is_undone(tmp_path: Path) -> None:
    program = f"""
import os, time
from vfs.mount import daemon
def serve(announce):
    daemon.settle()
    open("{tmp_path}/started", "w").write(str(os.getpid()))
    while not os.path.exists("{tmp_path}/go"):
        time.sleep(0.01)
    announce({{}})
    open("{tmp_path}/went-on", "w").close()
daemon.detach(serve)
"""
    started = tmp_path / "started"
    with subprocess.Popen([sys.executable, "-c", program]) as waiting:
        until(lambda: started.exists() and started.read_text() != "", "it starts")
        waiting.kill()
    (tmp_path / "go").touch()
    until(lambda: is_gone(int(started.read_text())), "the process ends")
    assert not (tmp_path / "went-on").exists()


def test_a_bug_before_the_mount_is_one_line_and_the_log_has_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = f"""
from vfs.errors import StorageFailure
from vfs.mount import daemon
daemon.log_to(b"{log}", foreground=False)
def serve(announce):
    raise ValueError("secret")
try:
    daemon.detach(serve)
except StorageFailure as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "ValueError in the process of the mount; run it with --foreground to see more\n"
    )
    assert log.read_text().splitlines()[-1] == "ValueError: secret"
