"""The swap race: entries change places with links to the outside while everything is done to them.

A process of its own exchanges a directory, and files, with links to an outside tree, as fast as the
kernel can. Whatever runs meanwhile must reach the inside or fail; the outside is compared whole
afterwards. What checks a path first and uses it later is run through the same harness and does get
outside: the race is really on.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.vfs.hostile import PATIENCE, Swapper, snapshot
from vfs.beneath import Directory
from vfs.errors import (
    AlreadyExists,
    LinkRefused,
    NotADirectory,
    NotFound,
    VfsError,
)

TIMES = 10_000
"""Calls of each kind."""

SEEN = 50
"""How often each outcome must be seen at the least, that the race counts as run."""


def plant(folder: Path, outside: Path) -> None:
    """`dir`, `dir/sub` and `file` in the folder, and beside each a link to the outside's."""
    (folder / "dir" / "sub").mkdir(parents=True)
    for path in (folder / "file", folder / "dir" / "secret", folder / "dir" / "sub" / "secret"):
        path.write_bytes(b"inside!")
    (folder / "link-dir").symlink_to(outside)
    (folder / "dir" / "link-sub").symlink_to(outside / "sub")
    (folder / "link-file").symlink_to(outside / "secret")


def swapping(tmp_path: Path, folder: Path) -> Swapper:
    """The process that swaps the three with their links."""
    return Swapper(
        tmp_path / "board",
        (folder / "dir", folder / "link-dir"),
        (folder / "file", folder / "link-file"),
        (folder / "dir" / "sub", folder / "dir" / "link-sub"),
    )


@pytest.fixture
def arena(tmp_path: Path, folder: Path, outside: Path) -> Iterator[Swapper]:
    plant(folder, outside)
    with swapping(tmp_path, folder) as swapper:
        yield swapper


def run(call: Callable[[int], object], expected: tuple[type[VfsError], ...]) -> Counter[str]:
    """Calls it `TIMES` times, and on until it was both done and refused often enough."""
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + PATIENCE
    number = 0
    while number < TIMES or min(outcomes["done"], outcomes["refused"]) < SEEN:
        assert number < TIMES or time.monotonic() < end, f"the race is not on: {outcomes}"
        try:
            call(number)
        except LinkRefused:
            outcomes["refused"] += 1
        except expected as error:
            outcomes[error.kind] += 1
        else:
            outcomes["done"] += 1
        number += 1
    return outcomes


def read(root: Directory, path: bytes) -> None:
    fd = root.open_file(path)
    try:
        assert os.read(fd, 20) in (b"inside!", b"written")
    finally:
        os.close(fd)


def write(root: Directory, path: bytes) -> None:
    fd = root.open_file(path, os.O_WRONLY)
    try:
        assert os.write(fd, b"written") == 7
    finally:
        os.close(fd)


def create_and_delete(root: Directory, name: bytes) -> None:
    with suppress(AlreadyExists):  # left by a deletion that was refused
        os.close(root.create_file(name))
    root.unlink(name)


def make_and_remove(root: Directory, name: bytes) -> None:
    with suppress(AlreadyExists):
        root.make_directory(name, 0o777, (4, 5))
    root.remove_directory(name)


def move_in_and_out(root: Directory, number: int) -> None:
    name = b"moved-%d" % number
    root.make_directory(name)
    root.rename(name, b"dir/" + name)
    root.rename(b"dir/" + name, b"out-%d" % number)


def look(root: Directory) -> None:
    assert root.stat(b"dir/sub/secret").size == len(b"inside!")


def list_names(root: Directory) -> None:
    assert b"only-outside" not in root.names(b"dir")


