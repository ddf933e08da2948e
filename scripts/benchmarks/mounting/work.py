"""The work that is timed: each row's, on a folder that some system shows.

It is done by a process of its own, so that a system that hangs can be given up, and nothing that is
open, current or imported in the benchmark itself plays a part.
"""

from __future__ import annotations

import math
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from mounting import data
from mounting.data import BIG, MIB, REPOSITORY, SMALL, TREE

Work = Callable[[Path], None]

LIMIT_SECONDS = 30.0
"""After this a work is given up: the native tree takes less than a second for the longest."""


class Failed(Exception):
    """Why a system did not do a row's work, in one line."""


def timed(work: Work, folder: Path, limit: float = LIMIT_SECONDS) -> float:
    """Seconds that a process of its own takes for the work; infinite where it is given up."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _work_and_exit(work, folder, writer)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], limit)
        answer = os.read(reader, 500) if ready else b""
    finally:
        os.close(reader)
        _end_group(pid)
    if not ready:
        return math.inf
    if len(answer) != 8:
        raise Failed(answer.decode(errors="replace") or "the work was ended")
    seconds: float = struct.unpack("d", answer)[0]
    return seconds


def _work_and_exit(work: Work, folder: Path, writer: int) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        begin = time.perf_counter()
        work(folder)
        os.write(writer, struct.pack("d", time.perf_counter() - begin))
        status = 0
    except BaseException as exc:
        os.write(writer, f"{type(exc).__name__}: {exc}".encode()[:499])
    finally:
        os._exit(status)


def _end_group(pid: int) -> None:
    """Ends the process and what it started."""
    for target in (os.killpg, os.kill):
        try:
            target(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os.waitpid(pid, 0)


def read_big(folder: Path) -> None:
    """Reads the big file through, a MiB at a time."""
    buffer = [bytearray(MIB)]
    fd = os.open(folder / BIG, os.O_RDONLY)
    while os.readv(fd, buffer):
        pass
    os.close(fd)


def find_tree(folder: Path) -> None:
    """Has `find` stat everything in the tree."""
    _run(["find", folder / TREE, "-printf", "%s %T@ %m\\n"])


def list_tree(folder: Path) -> None:
    """ls -lR of the tree."""
    _run(["ls", "-lR", folder / TREE])


def read_small(folder: Path) -> None:
    """Opens, reads and closes each small file."""
    top = f"{folder / SMALL}/"
    for directory in sorted(os.listdir(top)):
        for name in range(100):
            fd = os.open(f"{top}{directory}/{name:02d}", os.O_RDONLY)
            if len(os.read(fd, 65536)) != 4096:
                raise OSError("a small file is not whole")
            os.close(fd)


def tar_tree(folder: Path) -> None:
    """tar of the tree; through a pipe, for GNU tar does not read what goes to /dev/null."""
    tar = subprocess.Popen(["tar", "-cf", "-", "-C", folder, TREE], stdout=subprocess.PIPE)
    _run(["cat"], tar.stdout)
    if tar.wait() != 0:
        raise OSError("tar fails")


def git_status(folder: Path) -> None:
    """git status of the repository."""
    data.git(folder / REPOSITORY, "status", "--porcelain")


def git_clone(folder: Path, target: Path) -> None:
    """git clone of the repository into `target` beside it, every object copied."""
    data.git(folder, "clone", "--quiet", "--no-hardlinks", str(folder / REPOSITORY), str(target))


def write_big(path: Path, mib: int) -> None:
    """Writes a new file, a MiB at a time."""
    # Not bytes(MIB): of memory that was never touched the kernel copies a few pages at a time.
    block = os.urandom(MIB)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    for _ in range(mib):
        if os.write(fd, block) != MIB:
            raise OSError("a write was short")
    os.close(fd)


def create_files(folder: Path, count: int) -> None:
    """Makes files of 4 KiB in a new directory."""
    os.mkdir(folder)
    content = os.urandom(4096)
    for number in range(count):
        fd = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, content)
        os.close(fd)


def unlink_files(folder: Path) -> None:
    """Removes the files of a directory."""
    for name in os.listdir(folder):
        os.unlink(f"{folder}/{name}")


def _run(command: list[str | Path], stdin: object = subprocess.DEVNULL) -> None:
    subprocess.run(
        command,
        env={**os.environ, "LC_ALL": "C"},
        stdin=stdin,  # type: ignore[call-overload]
        stdout=subprocess.DEVNULL,
        check=True,
    )


def find_names(output: Path, folder: Path) -> None:
    """Has `find` stat everything, and write the type of each entry into a file."""
    with open(output, "wb") as file:
        subprocess.run(["find", folder, "-printf", "%y\\n", "-size", "-1"], stdout=file, check=True)
