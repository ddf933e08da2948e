"""Every method of a directory that takes a path, as a table to run one case over all of them."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from vfs.beneath import Directory

Call = Callable[[Directory, bytes], object]


def write(directory: Directory, path: bytes) -> None:
    fd = directory.open_file(path, os.O_RDWR)
    os.write(fd, b"written")
    os.close(fd)


# Every method of a directory that takes a path.
READING: dict[str, Call] = {
    "directory": Directory.directory,
    "names": Directory.names,
    "open_listing": Directory.open_listing,
    "open_file": Directory.open_file,
}
CHANGING: dict[str, Call] = {
    "write": write,
    "change_mode": lambda directory, path: directory.change_mode(path, 0o777),
}
ON_THE_ENTRY: dict[str, Call] = {
    "stat": Directory.stat,
    "read_link": Directory.read_link,
    "create_file": Directory.create_file,
    "make_directory": Directory.make_directory,
    "make_directories": Directory.make_directories,
    "make_link": lambda directory, path: directory.make_link(path, b"text"),
    "unlink": Directory.unlink,
    "remove_directory": Directory.remove_directory,
    "rename from": lambda directory, path: directory.rename(path, b"renamed"),
    "rename to": lambda directory, path: directory.rename(b"source", path),
    "link from": lambda directory, path: directory.link(path, b"linked"),
    "link to": lambda directory, path: directory.link(b"source", path),
    "change_owner": lambda directory, path: directory.change_owner(path, 4, 5),
    "change_times": lambda directory, path: directory.change_times(path, 1, 2),
}
ALL = READING | CHANGING | ON_THE_ENTRY


def calls(table: dict[str, Call]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("call", table.values(), ids=table.keys())
