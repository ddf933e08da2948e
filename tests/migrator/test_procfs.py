"""Real processes, in this mount namespace and in others, and what the survey says of each."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator import procfs
from migrator.procfs import How, Mounted, Survey, Use
from tests.migrator.procs import apart, comm, doing
from vfs.beneath import Directory

Mount = Callable[..., Path]

NASTY = b"a \\\t\n\xff"


@pytest.fixture
def saves(tmp_path: Path) -> Path:
    """The top of the tree that is asked about, with a thread's file in it."""
    top = tmp_path / "saves"
    (top / "threads" / "t1").mkdir(parents=True)
    (top / "threads" / "t1" / "report").write_bytes(b"report")
    return top


@pytest.fixture
def mount() -> Iterator[Mount]:
    """`mount(point, *arguments)` of mount(8) in this mount namespace, unmounted after the test."""
    points: list[Path] = []

    def make(point: Path, *arguments: str | Path) -> Path:
        point.mkdir(exist_ok=True)
        subprocess.run(["mount", *arguments, point], check=True)
        points.append(point)
        return point

    yield make
    for point in reversed(points):
        subprocess.run(["umount", "--lazy", point], check=True)


def survey(top: Path, apart: Path | None = None) -> Survey:
    with Directory.open(top) as root:
        return procfs.survey({"source": root}, apart=None if apart is None else bytes(apart))


def use(pid: int, how: How, path: bytes | None, things: int = 1) -> Use:
    return Use(pid, comm(pid), None, how, "source", path, things)


@pytest.mark.parametrize(
    ("statement", "how", "path"),
    [
        ("f = os.open(a[1], os.O_WRONLY)", "open for writing", b"threads/t1/report"),
        ("f = os.open(a[1], os.O_RDWR)", "open for writing", b"threads/t1/report"),
        ("f = os.open(a[1], os.O_RDONLY)", "open", b"threads/t1/report"),
        ("f = os.open(a[1], os.O_PATH)", "open", b"threads/t1/report"),
        ("map_file(a[1], os.O_RDWR, 3, 1)", "mapped for writing", b"threads/t1/report"),
        ("map_file(a[1], os.O_RDONLY, 1, 1)", "mapped", b"threads/t1/report"),
        ("map_file(a[1], os.O_RDONLY, 3, 2)", "mapped", b"threads/t1/report"),
        ("os.chdir(a[0] + b'/threads')", "cwd", b"threads"),
        ("os.chroot(a[0] + b'/threads')", "root", b"threads"),
        ("os.chdir(a[0])", "cwd", b""),
        ("f = open(a[1]); os.unlink(a[1])", "open", b"threads/t1/report (deleted)"),
    ],
)
def test_each_way_to_use_the_tree_is_found_and_nothing_once_it_has_ended(
    saves: Path, statement: str, how: How, path: bytes
) -> None:
    with doing(statement, saves, saves / "threads" / "t1" / "report") as pid:
        assert survey(saves).uses == (use(pid, how, path),)
    assert survey(saves).uses == ()


def test_a_file_that_has_no_name_yet_is_found(saves: Path) -> None:
    with doing("f = os.open(a[0], os.O_TMPFILE | os.O_WRONLY)", saves) as pid:
        [found] = survey(saves).uses
    assert (found.pid, found.how) == (pid, "open for writing")
    assert found.path is not None and found.path.startswith(b"#")


def test_of_several_things_the_worst_is_told_with_their_number(saves: Path) -> None:
    statement = "os.chdir(a[0]); f = [open('new'), open('new', 'r+'), open('threads/t1/report')]"
    (saves / "new").touch()
    with doing(statement, saves) as pid:
        assert survey(saves).uses == (use(pid, "open for writing", b"new", things=4),)


def test_what_lies_beside_the_tree_or_above_it_does_not_count(saves: Path) -> None:
    (saves.parent / "saves-old").mkdir()
    statement = "os.chdir(a[0]); f = open('saves-old/x', 'w'), open('saves.txt', 'w')"
    with doing(statement, saves.parent):
        assert survey(saves).uses == ()


