"""Whole trees walked, copied and removed while their directories are swapped with outside links."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.vfs.hostile import PATIENCE, Swapper, snapshot
from tests.vfs.trees import Plan, plant
from vfs.beneath import Directory
from vfs.errors import InvalidPath, LinkRefused, NotADirectory, NotFound, VfsError
from vfs.tree import copy, digest, list_directory, remove, search, usage, visit

LOOKS, CHANGES = 1_000, 100
"""Trees of a dozen directories that are looked through, and that are copied or removed."""

NAMES = [f"d{number}" for number in range(6)]


def fill(folder: Path, outside: Path) -> None:
    """A tree `t`, and beside it a link to the outside for each of its directories."""
    inner: Plan = {
        "sub": {"secret": b"inside!"},
        "link-sub": str(outside / "sub"),
        "secret": b"inside!",
    }
    plan: Plan = {"t": dict.fromkeys(NAMES, inner), "links": dict.fromkeys(NAMES, str(outside))}
    plant(folder, plan)


def clear(root: Directory) -> None:
    """Removes all of it, however often the swaps get in the way."""
    while left := root.names():
        for name in left:
            with suppress(VfsError):
                remove(root, (name,))


def swapping(tmp_path: Path, folder: Path) -> Swapper:
    pairs = [(folder / "t" / name, folder / "links" / name) for name in NAMES]
    # Both names in one directory: where that is the outside's, there is no such link to swap.
    inner = [folder / "t" / name for name in NAMES]
    pairs += [(path / "sub", path / "link-sub") for path in inner]
    return Swapper(tmp_path / "board", *pairs)


@pytest.fixture
def arena(tmp_path: Path, folder: Path, outside: Path) -> Iterator[Swapper]:
    fill(folder, outside)
    with swapping(tmp_path, folder) as swapper:
        yield swapper


def rounds(times: int, outcomes: Counter[str], *wanted: str) -> Iterator[int]:
    """As many numbers, and more until each of the wanted outcomes was seen."""
    end = time.monotonic() + PATIENCE
    number = 0
    while number < times or not all(outcomes[name] for name in wanted):
        assert number < times or time.monotonic() < end, f"the race is not on: {outcomes}"
        yield number
        number += 1


@pytest.mark.slow
def test_a_walk_shows_nothing_of_the_outside(way: str, arena: Swapper, root: Directory) -> None:
    seen: Counter[str] = Counter()
    for _ in rounds(LOOKS, seen, "link", "directory", "file"):
        for here, entry in visit(root, "t"):
            assert entry.name != b"only-outside"
            seen[entry.kind] += 1
            if entry.is_file:
                with suppress(NotFound):
                    assert here.stat(entry.name).size == len(b"inside!")
    assert arena.swaps > 1000


@pytest.mark.slow
def test_a_search_a_listing_a_size_and_a_digest_tell_nothing_of_the_outside(
    way: str, arena: Swapper, root: Directory
) -> None:
    seen: Counter[str] = Counter()
    for _ in rounds(LOOKS, seen, "link", "hit", "size"):
        assert search(root, "t", "only-outside").entries == []
        seen["hit"] += len(search(root, "t", "secret").entries)
        total = usage(root, "t")
        assert total.size == total.files * len(b"inside!")
        seen["size"] += total.files
        seen["link"] += total.links
        with suppress(LinkRefused, NotADirectory):
            names = {entry.name for entry in list_directory(root, "t/d0").entries}
            assert names == {b"sub", b"link-sub", b"secret"}
        with suppress(LinkRefused, NotADirectory, NotFound, InvalidPath):
            digest(root, "t")


@pytest.mark.slow
def test_a_copy_takes_nothing_from_the_outside(
    way: str, arena: Swapper, root: Directory, folder: Path
) -> None:
    outcomes: Counter[str] = Counter()
    for number in rounds(CHANGES, outcomes, "link", "file"):
        try:
            copy(root, "t", root, f"c{number}", links="keep")
        except VfsError as error:
            outcomes[error.kind] += 1
            assert not os.path.lexists(folder / f"c{number}")
            continue
        for here, entry in visit(root, f"c{number}"):
            outcomes[entry.kind] += 1
            assert entry.name != b"only-outside"
            if entry.is_file:
                fd = here.open_file(entry.name)
                assert os.read(fd, 20) == b"inside!"
                os.close(fd)
        remove(root, f"c{number}")
    assert sorted(root.names()) == [b"links", b"t"]


@pytest.mark.slow
def test_a_removal_takes_nothing_of_the_outside(
    way: str, arena: Swapper, root: Directory, folder: Path, outside: Path
) -> None:
    outcomes: Counter[str] = Counter()
    for _ in rounds(CHANGES, outcomes, "gone"):
        try:
            remove(root, "t")
        except VfsError as error:
            outcomes[error.kind] += 1
        else:
            outcomes["gone"] += 1
            assert not os.path.lexists(folder / "t")
        clear(root)
        fill(folder, outside)
    assert arena.swaps > 1000


def naive_remove(top: Path) -> None:
    """As removals are often written: a look whether it is a link, then the names by path."""
    for name in os.listdir(top):
        path = top / name
        if path.is_dir() and not path.is_symlink():
            naive_remove(path)
        else:
            path.unlink()
    top.rmdir()


@pytest.mark.slow
def test_the_same_race_makes_what_looks_first_and_lists_later_delete_the_outside(
    tmp_path: Path, folder: Path, root: Directory
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    plant(victim, {"only-outside": b"", "secret": b"", "sub": {"secret": b""}})
    before = snapshot(victim)
    fill(folder, victim)
    end = time.monotonic() + PATIENCE
    with swapping(tmp_path, folder):
        while snapshot(victim) == before:
            assert time.monotonic() < end, "the race is not on"
            with suppress(OSError):
                naive_remove(folder / "t")
            clear(root)
            fill(folder, victim)
    assert len(snapshot(victim)) < len(before)


@pytest.mark.slow
def test_the_same_race_makes_what_looks_first_and_lists_later_show_the_outside(
    tmp_path: Path, arena: Swapper, folder: Path
) -> None:
    seen: Counter[str] = Counter()
    end = time.monotonic() + PATIENCE
    while not seen["only-outside"]:
        assert time.monotonic() < end, "the race is not on"
        for name in NAMES:
            path = folder / "t" / name
            if path.is_dir() and not path.is_symlink():
                with suppress(OSError):
                    seen.update(os.listdir(path))
