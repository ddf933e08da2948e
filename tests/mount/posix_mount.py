"""A mount for tests: a storage of its own, served by the real command in a process of its own."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TRANSPORTS = ("device", "pyfuse3")
UID = "tester"
DEADLINE = 30.0
"""Seconds after which a condition that another process brings about counts as never coming."""


def until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
    """Polls until the condition holds; fails by name after the deadline."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.01)


def program(module: str, *arguments: object) -> list[str]:
    """The command that runs a module of this folder as a program; its cwd must be ROOT."""
    return [sys.executable, "-m", f"tests.mount.{module}", *map(str, arguments)]


def is_mounted(point: Path) -> bool:
    """Whether something is mounted there; the mount itself is not asked."""
    wanted = os.fsencode(point).replace(b"\\", rb"\134").replace(b" ", rb"\040")
    with open("/proc/self/mountinfo", "rb") as lines:
        return any(line.split(b" ")[4] == wanted for line in lines)


def is_served(point: Path) -> bool:
    """Whether a mount there has a server that lives."""
    if not is_mounted(point):
        return False
    try:
        os.statvfs(point)  # which the kernel answers from no cache
    except OSError as exc:
        if exc.errno != errno.ENOTCONN:
            raise
        return False
    return True


def make_storage(folder: Path) -> None:
    """The three roots of a storage, and the workspace of the user UID, as the contract has them."""
    for path in (f"user-data/shared/{UID}/workspace", f"skill-projections/{UID}", "skill-store"):
        (folder / path).mkdir(parents=True)
    for path in folder.rglob("*"):
        os.chown(path, 1000, 1000)
        path.chmod(0o700)


def command(storage: Path, point: Path, transport: str, options: tuple[str, ...]) -> list[str]:
    """The command that mounts, as a person would type it."""
    vfs = os.path.join(os.path.dirname(sys.executable), "vfs")
    return [
        vfs, "--storage", str(storage), "mount", UID, str(point),
        "--writable", "--transport", transport, "--foreground", *options,
    ]  # fmt: skip


@dataclass
class Mounted:
    """A writable mount and the process that serves it."""

    transport: str
    storage: Path
    point: Path
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def data(self) -> Path:
        """The workspace as the mount shows it."""
        return self.point / "user-data"

    @property
    def workspace(self) -> Path:
        """The same on the disk."""
        return self.storage / "user-data" / "shared" / UID / "workspace"

    def folder(self, name: str) -> tuple[Path, Path]:
        """A new directory of the workspace: as the mount shows it, and on the disk."""
        made = self.workspace / name
        made.mkdir()
        os.chown(made, 1000, 1000)
        made.chmod(0o755)
        return self.data / name, made

    def output(self) -> str:
        """What the process has said until now."""
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        """Asks the process to end, and gives its exit status once the mount is gone."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(DEADLINE)
        until(lambda: not is_mounted(self.point), "the mount goes with its process")
        return status


@contextmanager
def mounted(
    folder: Path, transport: str, *options: str, run_by: tuple[str, ...] = ()
) -> Iterator[Mounted]:
    """A mount in `folder`, taken away at the end whatever happened to it.

    A second one in the same folder shows the same storage. `run_by` is a command that runs the
    command that mounts.
    """
    storage = folder / "storage"
    if not storage.exists():
        storage.mkdir(mode=0o700)
        make_storage(storage)
    point = folder / "mnt"
    if not is_mounted(point):  # else by a server that was killed
        point.mkdir(exist_ok=True)
    with serving(
        transport, storage, point, [*run_by, *command(storage, point, transport, options)]
    ) as made:
        yield made


@contextmanager
def serving(transport: str, storage: Path, point: Path, arguments: list[str]) -> Iterator[Mounted]:
    """What a program serves at `point` once it is mounted, taken away at the end."""
    log = point.with_suffix(".log")
    with open(log, "wb") as output:
        process = subprocess.Popen(
            arguments, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    made = Mounted(transport, storage, point, log, process)
    try:
        until(lambda: is_served(point) or process.poll() is not None, "the mount comes")
        if process.poll() is not None:
            raise AssertionError(f"the server ended with {process.returncode}: {made.output()}")
        yield made
    finally:
        _take_away(made)


def _take_away(made: Mounted) -> None:
    try:
        if made.process.poll() is None:
            made.stop()
    finally:
        if made.process.poll() is None:
            made.process.kill()
            made.process.wait()
        if is_mounted(made.point):
            subprocess.run(["umount", "--lazy", made.point], check=True)
