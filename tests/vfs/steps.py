"""Other processes for the tests: one that ends on its own, one that is killed at a given step.

And the steps themselves: every system call that the floor makes to change or look at something, so
that a test can look at the disk before each.
"""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from vfs import linux

_OS = (
    "chmod",
    "close",
    "copy_file_range",
    "fchmod",
    "fchown",
    "fsync",
    "link",
    "listdir",
    "mkdir",
    "open",
    "rename",
    "rmdir",
    "scandir",
    "symlink",
    "unlink",
    "utime",
    "write",
)
_LINUX = ("fchown_held", "openat2", "renameat2", "statx")


def ended(action: Callable[[], object]) -> int:
    """Runs `action` in a child of its own; the exit status, or minus the signal that ended it."""
    with warnings.catch_warnings():
        # The child runs nothing but the action: threads of other tests do not matter to it.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            action()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def as_user(action: Callable[[], object], uid: int = 1000) -> int:
    """The same, with all that the process does done by a plain user."""

    def run() -> None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        action()

    return ended(run)


def before_each_step(
    act: Callable[[], object], install: Callable[[Any, str, Any], object] = setattr
) -> None:
    """Runs `act` before each system call; `install` may be a monkeypatch's `setattr`.

    A write is two steps: half of its bytes, then the rest.
    """
    acting = False

    def stepping(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal acting
            if not acting:
                acting = True
                try:
                    act()
                finally:
                    acting = False
            if name == "write":
                fd, data = args
                return real(fd, data[: max(1, len(data) // 2)])
            return real(*args, **kwargs)

        return call

    for module, names in ((os, _OS), (linux, _LINUX)):
        for name in names:
            install(module, name, stepping(getattr(module, name), name))


def killed_at(step: int, action: Callable[[], object]) -> bool:
    """Runs `action` in a child that is killed before its system call number `step`.

    False when it ended, with success, before it came so far.
    """

    def run() -> None:
        left = step

        def count() -> None:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        before_each_step(count)
        action()

    end = ended(run)
    assert end in (0, -signal.SIGKILL)
    return end != 0
