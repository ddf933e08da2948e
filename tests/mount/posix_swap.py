"""Swaps two names by RENAME_EXCHANGE as fast as it can, until its stdin is closed.

Run as a program: `posix_swap FOLDER ONE OTHER`. It says "ready" once it runs, and at the end how
often it has swapped; both names are then as they were.
"""

from __future__ import annotations

import os
import select
import sys

from tests.mount.posix_calls import checked, libc

EXCHANGE = 2


def main() -> None:
    """Swaps, looking at stdin now and then."""
    folder, one, other = sys.argv[1:]
    dirfd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    names = os.fsencode(one), os.fsencode(other)
    print("ready", flush=True)
    swaps = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(20):
            checked(libc.renameat2(dirfd, names[0], dirfd, names[1], EXCHANGE))
            swaps += 1
    print(swaps)


if __name__ == "__main__":
    main()
