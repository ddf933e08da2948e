"""Removal by manifest: what is unchanged goes, everything else stays and is told."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator import removing
from migrator.errors import Mismatch, Retryable
from migrator.manifest import Method
from migrator.removing import Removed
from migrator.units import Unit
from tests.migrator.transferring import OLD, Bench, age, part, plant
from tests.migrator.trees import snapshot


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path) as bench:
        plant(
            bench.saves / "t1",
            {
                "uploads": {"f": b"one", "l": "f", "d": {"g": b"22", "e": {}}},
                "outputs": {"h": b"3"},
            },
        )
        yield bench


@pytest.fixture(params=["link", "copy"])
def method(request: pytest.FixtureRequest) -> Method:
    chosen: Method = request.param
    return chosen


def published(bench: Bench, method: Method) -> tuple[Unit, Path]:
    unit = bench.unit(part("t1/uploads", "uploads"), part("t1/outputs", "outputs"))
    bench.stage(unit, method)
    return unit, bench.publish(unit)


def target(bench: Bench, unit: Unit) -> Removed:
    return removing.remove_target(
        unit, bench.root, bench.source, bench.records(unit), count=bench.count
    )


def source(bench: Bench, unit: Unit, **options: Any) -> Removed:
    return removing.remove_source(
        unit, bench.source, bench.records(unit), count=bench.count, **options
    )


def replace(path: Path, data: bytes) -> None:
    """Saves it anew, as editors do, without a trace in its time."""
    draft = path.with_name("draft")
    draft.write_bytes(data)
    age(draft, OLD)
    draft.rename(path)


def kept(removed: Removed) -> list[str]:
    assert removed.stayed == len(removed.kept)
    return sorted(os.fsdecode(b"/".join(path)) for path in removed.kept)


def test_a_unit_goes_whole_and_its_source_stays(bench: Bench, method: Method) -> None:
    before = snapshot(bench.saves)
    unit, top = published(bench, method)
    bench.counted[:] = [0, 0]
    removed = target(bench, unit)
    assert removed == Removed(4, 5, 7, 0, [])
    assert removed.removed == 9
    assert bench.counted == [4, 7]
    assert not top.exists()
    assert snapshot(bench.saves) == before
    assert target(bench, unit) == Removed()


def test_what_was_changed_in_a_unit_or_came_to_it_stays(bench: Bench, method: Method) -> None:
    unit, top = published(bench, method)
    (top / "uploads" / "d" / "new").write_bytes(b"new")
    (top / "outputs" / "folder").mkdir()
    replace(top / "uploads" / "f", b"one")
    removed = target(bench, unit)
    assert kept(removed) == ["outputs/folder", "uploads/d/new", "uploads/f"]
    assert removed.removed == 3 + 1
    assert sorted(str(p.relative_to(top)) for p in top.rglob("*")) == [
        "outputs",
        "outputs/folder",
        "uploads",
        "uploads/d",
        "uploads/d/new",
        "uploads/f",
    ]
    again = target(bench, unit)
    assert (kept(again), again.removed) == (kept(removed), 0)


def test_a_file_that_was_written_in_place_stays_in_the_unit(bench: Bench, method: Method) -> None:
    unit, top = published(bench, method)
    (top / "uploads" / "f").write_bytes(b"written")
    assert kept(target(bench, unit)) == ["uploads/f"]
    assert (top / "uploads" / "f").read_bytes() == b"written"


@pytest.mark.parametrize("remove", [target, source])
def test_a_file_that_was_written_and_has_its_size_stays(
    bench: Bench, method: Method, remove: Any
) -> None:
    unit, top = published(bench, method)
    changed = top if remove is target else bench.saves / "t1"
    (changed / "uploads" / "f").write_bytes(b"ONE")
    assert [path[-2:] for path in remove(bench, unit).kept] == [(b"uploads", b"f")]
    assert (changed / "uploads" / "f").read_bytes() == b"ONE"


def test_the_last_name_of_a_file_is_never_removed_from_a_unit(bench: Bench) -> None:
    unit, top = published(bench, "link")
    (bench.saves / "t1" / "uploads" / "f").unlink()
    assert kept(target(bench, unit)) == ["uploads/f"]
    assert (top / "uploads" / "f").read_bytes() == b"one"


@pytest.mark.parametrize("change", ["removed", "overwritten", "replaced", "directory removed"])
def test_a_copy_stays_whose_original_the_saves_have_no_more(bench: Bench, change: str) -> None:
    unit, top = published(bench, "copy")
    old = bench.saves / "t1/uploads/f"
    new = top / "uploads/f"
    data = new.read_bytes()
    if change == "removed":
        old.unlink()
    elif change == "overwritten":
        old.write_bytes(b"rubbish")
    elif change == "replaced":
        replace(old, data)
    else:
        shutil.rmtree(bench.saves / "t1")
    removed = target(bench, unit)
    assert "uploads/f" in kept(removed)
    assert new.read_bytes() == data


@pytest.mark.parametrize("change", ["nothing", "removed", "replaced", "directory removed"])
def test_a_linked_file_gets_its_owner_and_mode_back_by_its_old_name(
    bench: Bench, change: str
) -> None:
    old = bench.saves / "t1/uploads/f"
    old.chmod(0o664)
    os.chown(old, 7, 8)
    unit, top = published(bench, "link")
    new = top / "uploads/f"
    os.chown(new, 1000, 1000)
    new.chmod(0o600)
    if change == "removed":
        new.unlink()
    elif change == "replaced":
        replace(new, b"anew")
    elif change == "directory removed":
        shutil.rmtree(top)
    target(bench, unit)
    status = old.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (7, 8, 0o664)


def test_a_directory_that_became_a_link_is_not_entered(bench: Bench, method: Method) -> None:
    unit, top = published(bench, method)
    (top / "uploads" / "d").rename(top / "moved")
    (top / "uploads" / "d").symlink_to("../moved")
    assert kept(target(bench, unit)) == ["moved", "uploads/d"]
    assert (top / "moved" / "g").read_bytes() == b"22"


def test_a_source_goes_whole_with_the_directories_above_that_are_empty_then(
    bench: Bench, method: Method
) -> None:
    unit, top = published(bench, method)
    before = snapshot(top)
    bench.counted[:] = [0, 0]
    removed = source(bench, unit, above=[(b"t1",), (b"missing",)])
    assert removed == Removed(4, 5, 7, 0, [])
    assert bench.counted == [4, 7]
    assert os.listdir(bench.saves) == []
    assert {p: n.digest for p, n in snapshot(top).items()} == {
        p: n.digest for p, n in before.items()
    }
    assert source(bench, unit, above=[(b"t1",)]) == Removed()


def test_what_is_not_what_was_taken_stays_in_the_source(bench: Bench, method: Method) -> None:
    unit, _ = published(bench, method)
    uploads = bench.saves / "t1" / "uploads"
    (uploads / "d" / "later").write_bytes(b"new")
    replace(uploads / "f", b"one")
    removed = source(bench, unit, above=[(b"t1",)])
    assert kept(removed) == ["t1/uploads/d/later", "t1/uploads/f"]
    assert os.listdir(bench.saves / "t1") == ["uploads"]
    assert kept(source(bench, unit, above=[(b"t1",)])) == kept(removed)


def test_losers_and_special_files_stay_and_what_was_not_needed_goes(
    bench: Bench, method: Method
) -> None:
    plant(bench.saves / "t2", {"same": b"same", "a": b"old", "n": b"file", "deep": {"x": b"1"}})
    plant(bench.saves / "t3", {"same": b"same", "a": b"new", "n": {}, "deep": {"y": b"2"}})
    os.mkfifo(bench.saves / "t3" / "fifo")
    unit = bench.unit(part("t2"), part("t3"))
    bench.stage(unit, method)
    bench.publish(unit)
    assert kept(source(bench, unit)) == ["t2/a", "t2/n", "t3/fifo"]
    assert sorted(str(p.relative_to(bench.saves)) for p in bench.saves.glob("t[23]/**/*")) == [
        "t2/a",
        "t2/n",
        "t3/fifo",
    ]


def test_a_file_whose_other_name_is_gone_stays_unless_asked_otherwise(bench: Bench) -> None:
    unit, top = published(bench, "link")
    (top / "uploads" / "f").unlink()
    assert kept(source(bench, unit)) == ["t1/uploads/f"]
    removed = source(bench, unit, last_names="remove", above=[(b"t1",)])
    assert (removed.stayed, os.listdir(bench.saves)) == (0, [])


@pytest.mark.parametrize("remove", [target, source])
def test_a_removal_that_was_interrupted_anywhere_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: Method, remove: Any
) -> None:
    class Killed(BaseException):
        pass

    steps = 9
    for stop in range(steps):
        (tmp_path / str(stop)).mkdir()
        with Bench(tmp_path / str(stop)) as bench, monkeypatch.context() as patch:
            plant(
                bench.saves / "t1",
                {
                    "uploads": {"f": b"one", "l": "f", "d": {"g": b"22", "e": {}}},
                    "outputs": {"h": b"3"},
                },
            )
            unit, top = published(bench, method)
            left = stop

            def counting(real: Any) -> Any:
                def call(*arguments: Any, **options: Any) -> None:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise Killed
                    real(*arguments, **options)

                return call

            with patch.context() as inner:
                inner.setattr(os, "unlink", counting(os.unlink))
                inner.setattr(os, "rmdir", counting(os.rmdir))
                with pytest.raises(Killed):
                    remove(bench, unit)
                    # The unit's top, which the sources have no like of.
                    raise Killed
            removed = remove(bench, unit)
            assert removed.stayed == 0
            gone = top if remove is target else bench.saves / "t1" / "uploads"
            assert not gone.exists()


def test_what_cannot_be_removed_is_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    unit, _ = published(bench, "link")

    def broken(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "unlink", broken)
    with pytest.raises(Retryable, match=r"cannot remove workdir-one/\w+: Read-only file system"):
        source(bench, unit)


def test_without_a_whole_manifest_the_end_is_an_error(bench: Bench) -> None:
    unit, _ = published(bench, "link")
    path = bench.state / unit.key
    path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:-1]))
    with pytest.raises(Mismatch):
        target(bench, unit)


def test_what_stays_beyond_what_is_told_is_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removing, "TOLD", 2)
    unit, top = published(bench, "link")
    plant(top / "uploads", {f"{n}": b"" for n in range(9)})
    removed = target(bench, unit)
    assert (removed.stayed, len(removed.kept)) == (9, 2)


def test_sweeping_what_is_not_there_is_nothing(bench: Bench) -> None:
    unit = bench.unit(part("t1"))
    removing.unstage(unit, bench.root)
    bench.stage(unit)
    removing.unstage(unit, bench.root)
    removing.sweep(bench.root, unit.staging[:-1])
    assert sorted(os.listdir(bench.data / "shared" / "u1")) == []
