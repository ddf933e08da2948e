"""Staging: everything is there as it was, by whatever method, and the source stays as it is."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator import cursor, removing, transfer
from migrator.errors import Precondition, Retryable
from migrator.manifest import Method
from migrator.registry import Registry
from tests.migrator.transferring import (
    OLD,
    SECOND,
    Bench,
    Plan,
    age,
    bare,
    mounted,
    part,
    plant,
    told,
)
from tests.migrator.trees import differences, snapshot
from vfs import descent
from vfs.beneath import Directory
from vfs.removal import remove

HOSTILE = ("-rf", "back\\slash", "line\nbreak", "x" * 255, os.fsdecode(b"\xff\xfe"), " ", "…")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


@pytest.fixture(params=["link", "reflink", "copy"])
def method(request: pytest.FixtureRequest) -> Method:
    """Each; a file system that shares no blocks makes copies for reflink."""
    chosen: Method = request.param
    return chosen


def everything(top: Path) -> None:
    """Plants what there may be among files, a different time on each."""
    tree: Plan = {
        "plain": b"one",
        "empty": b"",
        "large": os.urandom(3_000_001),
        "tool": b"#!/bin/sh\n",
        "nothing": {"within": {}},
        "odd": dict.fromkeys(HOSTILE, b"odd"),
        "links": {"away": "../../..", "broken": "nowhere", "to-plain": "../plain"},
    }
    plant(top, tree)
    (top / "tool").chmod(0o4755)
    with open(top / "holes", "wb") as file:
        file.truncate(20_000_000)
        file.seek(8_000_000)
        file.write(b"data" * 70_000)
        file.seek(12_000_000)
        file.write(bytes(200_000))
    os.link(top / "plain", top / "nothing" / "twin")
    os.setxattr(top / "plain", "user.origin", b"\xff mail")
    os.setxattr(top / "odd", "user.label", b"odd ones")
    for number, path in enumerate(sorted(top.rglob("*"), reverse=True)):
        age(path, OLD + number * SECOND + 123_456_789)
    age(top, OLD)


def test_a_tree_is_staged_with_all_that_is_in_it(bench: Bench, method: Method) -> None:
    everything(bench.saves / "t1")
    before = snapshot(bench.saves)
    unit = bench.unit(part("t1"))
    staged = bench.stage(unit, method)
    assert differences(bench.tree(unit), bare(snapshot(bench.saves / "t1"))) == []
    assert differences(snapshot(bench.saves), before) == []
    files = [path for path, node in bench.tree(unit).items() if node.kind != "directory"]
    assert (staged.files, staged.directories, staged.left) == (len(files), 5, [])
    assert bench.counted[0] == staged.files
    assert bench.verify(unit) == []


def test_a_copy_has_its_owner_and_only_the_executable_bit(bench: Bench) -> None:
    everything(bench.saves / "t1")
    unit = bench.unit(part("t1", "uploads"))
    bench.stage(unit, "copy", (1000, 1001))
    for path, node in snapshot(bench.staged(unit)).items():
        assert node.owner == (1000, 1001), path
        if node.kind != "link":
            private = node.kind == "directory" or path == b"uploads/tool"
            assert node.mode == (0o700 if private else 0o600), path


def test_linked_files_keep_owner_and_mode_and_their_directories_are_new(bench: Bench) -> None:
    everything(bench.saves / "t1")
    os.chown(bench.saves / "t1" / "plain", 7, 8)
    unit = bench.unit(part("t1"))
    bench.stage(unit, "link", (1000, 1001))
    found, was = snapshot(bench.staged(unit)), snapshot(bench.saves / "t1")
    linked = []
    for path, node in found.items():
        if node.kind == "directory":
            assert (node.owner, node.mode) == ((1000, 1001), 0o700)
        else:
            name = os.fsdecode(path)
            old, new = (os.lstat(top / name) for top in (bench.saves / "t1", bench.staged(unit)))
            # What had several names is copied.
            if old.st_ino == new.st_ino:
                linked.append(node.kind)
            expected = was[path].owner if old.st_ino == new.st_ino else (1000, 1001)
            assert node.owner == expected, path
    assert linked.count("file") > 1 and "link" in linked


def test_nothing_of_the_source_is_changed_not_even_the_time_it_was_read(bench: Bench) -> None:
    plant(bench.saves / "t1", {"f": b"one", "d": {"g": b"two"}})
    for name in ("f", "d/g"):
        os.utime(bench.saves / "t1" / name, ns=(OLD, OLD + SECOND))
    bench.stage(bench.unit(part("t1")), "copy")
    for name in ("f", "d/g"):
        assert os.stat(bench.saves / "t1" / name).st_atime_ns == OLD


def test_names_of_one_copied_file_are_one_file_for_its_user(bench: Bench) -> None:
    plant(bench.saves / "t1", {"a": b"shared", "b": {}})
    for thread, name in (("t1", "b/c"), ("t2", "d"), ("t3", "e")):
        (bench.saves / thread).mkdir(exist_ok=True)
        os.link(bench.saves / "t1" / "a", bench.saves / thread / name)
    one, two = bench.unit(part("t1"), name="one"), bench.unit(part("t2"), name="two")
    other = bench.unit(part("t3"), name="three", user="u2")
    for unit in (one, two, other):
        bench.stage(unit, "copy")
        assert bench.verify(unit) == []
    inodes = {
        name: os.stat(bench.staged(unit) / name).st_ino
        for unit, name in ((one, "a"), (one, "b/c"), (two, "d"), (other, "e"))
    }
    assert inodes["a"] == inodes["b/c"] == inodes["d"] != inodes["e"]
    assert os.stat(bench.saves / "t1" / "a").st_ino not in inodes.values()


def test_a_remembered_copy_that_is_damaged_is_made_anew(bench: Bench) -> None:
    plant(bench.saves / "t1", {"a": b"shared"})
    os.link(bench.saves / "t1" / "a", bench.saves / "other")
    unit = bench.unit(part("t1"))
    bench.stage(unit, "copy")
    (bench.staged(unit) / "a").write_bytes(b"broken")
    age(bench.staged(unit) / "a", OLD)
    bench.stage(unit, "copy")
    assert (bench.staged(unit) / "a").read_bytes() == b"shared"
    assert bench.verify(unit) == []


def test_two_processes_that_copy_one_file_at_once_end_up_with_one_copy(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(bench.saves, {"t1": {"a": b"shared"}, "t2": {}})
    os.link(bench.saves / "t1" / "a", bench.saves / "t2" / "b")
    one, two = bench.unit(part("t1"), name="one"), bench.unit(part("t2"), name="two")
    bench.stage(one, "copy")
    real, missed = Registry.give, False

    def give(*arguments: Any) -> bool:
        nonlocal missed
        first, missed = not missed, True
        return not first and real(*arguments)

    monkeypatch.setattr(Registry, "give", give)
    bench.stage(two, "copy")
    assert os.stat(bench.staged(two) / "b").st_ino == os.stat(bench.staged(one) / "a").st_ino
    assert bench.verify(two) == []


def test_a_unit_without_parts_is_an_empty_directory(bench: Bench, method: Method) -> None:
    unit = bench.unit()
    assert bench.stage(unit, method).directories == 1
    assert os.listdir(bench.staged(unit)) == []
    assert bench.verify(unit) == []


def test_a_part_that_is_reached_by_a_link_is_left_and_the_rest_is_taken(
    bench: Bench, method: Method
) -> None:
    outside = bench.saves.parent / "outside"
    plant(outside, {"uploads": {"secret": b"not ours"}})
    plant(
        bench.saves,
        {
            "link": str(outside),
            "t1": {"uploads": str(outside / "uploads"), "outputs": {"f": b"one"}, "file": b"two"},
        },
    )
    unit = bench.unit(
        part("t1/uploads", "uploads"),
        part("link/uploads", "uploads"),
        part("t1/file", "file"),
        part("t1/outputs", "outputs"),
    )
    staged = bench.stage(unit, method)
    assert told(staged.left) == [
        ("source_is_a_link", "link/uploads", "uploads"),
        ("source_is_a_link", "t1/uploads", "uploads"),
        ("source_is_no_directory", "t1/file", "file"),
    ]
    assert sorted(bench.tree(unit)) == [b"", b"outputs", b"outputs/f"]
    assert bench.verify(unit) == []


def test_special_files_are_left_and_never_opened(bench: Bench, method: Method) -> None:
    plant(bench.saves / "t1", {"f": b"one", "d": {}})
    os.mkfifo(bench.saves / "t1" / "fifo")
    os.mknod(bench.saves / "t1" / "d" / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fsencode(bench.saves / "t1" / "socket"))
    unit = bench.unit(part("t1"))
    assert told(bench.stage(unit, method).left) == [
        ("special_file", f"t1/{name}", name) for name in ("d/null", "fifo", "socket")
    ]
    assert sorted(bench.tree(unit)) == [b"", b"d", b"f"]


def test_what_was_staged_before_is_swept(bench: Bench, method: Method) -> None:
    plant(bench.saves / "t1", {"f": b"one", "d": {"g": b"two"}})
    unit = bench.unit(part("t1"))
    plant(bench.staged(unit), {"f": b"stale", "d": {"deep": {"x": b"stale"}}, "link": "/"})
    bench.stage(unit, method)
    assert sorted(bench.tree(unit)) == [b"", b"d", b"d/g", b"f"]
    assert bench.verify(unit) == []


def test_a_unit_within_its_own_source_is_refused(bench: Bench) -> None:
    plant(bench.data / "shared", {"u1": {"f": b"one"}})
    unit = bench.unit(part("shared"))
    with Bench(bench.data.parent) as same:
        same.source.close()
        same.source = Directory.open(bench.data)
        with pytest.raises(Precondition, match="within what it is built from"):
            same.stage(unit)


def test_a_source_that_is_another_file_system_in_places_is_named(bench: Bench) -> None:
    plant(bench.saves, {"t1": {"inner": {}}})
    with (
        mounted(bench.saves / "t1" / "inner", "-t", "tmpfs", "none"),
        pytest.raises(Retryable, match=r"another filesystem is mounted at t1/inner; unmount"),
    ):
        bench.stage(bench.unit(part("t1")))


def test_a_read_only_source_is_copied_and_stays_as_it_is(bench: Bench) -> None:
    everything(bench.saves / "t1")
    before = snapshot(bench.saves / "t1")
    with (
        mounted(bench.saves.parent / "seen", "--bind", "-o", "ro", bench.saves) as seen,
        Directory.open(seen) as source,
    ):
        method = transfer.choose(source, bench.root, "auto")
        assert method == "copy"
        writable, bench.source = bench.source, source
        unit = bench.unit(part("t1"))
        bench.stage(unit, method)
        assert bench.verify(unit) == []
        bench.source = writable
    assert differences(snapshot(bench.saves / "t1"), before) == []
    assert differences(bench.tree(unit), bare(before)) == []


@pytest.mark.slow
@pytest.mark.parametrize("method", ["link", "copy"])
def test_a_tree_5000_deep_is_staged_proved_and_swept(bench: Bench, method: Method) -> None:
    fd = os.open(bench.saves, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    unit = bench.unit(part("d"))
    held = len(os.listdir("/proc/self/fd"))
    staged = bench.stage(unit, method)
    assert (staged.files, staged.directories) == (1, 5000)
    assert bench.verify(unit) == []
    removing.unstage(unit, bench.root)
    assert not bench.staged(unit).exists()
    remove(bench.source, b"d")  # which pytest could not
    assert len(os.listdir("/proc/self/fd")) == held


def test_many_parts_are_merged_with_few_descriptors(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3 * cursor.CURSORS
    parts = []
    for number in range(count):
        below = "/".join("abcdefgh")
        plant(bench.saves / f"t{number}" / below, {f"f{number}": b"%d" % number, "same": b"one"})
        parts.append(part(f"t{number}", "uploads"))
    most = 0
    entered = descent.Descent.enter

    def enter(self: descent.Descent, name: bytes) -> Directory:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))
        return entered(self, name)

    monkeypatch.setattr(descent.Descent, "enter", enter)
    unit = bench.unit(*parts)
    before = len(os.listdir("/proc/self/fd"))
    staged = bench.stage(unit)
    assert (staged.files, staged.same, staged.left) == (count + 1, count - 1, [])
    assert most - before <= (cursor.CURSORS + 2) * 11  # the depth, and one more
    assert bench.verify(unit) == []


@pytest.mark.slow
def test_a_directory_of_200_000_entries_is_staged_in_little_memory(bench: Bench) -> None:
    plant(bench.saves / "t1", {"d": {"0": b"one"}})
    fd = os.open(bench.saves / "t1" / "d", os.O_RDONLY)
    for number in range(1, 200_000):
        # Six files of 33 334 names each, of which ext4 lets them have twice as many, but for some.
        first = number % 6
        if number < 6:
            (bench.saves / "t1" / "d" / str(number)).write_bytes(b"%d" % number)
        else:
            os.link(str(first), str(number), src_dir_fd=fd, dst_dir_fd=fd)
    os.close(fd)
    unit = bench.unit(part("t1"))
    program = (
        "import resource, sys; from pathlib import Path; from tests.migrator.transferring import *;"
        "bench = Bench(Path(sys.argv[1])); unit = bench.unit(part('t1')); low = resource.getrusage;"
        "before = low(resource.RUSAGE_SELF).ru_maxrss; staged = bench.stage(unit);"
        "assert bench.verify(unit) == [];"
        "print(staged.files, low(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    top = Path(__file__).parents[2]
    command = [sys.executable, "-c", program, bench.saves.parent]
    answer = subprocess.run(command, cwd=top, stdout=subprocess.PIPE, check=True).stdout
    files, kilobytes = map(int, answer.split())
    assert files == 200_000
    # A listing has 70 bytes a name; the rest is for one record at a time.
    assert kilobytes < 40_000
    copied = {os.stat(bench.staged(unit) / "d" / str(number)).st_ino for number in range(200_000)}
    assert len(copied) == 6  # what has several names is copied, and its names stay together