ACTS: dict[str, Callable[[Directory, int], object]] = {
    "read beneath a swapped directory": lambda root, _: read(root, b"dir/secret"),
    "read beneath two swapped directories": lambda root, _: read(root, b"dir/sub/secret"),
    "read a swapped file": lambda root, _: read(root, b"file"),
    "write beneath a swapped directory": lambda root, _: write(root, b"dir/secret"),
    "write beneath two swapped directories": lambda root, _: write(root, b"dir/sub/secret"),
    "write a swapped file": lambda root, _: write(root, b"file"),
    "create and delete": lambda root, number: create_and_delete(root, b"dir/new-%d" % number),
    "create and delete deeper": lambda root, _: create_and_delete(root, b"dir/sub/new"),
    "delete what the outside has": lambda root, _: create_and_delete(root, b"dir/only-outside"),
    "make and remove a directory": lambda root, _: make_and_remove(root, b"dir/made"),
    "make directories": lambda root, number: root.make_directories(
        b"dir/made/below-%d" % (number % 10), 0o777
    ).close(),
    "rename into it and out of it": move_in_and_out,
    "link out of it": lambda root, number: root.link(b"dir/secret", b"linked-%d" % number),
    "change the mode": lambda root, number: root.change_mode(b"file", 0o600 + number % 8),
    "change the mode beneath it": lambda root, _: root.change_mode(b"dir/sub/secret", 0o640),
    "change the owner beneath it": lambda root, _: root.change_owner(b"dir/secret", 0, 5),
    "change the times beneath it": lambda root, _: root.change_times(b"dir/secret", 1, 2),
    "look beneath it": lambda root, _: look(root),
    "list it": lambda root, _: list_names(root),
}

# Half-done: the second call of a pair may find the link, or what an earlier one left.
EXPECTED = (NotFound, AlreadyExists, NotADirectory)


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_nothing_gets_outside_while_directories_and_files_are_swapped_with_links(
    way: str, arena: Swapper, root: Directory, act: Callable[[Directory, int], object]
) -> None:
    before = arena.swaps
    run(lambda number: act(root, number), EXPECTED)
    assert arena.swaps - before > 1_000


# What is commonly done instead, and what comes of it. These must not be held to what is promised
# here; if they stayed inside as well, the tests above would prove nothing.


def by_realpath(top: Path, path: Path) -> Path:
    """The path, checked as is often done: its real path must begin with the directory's."""
    if not os.path.realpath(path).startswith(f"{top}/"):
        raise LinkRefused("it leads outside")
    return path


def by_lstat(top: Path, path: Path) -> Path:
    """The path, checked as is often done: none of its components may be a link."""
    for part in (path, *path.parents):
        if part == top:
            return path
        if part.is_symlink():
            raise LinkRefused("it goes through a link")
    raise LinkRefused("it leads outside")


def by_o_nofollow(_top: Path, path: Path) -> Path:
    """The path as it is: O_NOFOLLOW when it is opened, it is thought, will see to it."""
    return path


@pytest.mark.slow
@pytest.mark.parametrize("checked", [by_realpath, by_lstat, by_o_nofollow])
def test_the_same_race_lets_what_checks_first_and_opens_later_outside(
    arena: Swapper, folder: Path, checked: Callable[[Path, Path], Path]
) -> None:
    read: Counter[bytes] = Counter()
    end = time.monotonic() + PATIENCE
    while not read[b"outside"] or not read[b"inside!"]:
        assert time.monotonic() < end, f"the race is not on: {read}"
        with suppress(OSError, LinkRefused):
            fd = os.open(checked(folder, folder / "dir" / "secret"), os.O_RDONLY | os.O_NOFOLLOW)
            read[os.read(fd, 10)] += 1
            os.close(fd)
    assert read[b"outside"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("act", ["write", "create", "delete"])
def test_the_same_race_lets_it_write_create_and_delete_outside(
    tmp_path: Path, folder: Path, act: str
) -> None:
    victim = tmp_path / "victim"
    (victim / "sub").mkdir(parents=True)
    for path in (victim / "secret", victim / "sub" / "secret"):
        path.write_bytes(b"outside")
    before = snapshot(victim)
    end = time.monotonic() + PATIENCE
    number = 0
    plant(folder, victim)
    held = os.open(folder / "dir", os.O_RDONLY)
    with swapping(tmp_path, folder):
        while snapshot(victim) == before:
            assert time.monotonic() < end, "the race is not on"
            for _ in range(100):
                number += 1
                with suppress(OSError, LinkRefused):
                    if act == "write":
                        fd = os.open(by_realpath(folder, folder / "dir" / "secret"), os.O_WRONLY)
                        os.write(fd, b"written")
                        os.close(fd)
                    elif act == "create":
                        by_realpath(folder, folder / "dir" / f"new-{number}").touch()
                    else:
                        by_realpath(folder, folder / "dir" / "secret").unlink()
                if act == "delete":  # the inside's file again, in the very directory
                    os.close(os.open("secret", os.O_CREAT | os.O_WRONLY, dir_fd=held))
    os.close(held)
    assert snapshot(victim) != before
