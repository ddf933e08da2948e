"""Which processes have something beneath a few directory trees in use, as /proc tells it.

It promises to compare by file system and not by path text alone: a container sees other paths than
the host does, but mountinfo says of every mount which directory of which file system it shows. So a
sandbox is found by what it holds open beneath a bind mount, and by having one at all. Nothing is
opened, nothing is waited for: only links of /proc are read, and the status of what is held is taken
without asking a server for it.

What /proc does not show is not seen: processes of another machine (a network file system's other
clients), those outside of this PID namespace (`Survey.partial`), descriptors on their way through
a socket, what a thread holds alone, and what the kernel itself uses (loop devices, NFS exports).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal

from migrator.mountviews import Tree, View, Window, bare, below, locate
from vfs import linux
from vfs.beneath import Directory
from vfs.mount.table import parse

How = Literal["open for writing", "mapped for writing", "open", "mapped", "cwd", "root"]

_WORST_FIRST: Final[tuple[How, ...]] = (
    "open for writing",
    "mapped for writing",
    "open",
    "mapped",
    "cwd",
    "root",
)

INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
"""Inode of the machine's own PID namespace (PROC_PID_INIT_INO, include/linux/proc_ns.h)."""

_CAP_SYS_PTRACE: Final = 19  # include/uapi/linux/capability.h
_CONTAINER = re.compile(rb"([0-9a-f]{64})")
_UNIT = re.compile(rb"([^/\n]+\.service)")


@dataclass(frozen=True, slots=True)
class Use:
    """What one process has in use; of several things the worst, in the order of `How`."""

    pid: int
    command: bytes
    """Its name as /proc/PID/comm has it, up to 15 bytes, exact."""
    home: str | None
    """The container (64 hex digits) or the systemd unit (``x.service``) that it runs in."""
    how: How
    root: str
    """Name of the tree."""
    path: bytes | None
    """Beneath the tree, exact, ``b""`` for the tree itself; a file removed meanwhile ends in
    `` (deleted)``. None: longer than the kernel tells (4096 bytes)."""
    things: int = 1
    """How many things beneath the trees it has in use, this one counted."""
    ancestor: bool = False
    """Whether it is one of the processes that this one was started from."""


@dataclass(frozen=True, slots=True)
class Mounted:
    """A tree, or a directory of it, that is mounted somewhere."""

    root: str
    path: bytes
    """Beneath the tree, exact; ``b""`` for the tree itself."""
    point: bytes
    """The mountpoint, as the processes of that mount namespace call it."""
    read_only: bool
    pid: int = 0
    """The first process of that mount namespace; 0 in the namespace of this process."""
    command: bytes = b""
    home: str | None = None
    """As in `Use`."""
    mounts: int = 1
    """How many such mounts that namespace has, this one counted."""


@dataclass(frozen=True, slots=True)
class Survey:
    """All of it."""

    uses: tuple[Use, ...]
    """By pid; this process is left out."""
    elsewhere: tuple[Mounted, ...]
    """One for each other mount namespace that has a part of the trees mounted on purpose."""
    here: tuple[Mounted, ...]
    """Mounts of a part of the trees in the namespace of this process."""
    unreadable: tuple[int, ...]
    """The processes that could not be looked into."""
    entitled: bool
    """Whether this process may look into any, as root does (CAP_SYS_PTRACE). One that holds a
    capability that this process lacks cannot be looked into even so."""
    partial: bool
    """Whether this process is in a PID namespace of its own, so that the machine's other processes
    are out of sight."""


def survey(
    roots: Mapping[str, Directory], *, proc: str = "/proc", apart: bytes | None = None
) -> Survey:
    """Looks once at every process. `apart` is a host path that does not count, nor what is in it.

    Where trees lie in one another, what is found is told of the first. Raises OSError where there
    is no /proc, or where it does not show the mounts that the trees are on.
    """
    own = View(parse(_read(f"{proc}/self/mountinfo")), b"")
    own.look_for(trees := [locate(name, root, own, proc) for name, root in roots.items()])
    return _Look(proc, trees, own, apart).survey()


