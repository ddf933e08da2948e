"""What one request costs, and how many a work takes.

A request is provoked by a statx with AT_STATX_FORCE_SYNC: one GETATTR, answered by the daemon.
Requests are counted by the kernel's own trace event fuse_request_send (include/trace/events/fuse.h,
Linux 6.10), in an instance of the tracing file system that nobody else uses.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from mounting.data import SMALL
from mounting.measure import Bench, say
from mounting.rows import Row
from mounting.systems import System, device_of
from mounting.work import Failed, timed

CALLS = 20_000
_WARM_UP = 500
_EMPTY_PATH_FORCE_SYNC = 0x1000 | 0x2000
_BASIC_STATS = 0x7FF

_BUFFER_KIB = 65_536
"""For each processor; an event takes some 50 bytes, and no work here a million requests."""


class RoundTrip(NamedTuple):
    """Microseconds of one GETATTR."""

    free: float
    """By the clock, each process on whatever processor the kernel chooses."""
    together: float
    """By the clock, client and daemon on one processor: no other must be woken."""
    daemon: float
    """Of the daemon's own processor time, in the latter case."""


def round_trip(bench: Bench, system: System) -> RoundTrip | None:
    """The cost of one request; None where no process answers or the system cannot be started."""
    if not bench.start(system):
        return None
    try:
        if system.pid is None:
            return None
        say(f"round trip: {system.name}")
        file = system.shown / SMALL / "0000" / "00"
        free = timed(partial(_ask, False), file)
        for task in os.listdir(f"/proc/{system.pid}/task"):
            os.sched_setaffinity(int(task), _one_processor())
        before = _processor_seconds(system.pid)
        together = timed(partial(_ask, True), file)
        daemon = _processor_seconds(system.pid) - before
    except Failed as exc:
        bench.results.failures.append(f"round trip on {system.name}: {exc}")
        return None
    finally:
        system.stop()
    return RoundTrip(*(seconds / (CALLS + _WARM_UP) * 1e6 for seconds in (free, together, daemon)))


def _one_processor() -> set[int]:
    return {min(os.sched_getaffinity(0))}


def _ask(together: bool, file: Path) -> None:
    if together:
        os.sched_setaffinity(0, _one_processor())
    statx = ctypes.CDLL(None).statx
    buffer = ctypes.create_string_buffer(256)
    fd = os.open(file, os.O_PATH)
    for _ in range(CALLS + _WARM_UP):
        if statx(fd, b"", _EMPTY_PATH_FORCE_SYNC, _BASIC_STATS, buffer) != 0:
            raise OSError("statx fails")


def _processor_seconds(pid: int) -> float:
    """Of all threads. Its unit is the nanosecond, where /proc/PID/stat counts ticks."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
    return total / 1e9


class Counted(NamedTuple):
    """Requests by kind: of the work on a new mount, and of the same done again."""

    first: Counter[str]
    again: Counter[str] | None
    """None for work that cannot be done twice."""


def count(bench: Bench, row: Row, system: System, tracing: Path) -> Counted | None:
    """The requests of a row's work; None where nobody answers any or the work fails."""
    tag = f"count-{system.name}"
    row.prepare(bench.native, bench.sizes, [tag])
    if not bench.start(system):
        return None
    try:
        device = device_of(system.shown) or device_of(system.shown.parent)
        if system.pid is None or device is None:
            return None
        say(f"requests: {row.key}, {system.name}")
        work = row.first(bench.stage(system, tag))
        minor = int(device.partition(":")[2])
        found: list[Counter[str]] = []
        for _ in range(1 if row.writes else 2):
            with _traced(tracing, minor) as counter:
                timed(work, system.shown)
            found.append(counter)
    except Failed as exc:
        bench.results.failures.append(f"requests of {row.key} on {system.name}: {exc}")
        return None
    finally:
        system.stop()
    return Counted(found[0], found[1] if len(found) > 1 else None)


@contextmanager
def tracing(folder: Path) -> Iterator[Path]:
    """A tracing instance of our own, mounted in the folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tracefs", "none", folder], check=True)
    try:
        instance = folder / "instances" / f"bench-{os.getpid()}"
        instance.mkdir()
        try:
            (instance / "buffer_size_kb").write_text(str(_BUFFER_KIB))
            yield instance
        finally:
            instance.rmdir()
    finally:
        subprocess.run(["umount", folder], check=True)


@contextmanager
def _traced(instance: Path, minor: int) -> Iterator[Counter[str]]:
    """Counts the requests of one mount by kind, into the counter that it gives."""
    event = instance / "events" / "fuse" / "fuse_request_send"
    counter: Counter[str] = Counter()
    (event / "filter").write_text(f"connection == {minor}")
    (event / "enable").write_text("1")
    try:
        yield counter
    finally:
        (event / "enable").write_text("0")
        with open(instance / "trace", encoding="ascii", errors="replace") as lines:
            for line in lines:
                kind = re.search(r"\(FUSE_(\w+)\)", line)
                if kind is not None:
                    counter[kind[1]] += 1
        (instance / "trace").write_text("")
