"""Runs scenarios of system calls in one directory, and writes down what each call did.

Run as a program: `posix_run VIEW STORAGE`, scenarios pickled on stdin, records on stdout. VIEW is
the directory under test, STORAGE the same directory on the disk (for a native run they are one).

A scenario is `(name, plants, steps)`; plants are made on STORAGE before VIEW is looked at. Each of
both is a tuple of steps, as `posix_calls` has them.

A record has, for each step, `(result, changes, through_link)`. The result is the call's value or
the name of its errno. The changes compare all entries before and after the step: what appeared,
what went, which facts have other values, which times moved and whether to the present. The last
record is what lies in the storage at the end.
"""

from __future__ import annotations

import errno
import os
import pickle
import resource
import stat
import sys
import time
from typing import Any

from tests.mount.posix_calls import NOW, Calls, Facts, Step, become, facts, perform

Scenario = tuple[str, tuple[Step, ...], tuple[Step, ...]]

SETS_TIMES = ("utimensat", "utimes_null", "futimens")

_CLOCK_REALTIME_COARSE = 5  # include/uapi/linux/time.h
_COARSE_NS = 20_000_000
"""How far a time of the file system may lag behind the clock: two ticks at 100 Hz."""


class Tree:
    """All entries beneath the scenario's directory, as they were when last looked at."""

    def __init__(self, root: int, storage: int, *, coarse: bool) -> None:
        self._root = root
        self._coarse = coarse
        self.storage = storage
        self.entries: dict[bytes, Facts] = {}

    def look(self) -> dict[bytes, Facts]:
        """Known names first, by lstat alone: a listing would mend attributes that went stale."""
        found: dict[bytes, Facts] = {}
        for path in self.entries:
            self._look_at(path, found)
        folders = [b"."]
        for folder in folders:
            directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._root)
            names = [os.fsencode(name) for name in os.listdir(directory)]
            os.close(directory)
            for name in names:
                path = name if folder == b"." else folder + b"/" + name
                if path not in found:
                    self._look_at(path, found)
                if found[path]["type"] == "directory":
                    folders.append(path)
        for above in (b".", b".."):
            self._look_at(above, found)
        self.entries = found
        if self._coarse:
            wait_for_tick()
        return found

    def _look_at(self, path: bytes, found: dict[bytes, Facts]) -> None:
        try:
            found[path] = facts(os.stat(path, dir_fd=self._root, follow_symlinks=False))
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise

    def goes_through_link(self, path: bytes) -> bool:
        """Whether a component of `path`, the last one included, is a link."""
        parts = path.split(b"/")
        for end in range(1, len(parts) + 1):
            try:
                status = os.stat(
                    b"/".join(parts[:end]) or b".", dir_fd=self.storage, follow_symlinks=False
                )
            except OSError:
                return False
            if stat.S_ISLNK(status.st_mode):
                return True
        return False


def wait_for_tick() -> None:
    """Until the clock that coarse timestamps are taken from has passed the present."""
    start = time.time_ns()
    while time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) <= start:
        pass


def changes_between(
    before: dict[bytes, Facts], after: dict[bytes, Facts], call: str, start: int, end: int
) -> dict[bytes, Any]:
    """Path to what happened to it: "gone", its facts if new, else the facts that changed."""
    names = {found["ino"]: path for path, found in reversed(before.items())}
    changes: dict[bytes, Any] = {path: "gone" for path in before if path not in after}
    for path, new in after.items():
        old = before.get(path)
        change: Facts = {}
        if old is None or old["ino"] != new["ino"]:
            change["was"] = names.get(new["ino"], "nothing")
            old = before.get(change["was"])
        for key, value in new.items():
            if key == "ino" or (old is not None and old[key] == value):
                continue
            change[key] = moment(value, start, end) if key.endswith("time") else value
        read = "ctime" not in change or (new["type"] == "directory" and call not in SETS_TIMES)
        if read and old is not None:
            # Reading moves it, the test's own between two steps too, as far as `relatime` and the
            # caches that answer the reader let it.
            change.pop("atime", None)
        if change:
            changes[path] = change
    return changes


