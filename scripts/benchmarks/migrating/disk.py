"""An ext4 of the benchmark's own, in an image file: what happened on the disk before plays no part.

ext4 does not reuse an inode for a minute after it was freed, and searches for others meanwhile: on
a file system on which many files were removed just now, making a file took up to seven times as
long as on a fresh one.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE = 48 << 30
"""Bytes of the image, which is sparse: it takes what is written."""
INODES = 5_000_000


class NoDisk(Exception):
    """Why there can be none here, in one line."""


@contextmanager
def own_disk(folder: Path) -> Iterator[Path]:
    """The mounted file system; it is unmounted in the end. Raises `NoDisk`."""
    image, point = folder / "image", folder / "disk"
    with open(image, "wb") as file:
        file.truncate(SIZE)
    # Nothing is left to be initialised in the background.
    options = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    _run(["mkfs.ext4", "-q", "-m", "0", "-N", str(INODES), "-E", options, str(image)])
    point.mkdir()
    try:
        # Direct: the pages of its files are cached once, not those of the image as well.
        device = _run(["losetup", "--direct-io=on", "--show", "-f", str(image)])
        _run(["mount", device, str(point)])
        yield point
    finally:
        # Whatever was done before an interruption is found by looking.
        if os.path.ismount(point):
            # Lazily: what was interrupted may have something open yet.
            _run(["umount", "--lazy", str(point)])
        for device in _run(["losetup", "-n", "-O", "NAME", "-j", str(image)]).split():
            _run(["losetup", "-d", device])


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoDisk(f"{command[0]} is not installed") from None
    if done.returncode != 0:
        raise NoDisk(f"{command[0]} fails: {done.stderr.strip()}")
    return done.stdout.strip()
