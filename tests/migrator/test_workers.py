"""Forked workers: who does what, what comes back, and that none is left behind."""

from __future__ import annotations

import errno
import mmap
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.errors import Conflict, Retryable
from migrator.workers import Share, map_parallel, spread
from tests.vfs.hostile import PATIENCE

JOBS = pytest.mark.parametrize("jobs", [1, 2, 5])


def children() -> set[int]:
    """The processes that this one has forked and not reaped."""
    return {int(pid) for pid in Path("/proc/thread-self/children").read_text().split()}


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() == before


@pytest.fixture
def board() -> Iterator[mmap.mmap]:
    """A page that this process and its children write and read."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        yield page


@JOBS
def test_every_task_comes_back_with_its_result(jobs: int) -> None:
    tasks = [(number, b"\xff\n") for number in range(100)]
    done = list(map_parallel(lambda task: (task[0] ** 2, task[1]), tasks, jobs=jobs))
    assert sorted(done) == [(task, (task[0] ** 2, b"\xff\n")) for task in tasks]


@JOBS
def test_no_tasks_are_no_work(jobs: int) -> None:
    assert list(map_parallel(os.abort, [], jobs=jobs)) == []  # type: ignore[arg-type]


def test_the_task_that_comes_back_is_the_object_that_was_given() -> None:
    tasks = [[1], [2]]
    assert {id(task) for task, _ in map_parallel(len, tasks, jobs=2)} == {id(t) for t in tasks}


@JOBS
def test_an_exception_is_the_result_of_its_task_and_stops_no_other(jobs: int) -> None:
    def work(number: int) -> int:
        if number == 1:
            raise OSError(errno.ENOSPC, "no space", b"\xffname")
        if number == 2:
            raise Conflict("in the way", fix="move it")
        return number

    done = dict(map_parallel(work, range(5), jobs=jobs))
    full, conflict = done.pop(1), done.pop(2)
    assert done == {0: 0, 3: 3, 4: 4}
    assert isinstance(full, OSError)
    assert (full.errno, full.filename) == (errno.ENOSPC, b"\xffname")
    assert isinstance(conflict, Conflict)
    assert conflict.to_json() == Conflict("in the way", fix="move it").to_json()


def test_an_exception_tells_where_in_the_worker_it_came_from() -> None:
    def work(number: int) -> float:
        return number / 0

    ((_, error),) = map_parallel(work, [1], jobs=2)
    assert isinstance(error, ZeroDivisionError)
    assert "number / 0" in error.__notes__[0]


def test_an_exception_that_cannot_be_sent_comes_as_its_text() -> None:
    class Local(Exception):
        pass

    def work(_number: int) -> None:
        raise Local("what happened")

    ((_, error),) = map_parallel(work, [1], jobs=2)
    assert isinstance(error, Retryable)
    assert str(error) == "Local: what happened"


def test_a_result_that_cannot_be_sent_is_an_error_of_its_task() -> None:
    done = dict(map_parallel(lambda n: (lambda: 0) if n else 0, [0, 1], jobs=2))
    assert done[0] == 0
    assert isinstance(done[1], Exception)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
        (lambda: os._exit(7), "ended with status 7"),
    ],
)
def test_a_worker_that_dies_costs_its_task_alone(end: Callable[[], None], told: str) -> None:
    def work(number: int) -> int:
        if number in (0, 1, 5):
            end()
        return number

    done = dict(map_parallel(work, range(8), jobs=2))
    errors = [done.pop(number) for number in (0, 1, 5)]
    assert done == {2: 2, 3: 3, 4: 4, 6: 6, 7: 7}
    for error in errors:
        assert isinstance(error, Retryable)
        assert error.message == f"a worker process {told}"


def test_one_job_works_in_this_process_and_more_do_not() -> None:
    for jobs, here in ((1, True), (2, False)):
        pids = {pid for _, pid in map_parallel(lambda _: os.getpid(), range(4), jobs=jobs)}
        assert (pids == {os.getpid()}) is here


def test_all_jobs_are_at_work_at_the_same_time(board: mmap.mmap) -> None:
    def work(number: int) -> bool:
        board[number] = 1
        while not all(board[:3]):
            os.sched_yield()
        return True

    assert dict(map_parallel(work, range(3), jobs=3)) == dict.fromkeys(range(3), True)


@JOBS
def test_a_part_of_a_task_can_be_handed_on(jobs: int) -> None:
    def work(number: int, share: Share[int]) -> int:
        if number:
            share.give([number - 1, number - 1])
        assert 0 <= share.number < jobs
        return number

    done = Counter(number for _, number in spread(work, [6], jobs=jobs))
    assert done == {number: 2 ** (6 - number) for number in range(7)}


def test_a_worker_learns_that_another_is_free_and_that_none_is(board: mmap.mmap) -> None:
    def work(task: str, share: Share[str]) -> str:
        if task == "first":
            while not share.wanted:
                os.sched_yield()
            share.give(["second"])
            while not board[0]:
                os.sched_yield()
            told = str(share.wanted)
            board[1] = 1
            return told
        board[0] = 1
        while not board[1]:
            os.sched_yield()
        return "done"

    assert dict(spread(work, ["first"], jobs=2)) == {"first": "False", "second": "done"}


def test_in_one_process_nobody_wants_work() -> None:
    assert dict(spread(lambda _, share: share.wanted, [1], jobs=1)) == {1: False}


def test_ticks_come_while_the_workers_work(board: mmap.mmap) -> None:
    def work(_number: int) -> str:
        while board[0] < 2:
            os.sched_yield()
        return "ticked"

    def tick() -> None:
        board[0] += 1

    assert dict(map_parallel(work, [1], jobs=2, tick=tick)) == {1: "ticked"}


def test_a_generator_that_is_closed_kills_its_workers(board: mmap.mmap) -> None:
    def work(number: int) -> int:
        board[number] = 1
        while number:
            signal.pause()
        return number

    before = children()
    results = map_parallel(work, range(3), jobs=3)
    assert next(results) == (0, 0)
    assert children() > before
    results.close()
    assert children() == before


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_wait_kills_and_reaps_the_workers(interrupt: type[BaseException]) -> None:
    def tick() -> None:
        raise interrupt

    before = children()
    with pytest.raises(interrupt):
        list(map_parallel(lambda _: signal.pause(), range(4), jobs=2, tick=tick))
    assert children() == before


def test_ctrl_c_of_the_whole_group_is_the_parents_to_answer(board: mmap.mmap) -> None:
    """A worker that got it too goes on until the parent has decided."""

    def work(_number: int) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "went on"

    assert dict(map_parallel(work, [1], jobs=2)) == {1: "went on"}


ORPHANS = """
import os, signal
from migrator.workers import map_parallel
def work(number):
    os.write(1, b"%d\\n" % os.getpid())
    signal.pause()
list(map_parallel(work, range(2), jobs=2))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_parent(number: signal.Signals) -> None:
    program = [sys.executable, "-W", "error", "-c", ORPHANS]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        workers = [os.pidfd_open(int(parent.stdout.readline())) for _ in range(2)]
        parent.send_signal(number)
    assert parent.returncode == -number
    try:
        for worker in workers:
            # Readable once it has ended (pidfd_open(2)).
            assert select.select([worker], [], [], PATIENCE)[0] == [worker]
    finally:
        for worker in workers:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(worker, signal.SIGKILL)
            os.close(worker)
