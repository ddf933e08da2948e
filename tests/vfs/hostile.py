"""What the floor's tests set up: other users, system call filters, witnesses of opens, swappers.

Everything is real: processes with another uid, seccomp filters, inotify, mounts.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import signal
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)

NOBODY = 65534

PATIENCE = 60.0
"""Seconds that another process may take to say something, on a busy machine."""


def snapshot(top: Path) -> dict[str, tuple[object, ...]]:
    """Everything that could be changed about a tree: names, types, modes, owners, times, bytes."""
    found: dict[str, tuple[object, ...]] = {}
    waiting = [top]
    while waiting:
        path = waiting.pop()
        status = path.lstat()
        content: object = None
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        elif stat.S_ISDIR(status.st_mode):
            waiting += path.iterdir()
        found[str(path.relative_to(top))] = (
            stat.filemode(status.st_mode),
            status.st_uid,
            status.st_gid,
            status.st_nlink,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            content,
        )
    return found


@contextmanager
def deadline(seconds: int) -> Iterator[None]:
    """Fails with TimeoutError when the block takes longer, even inside a blocked system call."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_python(code: str, *arguments: str | bytes | Path, **environment: str) -> Any:
    """What the code, run as a program of its own, prints as JSON. It finds `vfs` importable."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *map(os.fsencode, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return json.loads(done.stdout)


class OpenWitness:
    """Sees every open of a file, by inotify(7); an O_PATH descriptor is none."""

    _IN_OPEN = 0x20

    def __init__(self, *paths: Path) -> None:
        self._fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._fd >= 0
        self._names = {}
        for path in paths:
            watch = libc.inotify_add_watch(self._fd, os.fsencode(path), self._IN_OPEN)
            assert watch > 0, os.strerror(ctypes.get_errno())
            self._names[watch] = path.name

    def close(self) -> None:
        os.close(self._fd)

    def seen(self) -> list[str]:
        """The names of the files opened since the last call."""
        try:
            events = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return []
        names = []
        while events:
            watch, mask, _cookie, length = struct.unpack_from("=iIII", events)
            if mask & self._IN_OPEN:
                names.append(self._names[watch])
            events = events[16 + length :]
        return names


# A seccomp filter (classic BPF, linux/filter.h): one system call answers an errno, others pass.
REFUSE_SYSTEM_CALL = """
import ctypes, struct
def refuse(number, errno):
    code = b"".join(
        struct.pack("=HBBI", *line)
        for line in (
            (0x20, 0, 0, 0),  # load the number of the system call
            (0x15, 0, 1, number),  # the next line if it is the one, else the line after
            (0x06, 0, 0, 0x00050000 | errno),  # SECCOMP_RET_ERRNO
            (0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
        )
    )
    lines = ctypes.create_string_buffer(code)
    program = struct.pack("=HxxxxxxQ", 4, ctypes.addressof(lines))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()  # PR_SET_SECCOMP, a filter
"""

_SWAP = """
import ctypes, mmap, os, sys
exchange = ctypes.CDLL(None).renameat2
paths = [os.path.split(os.fsencode(argument)) for argument in sys.argv[2:]]
pairs = list(zip(paths[::2], paths[1::2]))
def swap(left, right):
    # By descriptors: by paths it would itself get outside through what it swaps.
    fds = []
    try:
        for folder, _ in (left, right):
            fds.append(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW))
        return exchange(fds[0], left[1], fds[1], right[1], 2) == 0  # RENAME_EXCHANGE
    except OSError:
        return False
    finally:
        for fd in fds:
            os.close(fd)
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 16) as board:
    count = memoryview(board).cast("Q")
    parent = os.getppid()
    while not count[1] and os.getppid() == parent:
        for _ in range(100):
            for left, right in pairs:
                count[0] += swap(left, right)
    count.release()
"""


class Swapper:
    """A process that exchanges the entries of each pair of paths as fast as it can."""

    def __init__(self, board: Path, *pairs: tuple[Path, Path]) -> None:
        board.write_bytes(bytes(16))
        self._file = board.open("r+b")
        self._board = mmap.mmap(self._file.fileno(), 16)
        names = [os.fsencode(path) for pair in pairs for path in pair]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SWAP, os.fsencode(board), *names],
            stdin=subprocess.DEVNULL,
        )
        ready = time.monotonic() + PATIENCE
        while not self.swaps:
            assert self._process.poll() is None, "the swapper ended"
            assert time.monotonic() < ready, "the swapper does not begin"
            time.sleep(0.01)

    @property
    def swaps(self) -> int:
        """How many exchanges were made until now."""
        return int.from_bytes(self._board[:8], sys.byteorder)

    def stop(self) -> None:
        """Ends the process; the entries stay as they happen to be."""
        self._board[8:] = (1).to_bytes(8, sys.byteorder)
        self._process.wait(PATIENCE)
        self._board.close()
        self._file.close()
        assert self._process.returncode == 0

    def __enter__(self) -> Swapper:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
