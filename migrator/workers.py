"""Work spread over forked processes: one task at a time to whoever is free, results as they come.

- A worker is a fork: it has what was there before, and what it changes in memory stays its own.
  Descriptors are inherited, locks held by them too.
- No worker outlives this process: the kernel kills it when its parent ends (PR_SET_PDEATHSIG), and
  a generator that is closed, or left by KeyboardInterrupt or any other exception, kills and reaps
  its workers first. So what a worker does must bear a kill -9 at any moment.
- A failing task stops no other: its exception is its result. A worker that dies costs one task.
- One job needs no process: the tasks run here, one after another.

Fork where no other thread runs. The death signal goes by the thread that forked: it must live on.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from migrator.errors import Retryable
from vfs import linux

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")

Results = Generator[tuple[T, R | Exception], None, None]
"""Tasks with what came of them. To close it, or to let go of it, ends the work."""

TICK = 0.2
"""Seconds between two calls of `tick` while this process waits."""


class Share(Protocol[T_contra]):
    """What a worker may ask, and do, about the others' work."""

    number: int
    """Which worker it is, from 0 to jobs - 1. At any time there is only one of a number."""

    @property
    def wanted(self) -> bool:
        """Whether another worker has nothing to do. Cheap enough to ask in a loop."""

    def give(self, tasks: Sequence[T_contra]) -> None:
        """Hands tasks to whoever is free, this worker once it is done among them."""


def map_parallel(
    work: Callable[[T], R],
    tasks: Sequence[T],
    *,
    jobs: int,
    tick: Callable[[], None] | None = None,
) -> Results[T, R]:
    """Each task with what `work` returned or raised for it, in the order in which they end.

    Tasks and results are pickled, unless `jobs` is 1; the task that comes back is the very object
    that was given. `tick` is called about every `TICK` seconds while this
    process waits, and between tasks if it does the work itself.
    """
    return spread(lambda task, _: work(task), tasks, jobs=jobs, tick=tick)


def spread(
    work: Callable[[T, Share[T]], R],
    tasks: Sequence[T],
    *,
    jobs: int,
    tick: Callable[[], None] | None = None,
) -> Results[T, R]:
    """The same, for work that may hand a part of itself on: such tasks are pickled and come too."""
    if jobs > 1:
        return _forked(work, tasks, jobs, tick)
    return _inline(work, tasks, tick)


class _Ticker:
    """Calls `tick` when it is due."""

    def __init__(self, tick: Callable[[], None] | None) -> None:
        self._tick = tick
        self._due = time.monotonic() + TICK

    @property
    def left(self) -> float | None:
        """Seconds until it is due; None if there is nothing to call."""
        return None if self._tick is None else max(0.0, self._due - time.monotonic())

    def look(self) -> None:
        """Calls it if it is due."""
        if self._tick is not None and time.monotonic() >= self._due:
            self._tick()
            self._due = time.monotonic() + TICK


class _Alone(Generic[T]):
    """The share of work that is done in this process: nobody else wants any."""

    number = 0
    wanted = False

    def __init__(self, tasks: Iterable[T]) -> None:
        self.queue = deque(tasks)

    def give(self, tasks: Sequence[T]) -> None:
        self.queue.extend(tasks)


def _inline(
    work: Callable[[T, Share[T]], R], tasks: Sequence[T], tick: Callable[[], None] | None
) -> Results[T, R]:
    ticker = _Ticker(tick)
    share = _Alone(tasks)
    while share.queue:
        task = share.queue.popleft()
        try:
            result: R | Exception = work(task, share)
        except Exception as exc:
            result = exc
        ticker.look()
        yield task, result


@dataclass(slots=True)
class _Worker(Generic[T]):
    """The parent's side of one child."""

    number: int
    pid: int
    connection: Connection
    task: T | None = None


def _forked(
    work: Callable[[T, Share[T]], R],
    tasks: Sequence[T],
    jobs: int,
    tick: Callable[[], None] | None,
) -> Results[T, R]:
    ticker = _Ticker(tick)
    crew: _Crew[T, R] = _Crew(work, tasks, jobs)
    try:
        while crew.hand_out():
            done = list(crew.answers(ticker.left))
            ticker.look()
            if done:
                crew.hand_out()
            yield from done
    finally:
        crew.end()


