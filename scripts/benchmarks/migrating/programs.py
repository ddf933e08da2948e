"""A program run to its end, timed as a whole process, with the most memory that it took."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_EVERY_SECONDS = 0.1
"""Between two looks at the memory."""


_SHOWN = 500
"""Characters of what a program that failed said."""


class Failed(Exception):
    """Why a program did not do its work, in one line."""


@dataclass(frozen=True)
class Program:
    """What is run."""

    command: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)


def run(program: Program) -> float:
    """Seconds of a process of its own, from before its start to its end."""
    begin = time.perf_counter()
    done = subprocess.run(
        program.command,
        env=_environment(program),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    seconds = time.perf_counter() - begin
    _judge(program, done.returncode, done.stdout + done.stderr)
    return seconds


@dataclass(frozen=True, slots=True)
class Watched:
    """What a program took."""

    seconds: float
    largest: int
    """Bytes resident in that of its processes that had the most (ru_maxrss)."""
    together: int
    """Bytes of all of its processes at once, what they share counted once (Pss, looked at ten
    times a second)."""


def watch(program: Program) -> Watched:
    """The same, with its memory and that of all that it starts."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        program.command,
        env=_environment(program),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    ended = threading.Event()
    most = [0]

    def look() -> None:
        while not ended.wait(_EVERY_SECONDS):
            most[0] = max(most[0], sum(map(_proportional, _session(process.pid))))

    looker = threading.Thread(target=look)
    looker.start()
    try:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
    finally:
        ended.set()
        looker.join()
        process.stdout.close()  # type: ignore[union-attr]
    process.returncode = os.waitstatus_to_exitcode(status)
    _judge(program, process.returncode, said)
    # Its own, and that of the largest child that it has waited for.
    return Watched(seconds, usage.ru_maxrss * 1024, most[0])


def _environment(program: Program) -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C.UTF-8", **program.environment}


def _judge(program: Program, status: int, said: bytes) -> None:
    # 1: the migrator has something to say; it has done all the same.
    if status != 0 and not (status == 1 and "migrator" in program.command[0]):
        lines = said.decode(errors="replace").strip().splitlines()
        reason = lines[-1][:_SHOWN] if lines else "it gives no reason"
        raise Failed(f"{os.path.basename(program.command[0])} ends with {status}: {reason}")


def _session(session: int) -> Sequence[int]:
    """The processes of a session (the sixth field of proc_pid_stat(5))."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session:
                found.append(int(name))
    return found


def _proportional(pid: int) -> int:
    """Bytes: a page that n processes share counts 1/n (proc_pid_smaps(5))."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def drop_caches() -> None:
    """Has the kernel forget what it has of files and directories; what is not written it keeps."""
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def sync(path: Path) -> float:
    """Seconds until the file system of a path has written all it holds (sync -f)."""
    begin = time.perf_counter()
    subprocess.run(["sync", "-f", "--", path], check=True)
    return time.perf_counter() - begin
