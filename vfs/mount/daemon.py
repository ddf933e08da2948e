"""The process that serves a mount: how it leaves its terminal, logs, ends, and says it is ready.

`detach` runs a function in a process of its own and returns when that process says so, or raises
the error that it met. The process has no terminal, no working directory, no umask, and ends on
SIGTERM, SIGINT and SIGHUP by unmounting.
"""

from __future__ import annotations

import gc
import json
import logging
import logging.handlers
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn, Protocol

from vfs.errors import StorageFailure, VfsError, from_oserror
from vfs.printable import one_line

SYSLOG = "/dev/log"
"""The socket of the system's log (syslog(3)), which journald has too."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that unmount."""

MAX_DESCRIPTORS = 16_384
"""Directories kept open at most: beyond, a descriptor saves less than its kernel memory costs."""

GC_THRESHOLDS = (100_000, 50, 100)
"""Allocations before a collection, and collections before an older generation's.

What the operations hold are trees of nodes without cycles, which counting references frees; each
collection walks them all. Cycles come from errors alone, a few objects each.
"""

Announce = Callable[[Mapping[str, object]], None]
"""Says that the mount is live, with what the command reports of it."""


class Session(Protocol):
    """What a transport offers to whoever runs it; `DeviceSession` describes it."""

    def run(self) -> None: ...

    def stop(self) -> None: ...


def detach(serve: Callable[[Announce], None]) -> dict[str, object]:
    """Runs `serve` in a detached process; returns what it announced, while it goes on.

    Raises the VfsError that it met before that. The process exits when `serve` returns, and also
    when it announces something and nobody waits for that any more.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _run_detached(serve, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        os.waitpid(pid, 0)
        message = pipe.read()
    if not message:
        raise StorageFailure(
            "the process of the mount ended before it was ready", fix="see the system's log"
        )
    answer: dict[str, object] = json.loads(message)
    if "error" in answer:
        raise _error(answer)
    return answer


def run(session: Session) -> None:
    """Serves until the mount is gone; the signals that end it, held back until now, unmount it."""

    def stop(_number: int, _frame: object) -> None:
        session.stop()

    for number in ENDING:
        signal.signal(number, stop)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    session.run()


@contextmanager
def ending_held() -> Iterator[None]:
    """Holds back the signals that end a mount, so that none comes before it is served."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def settle() -> None:
    """Puts this process into the state in which a mount is served."""
    os.umask(0)  # modes are what the client's kernel sent, its umask applied
    os.chdir("/")  # no directory is held, the mountpoint's least of all
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def raise_descriptor_limit() -> int:
    """Raises the soft limit of descriptors to the hard one; how many directories to keep open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return MAX_DESCRIPTORS
    # The other half is for the files that are open.
    return max(1, min(MAX_DESCRIPTORS, hard // 2))


def log_to(path: bytes | None, *, foreground: bool) -> None:
    """Sends the log to a file, else to stderr in the foreground, else to the system's log if any.

    Raises the error of its kind if the file cannot be opened.
    """
    handler: logging.Handler
    if path is not None:
        try:
            handler = logging.FileHandler(os.fsdecode(path))
        except OSError as exc:
            raise from_oserror(exc, path=path, action="open the log") from exc
    elif foreground:
        handler = logging.StreamHandler()
    elif os.path.exists(SYSLOG):
        try:
            handler = logging.handlers.SysLogHandler(
                SYSLOG, facility=logging.handlers.SysLogHandler.LOG_DAEMON
            )
        except OSError:
            handler = logging.NullHandler()
    else:
        handler = logging.NullHandler()
    is_file = isinstance(handler, logging.StreamHandler)
    handler.setFormatter(_Lines("%(asctime)s " if is_file else "", foreground=foreground))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # a full disk must not write into what was stderr


class _Lines(logging.Formatter):
    """Lines that are safe on a terminal whatever a message holds."""

    def __init__(self, prefix: str, *, foreground: bool) -> None:
        name = "vfs" if foreground else "vfs[%(process)d]"
        super().__init__(f"{prefix}{name}: %(levelname)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return "\n".join(one_line(line) for line in super().format(record).split("\n"))


def _run_detached(serve: Callable[[Announce], None], writer: int) -> NoReturn:
    """The child's life, from the fork to its end; nothing of the parent's is flushed or closed."""
    status = 1
    try:
        os.setsid()
        # The grandchild leads no session, so that no terminal can become its own.
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        announced = False

        def announce(message: Mapping[str, object]) -> None:
            nonlocal announced
            announced = True
            _send(writer, message)

        try:
            serve(announce)
            status = 0
        except BrokenPipeError:
            pass  # whoever asked for the mount has ended
        except VfsError as exc:
            status = exc.exit_status
            if not announced:
                _send(writer, exc.to_json())
        except BaseException as exc:
            logging.getLogger("vfs.mount").exception("the mount has ended")
            if not announced:
                _send(writer, _internal(exc).to_json())
    finally:
        logging.shutdown()
        os._exit(status)


def _internal(exc: BaseException) -> VfsError:
    # Its text stays in the log: it may name host paths.
    return StorageFailure(
        f"{type(exc).__name__} in the process of the mount",
        fix="run it with --foreground to see more",
    )


def _send(writer: int, message: Mapping[str, object]) -> None:
    with open(writer, "wb", buffering=0) as pipe:
        pipe.write(json.dumps(message).encode())


def _error(answer: Mapping[str, object]) -> VfsError:
    kinds = {error.kind: error for error in VfsError.__subclasses__()}
    message, fix = answer["message"], answer["fix"]
    return kinds[str(answer["error"])](str(message), fix=None if fix is None else str(fix))
