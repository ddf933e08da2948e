"""Directories that have their owner and mode before they have their name.

Whoever finds one by its name may fill it at once, and of two who make the same one each gets it
whole: it is made under a temporary name (`vfs.saving`) and renamed, never over anything.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from vfs import dirfd, linux
from vfs.beneath import DIRECTORY_MODE, Directory, Path, translated
from vfs.resolving import O_ENTER, resolver, split_path
from vfs.saving import random_token, temporary_name


def make_directory(directory: Directory, path: Path, owner: tuple[int, int] | None) -> None:
    """Makes one directory of mode 0700 for `owner` (None: the process's); its parent must exist."""
    parts = split_path(path)
    with directory.parent(parts) as (parent, name), translated("make", parts):
        _make(parent, name, owner)


def make_directories(directory: Directory, path: Path, owner: tuple[int, int] | None) -> Directory:
    """The directory at `path`, pinned, made with its missing parents."""
    parts = split_path(path)
    current = directory.directory()
    with translated("make", parts):
        for name in parts:
            with current:
                try:
                    current = _enter(current, name)
                except FileNotFoundError:
                    with suppress(FileExistsError):
                        _make(current, name, owner)
                    current = _enter(current, name)
    return current


def _enter(directory: Directory, name: bytes) -> Directory:
    fd = resolver().open(directory.fd, directory.mnt_id, (name,), O_ENTER)
    return Directory(fd, directory.mnt_id)


def _make(parent: Directory, name: bytes, owner: tuple[int, int] | None) -> None:
    with suppress(FileNotFoundError):
        linux.statx(parent.fd, name)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    hidden = temporary_name(random_token())
    dirfd.make_directory(parent.fd, parent.mnt_id, hidden, DIRECTORY_MODE, owner)
    try:
        _rename_to_free(parent.fd, hidden, name)
    except BaseException:
        with suppress(OSError):
            os.rmdir(hidden, dir_fd=parent.fd)
        raise


def _rename_to_free(fd: int, hidden: bytes, name: bytes) -> None:
    try:
        linux.renameat2(fd, hidden, fd, name, linux.RENAME_NOREPLACE)
    except OSError as exc:
        if exc.errno not in dirfd.NO_SUCH_RENAME:
            raise
        # NFS knows no flags; there it may at worst replace an empty directory, by its like.
        os.rename(hidden, name, src_dir_fd=fd, dst_dir_fd=fd)
