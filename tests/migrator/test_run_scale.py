"""Whole runs over trees that are very deep or very wide, and what they take of memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.migrator import sample, trees
from tests.migrator.operator import differences, migrator

pytestmark = pytest.mark.slow

DEPTH = 5_000
WIDTH = 200_000


def deep(top: bytes) -> None:
    """A chain of directories with a file in every hundredth, and in the last."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for level in range(1, DEPTH + 1):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
        if level % 100 == 0:
            write(fd, "file", level)
    os.close(fd)


def wide(top: bytes) -> None:
    """That many files in one directory."""
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(WIDTH):
        write(fd, f"file {number}", number)
    os.close(fd)


def write(dirfd: int, name: str, number: int) -> None:
    file = os.open(name, os.O_WRONLY | os.O_CREAT, 0o666, dir_fd=dirfd)
    os.write(file, b"%d" % number)
    os.close(file)


@pytest.mark.parametrize(("grow", "transfer"), [(deep, "link"), (deep, "copy"), (wide, "copy")])
def test_a_very_deep_and_a_very_wide_tree_are_taken_over_and_given_back(
    memory: Path, grow: Callable[[bytes], None], transfer: str
) -> None:
    saves = sample.minimal(memory / "s")
    grow(os.fsencode(saves.source / "threads/t1/user-data/uploads"))
    saves.work_out()
    before = trees.snapshot(saves.source)
    migrator(saves, "run", "--transfer", transfer).expect(1)
    assert differences(saves) == []
    migrator(saves, "rollback").expect(0)
    assert trees.differences(trees.snapshot(saves.source), before) == []
    assert not saves.new.exists()


@pytest.mark.parametrize("grow", [deep, wide])
def test_a_very_deep_and_a_very_wide_tree_are_removed_in_the_end(
    memory: Path, grow: Callable[[bytes], None]
) -> None:
    saves = sample.minimal(memory / "s")
    grow(os.fsencode(saves.source / "threads/t1/user-data/uploads"))
    saves.work_out()
    migrator(saves, "run").expect(1)
    migrator(saves, "finalize").expect(0, 1)
    assert differences(saves) == []
    assert not (saves.source / "threads/t1/user-data/uploads").exists()
