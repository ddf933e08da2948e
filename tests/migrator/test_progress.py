"""Progress: counted in any process, shown where it is looked at, never in the way of the work."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import pty
import struct
import termios
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator import counters, progress
from migrator.counters import Counters
from migrator.progress import Progress, Standing
from tests.vfs.steps import ended
from vfs.beneath import Directory
from vfs.errors import NoSpace


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Directory]:
    with Directory.open(tmp_path) as directory:
        yield directory


def saved(folder: Directory) -> Any:
    with os.fdopen(folder.open_file(b"progress.json"), "rb") as file:
        return json.loads(file.read())


# Counters.


def test_counts_of_all_processes_add_up() -> None:
    with Counters() as counts:
        counts.add(1, 10)

        def work() -> None:
            for _ in range(1000):
                counts.add(2, 3)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            workers = [_forked(work) for _ in range(4)]
        for worker in workers:
            assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0
        counts.add(1, 10)
        assert counts.totals() == (2 + 4 * 2000, 20 + 4 * 3000)


def _forked(action: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            action()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def test_what_a_worker_counted_outlives_it_and_a_reset_forgets_it() -> None:
    with Counters() as counts:
        assert ended(lambda: counts.add(5, 2**40)) == 0
        assert counts.totals() == (5, 2**40)
        counts.reset()
        assert counts.totals() == (0, 0)
        assert ended(lambda: counts.add(1, 1)) == 0
        counts.add(1, 1)
        assert counts.totals() == (2, 2)


def test_more_processes_than_slots_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "SLOTS", 3)
    with Counters() as counts:
        for _ in range(8):
            assert ended(lambda: counts.add(1, 100)) == 0
        assert counts.totals() == (8, 800)


def test_one_process_at_a_time_takes_a_slot() -> None:
    with Counters() as counts:
        memory = next(
            int(fd)
            for fd in os.listdir("/proc/self/fd")
            if os.path.realpath(f"/proc/self/fd/{fd}").startswith("/memfd:gemspace-counters")
        )
        fcntl.lockf(memory, fcntl.LOCK_EX)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            worker = _forked(lambda: counts.add(1, 1))
        while os.waitid(os.P_PID, worker, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            waiting = [row.split() for row in Path("/proc/locks").read_text().splitlines()]
            if any(row[1] == "->" and row[5] == str(worker) for row in waiting):
                break
        assert counts.totals() == (0, 0)
        fcntl.lockf(memory, fcntl.LOCK_UN)
        assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0
        assert counts.totals() == (1, 1)


def test_counters_give_back_their_descriptor() -> None:
    before = os.listdir("/proc/self/fd")
    counts = Counters()
    counts.add(1, 1)
    counts.close()
    counts.close()
    assert os.listdir("/proc/self/fd") == before


# The line.


def test_a_line_tells_files_bytes_rates_and_the_time_left() -> None:
    standing = Standing("transfer", 12_345, 3 * 2**30, 100_000, 4 * 2**30, 5120.4, 2**20, 83.0)
    assert standing.line() == (
        "transfer: 12 345 of 100 000 files, 3.0 GiB of 4.0 GiB,"
        " 5 120 files/s, 1.0 MiB/s, 1 min 23 s left"
    )


def test_a_line_leaves_out_what_is_not_known() -> None:
    standing = Standing("remove", 7, 0, None, None, 0.0, 0.0, None)
    assert standing.line() == "remove: 7 files, 0 files/s"


def test_rates_and_the_time_left_are_those_of_the_last_ten_seconds(
    clock: Clock, folder: Directory
) -> None:
    with Progress(io.StringIO(), clock=clock, wall=lambda: 5.0) as shown:
        shown.save_in(folder)
        shown.phase("transfer", files=10_000, bytes=1_000_000)
        for second in range(1, 61):
            clock.now += 1
            # 100 files a second at first, then 10, with ten times the bytes.
            shown.count(*((100, 1000) if second <= 30 else (10, 10_000)))
        assert saved(folder) == {
            "pid": os.getpid(),
            "time": 5.0,
            "phase": "transfer",
            "files": 3300,
            "bytes": 330_000,
            "files_total": 10_000,
            "bytes_total": 1_000_000,
            "files_per_second": 10.0,
            "bytes_per_second": 10_000.0,
            "seconds_left": 670.0,  # 6 700 files at 10 a second; the bytes would take 67 s
        }


def test_the_time_left_is_told_only_when_it_can_be(clock: Clock, folder: Directory) -> None:
    with Progress(io.StringIO(), clock=clock) as shown:
        shown.save_in(folder)

        def left() -> Any:
            clock.now += 1
            shown.tick()
            return saved(folder)["seconds_left"]

        shown.phase("transfer")
        shown.count(5, 5)
        assert left() is None  # no total
        shown.phase("transfer", files=10)
        assert left() is None  # nothing moves
        shown.count(5, 0)
        assert left() == 2.0  # 5 files in 2 s, 5 to go
        shown.count(6, 0)
        assert left() == 0.0  # more than was foreseen


def test_a_new_part_begins_at_zero(clock: Clock, folder: Directory) -> None:
    with Progress(io.StringIO(), clock=clock) as shown:
        shown.save_in(folder)
        shown.phase("transfer", files=10)
        shown.count(10, 100)
        shown.phase("verify", files=20)
        document = saved(folder)
    assert (document["phase"], document["files"], document["files_total"]) == ("verify", 0, 20)


# Where there is no terminal.


def test_a_plain_line_comes_every_ten_seconds(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(stream, clock=clock) as shown:
        shown.phase("transfer", files=100)
        for _ in range(250):
            clock.now += 0.1
            shown.count(1, 0)
    assert stream.getvalue().count("\n") == 2
    assert "\r" not in stream.getvalue() and "\x1b" not in stream.getvalue()
    assert stream.getvalue().startswith("transfer: 100 of 100 files, 10 files/s, 0 s left\n")


def test_a_short_work_says_nothing(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(stream, clock=clock) as shown:
        for part in ("transfer", "verify", "owners"):
            shown.phase(part, files=1)
            clock.now += 3
            shown.count(1, 0)
    assert stream.getvalue() == ""


def test_workers_count_but_only_their_parent_shows(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(stream, clock=clock) as shown:
        shown.phase("transfer")
        clock.now += 11

        def work() -> None:
            shown.count(7, 0)
            assert stream.getvalue() == ""

        assert ended(work) == 0
        assert stream.getvalue() == ""
        shown.tick()
    assert stream.getvalue() == "transfer: 7 files, 1 files/s\n"


# On a terminal.


@pytest.fixture
def terminal() -> Iterator[tuple[int, io.TextIOWrapper]]:
    """The side of whoever looks, and the stream; 40 columns wide."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with os.fdopen(inner, "w", encoding="utf-8") as stream:
        yield outer, stream
    os.close(outer)