def container_of_this_process(proc: str = "/proc") -> str | None:
    """The id (64 hex digits) of the container that this process runs in, as far as can be told.

    Docker and Podman mount files of a folder of that name over /etc/hostname and its neighbours.
    """
    with suppress(OSError):
        found = re.search(rb"containers/([0-9a-f]{64})/", _read(f"{proc}/self/mountinfo"))
        return found and found[1].decode()
    return None


Hit = tuple[Tree, bytes | None]
"""A tree, and the path beneath it; None: longer than the kernel tells."""


class _Look:
    """One pass over the processes."""

    def __init__(self, proc: str, trees: list[Tree], own: View, apart: bytes | None) -> None:
        self.proc = proc
        self.trees = trees
        self.own = own
        self.apart = [] if apart is None else own.at(bare(os.path.realpath(apart)))
        self.pid = int(os.readlink(f"{proc}/self"))
        self.ancestors = frozenset(_ancestors(proc, self.pid))
        self.own_space = os.readlink(f"{proc}/self/ns/mnt")
        self.views: dict[tuple[str, bytes], View] = {}
        self.elsewhere: dict[str, Mounted] = {}

    def survey(self) -> Survey:
        pids = sorted(int(name) for name in os.listdir(self.proc) if name.isdigit())
        refused: list[int] = []
        uses = list(self._uses(pids, refused))
        # The kernel refuses to show a process that is just ending, too.
        unreadable: list[int] = []
        uses += self._uses(refused, unreadable)
        return Survey(
            uses=tuple(sorted(uses, key=lambda use: use.pid)),
            elsewhere=tuple(self.elsewhere.values()),
            here=tuple(
                _mounted(window)
                for window in self.own.parts()
                if window.mount.id != window.tree.mount
            ),
            unreadable=tuple(pid for pid in unreadable if not _has_ended(f"{self.proc}/{pid}")),
            entitled=_is_entitled(f"{self.proc}/self"),
            partial=os.stat(f"{self.proc}/self/ns/pid").st_ino != INITIAL_PID_NAMESPACE,
        )

    def _uses(self, pids: Iterable[int], refused: list[int]) -> Iterator[Use]:
        for pid in pids:
            if pid == self.pid:
                continue
            try:
                use = self._use(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
            except PermissionError:
                refused.append(pid)
                continue
            if use is not None:
                yield use

    def _use(self, pid: int) -> Use | None:
        top = f"{self.proc}/{pid}"
        view = self._view(pid, top)
        if not view.windows:
            return None
        found = [
            (how, tree, path)
            for how, (tree, path) in _held(top, view)
            if path is None or not self._is_apart(tree, path)
        ]
        if not found:
            return None
        how, tree, path = min(found, key=lambda one: _WORST_FIRST.index(one[0]))
        return Use(
            pid=pid,
            command=_command(top),
            home=_home(top),
            how=how,
            root=tree.name,
            path=path,
            things=len(found),
            ancestor=pid in self.ancestors,
        )

    def _view(self, pid: int, top: str) -> View:
        space = os.readlink(f"{top}/ns/mnt")
        if space == self.own_space:
            return self.own
        # Mountinfo shows what is beneath the process's own root, by the paths from there.
        root = bare(os.readlink(os.fsencode(f"{top}/root")))
        view = self.views.get((space, root))
        if view is None:
            view = View(parse(_read(f"{top}/mountinfo")), root)
            view.look_for(self.trees)
            self.views[space, root] = view
            if space not in self.elsewhere:
                self._note_mounts(space, view, pid, top)
        return view

    def _note_mounts(self, space: str, view: View, pid: int, top: str) -> None:
        # A service's private copy of this namespace has each of its mounts too, where it was.
        copied = set()
        if view.top() == self.own.top():
            copied = {(one.dev, one.root, one.point) for one in self.own.mounts.values()}
        chosen = [
            window
            for window in view.parts()
            if (window.mount.dev, window.mount.root, window.mount.point) not in copied
            and not self._is_apart(window.tree, window.base)
        ]
        if chosen:
            first = min(chosen, key=lambda window: "ro" in window.mount.options)
            self.elsewhere[space] = replace(
                _mounted(first),
                pid=pid,
                command=_command(top),
                home=_home(top),
                mounts=len({window.mount.id for window in chosen}),
            )

    def _is_apart(self, tree: Tree, path: bytes) -> bool:
        return any(
            window.tree == tree and below(path, apart) is not None for window, apart in self.apart
        )


def _held(top: str, view: View) -> Iterator[tuple[How, Hit]]:
    """What a process has in use beneath the trees, and how."""
    for name in os.listdir(f"{top}/fd"):
        if (hit := _hit(view, f"{top}/fd/{name}")) is not None:
            yield _opened(f"{top}/fdinfo/{name}"), hit
    if (hit := _hit(view, f"{top}/cwd")) is not None:
        yield "cwd", hit
    if (hit := _hit(view, f"{top}/root")) is not None:
        yield "root", hit
    yield from _mapped(view, top)


def _hit(view: View, link: str) -> Hit | None:
    """What a link of /proc leads to, if that is beneath a tree; None too if it has gone."""
    try:
        text = bare(os.readlink(os.fsencode(link)))
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError as exc:
        if exc.errno != errno.ENAMETOOLONG:
            raise
        mount = _mount_of(link)
        trees = [window.tree for window in view.windows if window.mount.id == mount]
        return (trees[0], None) if trees else None
    return _chosen(view, view.at(text), link)


def _chosen(view: View, candidates: list[tuple[Window, bytes]], link: str) -> Hit | None:
    """Of the windows that a path lies in by its text, the one of the mount that `link` is on."""
    if candidates and (mount := _mount_of(link)) in view.mounts:
        candidates = [one for one in candidates if one[0].mount.id == mount]
    return (candidates[0][0].tree, candidates[0][1]) if candidates else None


def _mount_of(link: str) -> int:
    """The id of the mount that what a link of /proc leads to is on; 0 where that is not told."""
    try:
        # Not synced: a server that is gone must not hold this up.
        return linux.statx(linux.AT_FDCWD, os.fsencode(link), linux.AT_STATX_DONT_SYNC).mnt_id
    except OSError:
        return 0


def _opened(fdinfo: str) -> How:
    with suppress(FileNotFoundError):  # closed meanwhile
        for line in _read(fdinfo).splitlines():
            if line.startswith(b"flags:"):
                writes = int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
                return "open for writing" if writes else "open"
    return "open"


def _mapped(view: View, top: str) -> Iterator[tuple[How, Hit]]:
    maps = _read(f"{top}/maps")
    # The kernel writes a newline in a path as four characters, and no other escape.
    if not any(prefix.replace(b"\n", b"\\012") in maps for prefix in view.prefixes):
        return
    seen = set()
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or not fields[5].startswith(b"/"):
            continue
        rights, file = fields[1], (fields[3], fields[4])
        how: How = "mapped for writing" if b"w" in rights and b"s" in rights else "mapped"
        if (how, file) in seen:
            continue
        seen.add((how, file))
        low, high = (int(end, 16) for end in fields[0].split(b"-"))
        if (hit := _hit(view, f"{top}/map_files/{low:x}-{high:x}")) is not None:
            yield how, hit


def _mounted(window: Window) -> Mounted:
    return Mounted(
        root=window.tree.name,
        path=window.base,
        point=window.prefix or b"/",
        read_only="ro" in window.mount.options,
    )


def _ancestors(proc: str, pid: int) -> Iterator[int]:
    while pid > 0:
        pid = int(_stat(f"{proc}/{pid}")[1])
        yield pid


def _has_ended(top: str) -> bool:
    try:
        return _stat(top)[0] in (b"Z", b"X")
    except OSError:
        return True


def _is_entitled(top: str) -> bool:
    for line in _read(f"{top}/status").splitlines():
        if line.startswith(b"CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_PTRACE & 1)
    return False


def _stat(top: str) -> list[bytes]:
    """State, parent and so on; the name before them may hold anything (proc_pid_stat(5))."""
    return _read(f"{top}/stat").rpartition(b") ")[2].split()


def _command(top: str) -> bytes:
    return _read(f"{top}/comm").removesuffix(b"\n")


def _home(top: str) -> str | None:
    cgroups = _read(f"{top}/cgroup")
    if (found := _CONTAINER.search(cgroups)) is not None:
        return found[1].decode()
    units = _UNIT.findall(cgroups)
    return os.fsdecode(units[-1]) if units else None


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