class _Crew(Generic[T, R]):
    """The children, who of them is free, and the tasks that nobody has yet."""

    def __init__(self, work: Callable[[T, Share[T]], R], tasks: Sequence[T], jobs: int) -> None:
        self._work = work
        self._waiting = deque(tasks)
        self._unborn = list(range(jobs))[::-1]
        self._free: list[_Worker[T]] = []
        self._busy: dict[Connection, _Worker[T]] = {}
        self._hungry = mmap.mmap(-1, 1)

    def hand_out(self) -> bool:
        """Gives the waiting tasks to those who are free; whether anything is being done."""
        while self._waiting and (self._free or self._unborn):
            worker = self._free.pop() if self._free else self._fork(self._unborn.pop())
            worker.task = self._waiting.popleft()
            self._busy[worker.connection] = worker
            # One who has died meanwhile is found out when its answer is waited for.
            with suppress(BrokenPipeError, ConnectionResetError):
                worker.connection.send(worker.task)
        self._hungry[0] = bool(self._free or self._unborn)
        return bool(self._busy)

    def answers(self, timeout: float | None) -> Iterator[tuple[T, R | Exception]]:
        """The results that are there within `timeout` seconds, possibly none."""
        for ready in wait(list(self._busy), timeout):
            worker = self._busy[ready]  # type: ignore[index]
            task: Any = worker.task
            try:
                more, answer = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                del self._busy[worker.connection]
                self._unborn.append(worker.number)
                yield task, _death(worker)
                continue
            if more:
                self._waiting.extend(answer)
                continue
            del self._busy[worker.connection]
            self._free.append(worker)
            yield task, answer

    def _fork(self, number: int) -> _Worker[T]:
        ours, theirs = Pipe()
        # No handler of this process may run in the child.
        masked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                _live(self._work, _Given(number, theirs, self._hungry), theirs, parent, masked)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)
        theirs.close()
        return _Worker(number, pid, ours)

    def end(self) -> None:
        """Kills and reaps every child."""
        workers = [*self._free, *self._busy.values()]
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        for worker in workers:
            worker.connection.close()
            os.waitpid(worker.pid, 0)
        self._free.clear()
        self._busy.clear()
        self._hungry.close()


def _death(worker: _Worker[Any]) -> Retryable:
    """Reaps a child that ended by itself; what is said of it."""
    worker.connection.close()
    _, status = os.waitpid(worker.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return Retryable(
        f"a worker process {how}",
        fix="run the same command again: it goes on where it was (the system's log may tell why)",
    )


class _Given(Generic[T]):
    """The share of a child: it goes through its connection."""

    def __init__(self, number: int, connection: Connection, hungry: mmap.mmap) -> None:
        self.number = number
        self._connection = connection
        self._hungry = hungry

    @property
    def wanted(self) -> bool:
        return self._hungry[0] != 0

    def give(self, tasks: Sequence[T]) -> None:
        # Until the parent has looked: or all who give would give at once.
        self._hungry[0] = 0
        self._connection.send((True, tasks))


def _live(
    work: Callable[[T, Share[T]], R],
    share: _Given[T],
    connection: Connection,
    parent: int,
    mask: Iterable[int],
) -> NoReturn:
    """A child's whole life. Nothing of the parent's is flushed, closed or unwound."""
    try:
        linux.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        # Ctrl-C reaches the whole group; the parent decides what becomes of its children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # What was there before is never collected here: to look through it would copy its pages.
        gc.freeze()
        while True:
            task = connection.recv()
            try:
                answer: R | Exception = work(task, share)
            except Exception as exc:
                answer = _portable(exc)
            try:
                connection.send((False, answer))
            except (pickle.PicklingError, TypeError, AttributeError) as exc:
                connection.send((False, _portable(exc)))
    finally:
        os._exit(1)


def _portable(exc: Exception) -> Exception:
    """The exception if it can be sent as it is, with its traceback as a note; else its text."""
    exc.add_note("".join(traceback.format_exception(exc)))
    try:
        pickle.loads(pickle.dumps(exc))
    except Exception:
        return Retryable(f"{type(exc).__name__}: {exc}")
    return exc