def test_names_are_exact_bytes_whatever_they_hold(tmp_path: Path) -> None:
    top = Path(os.fsdecode(bytes(tmp_path) + b"/" + NASTY))
    (top / "sub").mkdir(parents=True)
    open(bytes(top) + b"/" + NASTY, "wb").close()
    with (
        doing("f = open(a[0])", bytes(top) + b"/" + NASTY) as opener,
        doing("map_file(a[0], os.O_RDWR, 3, 1)", bytes(top) + b"/" + NASTY) as mapper,
        doing("os.chdir(a[0])", bytes(top) + b"/sub") as walker,
    ):
        assert survey(top).uses == (
            use(opener, "open", NASTY),
            use(mapper, "mapped for writing", NASTY),
            use(walker, "cwd", b"sub"),
        )


def test_a_name_that_looks_like_an_escape_of_the_kernels_is_found_too(tmp_path: Path) -> None:
    top = tmp_path / "a\\012b"
    top.mkdir()
    (top / "file").write_bytes(b"x")
    with doing("map_file(a[0], os.O_RDWR, 3, 1)", top / "file") as pid:
        assert survey(top).uses == (use(pid, "mapped for writing", b"file"),)


def test_a_path_too_long_for_the_kernel_to_tell_is_found_without_it(saves: Path) -> None:
    # 1 100 names of 4 bytes make more than the 4 096 bytes of a page.
    statement = "os.chdir(a[0])\nfor n in range(1100): os.mkdir('deep'); os.chdir('deep')"
    with doing(statement, saves) as pid:
        assert survey(saves).uses == (use(pid, "cwd", None),)
        assert survey(saves.parent).uses == (use(pid, "cwd", None),)
    subprocess.run(["rm", "-rf", saves], check=True)


def test_of_trees_in_one_another_the_first_is_named(saves: Path) -> None:
    with (
        doing("f = open(a[0])", saves / "threads" / "t1" / "report") as pid,
        Directory.open(saves) as source,
        Directory.open(saves / "threads") as user_data,
    ):
        outer = procfs.survey({"source": source, "user-data": user_data}).uses
        inner = procfs.survey({"user-data": user_data, "source": source}).uses
        assert outer == (use(pid, "open", b"threads/t1/report"),)
        assert inner == (Use(pid, comm(pid), None, "open", "user-data", b"t1/report"),)


def test_the_migrators_own_folder_and_what_is_in_it_do_not_count(saves: Path) -> None:
    state = saves / "state"
    (state / "units").mkdir(parents=True)
    (saves / "state-of-others").touch()
    with (
        doing("f = open(a[0], 'w'); os.chdir(a[1])", state / "journal", state),
        doing("f = open(a[0])", saves / "state-of-others") as other,
        apart('mount --bind "$1" "$1"', state / "units"),
    ):
        found = survey(saves, apart=state)
        assert found.uses == (use(other, "open", b"state-of-others"),)
        assert found.elsewhere == ()


def test_this_process_does_not_count_and_what_it_was_started_from_is_marked(saves: Path) -> None:
    code = """
import json, os, sys
from migrator import procfs
from vfs.beneath import Directory
held = open("threads/t1/report", "r+")
with Directory.open(os.getcwd()) as root:
    uses = procfs.survey({"source": root}).uses
print(json.dumps([[use.pid, use.how, use.ancestor] for use in uses]))
"""
    script = 'echo $$; "$@"; echo'
    command = ["sh", "-c", script, "sh", sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=saves, env=environment, stdout=subprocess.PIPE, check=True)
    shell, found, _ = done.stdout.split(b"\n", 2)
    assert json.loads(found) == [[int(shell), "cwd", True]]


def test_a_process_that_has_ended_but_is_not_reaped_is_no_matter(saves: Path) -> None:
    ended = os.fork()
    if ended == 0:
        os.chdir(saves)
        os._exit(0)
    os.waitid(os.P_PID, ended, os.WEXITED | os.WNOWAIT)
    try:
        found = survey(saves)
        assert found.uses == () and ended not in found.unreadable
    finally:
        os.waitpid(ended, 0)


