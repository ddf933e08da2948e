"""The ways to look at one folder that are compared: each is started, shows it, and is stopped.

A system that cannot be started raises `CannotStart` with the reason in one line.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

SECONDS = 20.0
"""What a system may take to start or to stop."""

UID = "bench"

_VFS = Path(sys.executable).with_name("vfs")


class CannotStart(Exception):
    """Why a system cannot be measured here."""


class System(Protocol):
    """One column of the table."""

    name: str
    writable: bool
    pid: int | None = None
    """The process that answers requests, while started."""
    shown: Path
    """Where the folder is seen while started."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Native:
    """The folder itself."""

    name = "native"
    writable = True
    pid: int | None = None

    def __init__(self, folder: Path) -> None:
        self.shown = folder

    def start(self) -> None:
        """Nothing to start."""

    def stop(self) -> None:
        """Nothing to stop."""


class Served:
    """A mount that is served by a process in the foreground."""

    writable = True

    def __init__(self, name: str, command: list[str], point: Path, below: str = "") -> None:
        """`below` is where in the mount the folder is shown."""
        self.name = name
        self.pid: int | None = None
        self.shown = point / below
        self._command = command
        self._point = point
        self._process: subprocess.Popen[bytes] | None = None
        self._log = point.with_name(f"{name}.log")

    def start(self) -> None:
        """Starts the process and waits for the mount."""
        with open(self._log, "wb") as log:
            try:
                # Of a session of its own: Ctrl-C is for the benchmark, which stops it then.
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise CannotStart(f"{self._command[0]} is not installed") from None
        self.pid = self._process.pid
        deadline = time.monotonic() + SECONDS
        while not is_mounted(self._point):
            if self._process.poll() is not None or time.monotonic() > deadline:
                reason = last_line(self._log.read_bytes())
                self.stop()
                raise CannotStart(reason)
            time.sleep(0.002)

    def stop(self) -> None:
        """Ends the process; what it leaves mounted is taken away."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = self.pid = None
        unmount(self._point)


class PassthroughExample(Served):
    """The pass-through file system that pyfuse3's source distribution shows."""

    def __init__(self, source: Path, point: Path, download: ExampleDownload) -> None:
        script = download.script
        super().__init__(
            "pyfuse3-example", [sys.executable, str(script), str(source), str(point)], point
        )
        self._download = download

    def start(self) -> None:
        """Waits for the download at the first start."""
        self._download.finish()
        super().start()

    def stop(self) -> None:
        """It has no handler for SIGTERM, and ends well only when it is unmounted."""
        unmount(self._point)
        super().stop()


class KernelEngine:
    """The kernel engine: no process serves it."""

    name = "kernel"
    writable = False
    pid: int | None = None

    def __init__(self, storage: Path, point: Path) -> None:
        self.shown = point / "user-data"
        self._storage = storage
        self._point = point

    def start(self) -> None:
        """Mounts."""
        self._vfs("mount", UID, str(self._point), "--engine", "kernel")

    def stop(self) -> None:
        """Unmounts."""
        if is_mounted(self._point):
            self._vfs("umount", str(self._point))
        unmount(self._point)

    def _vfs(self, *arguments: str) -> None:
        done = subprocess.run(
            [_VFS, "--storage", self._storage, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise CannotStart(last_line(done.stderr))


class ExampleDownload:
    """Fetches pyfuse3's source distribution, of the installed version, in the background."""

    def __init__(self, folder: Path) -> None:
        self.script = folder / "passthroughfs.py"
        self._folder = folder
        self._reason: str | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Starts the download."""
        try:
            wanted = f"pyfuse3=={version('pyfuse3')}"
        except PackageNotFoundError:
            self._reason = "pyfuse3 is not installed"
            return
        self._folder.mkdir()
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
        self._process = subprocess.Popen(
            [*pip, "download", "--no-binary", ":all:", "--no-deps", "-d", self._folder, wanted],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def finish(self) -> None:
        """Waits for it; CannotStart where there is no example."""
        if self._process is not None:
            _, errors = self._process.communicate()
            if self._process.returncode != 0:
                self._reason = f"pip download: {last_line(errors)}"
            else:
                self._extract()
            self._process = None
        if self._reason is not None:
            raise CannotStart(self._reason)

    def cancel(self) -> None:
        """Ends a download that nobody waits for any more."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._process = None

    def _extract(self) -> None:
        (archive,) = self._folder.glob("pyfuse3-*.tar.gz")
        with tarfile.open(archive) as members:
            for member in members:
                if member.name.endswith("/examples/passthroughfs.py"):
                    content = members.extractfile(member)
                    assert content is not None
                    self.script.write_bytes(content.read())
                    return
        self._reason = "the source distribution has no examples/passthroughfs.py"


def make_storage(storage: Path) -> Path:
    """Makes a storage with one user, by the command; the folder of that user's workspace."""
    for arguments in (["init"], ["user", "add", UID]):
        command = [str(_VFS), "--storage", str(storage), *arguments]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return storage / "user-data" / "shared" / UID / "workspace"


def fuse_engine(storage: Path, point: Path, transport: str, options: list[str]) -> Served:
    """The FUSE engine on one transport."""
    command = [
        str(_VFS), "--storage", str(storage), "mount", UID, str(point), "--engine", "fuse",
        "--transport", transport, "--writable", "--foreground", *options,
    ]  # fmt: skip
    return Served(f"fuse-{transport}", command, point, "user-data")


def bindfs(source: Path, point: Path) -> Served:
    """bindfs, the pass-through file system in C that distributions ship."""
    return Served("bindfs", ["bindfs", "-f", str(source), str(point)], point)


def device_of(point: Path) -> str | None:
    """``major:minor`` of what is mounted at a directory; the mount itself is not asked."""
    wanted = os.fsencode(point)
    found = None
    with open("/proc/self/mountinfo", "rb") as lines:
        for line in lines:
            fields = line.split(b" ")
            # A space, tab, newline or backslash is written in octal.
            place = re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), fields[4])
            if place == wanted:
                found = fields[2].decode()
    return found


def is_mounted(point: Path) -> bool:
    """Whether something is mounted at a directory."""
    return device_of(point) is not None


def unmount(point: Path) -> None:
    """Takes away what is mounted at a directory, busy or not."""
    while is_mounted(point):
        command = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*command, "--", point], check=True)


def last_line(text: bytes) -> str:
    """The last line of what a program said."""
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it gives no reason"
