"""The kernel engine's view: what it shows, what it refuses, and that it comes and goes whole."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from vfs.errors import (
    Busy,
    NotADirectory,
    NotFound,
    StorageFailure,
    Unavailable,
    VfsError,
)
from vfs.mount import kernel, mountapi, namespaces, table
from vfs.mount.kernel import View
from vfs.mount.table import Mount

SELF = (0, 0)
NOBODY = 65534

VIEW_OPTIONS = ("ro", "nosuid", "nodev", "noexec", "relatime", "nosymfollow")


class Scene:
    """A workspace, skills, and a mountpoint; whatever gets mounted is unmounted at the end."""

    def __init__(self, top: Path, stack: ExitStack) -> None:
        self.top = top
        self.user_data = top / "storage" / "workspace"
        self.skills = top / "storage" / "skills"
        self.mountpoint = top / "mountpoint"
        self._stack = stack
        self.user_data.mkdir(parents=True)
        self.skills.mkdir()
        self.mountpoint.mkdir()
        (self.user_data / "notes").mkdir()
        (self.user_data / "notes" / "today.md").write_text("milk")
        (self.skills / "SKILL.md").write_text("how to")
        for path in (self.user_data, self.skills, *self.top.glob("storage/*/**/*")):
            os.chown(path, 1000, 1000)

    def hold(self, path: Path) -> int:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        self._stack.callback(os.close, fd)
        return fd

    def view(self) -> View:
        return View(user_data_fd=self.hold(self.user_data), skills_fd=self.hold(self.skills))

    def workdir(self) -> View:
        return View(root_fd=self.hold(self.user_data))

    def attach(
        self, view: View | None = None, owner: tuple[int, int] | None = None
    ) -> kernel.Attached:
        return kernel.attach(view or self.view(), self.hold(self.mountpoint), owner=owner)

    def mounts(self) -> list[Mount]:
        """What is mounted in the scene."""
        return table.beneath(bytes(self.top))

    def bind(self, source: Path, target: Path) -> None:
        mountapi.mount(bytes(source), bytes(target), b"", mountapi.MS_BIND, b"")

    def share(self) -> None:
        """Makes the scene a mount of its own that propagates, as the root of most hosts does."""
        self.bind(self.top, self.top)
        mountapi.mount(b"", bytes(self.top), b"", mountapi.MS_SHARED, b"")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    top = tmp_path / "scene"
    top.mkdir()
    with ExitStack() as stack:
        yield Scene(top, stack)
    while left := table.beneath(bytes(tmp_path)):
        mountapi.umount(left[-1].point, mountapi.MNT_DETACH)


def answer(call: Callable[[], object]) -> str:
    """What the system answers: the errno's name, or "done"."""
    try:
        call()
    except OSError as exc:
        return errno.errorcode[exc.errno or 0]
    return "done"


