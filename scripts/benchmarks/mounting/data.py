"""The data that a run works on, made anew in a folder of its own.

ext4 does not reuse an inode for a minute after it was freed, and a directory in whose block group
many were freed just now is slow to create in. Nothing is therefore removed before the last row that
makes files: what a row makes stays, in a directory of its own.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20

GIT_ENVIRONMENT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    # Root works on files that appear as anybody's, without git asking whose they are.
    "GIT_CONFIG_COUNT": "4",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "GIT_CONFIG_KEY_1": "gc.auto",
    "GIT_CONFIG_VALUE_1": "0",
    "GIT_CONFIG_KEY_2": "user.name",
    "GIT_CONFIG_VALUE_2": "bench",
    # Nor does it matter to whom a file belongs that is otherwise as the index has it: else git
    # reads every file again where a mount shows another owner.
    "GIT_CONFIG_KEY_3": "core.checkStat",
    "GIT_CONFIG_VALUE_3": "minimal",
    "EMAIL": "bench@localhost",
    # `git status` must not mend the index: each run would start from another one.
    "GIT_OPTIONAL_LOCKS": "0",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much data there is."""

    file_mib: int
    """Of the file that is read, and of the one that is written."""
    tree_directories: int
    """With 100 files each, of 0.2 to 2 KiB."""
    small_files: int
    """Of 4 KiB, 100 to a directory."""
    made_files: int
    """Files of 4 KiB created, and removed, by one run."""
    repository_files: int
    commits: int


FULL = Sizes(
    file_mib=1024,
    tree_directories=500,
    small_files=20_000,
    made_files=5_000,
    repository_files=3_000,
    commits=20,
)
QUICK = Sizes(
    file_mib=128,
    tree_directories=25,
    small_files=1_000,
    made_files=300,
    repository_files=200,
    commits=4,
)

BIG, TREE, SMALL, REPOSITORY = "big", "tree", "small", "repository"
"""Names in the folder that every system shows."""


def make(folder: Path, sizes: Sizes) -> None:
    """Fills the folder."""
    _make_big(folder / BIG, sizes.file_mib)
    _make_tree(folder / TREE, sizes.tree_directories)
    make_files(folder / SMALL, sizes.small_files)
    _make_repository(folder / REPOSITORY, sizes)
    os.sync()


def _make_big(path: Path, mib: int) -> None:
    block = os.urandom(MIB)
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(block)


def _make_tree(folder: Path, directories: int) -> None:
    content = os.urandom(2048)
    for number in range(directories):
        # 20 at the top, the others below them: not all in one directory, nor each in its own.
        directory = folder / f"part{number % 20:02d}" / f"directory{number:04d}"
        directory.mkdir(parents=True)
        for file in range(100):
            _write(directory / f"file{file:03d}.txt", content[: 200 + (file * 37) % 1848])


def make_files(folder: Path, count: int) -> None:
    """Makes `count` files of 4 KiB, 100 to a directory."""
    content = os.urandom(4096)
    for start in range(0, count, 100):
        directory = folder / f"{start // 100:04d}"
        directory.mkdir(parents=True)
        for number in range(min(100, count - start)):
            _write(directory / f"{number:02d}", content)


def _write(path: Path, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    os.write(fd, content)
    os.close(fd)


def _make_repository(folder: Path, sizes: Sizes) -> None:
    """A repository of loose objects, with as many files changed by each commit."""
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    files = [
        folder / f"package{number % 60:02d}" / f"module{number:04d}.py"
        for number in range(sizes.repository_files)
    ]
    # git reads a file again that is as new as its index: these are older.
    past = int(time.time()) - 3600
    for commit in range(sizes.commits):
        for number, file in enumerate(files):
            if commit == 0 or number % sizes.commits == commit:
                file.parent.mkdir(exist_ok=True)
                file.write_text(f"# {number} {commit}\n" * (10 + number % 90))
                os.utime(file, (past + commit, past + commit))
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", f"commit {commit}")


def git(folder: Path, *arguments: str) -> None:
    """Runs git in a folder; OSError with its complaint where it fails."""
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=GIT_ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise OSError(f"git {arguments[0]} fails: {done.stderr.decode(errors='replace').strip()}")
