"""The plain way: each file is hashed, copied and hashed again, and given to its owner."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys


def digest(path: str) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy(source: str, target: str) -> None:
    """Copies a tree; each file's copy has the hash of its original."""
    os.mkdir(target)
    with os.scandir(source) as entries:
        for entry in entries:
            into = os.path.join(target, entry.name)
            if entry.is_dir(follow_symlinks=False):
                copy(entry.path, into)
            elif entry.is_symlink():
                os.symlink(os.readlink(entry.path), into)
                os.chown(into, 1000, 1000, follow_symlinks=False)
            else:
                before = digest(entry.path)
                shutil.copy2(entry.path, into)
                if digest(into) != before:
                    sys.exit(f"{into} is not what was copied")
                os.chown(into, 1000, 1000)
    os.chown(target, 1000, 1000)


if __name__ == "__main__":
    copy(sys.argv[1], sys.argv[2])
