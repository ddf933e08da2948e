"""Runs `vfs` many times over: each in a process forked from one that has loaded it all.

Reads a JSON document a line (see `Order` in tests/cli/program.py) and answers each with the exit
status on a line. Starting an interpreter for each would take most of the tests' time; and a user
who may not reach the interpreter's modules can still run the command here.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pkgutil
import sys
from typing import Any, NoReturn

import vfs
from vfs.cli import main

PR_SET_DUMPABLE = 4  # include/uapi/linux/prctl.h


def serve() -> None:
    """Answers until stdin ends."""
    for module in pkgutil.walk_packages(vfs.__path__, "vfs."):
        importlib.import_module(module.name)
    for line in sys.stdin.buffer:
        pid = os.fork()
        if pid == 0:
            run(json.loads(line))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def run(order: dict[str, Any]) -> NoReturn:
    """The command's life, in a process of its own."""
    status = 255
    try:
        os.environ.clear()
        os.environ.update(order["environment"])
        os.umask(order["umask"])
        os.chdir(order["cwd"])
        for fd, path in enumerate(order["streams"]):
            flags = os.O_RDONLY if fd == 0 else os.O_WRONLY | os.O_TRUNC
            os.dup2(os.open(path, flags), fd)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(fd, mode) for fd, mode in enumerate("rww"))
        if order["uid"] is not None:
            become(order["uid"])
        sys.argv = ["vfs", *(os.fsdecode(bytes.fromhex(word)) for word in order["arguments"])]
        status = main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def become(uid: int) -> None:
    """Gives up being root.

    What loses its rights in place may not read its own /proc, unlike what was started without them:
    that is put right.
    """
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


if __name__ == "__main__":
    serve()