def moment(value: int, start: int, end: int) -> str | int:
    """A time as "now", if the step could have set it, else as it is."""
    return "now" if start - _COARSE_NS <= value <= end + _COARSE_NS else value


def run(scenario: Scenario, number: int, view: int, storage: int, *, coarse: bool) -> list[Any]:
    """The records of one scenario."""
    _, plants, steps = scenario
    # One level more than is used: `..` is the scenario's own, too.
    name = b"%d/here" % number
    for folder in (b"%d" % number, name):
        os.mkdir(folder, dir_fd=storage)
        os.chmod(folder, 0o755, dir_fd=storage)
    ground = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=storage)
    calls = Calls()
    os.umask(0)
    os.fchdir(ground)
    for plant in plants:
        become(plant[0])
        result = perform(calls, plant)
        if isinstance(result, str) and result.startswith("E"):
            raise AssertionError(f"{scenario[0]}: {plant} gives {result}")
    become("root")
    calls.close_all()
    root = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=view)
    os.fchdir(root)
    tree = Tree(root, ground, coarse=coarse)
    has_links = any(plant[1] == "symlink" for plant in plants)
    before = tree.look()
    records = []
    for step in steps:
        through = has_links and any(
            isinstance(word, bytes) and tree.goes_through_link(word) for word in step[2:]
        )
        if step[1] in SETS_TIMES and (NOW in step or step[1] == "utimes_null"):
            # Where a transport does not tell the present from a value, it is the kernel's clock's,
            # which may still stand where it stood at the last change.
            wait_for_tick()
        become(step[0])
        start = time.time_ns()
        result = perform(calls, step)
        end = time.time_ns()
        become("root")
        after = tree.look()
        records.append((result, changes_between(before, after, step[1], start, end), through))
        before = after
    calls.close_all()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    os.chdir("/")
    os.close(root)
    records.append(on_disk(ground))
    os.close(ground)
    return records


def on_disk(ground: int) -> dict[bytes, Any]:
    """What the scenario left in the storage: type, mode, owner and content of each entry."""
    left: dict[bytes, Any] = {}
    folders = [b"."]
    for folder in folders:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY, dir_fd=ground)
        for text in os.listdir(directory):
            name = os.fsencode(text)
            path = name if folder == b"." else folder + b"/" + name
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            content: Any = None
            if stat.S_ISDIR(status.st_mode):
                folders.append(path)
            elif stat.S_ISREG(status.st_mode) and status.st_size <= 1 << 24:
                fd = os.open(name, os.O_RDONLY, dir_fd=directory)
                content = os.read(fd, 1 << 24).rstrip(b"\0")
                os.close(fd)
            kept = facts(status)
            left[path] = {
                key: kept[key] for key in ("type", "mode", "set-ids", "size", "uid", "gid")
            }
            left[path]["content"] = content
        os.close(directory)
    return left


def has_coarse_times(folder: int) -> bool:
    """Whether two changes in a row, each looked at, may get the same time (before Linux 6.13)."""
    fd = os.open(b"clock", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=folder)
    seen = set()
    for bit in range(4):
        os.fchmod(fd, 0o600 | bit)
        seen.add(os.fstat(fd).st_ctime_ns)
    os.close(fd)
    os.unlink(b"clock", dir_fd=folder)
    return len(seen) < 4


def main() -> None:
    """Answers the scenarios of stdin on stdout."""
    view_path, storage_path = sys.argv[1:]
    scenarios: list[Scenario] = pickle.load(sys.stdin.buffer)
    view = os.open(view_path, os.O_RDONLY | os.O_DIRECTORY)
    storage = os.open(storage_path, os.O_RDONLY | os.O_DIRECTORY)
    coarse = has_coarse_times(storage)
    records = [
        run(scenario, number, view, storage, coarse=coarse)
        for number, scenario in enumerate(scenarios)
    ]
    pickle.dump(records, sys.stdout.buffer)


if __name__ == "__main__":
    main()
