"""Runs one command, and fails if it leaves a process running or a mount in its temporary folder.

usage: contained.py COMMAND [ARGUMENT...]

The command gets a fresh folder as TMPDIR. The exit status is the command's own (128 + the signal's
number if one ended it), or 1 if it succeeded but left something. What it left is named on stderr
and then ended, unmounted and removed, for all of that is its own: no other program's mounts and
processes are looked at.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from types import FrameType

PR_SET_CHILD_SUBREAPER = 36  # include/uapi/linux/prctl.h

# What a process that was told to end needs to unmount and leave, on a busy machine.
GRACE_SECONDS = 5.0


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends (prctl(2)).

    From here on nothing the command starts can get out of sight, however it detaches itself.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def run(command: list[str], environment: dict[str, str]) -> int:
    """Run the command to its end and return its exit status, reaping orphans that end meanwhile."""
    # Started in the background, this process has the interrupt ignored; the command is to have it.
    child = os.posix_spawnp(command[0], command, environment, setsigdef=[signal.SIGINT])

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    # Ctrl-C reaches the command from the terminal itself; here it must only not end the clean-up.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGHUP, forward)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def children_are_gone(seconds: float) -> bool:
    """Reap until no child is left, and say whether that came about within the time given."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            pid, _status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def descendants() -> Iterator[int]:
    """Yield the pid of each living descendant of this process, parents before their children."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            # proc_pid_stat(5): the name in parentheses may hold anything, so read from its end.
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                state, parent = stat.read().rpartition(b") ")[2].split()[:2]
                if state != b"Z":
                    parents[int(name)] = int(parent)
    found = [os.getpid()]
    for ancestor in found:
        found += [pid for pid, parent in parents.items() if parent == ancestor]
    yield from found[1:]


def command_line(pid: int) -> str:
    """Return what `ps` would show of a process, on one line, or "?" if it has just ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return "?"
    return ascii(b" ".join(words).decode(errors="replace"))


def mounts_beneath(folder: str) -> list[bytes]:
    """Return the mountpoints at or beneath a folder, last mounted first (proc_pid_mountinfo(5))."""
    top = os.fsencode(folder)
    with open("/proc/self/mountinfo", "rb") as file:
        fields = [line.split(b" ") for line in file.read().splitlines()]
    points = [re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), row[4]) for row in fields]
    return [point for point in reversed(points) if point == top or point.startswith(top + b"/")]


def end_processes(pids: list[int]) -> None:
    """End the processes: first asked to, then made to."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if children_are_gone(GRACE_SECONDS):
            return


def remove_folder(folder: str) -> None:
    """Unmount what is left beneath the folder and remove it, however deep or unreadable it is."""
    for point in mounts_beneath(folder):
        unmount = ["umount", "--lazy"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*unmount, "--", point], check=False)
    if mounts_beneath(folder):
        print(f"contained: {folder} stays: something is still mounted there", file=sys.stderr)
        return
    # GNU rm walks any depth; shutil.rmtree recurses and gives up at a thousand levels.
    remove = ["rm", "-rf", "--one-file-system", "--", folder]
    if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], check=False)
        subprocess.run(remove, check=False)


def main(command: list[str]) -> int:
    """Run the command contained; see the module's docstring for the exit status."""
    if not command:
        print("usage: contained.py COMMAND [ARGUMENT...]", file=sys.stderr)
        return 2
    adopt_orphans()
    # A short name: the path of a Unix socket in it must fit into 107 bytes.
    folder = os.path.realpath(tempfile.mkdtemp(prefix="gs"))
    os.chmod(folder, 0o711)  # tests that become other users reach their own folders in it
    try:
        status = run(command, {**os.environ, "TMPDIR": folder})
        children_are_gone(GRACE_SECONDS)
        processes = list(descendants())
        mounts = mounts_beneath(folder)
        for pid in processes:
            print(f"contained: left running: {pid} {command_line(pid)}", file=sys.stderr)
        for point in mounts:
            print(f"contained: left mounted: {os.fsdecode(point)!a}", file=sys.stderr)
        end_processes(processes)
    except OSError as error:
        print(f"contained: {error}", file=sys.stderr)
        return 1
    finally:
        remove_folder(folder)
    return status or int(bool(processes or mounts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