def shown(folder: Path) -> dict[str, str]:
    """Every path beneath a folder, with the files' texts; directories end in a slash."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[f"{name}/" if path.is_dir() else name] = "" if path.is_dir() else path.read_text()
    return found


NAMESPACE = {
    "skills/": "",
    "skills/SKILL.md": "how to",
    "user-data/": "",
    "user-data/notes/": "",
    "user-data/notes/today.md": "milk",
}


# What is shown


def test_the_namespace_shows_both_directories(scene: Scene) -> None:
    attached = scene.attach()
    assert shown(scene.mountpoint) == NAMESPACE
    top, *folders = scene.mounts()
    assert attached == kernel.Attached(mount_id=top.id, point=bytes(scene.mountpoint))
    assert (top.type, top.source, top.options) == ("tmpfs", b"gemspace", VIEW_OPTIONS)
    assert [(m.parent, m.point, m.options, m.propagation) for m in folders] == [
        (top.id, bytes(scene.mountpoint / "user-data"), VIEW_OPTIONS, ()),
        (top.id, bytes(scene.mountpoint / "skills"), VIEW_OPTIONS, ()),
    ]


def test_one_directory_is_one_mount(scene: Scene) -> None:
    attached = scene.attach(scene.workdir())
    assert shown(scene.mountpoint) == {"notes/": "", "notes/today.md": "milk"}
    (mount,) = scene.mounts()
    assert attached == kernel.Attached(mount_id=mount.id, point=bytes(scene.mountpoint))
    assert (mount.options, mount.propagation) == (VIEW_OPTIONS, ())


def test_a_missing_directory_is_shown_empty(scene: Scene) -> None:
    scene.attach(View(user_data_fd=scene.hold(scene.user_data)))
    expected = {name: text for name, text in NAMESPACE.items() if not name.startswith("skills/S")}
    assert shown(scene.mountpoint) == expected


@pytest.mark.parametrize("fds", [{}, {"root_fd": 3, "skills_fd": 4}])
def test_a_view_is_one_directory_or_the_namespace(fds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="either one directory or the namespace"):
        View(**fds)


def test_the_mountpoints_name_may_be_any(scene: Scene) -> None:
    scene.mountpoint = scene.top / os.fsdecode(b"a \xff\\040\n")
    scene.mountpoint.mkdir()
    attached = scene.attach()
    assert attached.point == bytes(scene.mountpoint)
    kernel.detach(attached.point, attached.mount_id)
    assert scene.mounts() == []


def test_changes_outside_are_seen_at_once(scene: Scene) -> None:
    scene.attach()
    (scene.user_data / "notes").rename(scene.user_data / "diary")
    (scene.user_data / "diary" / "today.md").write_text("bread")
    (scene.user_data / "new").touch()
    assert shown(scene.mountpoint / "user-data") == {
        "diary/": "",
        "diary/today.md": "bread",
        "new": "",
    }


def test_the_umask_does_not_close_the_view(scene: Scene) -> None:
    old = os.umask(0o077)
    try:
        scene.attach(View(skills_fd=scene.hold(scene.skills)))
    finally:
        os.umask(old)
    paths = (scene.mountpoint, scene.mountpoint / "user-data")
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o755, 0o755]


# What is refused


@pytest.mark.parametrize("where", ["", "user-data", "skills"])
def test_nothing_can_be_written(scene: Scene, where: str) -> None:
    for path in (scene.user_data, scene.skills):
        (path / "file").write_text("kept")
    scene.attach()
    folder = scene.mountpoint / where
    # The frame holds no file: its two directories are what can be tried there.
    name = folder / ("file" if where else "skills")
    calls: dict[str, Callable[[], object]] = {
        "create": lambda: os.open(folder / "x", os.O_WRONLY | os.O_CREAT, 0o600),
        "mkdir": lambda: os.mkdir(folder / "x"),
        "symlink": lambda: os.symlink("x", folder / "x"),
        "mknod": lambda: os.mkfifo(folder / "x"),
        "rename": lambda: os.rename(name, folder / "x"),
        "remove": lambda: os.unlink(name) if where else os.rmdir(name),
        "chmod": lambda: os.chmod(name, 0o777),
        "chown": lambda: os.chown(name, 5, 5),
        "utime": lambda: os.utime(name),
        "setxattr": lambda: os.setxattr(name, "user.x", b""),
    }
    if where:
        calls |= {
            "write": lambda: os.open(name, os.O_WRONLY),
            "truncate": lambda: os.truncate(name, 0),
            "link": lambda: os.link(name, folder / "x"),
        }
    answers = {call: answer(calls[call]) for call in calls}
    assert answers == dict.fromkeys(calls, "EROFS")
    assert (scene.user_data / "file").read_text() == "kept"


def test_links_are_seen_and_never_followed(scene: Scene) -> None:
    texts = {"out": "/etc/passwd", "in": "notes/today.md", "middle": "notes", "up": "../skills"}
    for name, text in texts.items():
        (scene.user_data / name).symlink_to(text)
    (scene.user_data / "magic").symlink_to("/proc/self/root")
    scene.attach()
    folder = scene.mountpoint / "user-data"
    assert {name: os.readlink(folder / name) for name in texts} == texts
    paths = ("out", "in", "middle", "middle/today.md", "up/SKILL.md", "magic/etc/passwd")
    assert {path: answer(lambda p=path: os.open(folder / p, os.O_RDONLY)) for path in paths} == {
        path: "ELOOP" for path in paths
    }
    assert answer(lambda: os.stat(folder / "out")) == "ELOOP"
    assert answer(lambda: os.chdir(folder / "middle")) == "ELOOP"


def test_programs_do_not_run(scene: Scene) -> None:
    (scene.user_data / "true").write_bytes(Path("/bin/true").read_bytes())
    os.chmod(scene.user_data / "true", 0o755)
    scene.attach()
    with pytest.raises(PermissionError):
        subprocess.run([scene.mountpoint / "user-data" / "true"], check=False)


def test_setuid_bits_are_not_honoured(scene: Scene) -> None:
    tool = scene.user_data / "id"
    shutil.copyfile(shutil.which("id") or "", tool)
    os.chown(tool, 1000, 1000)
    os.chmod(tool, 0o6755)
    # As in the view, but for the noexec that would stop it before.
    clone = mountapi.clone_private(scene.hold(scene.user_data), read_only=False)
    mountapi.move_mount(clone, b"", scene.hold(scene.mountpoint), b"")
    os.close(clone)
    run = [
        subprocess.run([path, option], capture_output=True, text=True, check=True).stdout
        for path in (tool, scene.mountpoint / "id")
        for option in ("-u", "-g")
    ]
    assert run == ["1000\n", "1000\n", "0\n", "0\n"]


def test_special_files_are_listed_and_devices_do_not_open(scene: Scene) -> None:
    os.mknod(scene.user_data / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mkfifo(scene.user_data / "fifo")
    scene.attach()
    folder = scene.mountpoint / "user-data"
    assert sorted(os.listdir(folder)) == ["fifo", "notes", "null"]
    assert stat.S_ISFIFO(os.lstat(folder / "fifo").st_mode)
    assert answer(lambda: os.open(folder / "null", os.O_RDONLY)) == "EACCES"


# Owners


@pytest.mark.parametrize(
    ("owner", "ours", "roots", "top"),
    [
        (None, (1000, 1000), (0, 0), (0, 0)),
        (SELF, (0, 0), (NOBODY, NOBODY), (0, 0)),
        ((4321, 8765), (4321, 8765), (NOBODY, NOBODY), (4321, 8765)),
    ],
)
def test_entries_are_shown_as_the_owners(
    scene: Scene,
    owner: tuple[int, int] | None,
    ours: tuple[int, int],
    roots: tuple[int, int],
    top: tuple[int, int],
) -> None:
    (scene.user_data / "roots").touch()
    scene.attach(View(user_data_fd=scene.hold(scene.user_data)), owner=owner)
    paths = ("user-data", "user-data/notes/today.md", "user-data/roots", "", "skills")
    statuses = {path: (scene.mountpoint / path).stat() for path in paths}
    assert {path: (status.st_uid, status.st_gid) for path, status in statuses.items()} == {
        "user-data": ours,
        "user-data/notes/today.md": ours,
        "user-data/roots": roots,
        "": top,
        "skills": top,
    }
    assert [mount.options[-1] for mount in scene.mounts()] == [
        "nosymfollow",
        "nosymfollow" if owner is None else "idmapped",
    ]


def test_private_files_of_the_workspace_are_readable_and_others_are_not(scene: Scene) -> None:
    for name, uid in (("ours", 1000), ("another's", 0)):
        (scene.user_data / name).write_text(name)
        os.chmod(scene.user_data / name, 0o600)
        os.chown(scene.user_data / name, uid, uid)
    scene.attach(owner=SELF)
    folder = scene.mountpoint / "user-data"
    assert (folder / "ours").read_text() == "ours"
    assert answer(lambda: os.open(folder / "another's", os.O_RDONLY)) == "EACCES"


def test_an_id_map_is_made_beside_running_threads_and_leaves_no_process(scene: Scene) -> None:
    before = children()
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        scene.attach(owner=SELF)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert children() == before


def test_no_descriptor_is_inheritable(scene: Scene) -> None:
    made = [
        namespaces.userns_idmap(1000, 1000, 0, 0),
        mountapi.clone_private(scene.hold(scene.user_data), read_only=True),
        mountapi.fsopen(b"tmpfs"),
    ]
    try:
        assert [os.get_inheritable(fd) for fd in made] == [False] * 3
    finally:
        for fd in made:
            os.close(fd)


# Mounts below


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("view", ["namespace", "workdir"])
def test_no_mount_below_is_in_the_view(scene: Scene, shared: bool, view: str) -> None:
    (scene.top / "outside").mkdir()
    (scene.top / "outside" / "secret").touch()
    for name in ("before", "after"):
        (scene.user_data / name).mkdir()
    if shared:
        scene.share()
    # Of the same file system: a device number would not tell it.
    scene.bind(scene.top / "outside", scene.user_data / "before")
    scene.attach(scene.view() if view == "namespace" else scene.workdir())
    scene.bind(scene.top / "outside", scene.user_data / "after")
    folder = scene.mountpoint / ("user-data" if view == "namespace" else "")
    listed = {name: os.listdir(folder / name) for name in ("before", "after")}
    assert listed == {"before": [], "after": []}
    assert os.listdir(scene.user_data / "after") == ["secret"]
    here = [mount for mount in scene.mounts() if mount.point.startswith(bytes(scene.mountpoint))]
    assert [mount.propagation for mount in here] == [()] * (3 if view == "namespace" else 1)


def test_no_mount_gets_into_a_clone_at_any_time(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is being made, while it is detached, and when it is attached as it is."""
    times = ("cloned", "detached", "attached")
    for time in times:
        (scene.user_data / time).mkdir()
    scene.share()
    (scene.top / "private").mkdir()
    scene.bind(scene.top / "private", scene.top / "private")
    mountapi.mount(b"", bytes(scene.top / "private"), b"", mountapi.MS_PRIVATE, b"")
    (scene.top / "private" / "mountpoint").mkdir()
    real = mountapi.mount_setattr

    def mount_before(fd: int, *args: object, **kwargs: object) -> None:
        scene.bind(scene.skills, scene.user_data / "cloned")
        real(fd, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(mountapi, "mount_setattr", mount_before)
    clone = mountapi.clone_private(scene.hold(scene.user_data), read_only=True)
    scene.bind(scene.skills, scene.user_data / "detached")
    mountapi.move_mount(clone, b"", scene.hold(scene.top / "private" / "mountpoint"), b"")
    os.close(clone)
    scene.bind(scene.skills, scene.user_data / "attached")
    folders = (scene.user_data, scene.top / "private" / "mountpoint")
    assert [[os.listdir(folder / time) for time in times] for folder in folders] == [
        [["SKILL.md"]] * 3,
        [[]] * 3,
    ]


def test_where_the_root_is_shared_nothing_else_is_mounted(scene: Scene) -> None:
    code = """if True:
        import os, sys
        from vfs.mount import kernel, mountapi, table
        mountapi.unshare(mountapi.CLONE_NEWNS)
        for flag in (mountapi.MS_PRIVATE, mountapi.MS_SHARED):
            mountapi.mount(b"", b"/", b"", mountapi.MS_REC | flag, b"")
        user_data, skills, mountpoint = (os.open(path, os.O_PATH) for path in sys.argv[1:])
        before = table.mounts()
        kernel.attach(kernel.View(user_data, skills), mountpoint, owner=(0, 0))
        for mount in table.mounts():
            if mount not in before:
                print(os.fsdecode(mount.point), mount.propagation)
    """
    command = [sys.executable, "-c", code, scene.user_data, scene.skills, scene.mountpoint]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    points = [f"{scene.mountpoint}{name}" for name in ("", "/user-data", "/skills")]
    assert result.stdout.splitlines() == [f"{point} ()" for point in points]
    assert scene.mounts() == []


# Coming


def test_it_is_attached_to_the_directory_held_and_not_to_a_link_in_its_place(scene: Scene) -> None:
    held = scene.hold(scene.mountpoint)
    elsewhere = scene.top / "elsewhere"
    elsewhere.mkdir()
    scene.mountpoint.rename(scene.top / "moved")
    scene.mountpoint.symlink_to(elsewhere)
    attached = kernel.attach(scene.view(), held, owner=None)
    assert attached.point == bytes(scene.top / "moved")
    assert table.at(bytes(elsewhere)) is None


def test_a_mountpoint_that_is_a_file_or_gone_is_refused(scene: Scene) -> None:
    (scene.top / "file").touch()
    gone = scene.hold(scene.mountpoint)
    scene.mountpoint.rmdir()
    with pytest.raises(NotADirectory):
        kernel.attach(scene.view(), scene.hold(scene.top / "file"), owner=None)
    with pytest.raises(NotFound):
        kernel.attach(scene.view(), gone, owner=None)
    assert scene.mounts() == []


def descriptors() -> list[str]:
    return sorted(
        f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}"
        for fd in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{fd}")
    )


