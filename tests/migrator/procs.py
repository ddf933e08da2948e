"""Processes for tests to find: each does one thing, says that it has, and waits to be let go."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

Word = str | bytes | Path

_PYTHON = """
import ctypes, os, sys
a = [os.fsencode(word) for word in sys.argv[2:]]

def map_file(path, flags, protection, sharing):
    "Maps a page of a file with mmap(2) itself: Python's mmap keeps a descriptor."
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    fd = os.open(path, flags)
    page = libc.mmap(None, ctypes.c_size_t(4096), protection, sharing, fd, ctypes.c_long(0))
    assert page != ctypes.c_void_p(-1).value
    os.close(fd)

exec(sys.argv[1])
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def running(command: Sequence[Word]) -> Iterator[int]:
    """The pid of a command that writes an empty line when ready and ends when its input does."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == b"\n"
        yield child.pid
        child.stdin.close()
    assert child.returncode == 0


def doing(statements: str, *arguments: Word) -> AbstractContextManager[int]:
    """The same for statements of Python, which have their arguments in `a`, as bytes."""
    return running([sys.executable, "-I", "-c", _PYTHON, statements, *arguments])


def apart(script: str, *arguments: Word) -> AbstractContextManager[int]:
    """The same for a shell script in a mount namespace of its own, its arguments in $1, $2 …"""
    whole = f"{script}\necho\nread _ || exit 0"
    return running(["unshare", "--mount", "sh", "-euc", whole, "sh", *arguments])


def comm(pid: int) -> bytes:
    """What /proc calls a process."""
    return Path(f"/proc/{pid}/comm").read_bytes().removesuffix(b"\n")
