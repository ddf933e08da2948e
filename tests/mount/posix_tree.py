"""Trees of files for tests: made with all that programs keep, described whole, and worked on."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@localhost",
    "GIT_AUTHOR_DATE": "2024-01-02T03:04:05Z",
    "GIT_COMMITTER_NAME": "C",
    "GIT_COMMITTER_EMAIL": "c@localhost",
    "GIT_COMMITTER_DATE": "2024-01-02T03:04:05Z",
}

LIMIT = 120.0
"""Seconds for one command; a mount that hangs fails the test instead of holding up all others."""

NAMES = (
    b"plain", b"two  spaces ", b"-rf", b"*", b"back\\slash", b"new\nline", b"\xff\xfe",
    "文件".encode(), b"x" * 255, b".hidden",
)  # fmt: skip


def sh(script: str, folder: Path, *, status: int = 0) -> str:
    """Runs a shell script in a folder; its output, the folder's own path written as HERE."""
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env={**ENVIRONMENT, "HOME": str(folder.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
        check=False,
    )
    output = (done.stdout + done.stderr).decode(errors="surrogateescape")
    assert done.returncode == status, output
    return output.replace(str(folder), "HERE")


def tree(folder: Path, *, times: bool = True) -> dict[bytes, tuple[Any, ...]]:
    """Path to type and mode, links, size, time of change to the nanosecond, and content."""
    found: dict[bytes, tuple[Any, ...]] = {}
    top = os.fsencode(folder)
    for parent, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(parent, name)
            status = os.lstat(path)
            content = None
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            found[os.path.relpath(path, top)] = (
                stat.filemode(status.st_mode),
                status.st_nlink,
                status.st_size if content else 0,
                status.st_mtime_ns if times else 0,
                content,
            )
    return found


def make_tree(folder: Path) -> None:
    """Files of many sizes, names, modes and times; hard links, holes, empty folders, attributes."""
    folder.mkdir()
    for number, name in enumerate(NAMES):
        parent = os.fsencode(folder / f"part{number % 3}")
        os.makedirs(parent, exist_ok=True)
        with open(os.path.join(parent, name), "wb") as file:
            file.write(bytes([number]) * (number * 4097))
        os.chmod(os.path.join(parent, name), (0o644, 0o755, 0o600, 0o440)[number % 4])
    (folder / "empty" / "deep" / "er").mkdir(parents=True)
    (folder / "sticky").mkdir()
    (folder / "sticky").chmod(0o1777)
    os.link(folder / "part0" / "plain", folder / "part1" / "again")
    with open(folder / "holes", "wb") as file:
        file.truncate(3_000_000)
        file.seek(1_000_003)
        file.write(b"in the middle")
    os.setxattr(folder / "holes", b"user.note", b"a value")
    os.setxattr(folder / "sticky", b"user.note", b"of a folder")
    for number, path in enumerate(sorted(folder.rglob("*"), reverse=True)):
        os.utime(path, ns=(10**18 + number, 1_234_567_890_123_456_789 - number * 10**9))
