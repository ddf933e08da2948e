"""The migrator's ownership pass alone, as a program: own.py TREE STATE JOBS."""

from __future__ import annotations

import os
import sys

from migrator import ownership
from migrator.journal import Appender
from vfs.beneath import Directory


def main(tree: str, state: str, jobs: int) -> None:
    """Gives a tree to 1000:1000, the modes of files and directories with it; keeps a journal."""
    os.mkdir(state, 0o700)
    with Directory.open(tree) as root, Directory.open(state) as kept:

        def journal(number: int) -> Appender:
            return Appender.open(kept, f"ownership-{number}.jsonl".encode())

        trees = [ownership.Tree("user-data", (), recursive=True)]
        ownership.take({"user-data": root}, trees, journal=journal, jobs=jobs)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
