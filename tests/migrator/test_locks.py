"""The migrator's locks: one migrator for a state folder and for each folder it works on."""

from __future__ import annotations

import builtins
import fcntl
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.errors import Precondition
from migrator.locks import Locks, running
from tests.vfs.steps import ended
from vfs.beneath import Directory


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Directory]:
    (tmp_path / "state").mkdir()
    with Directory.open(tmp_path / "state") as directory:
        yield directory


@pytest.fixture
def other_state(tmp_path: Path) -> Iterator[Directory]:
    (tmp_path / "other").mkdir()
    with Directory.open(tmp_path / "other") as directory:
        yield directory


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Directory]:
    (tmp_path / "root").mkdir()
    with Directory.open(tmp_path / "root") as directory:
        yield directory


def take(state: Directory, *roots: Directory) -> Locks:
    return Locks.take(state, roots, wait=0)


def test_a_second_migrator_of_the_same_state_folder_is_refused_and_told_the_first(
    state: Directory, tmp_path: Path
) -> None:
    with take(state), pytest.raises(Precondition) as refused:
        take(state)
    assert refused.value.to_json() == {
        "error": "precondition",
        "message": f"the state folder {tmp_path}/state is in use by process {os.getpid()}",
        "fix": "wait until it has ended, or stop it, then try again",
        "exit_status": 3,
    }


def test_a_second_migrator_with_a_state_folder_of_its_own_is_refused_too(
    state: Directory, other_state: Directory, root: Directory, tmp_path: Path
) -> None:
    with take(state, root), pytest.raises(Precondition) as refused:
        take(other_state, root)
    assert refused.value.message == f"the folder {tmp_path}/root is in use by process {os.getpid()}"


def test_whoever_is_refused_has_locked_nothing(
    state: Directory, other_state: Directory, root: Directory
) -> None:
    with take(state, root):
        with pytest.raises(Precondition):
            take(other_state, root)
        assert running(other_state) is None
        take(other_state).close()


def test_one_folder_in_two_roles_is_locked_once(
    state: Directory, root: Directory, tmp_path: Path
) -> None:
    with Directory.open(tmp_path / "root") as again, take(state, root, again):
        assert running(state) == os.getpid()


def test_locks_are_free_again_when_closed(state: Directory, root: Directory) -> None:
    take(state, root).close()
    with take(state, root) as locks:
        locks.close()
        locks.close()
        take(state, root).close()


def test_a_worker_keeps_the_lock_of_its_killed_migrator(state: Directory, root: Directory) -> None:
    told, tells = os.pipe()
    ends, end = os.pipe()

    def migrator() -> None:
        locks = take(state, root)
        worker = os.fork()
        if worker == 0:
            os.write(tells, b"%d" % os.getppid())
            os.read(ends, 1)  # until the test lets it end
            os._exit(0)
        os.read(ends, 1)
        locks.close()

    with warnings.catch_warnings():
        # The children run nothing but this: threads of other tests do not matter to them.
        warnings.simplefilter("ignore", DeprecationWarning)
        migrator_pid = os.fork()
    if migrator_pid == 0:
        try:
            os.close(end)
            migrator()
        finally:
            os._exit(1)
    os.close(tells)
    try:
        assert int(os.read(told, 20)) == migrator_pid
        os.kill(migrator_pid, signal.SIGKILL)
        os.waitpid(migrator_pid, 0)
        assert running(state) == migrator_pid
        with pytest.raises(Precondition):
            take(state, root)
        with pytest.raises(Precondition):
            take(state)
    finally:
        os.close(end)
    assert os.read(told, 1) == b""  # the worker has ended
    os.close(told)
    os.close(ends)
    Locks.take(state, [root], wait=5).close()


def test_a_program_that_a_migrator_starts_does_not_inherit_the_lock(state: Directory) -> None:
    reads, writes = os.pipe()
    with take(state):
        stdin = [(os.POSIX_SPAWN_DUP2, reads, 0)]
        program = os.posix_spawn("/bin/cat", ["cat"], {}, file_actions=stdin)
    try:
        # The kernel lets this process go on a moment before it closes the program's descriptors.
        Locks.take(state, [], wait=5).close()
    finally:
        os.close(writes)
        os.close(reads)
        assert os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]) == 0


def test_a_look_does_not_make_a_migrator_fail(state: Directory) -> None:
    """`running` holds the lock for a moment; `take` waits that long."""
    take(state).close()
    look = os.open(b"lock", os.O_RDONLY, dir_fd=state.fd)
    fcntl.flock(look, fcntl.LOCK_SH)

    real = fcntl.flock
    tries = 0

    def flock(fd: int, operation: int) -> None:
        nonlocal tries
        tries += 1
        if tries == 2:
            os.close(look)
        real(fd, operation)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        Locks.take(state, []).close()
    assert tries == 2


def test_nothing_runs_where_nothing_was_locked(state: Directory) -> None:
    assert running(state) is None
    assert state.names() == []
    take(state).close()
    assert running(state) is None


def test_one_that_runs_is_told_by_its_process(state: Directory) -> None:
    with take(state):
        assert running(state) == os.getpid()

        def look() -> None:
            assert running(state) == os.getppid()

        assert ended(look) == 0


def test_without_the_kernels_table_the_lock_file_tells(
    state: Directory, root: Directory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with take(state, root):
        real = builtins.open

        def without_table(file: object, *args: object, **kwargs: object) -> object:
            if file == "/proc/locks":
                raise FileNotFoundError
            return real(file, *args, **kwargs)  # type: ignore[call-overload]

        monkeypatch.setattr(builtins, "open", without_table)
        assert running(state) == os.getpid()
        os.truncate(tmp_path / "state" / "lock", 0)
        assert running(state) == 0