STEPS = (
    "open_tree",
    "move_mount",
    "mount_setattr",
    "fsopen",
    "fsconfig_string",
    "fsconfig_create",
    "fsmount",
)


class Trap:
    """Wraps every mount call of this process; the one of that number fails instead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None]) -> None:
        self.count = 0
        for name in STEPS:
            monkeypatch.setattr(mountapi, name, self._wrap(getattr(mountapi, name), before))

    def _wrap(self, real: Callable[..., object], before: Callable[[int], None]) -> object:
        def call(*args: object, **kwargs: object) -> object:
            self.count += 1
            before(self.count)
            return real(*args, **kwargs)

        return call


def count_steps(scene: Scene, view: View, owner: tuple[int, int] | None) -> int:
    with pytest.MonkeyPatch.context() as patch:
        trap = Trap(patch, lambda number: None)
        attached = scene.attach(view, owner)
    kernel.detach(attached.point, attached.mount_id)
    return trap.count


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "injected"), KeyboardInterrupt()])
def test_a_failure_at_any_step_leaves_nothing(scene: Scene, failure: BaseException) -> None:
    view = scene.view()
    scene.hold(scene.mountpoint)
    total = count_steps(scene, view, SELF)
    before, family = descriptors(), children()
    for step in range(1, total + 1):

        def fail(number: int, step: int = step) -> None:
            if number == step:
                raise failure

        held = os.open(scene.mountpoint, os.O_PATH | os.O_CLOEXEC)
        with pytest.MonkeyPatch.context() as patch:
            Trap(patch, fail)
            with pytest.raises(StorageFailure if isinstance(failure, OSError) else type(failure)):
                kernel.attach(view, held, owner=SELF)
        os.close(held)
        assert (scene.mounts(), descriptors(), children()) == ([], before, family)


def children() -> set[int]:
    """The processes that this one has started and not reaped, the ended ones too."""
    found: set[int] = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(FileNotFoundError, ProcessLookupError):
            status = Path("/proc", process, "stat").read_text()
            # The parent's id is the second field after the name, which may hold anything.
            if int(status.rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(process))
    return found


def test_the_mountpoint_is_empty_until_the_view_is_there_whole(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    view = scene.view()
    Trap(monkeypatch, lambda number: seen.append(shown(scene.mountpoint)))
    scene.attach(view)
    assert [each for each in seen if each] == [NAMESPACE]
    assert seen[-1] == NAMESPACE


KILLED = """if True:
    import os, signal, sys
    from vfs.mount import kernel, mountapi
    count, last = 0, int(sys.argv[1])
    def wrap(real):
        def call(*args, **kwargs):
            global count
            count += 1
            if count == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)
        return call
    for name in sys.argv[5:]:
        setattr(mountapi, name, wrap(getattr(mountapi, name)))
    user_data, skills, mountpoint = (os.open(path, os.O_PATH) for path in sys.argv[2:5])
    kernel.attach(kernel.View(user_data, skills), mountpoint, owner=None)