def test_who_may_not_look_into_a_process_says_so(saves: Path) -> None:
    reading, writing = os.pipe()
    with doing("f = open(a[0])", saves / "threads" / "t1" / "report") as pid:
        with Directory.open(saves) as root:
            child = os.fork()
            if child == 0:
                os.close(reading)
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
                # Whoever changed its uid may not look into itself; prctl(PR_SET_DUMPABLE, 1).
                ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
                found = procfs.survey({"source": root})
                answer = [list(found.uses), list(found.unreadable), found.entitled]
                os.write(writing, json.dumps(answer).encode())
                os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            uses, unreadable, entitled = json.load(pipe)
        os.waitpid(child, 0)
        assert (uses, entitled) == ([], False)
        assert pid in unreadable
    assert survey(saves).entitled


def test_a_bind_mount_in_a_sandbox_is_found_with_and_without_an_open_file(saves: Path) -> None:
    point = saves.parent / "in sandbox"
    point.mkdir()
    with (
        apart('mount --bind "$1" "$2"', saves / "threads", point) as idle,
        apart('mount --bind "$1" "$2"; exec 3>>"$2/report"', saves / "threads/t1", point) as busy,
    ):
        found = survey(saves)
        assert found.uses == (use(busy, "open for writing", b"threads/t1/report"),)
        assert found.elsewhere == (
            Mounted("source", b"threads", bytes(point), False, idle, comm(idle)),
            Mounted("source", b"threads/t1", bytes(point), False, busy, comm(busy)),
        )
        assert found.here == ()


# Makes $2 the root directory, in which $1 is mounted at $3, and opens a file there.
JAIL = """
mount -t tmpfs none "$2"
mkdir -p "$2/old" "$2/usr" "$2/proc" "$2$3"
mount --bind "$1" "$2$3"
mount --rbind /usr "$2/usr"
mount -t proc proc "$2/proc"
ln -s usr/bin usr/lib usr/lib64 "$2"
exec 4>>"$2$3/file"
pivot_root "$2" "$2/old"
cd /
umount -l /old
"""


def test_a_sandbox_with_a_root_of_its_own_is_seen_by_its_file_system_not_by_its_paths(
    saves: Path,
) -> None:
    jail, decoy = saves.parent / "jail", saves.parent / "decoy"
    jail.mkdir()
    decoy.mkdir()
    with apart(JAIL, saves / "threads", jail, decoy) as pid:
        found = survey(saves)
        assert found.uses == (use(pid, "open for writing", b"threads/file"),)
        assert found.elsewhere == (
            Mounted("source", b"threads", bytes(decoy), False, pid, comm(pid)),
        )
        assert survey(decoy) == replace(found, uses=(), elsewhere=())


def test_a_sandbox_may_have_all_of_it_mounted_at_the_very_path_it_has_here(
    saves: Path, mount: Mount
) -> None:
    mount(saves, "-t", "tmpfs", "none")
    jail = saves.parent / "jail"
    jail.mkdir()
    with apart(JAIL, saves, jail, saves) as pid:
        assert survey(saves).elsewhere == (
            Mounted("source", b"", bytes(saves), False, pid, comm(pid)),
        )


def test_in_a_pid_namespace_of_its_own_the_survey_says_that_it_is_partial(saves: Path) -> None:
    code = """
import sys
from migrator import procfs
from vfs.beneath import Directory
with Directory.open(sys.argv[1]) as root:
    print(procfs.survey({"source": root}).partial)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code, saves]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    assert done.stdout == b"True\n"


def test_a_process_that_changed_its_root_in_a_sandbox_is_seen_too(saves: Path) -> None:
    jail = saves.parent / "jail"
    jail.mkdir()
    statement = """
