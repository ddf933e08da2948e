"""Failures put in before a chosen system call: SIGKILL, or an error that the call would give.

Steps are the system calls that the migrator and the floor make by `os` and `vfs.linux`, and the
statements and ends of transactions that go to the database. They are counted in one process, so
`--jobs 1`. A place is where in the program a step is made: its calls in the last few functions.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.engine.default import DefaultDialect

import migrator
import vfs
from vfs import linux

CHANGING = frozenset(
    (
        *("chmod", "chown", "copy_file_range", "fchmod", "fchown", "fdatasync", "fsync"),
        *("ftruncate", "link", "mkdir", "mknod", "pwrite", "rename", "replace", "rmdir"),
        *("sendfile", "setxattr", "symlink", "truncate", "unlink", "utime", "write"),
        *("fchmodat2", "fchown_held", "ficlone", "renameat2", "syncfs"),
        *("do_commit", "do_execute"),
    )
)
"""Between two of these a kill finds the disk as it was."""

LOOKING = frozenset(
    (
        *("fstat", "getxattr", "listdir", "listxattr", "lseek", "open", "pread", "preadv", "read"),
        *("readlink", "readv", "scandir", "stat", "openat2", "statx"),
    )
)

_DEPTH = 3
"""Functions of ours that tell places apart."""

_OURS = tuple(
    os.path.dirname(os.path.abspath(str(package.__file__))) + os.sep for package in (migrator, vfs)
)


class Step(NamedTuple):
    """One step of a run, told so that it is found again in another."""

    name: str
    place: str
    number: int
    """How often this call was made at this place before."""


Act = Callable[[Step], Callable[..., Any] | None]
"""What is done before a step; and what is called instead of it, if anything is."""


def install(act: Act, names: frozenset[str]) -> None:
    """From now on `act` is called before each step of these names; for a child alone."""
    counts: Counter[tuple[str, str]] = Counter()
    acting = False

    def stepping(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal acting
            place = None if acting else _place()
            if not place:
                return real(*arguments, **options)
            step = Step(name, place, counts[name, place])
            counts[name, place] += 1
            acting = True
            try:
                instead = act(step)
            finally:
                acting = False
            return (real if instead is None else instead)(*arguments, **options)

        return call

    for module in (os, linux):
        for name in names & set(dir(module)):
            setattr(module, name, stepping(getattr(module, name), name))
    for name in names & {"do_commit", "do_execute"}:
        setattr(DefaultDialect, name, stepping(getattr(DefaultDialect, name), name))


def _place() -> str:
    """Where the caller of a step is: the innermost of our functions; empty if none is."""
    found: list[str] = []
    frame = sys._getframe(2)
    while frame is not None and len(found) < _DEPTH:
        file = frame.f_code.co_filename
        if file.startswith(_OURS):
            found.append(f"{os.path.basename(file)}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(found)


def recording(into: Path, names: frozenset[str]) -> Callable[[], None]:
    """Has every step of a run written into a file; to be called in its process."""

    def before() -> None:
        fd = os.open(into, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        write = os.write

        def act(step: Step) -> None:
            write(fd, json.dumps(step).encode() + b"\n")

        install(act, names)

    return before


def recorded(path: Path) -> list[Step]:
    """What was recorded."""
    return [Step(*json.loads(line)) for line in path.read_text().splitlines()]


def each_place(steps: Sequence[Step]) -> list[Step]:
    """Of the steps at each place the first, and the last."""
    last = {(step.name, step.place): step for step in steps}
    return [step for step in steps if step.number == 0 or step == last[step.name, step.place]]


def killing(at: Step, names: frozenset[str]) -> Callable[[], None]:
    """Has the process killed before a step; if it is a write, after half of it."""

    def before() -> None:
        write = os.write

        def half(fd: int, data: Any) -> None:
            write(fd, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

        def act(step: Step) -> Callable[..., Any] | None:
            if step != at:
                return None
            if step.name == "write":
                return half
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("killed")

        install(act, names)

    return before


def failing(at: Step, number: int, names: frozenset[str]) -> Callable[[], None]:
    """Has a step fail with an error number."""

    def before() -> None:
        def act(step: Step) -> None:
            if step != at:
                return
            if step.name.startswith("do_"):
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR
                error.sqlite_errorname = "SQLITE_IOERR"
                raise error
            raise OSError(number, os.strerror(number))

        install(act, names)

    return before