def seen(outer: int, stream: io.TextIOWrapper) -> str:
    """Everything that was written to the terminal, which is closed by that."""
    stream.close()
    pieces = []
    try:
        while piece := os.read(outer, 4096):
            pieces.append(piece)
    except OSError as exc:
        assert exc.errno == errno.EIO  # how the other side of a closed terminal ends
    return b"".join(pieces).decode()


def test_on_a_terminal_one_line_is_redrawn_and_taken_away(
    clock: Clock, terminal: tuple[int, io.TextIOWrapper]
) -> None:
    outer, stream = terminal
    with Progress(stream, clock=clock) as shown:
        shown.phase("transfer", files=10, bytes=4096)
        for _ in range(4):
            clock.now += 0.1
            shown.count(1, 512)
    states = seen(outer, stream).split("\r\x1b[K")
    assert states == [
        "",
        "transfer: 0 of 10 files, 0 B of 4.0 KiB,"[:39],
        "transfer: 2 of 10 files, 1.0 KiB of 4.0"[:39],
        "transfer: 4 of 10 files, 2.0 KiB of 4.0"[:39],
        "",
    ]


def test_before_any_work_a_terminal_is_left_alone(
    terminal: tuple[int, io.TextIOWrapper],
) -> None:
    outer, stream = terminal
    Progress(stream).close()
    stream.write("end")
    assert seen(outer, stream) == "end"


# In the way of nothing.


def test_the_file_is_saved_once_a_second_and_whole(
    clock: Clock, folder: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = 0
    real = progress.save

    def save(*args: Any, **kwargs: Any) -> Any:
        nonlocal saves
        saves += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(progress, "save", save)
    with Progress(io.StringIO(), clock=clock) as shown:
        shown.save_in(folder)
        shown.phase("transfer")
        for _ in range(50):
            clock.now += 0.1
            shown.count(1, 1)
    assert saves in (5, 6)
    assert folder.names() == [b"progress.json"]


def test_counting_between_two_looks_does_nothing_but_count(
    clock: Clock, folder: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Progress(io.StringIO(), clock=clock) as shown:
        shown.save_in(folder)
        shown.phase("transfer")
        monkeypatch.setattr(Counters, "totals", None)
        for _ in range(1000):
            shown.count(1, 1)


def test_a_full_disk_does_not_stop_the_work(
    clock: Clock, folder: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise NoSpace("no space")

    monkeypatch.setattr(progress, "save", full)
    with Progress(io.StringIO(), clock=clock) as shown:
        shown.save_in(folder)
        shown.phase("transfer")
        clock.now += 5
        shown.count(1, 1)


def test_a_reader_who_left_does_not_stop_the_work(clock: Clock) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    stream = os.fdopen(writes, "w")
    with Progress(stream, clock=clock) as shown:
        shown.phase("transfer")
        for _ in range(5):
            clock.now += 10
            shown.count(1, 1)
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_terminal_that_vanished_does_not_stop_the_work(clock: Clock) -> None:
    outer, inner = pty.openpty()
    stream = os.fdopen(inner, "w")
    with Progress(stream, clock=clock) as shown:
        shown.phase("transfer")
        os.close(outer)
        for _ in range(5):
            clock.now += 10
            shown.count(1, 1)
    with pytest.raises(OSError) as gone:
        stream.close()
    assert gone.value.errno == errno.EIO