os.unshare = ctypes.CDLL(None, use_errno=True).unshare
assert os.unshare(0x20000) == 0  # CLONE_NEWNS
os.system(b'mount --bind "%b" "%b"' % (a[0], a[1]))
os.chroot(a[1])
f = open("/t1/report")"""
    with doing(statement, saves / "threads", jail) as pid:
        found = survey(saves)
        assert found.uses == (use(pid, "open", b"threads/t1/report", things=2),)
        assert found.elsewhere == (
            Mounted("source", b"threads", bytes(jail), False, pid, comm(pid)),
        )


def test_of_several_mounts_in_a_sandbox_a_writable_one_is_told_and_their_number(
    saves: Path,
) -> None:
    (saves / "skills").mkdir()
    point = Path(os.fsdecode(bytes(saves.parent) + b"/" + NASTY))
    point.mkdir()
    script = """
mount --bind "$1/skills" "$1/skills"
mount -o remount,bind,ro "$1/skills"
mount --bind "$1" "$2\""""
    with apart(script, saves, point) as pid:
        assert survey(saves).elsewhere == (
            Mounted("source", b"", bytes(point), False, pid, comm(pid), mounts=2),
        )
    with apart("\n".join(script.splitlines()[:3]), saves, point) as pid:
        skills = bytes(saves / "skills")
        assert survey(saves).elsewhere == (
            Mounted("source", b"skills", skills, True, pid, comm(pid)),
        )


def test_a_private_copy_of_this_namespace_is_no_sandbox_but_its_open_files_count(
    saves: Path, mount: Mount
) -> None:
    mount(saves, "-t", "tmpfs", "none")
    mount(saves / "bound", "--bind", saves)
    with apart('mount -t tmpfs none /mnt; exec 3>>"$1/file"', saves) as pid:
        found = survey(saves)
        assert found.elsewhere == ()
        assert found.uses == (use(pid, "open for writing", b"file"),)


def test_a_mount_of_a_part_in_this_namespace_is_told_and_looked_through(
    saves: Path, mount: Mount
) -> None:
    point = mount(saves.parent / "elsewhere", "--bind", saves / "threads")
    read_only = mount(saves.parent / "read-only", "--bind", "-o", "ro", saves)
    with doing("f = open(a[0], 'a')", point / "t1" / "report") as pid:
        found = survey(saves)
        assert found.uses == (use(pid, "open for writing", b"threads/t1/report"),)
        assert found.here == (
            Mounted("source", b"threads", bytes(point), False),
            Mounted("source", b"", bytes(read_only), True),
        )


def test_a_tree_reached_through_a_bind_mount_is_the_same_tree(saves: Path, mount: Mount) -> None:
    point = mount(saves.parent / "elsewhere", "--bind", saves / "threads")
    with doing("f = open(a[0], 'a')", saves / "threads" / "t1" / "report") as pid:
        found = survey(point)
        assert found.uses == (use(pid, "open for writing", b"t1/report"),)
        assert found.here == ()


def test_another_file_system_mounted_in_the_tree_is_not_of_the_tree(
    saves: Path, mount: Mount
) -> None:
    inner = mount(saves / "inner", "-t", "tmpfs", "none")
    with doing("f = open(a[0], 'w')", inner / "file"):
        assert survey(saves).uses == ()


def test_a_file_beneath_a_mount_that_hides_it_now_is_found(saves: Path, mount: Mount) -> None:
    with doing("f = open(a[0])", saves / "threads" / "t1" / "report") as pid:
        mount(saves / "threads", "-t", "tmpfs", "none")
        assert survey(saves).uses == (use(pid, "open", b"threads/t1/report"),)


def test_the_container_or_service_of_a_process_is_named_by_its_control_group(
    tmp_path: Path,
) -> None:
    id_ = "3f" * 32
    for text, home in [
        (f"0::/docker/{id_}\n", id_),
        (f"0::/system.slice/docker-{id_}.scope\n", id_),
        ("1:cpu:/user.slice/user@1000.service/app.slice/yuxi-api.service\n", "yuxi-api.service"),
        ("0::/user.slice\n", None),
    ]:
        (tmp_path / "cgroup").write_text(text)
        assert procfs._home(str(tmp_path)) == home


def test_without_proc_there_is_one_error(saves: Path, tmp_path: Path) -> None:
    with Directory.open(saves) as root, pytest.raises(FileNotFoundError):
        procfs.survey({"source": root}, proc=str(tmp_path))