"""


def test_a_kill_at_any_step_leaves_nothing_or_all(scene: Scene) -> None:
    total = count_steps(scene, scene.view(), None)
    results = []
    for step in range(1, total + 1):
        command = [sys.executable, "-c", KILLED, str(step), scene.user_data, scene.skills]
        result = subprocess.run([*command, scene.mountpoint, *STEPS], check=False)
        assert result.returncode == -signal.SIGKILL
        results.append(shown(scene.mountpoint))
        if mount := table.at(bytes(scene.mountpoint)):
            kernel.detach(mount.point, mount.id)
    # The step after the one that attaches it makes it private.
    assert results == [{}] * (total - 1) + [NAMESPACE]


@pytest.mark.parametrize("step", ["unshare", "mount", "move_mount", "open_tree"])
@pytest.mark.parametrize("fault", ["killed", "refused"])
def test_a_child_that_fails_leaves_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, step: str, fault: str
) -> None:
    python = scene.top / "python"
    python.write_text(
        f"#!{sys.executable} -P\n"
        "import errno, os, signal, sys\n"
        "from vfs.mount import mountapi, namespaces\n"
        "def fail(*args):\n"
        f"    if {fault == 'killed'}:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    raise OSError(errno.ENOMEM, 'injected')\n"
        f"mountapi.{step} = fail\n"
        "namespaces.main(sys.argv[4:])\n"
    )
    python.chmod(0o755)
    view, mountpoint = scene.view(), scene.hold(scene.mountpoint)
    before, family = descriptors(), children()
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(StorageFailure):
        kernel.attach(view, mountpoint, owner=None)
    assert (scene.mounts(), descriptors(), children()) == ([], before, family)


# Going


@pytest.mark.parametrize("view", ["namespace", "workdir"])
@pytest.mark.parametrize("shared", [True, False])
def test_detach_leaves_nothing(scene: Scene, view: str, shared: bool) -> None:
    if shared:
        scene.share()
    before = scene.mounts()
    attached = scene.attach(scene.view() if view == "namespace" else scene.workdir(), owner=SELF)
    open_before = descriptors()
    kernel.detach(attached.point, attached.mount_id)
    assert (scene.mounts(), descriptors()) == (before, open_before)
    assert os.listdir(scene.mountpoint) == []


@pytest.mark.parametrize("used", ["", "user-data", "user-data/notes/today.md", "skills"])
def test_a_view_in_use_is_busy_and_stays_whole(scene: Scene, used: str) -> None:
    attached = scene.attach(owner=SELF)
    before = [(mount.point, mount.options, mount.propagation) for mount in scene.mounts()]
    user = os.open(scene.mountpoint / used, os.O_RDONLY)
    try:
        with pytest.raises(Busy) as caught:
            kernel.detach(attached.point, attached.mount_id)
    finally:
        os.close(user)
    assert str(caught.value) == (
        f"the view at {scene.mountpoint} is in use; "
        "leave it with every shell and program, then try again"
    )
    after = [(mount.point, mount.options, mount.propagation) for mount in scene.mounts()]
    assert sorted(after) == sorted(before)
    assert shown(scene.mountpoint) == NAMESPACE
    kernel.detach(attached.point, attached.mount_id)
    assert scene.mounts() == []


def test_a_lazy_detach_takes_a_view_in_use_out_of_sight(scene: Scene) -> None:
    attached = scene.attach()
    with open(scene.mountpoint / "user-data" / "notes" / "today.md") as file:
        kernel.detach(attached.point, attached.mount_id, lazy=True)
        assert (scene.mounts(), os.listdir(scene.mountpoint)) == ([], [])
        assert file.read() == "milk"


@pytest.mark.parametrize(
    ("view", "place"),
    [
        ("namespace", "user-data/notes"),
        ("namespace", "user-data"),
        ("workdir", "notes"),
        ("workdir", "user-data"),
    ],
)
def test_a_mount_in_the_view_is_not_unmounted_with_it(scene: Scene, view: str, place: str) -> None:
    (scene.user_data / "user-data").mkdir()
    attached = scene.attach(scene.view() if view == "namespace" else scene.workdir())
    scene.bind(scene.skills, scene.mountpoint / place)
    before = scene.mounts()
    with pytest.raises(Busy) as caught:
        kernel.detach(attached.point, attached.mount_id)
    assert str(caught.value) == (
        f"something is mounted in the view at {scene.mountpoint}; "
        f"unmount {scene.mountpoint / place} first"
    )
    assert scene.mounts() == before


def test_a_mount_over_the_view_is_not_unmounted(scene: Scene) -> None:
    attached = scene.attach()
    scene.bind(scene.skills, scene.mountpoint)
    before = scene.mounts()
    for lazy in (True, False):
        with pytest.raises(Busy) as caught:
            kernel.detach(attached.point, attached.mount_id, lazy=lazy)
        assert str(caught.value) == (
            f"another mount lies over the view at {scene.mountpoint}; unmount that first"
        )
    assert scene.mounts() == before


def test_a_view_that_is_gone_is_not_found(scene: Scene) -> None:
    attached = scene.attach()
    kernel.detach(attached.point, attached.mount_id)
    scene.bind(scene.skills, scene.mountpoint)
    for point, mount_id in (
        (attached.point, attached.mount_id + 1_000_000),
        (bytes(scene.top), attached.mount_id),
    ):
        with pytest.raises(NotFound, match="is not mounted; `vfs mounts` lists"):
            kernel.detach(point, mount_id)


# What the machine lacks


def refusal(scene: Scene, view: View, owner: tuple[int, int] | None) -> VfsError:
    """The error of `attach`, which says the same as `supports` and mounts nothing."""
    before = scene.mounts()
    with pytest.raises(VfsError) as caught:
        scene.attach(view, owner)
    assert kernel.supports(view, owner) == caught.value.message
    assert scene.mounts() == before
    return caught.value


def test_what_can_be_served_has_no_refusal(scene: Scene) -> None:
    before = descriptors()
    view = scene.view()
    answers = [kernel.supports(view, owner) for owner in (None, SELF, (1000, 1000))]
    assert (answers, scene.mounts()) == ([None] * 3, [])
    assert len(descriptors()) == len(before) + 2


def test_a_filesystem_without_id_maps_serves_owners_as_they_are_only(scene: Scene) -> None:
    mountapi.mount(b"x", bytes(scene.user_data), b"ramfs", 0, b"")
    error = refusal(scene, scene.workdir(), SELF)
    assert isinstance(error, Unavailable)
    assert str(error) == (
        "the storage's filesystem cannot show files as another owner's (id-mapped mounts: EINVAL); "
        "use --owner keep, or use the FUSE engine (--engine fuse)"
    )
    assert kernel.supports(scene.workdir(), None) is None


def test_a_mount_that_cannot_be_bound_is_refused(scene: Scene) -> None:
    scene.bind(scene.user_data, scene.user_data)
    mountapi.mount(b"", bytes(scene.user_data), b"", 1 << 17, b"")  # MS_UNBINDABLE
    error = refusal(scene, scene.workdir(), None)
    assert isinstance(error, Unavailable)
    assert str(error) == (
        "the kernel engine needs Linux 5.14 or later, and storage on a mount that can be bound; "
        "use the FUSE engine (--engine fuse)"
    )


@pytest.mark.parametrize("call", ["open_tree", "mount_setattr"])
def test_an_old_kernel_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def lack(*args: object, **kwargs: object) -> int:
        raise OSError(errno.ENOSYS, "injected")

    monkeypatch.setattr(mountapi, call, lack)
    error = refusal(scene, scene.view(), None)
    assert isinstance(error, Unavailable)
    assert error.message == (
        "the kernel engine needs Linux 5.14 or later, or a seccomp filter hides its mount calls"
    )


def test_switched_off_user_namespaces_are_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*ids: int) -> int:
        raise OSError(errno.ENOSPC, "injected")

    monkeypatch.setattr(namespaces, "userns_idmap", refuse)
    error = refusal(scene, scene.view(), SELF)
    assert isinstance(error, Unavailable)
    assert error.message == (
        "the kernel engine cannot make the user namespace that shows files as another owner's "
        "(ENOSPC)"
    )


def test_who_is_not_root_is_told_so(scene: Scene) -> None:
    code = """if True:
        import os, sys
        from vfs.errors import VfsError
        from vfs.mount import kernel
        user_data, skills, mountpoint = (os.open(path, os.O_PATH) for path in sys.argv[1:])
        os.setgroups([])
        os.setgid(1000)
        os.setuid(1000)
        for owner in (None, (1000, 1000)):
            try:
                kernel.attach(kernel.View(user_data, skills), mountpoint, owner=owner)
            except VfsError as error:
                print(error.kind, error)
    """
    command = [sys.executable, "-c", code, scene.user_data, scene.skills, scene.mountpoint]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    line = (
        "permission the kernel engine needs the right to mount (root, CAP_SYS_ADMIN); "
        "run it as root, or use the FUSE engine (--engine fuse)\n"
    )
    assert (result.stdout, result.stderr, result.returncode) == (line * 2, "", 0)
    assert scene.mounts() == []
