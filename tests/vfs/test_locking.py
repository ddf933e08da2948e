"""Locks: who is kept apart, how long they wait, and when a lock ends."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vfs.locking import lock


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def fds(tmp_path: Path) -> Iterator[list[int]]:
    """Three descriptors of one directory, each opened on its own."""
    opened = [os.open(tmp_path, os.O_RDONLY | os.O_CLOEXEC) for _ in range(3)]
    yield opened
    for fd in opened:
        os.close(fd)


def is_free(fd: int, *, shared: bool = False) -> bool:
    try:
        lock(fd, wait=0, shared=shared)
    except OSError as exc:
        assert exc.errno == errno.EBUSY
        return False
    return True


def test_one_holds_it_alone_or_several_share_it(fds: list[int]) -> None:
    one, two, three = fds
    lock(one, wait=0)
    assert (is_free(two), is_free(two, shared=True)) == (False, False)
    lock(one, wait=0, shared=True)
    assert (is_free(two, shared=True), is_free(three), is_free(three, shared=True)) == (
        True,
        False,
        True,
    )


def test_the_wait_ends_in_time_and_the_tries_get_rarer(fds: list[int]) -> None:
    lock(fds[0], wait=0)
    clock = Clock()
    with pytest.raises(OSError) as caught:
        lock(fds[1], wait=0.3, clock=clock, sleep=clock.sleep)
    assert caught.value.errno == errno.EBUSY
    assert clock.slept[:8] == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]
    assert sum(clock.slept) == pytest.approx(0.3)


def test_it_is_had_as_soon_as_the_holder_closes(tmp_path: Path, fds: list[int]) -> None:
    holder = os.open(tmp_path, os.O_RDONLY | os.O_CLOEXEC)
    lock(holder, wait=0)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            os.close(holder)

    lock(fds[0], wait=10, sleep=sleep)
    assert slept == [0.001, 0.002, 0.004]


def test_it_ends_with_a_killed_holder(tmp_path: Path, fds: list[int]) -> None:
    program = (
        "import os, sys\n"
        "from vfs.locking import lock\n"
        "lock(os.open(sys.argv[1], os.O_RDONLY), wait=0)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert not is_free(fds[0])
        holder.send_signal(signal.SIGKILL)
    assert is_free(fds[0])


def test_an_error_of_the_system_is_raised_as_it_is(fds: list[int]) -> None:
    fd = os.dup(fds[0])
    os.close(fd)
    with pytest.raises(OSError) as caught:
        lock(fd, wait=10)
    assert caught.value.errno == errno.EBADF
