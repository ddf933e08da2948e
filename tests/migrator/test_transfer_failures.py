"""A transfer that cannot be: what is in the way is named, and nothing counts as done."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator import manifest, removing, taking, transfer
from migrator.errors import Mismatch, Precondition, Retryable
from migrator.manifest import Method
from tests.migrator.transferring import (
    OLD,
    SECOND,
    Bench,
    age,
    bare,
    formatted,
    mounted,
    part,
    plant,
    told,
)
from tests.migrator.trees import snapshot
from vfs.beneath import Directory


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        yield bench


@pytest.fixture(params=["link", "copy"])
def method(request: pytest.FixtureRequest) -> Method:
    chosen: Method = request.param
    return chosen


Fail = Callable[[str, int, int], None]


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """`fail(call, errno, number)`: the call of `os` of this number fails, counted from 0."""

    def install(call: str, number: int, nth: int) -> None:
        real = getattr(os, call)
        calls = 0

        def failing(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls - 1 == nth:
                raise OSError(number, os.strerror(number))
            return real(*arguments, **options)

        monkeypatch.setattr(os, call, failing)

    return install


@pytest.mark.parametrize(
    ("method", "call", "number", "says"),
    [
        ("link", "link", errno.EIO, "cannot take over t1/f: Input/output error"),
        ("link", "link", errno.ENOSPC, "cannot take over t1/f: No space left on device"),
        ("link", "link", errno.ENOENT, "t1/f vanished meanwhile"),
        ("link", "mkdir", errno.ENOSPC, "cannot stage workdir-one: No space left on device"),
        ("link", "scandir", errno.EIO, "cannot take over t1: Input/output error"),
        ("copy", "pread", errno.EIO, "cannot take over t1/f: Input/output error"),
        ("copy", "pwrite", errno.ENOSPC, "cannot take over t1/f: No space left on device"),
        ("copy", "pwrite", errno.EDQUOT, "cannot take over t1/f: Disk quota exceeded"),
        ("copy", "setxattr", errno.EIO, "cannot take over t1/f: Input/output error"),
        ("copy", "utime", errno.EIO, "cannot take over t1/f: Input/output error"),
    ],
)
def test_a_failing_call_is_told_with_its_entry_and_the_unit_has_no_manifest(
    bench: Bench, fail: Fail, method: Method, call: str, number: int, says: str
) -> None:
    plant(bench.saves / "t1", {"f": b"one", "d": {}})
    os.setxattr(bench.saves / "t1" / "f", "user.x", b"1")
    before = snapshot(bench.saves)
    unit = bench.unit(part("t1"))
    # Four directories are made before those of the source; the unit has its times first.
    fail(call, number, {"mkdir": 4, "utime": 1}.get(call, 0))
    with pytest.raises(Retryable) as caught:
        bench.stage(unit, method)
    assert caught.value.message == says
    assert caught.value.fix
    with pytest.raises(Mismatch):
        list(manifest.read(bench.records(unit)))
    bench.stage(unit, method)
    assert bench.verify(unit) == []
    assert snapshot(bench.saves) == before


def test_a_file_that_is_written_while_it_is_copied_fails_the_unit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(bench.saves / "t1", {"f": b"one"})
    real = taking.copy_xattrs

    def meanwhile(source: int, target: int) -> str | None:
        (bench.saves / "t1" / "f").write_bytes(b"two")
        return real(source, target)

    monkeypatch.setattr(taking, "copy_xattrs", meanwhile)
    with pytest.raises(Retryable, match="t1/f changed while it was read; stop what writes there"):
        bench.stage(bench.unit(part("t1")), "copy")


def test_a_file_that_vanishes_after_the_listing_fails_the_unit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    plant(bench.saves / "t1", {"f": b"one"})
    real = transfer.listing

    def meanwhile(fd: int) -> Any:
        found = real(fd)
        (bench.saves / "t1" / "f").unlink()
        return found

    monkeypatch.setattr(transfer, "listing", meanwhile)
    with pytest.raises(Retryable, match="t1/f vanished meanwhile"):
        bench.stage(bench.unit(part("t1")), method)


def test_a_part_that_is_gone_fails_the_unit(bench: Bench, method: Method) -> None:
    with pytest.raises(Retryable, match="t1/uploads vanished meanwhile"):
        bench.stage(bench.unit(part("t1/uploads", "uploads")), method)


@pytest.mark.parametrize("swapped", ["fifo", "directory"])
def test_a_file_that_became_something_else_after_the_listing_is_not_opened(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, method: Method, swapped: str
) -> None:
    plant(bench.saves / "t1", {"f": b"one"})
    real = transfer.listing

    def meanwhile(fd: int) -> Any:
        found = real(fd)
        (bench.saves / "t1" / "f").unlink()
        make: Callable[[Path], None] = os.mkfifo if swapped == "fifo" else os.mkdir
        make(bench.saves / "t1" / "f")
        return found

    monkeypatch.setattr(transfer, "listing", meanwhile)
    unit = bench.unit(part("t1"))
    if swapped == "directory":
        with pytest.raises(Retryable, match="cannot take over t1/f: Is a directory"):
            bench.stage(unit, method)
        return
    staged = bench.stage(unit, method)
    assert [left.code for left in staged.left] == ["special_file"]
    assert os.listdir(bench.staged(unit)) == []


def test_a_file_with_as_many_names_as_can_be_is_copied_and_its_other_names_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(bench.saves / "t1", {"f": b"one", "g": b"two"})
    os.link(bench.saves / "t1" / "f", bench.saves / "t1" / "h")
    full = os.stat(bench.saves / "t1" / "f").st_ino
    real = os.link

    def link(source: Any, target: Any, **options: Any) -> None:
        if os.stat(source, dir_fd=options["src_dir_fd"]).st_ino == full:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK))
        real(source, target, **options)

    monkeypatch.setattr(os, "link", link)
    unit = bench.unit(part("t1"))
    bench.stage(unit, "link", (1000, 1000))
    top = bench.staged(unit)
    assert os.stat(top / "f").st_ino == os.stat(top / "h").st_ino != full
    assert os.stat(top / "g").st_ino == os.stat(bench.saves / "t1" / "g").st_ino
    assert (top / "h").read_bytes() == b"one"
    assert bench.verify(unit) == []


def test_an_immutable_file_is_copied_where_the_others_are_linked(bench: Bench) -> None:
    plant(bench.saves / "t1", {"f": b"one", "g": b"two"})
    subprocess.run(["chattr", "+i", bench.saves / "t1" / "f"], check=True)
    try:
        unit = bench.unit(part("t1"))
        bench.stage(unit, "link")
    finally:
        subprocess.run(["chattr", "-i", bench.saves / "t1" / "f"], check=True)
    assert (bench.staged(unit) / "f").read_bytes() == b"one"
    assert os.stat(bench.staged(unit) / "g").st_nlink == 2
    assert bench.verify(unit) == []


def test_a_full_disk_ends_a_copy_which_succeeds_once_there_is_room(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with mounted(tmp_path / "data", "-t", "tmpfs", "-o", "size=2m", "none"), Bench(tmp_path) as b:
        plant(b.saves / "t1", {"a": os.urandom(1_500_000), "b": os.urandom(1_500_000)})
        unit = b.unit(part("t1"))
        with pytest.raises(Retryable, match=r"cannot take over t1/[ab]: No space left on device"):
            b.stage(unit, "copy")
        subprocess.run(["mount", "-o", "remount,size=8m", b.data], check=True)
        b.stage(unit, "copy")
        assert b.verify(unit) == []


def test_a_poorer_file_system_gets_what_it_can_have_and_the_rest_is_told(tmp_path: Path) -> None:
    # Times in whole seconds until 2038, files up to 4 TiB, attributes of one block in all.
    poor = formatted(tmp_path, "mkfs.ext4", 64 << 20, "-I", "128", "-b", "1024")
    with poor as top, Bench(tmp_path) as b:
        b.root.close()
        b.root, b.data = Directory.open(top), top
        plant(b.saves / "t1", {"f": b"one", "d": {"g": b"two"}, "l": "f", "late": b"3"})
        with open(b.saves / "t1" / "huge", "wb") as file:
            file.truncate(6 << 40)
        os.setxattr(b.saves / "t1" / "f", "user.small", b"1")
        for name in ("f", "d"):
            os.setxattr(b.saves / "t1" / name, "user.large", bytes(2000))
        for name in ("f", "d/g", "d", "l"):
            age(b.saves / "t1" / name, OLD + 123_456_789)
        age(b.saves / "t1" / "late", 5_000_000_000 * SECOND)
        unit = b.unit(part("t1"))
        staged = b.stage(unit, "copy")
        assert told(staged.left) == [
            ("attributes_not_kept", "t1/d", "d"),
            ("attributes_not_kept", "t1/f", "f"),
            ("too_large", "t1/huge", "huge"),
        ]
        assert b.verify(unit) == []
        found = snapshot(b.staged(unit))
        times = {path: node.mtime_ns for path, node in found.items() if path}
        assert times == {
            **dict.fromkeys((b"f", b"d", b"d/g", b"l"), OLD),
            b"late": (2**31 - 1) * SECOND,
        }
        assert found[b"f"].xattrs == (("user.small", b"1"),)
        b.publish(unit)
        assert removing.remove_target(unit, b.root, b.source, b.records(unit)).stayed == 0
        removed = removing.remove_source(unit, b.source, b.records(unit))
        assert sorted(removed.kept) == [(b"t1", b"f"), (b"t1", b"huge")]


def test_methods_are_chosen_by_trying_and_leave_nothing(bench: Bench) -> None:
    assert transfer.choose(bench.source, bench.root, "auto") == "link"
    assert transfer.choose(bench.source, bench.root, "link") == "link"
    assert transfer.choose(bench.source, bench.root, "copy") == "copy"
    with pytest.raises(Precondition, match=r"--transfer reflink cannot be: .* shares blocks"):
        transfer.choose(bench.source, bench.root, "reflink")
    assert bench.root.names() == []


def test_a_file_system_without_hard_links_gets_copies(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    assert transfer.choose(bench.source, bench.root, "auto") == "copy"
    with pytest.raises(Precondition, match=r"--transfer link cannot be: .*; use --transfer auto"):
        transfer.choose(bench.source, bench.root, "link")


@pytest.mark.slow
@pytest.mark.parametrize("program", ["mkfs.xfs", "mkfs.btrfs"])
def test_between_mounts_of_a_file_system_that_can_blocks_are_shared(
    tmp_path: Path, program: str
) -> None:
    with formatted(tmp_path, program, 320 << 20) as top, Bench(top) as b:
        plant(b.saves / "t1", {"f": os.urandom(8 << 20), "tail": b"odd" * 1001})
        with open(b.saves / "t1" / "holes", "wb") as file:
            file.truncate(50 << 20)
            file.seek(20 << 20)
            file.write(b"data")
        age(b.saves / "t1" / "holes", OLD + SECOND)
        with mounted(tmp_path / "seen", "--bind", b.saves) as seen, Directory.open(seen) as source:
            method = transfer.choose(source, b.root, "auto")
            assert method == "reflink"
        unit = b.unit(part("t1"))
        subprocess.run(["sync", "-f", top], check=True)
        before = os.statvfs(top).f_bfree * os.statvfs(top).f_frsize
        b.stage(unit, method)
        subprocess.run(["sync", "-f", top], check=True)
        assert before - os.statvfs(top).f_bfree * os.statvfs(top).f_frsize < 4 << 20
        assert b.verify(unit) == []
        assert b.tree(unit)[b"f"].digest == snapshot(b.saves / "t1")[b"f"].digest


@pytest.mark.parametrize("method", ["link", "copy"])
def test_whatever_a_killed_process_left_the_next_one_makes_the_unit_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    class Killed(BaseException):
        pass

    for stop in range(100):
        folder = tmp_path / str(stop)
        folder.mkdir()
        left = stop

        def step(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return real(*arguments, **options)

            return call

        with Bench(folder) as b:
            plant(b.saves / "t1", {"f": b"one", "l": "f", "d": {"g": b"two"}})
            os.link(b.saves / "t1" / "f", b.saves / "t1" / "d" / "twin")
            unit = b.unit(part("t1"))
            killed = False
            with monkeypatch.context() as patch:
                for name in ("link", "mkdir", "rename", "pwrite", "symlink", "unlink", "utime"):
                    patch.setattr(os, name, step(getattr(os, name)))
                try:
                    b.stage(unit, method)
                except Killed:
                    killed = True
            b.stage(unit, method)
            assert b.verify(unit) == []
            assert b.tree(unit) == bare(snapshot(b.saves / "t1"))
        if not killed:
            return
    pytest.fail("the unit has more steps than were tried")
