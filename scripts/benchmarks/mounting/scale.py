"""A tree of a million files: whether few descriptors are enough, and what it takes to know it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mounting.measure import Bench, say
from mounting.systems import System
from mounting.work import Failed, find_names, timed

FILES = 1_000_000
SOFT_LIMIT = 1024
"""Descriptors that a process may open unless it raises the limit, as most systems have it."""

_PER_DIRECTORY = 250
_FOLDER = "million"


_LIMIT_SECONDS = 300.0


class Scale(NamedTuple):
    """What a walk over the million took."""

    seconds: float
    files: int
    """That `find` has seen."""
    descriptors: int | None
    """Open in the daemon afterwards; None where there is no daemon."""
    resident: float | None
    """Bytes of the daemon's memory for each file, beyond what it takes when it knows none."""


def make(native: Path) -> None:
    """Makes the tree, all files empty."""
    say("scale: making a million files")
    for number in range(FILES // _PER_DIRECTORY):
        directory = native / _FOLDER / f"{number % 64:02d}" / f"{number:04d}"
        directory.mkdir(parents=True)
        dirfd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        for file in range(_PER_DIRECTORY):
            os.mknod(f"{file:03d}", dir_fd=dirfd)
        os.close(dirfd)


def walk(bench: Bench, system: System) -> Scale | None:
    """Walks the tree on a system whose daemon is started with the soft limit; None if it fails."""
    with _soft_limit():
        if not bench.start(system):
            return None
    try:
        say(f"scale: {system.name}")
        listed = bench.native.parent / "listed"
        pid = system.pid
        before = 0 if pid is None else _resident(pid)
        seconds = timed(partial(find_names, listed), system.shown / _FOLDER, _LIMIT_SECONDS)
        with open(listed, "rb") as names:
            files = sum(line == b"f\n" for line in names)
        if pid is None:
            return Scale(seconds, files, None, None)
        grown = _resident(pid) - before
        return Scale(seconds, files, _descriptors(pid), grown / max(files, 1))
    except Failed as exc:
        bench.results.failures.append(f"scale on {system.name}: {exc}")
        return None
    finally:
        system.stop()


@contextmanager
def _soft_limit() -> Iterator[None]:
    """What is started meanwhile has the soft limit on descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(SOFT_LIMIT, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _resident(pid: int) -> int:
    """Bytes (proc_pid_statm(5))."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
