"""Everything given to one owner, and given back: real trees, mounts and killed processes."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from migrator import chowning, restoring
from migrator.errors import MigratorError, Mismatch, Retryable
from migrator.lines import Appender, records
from migrator.oldowners import Recorder, read
from migrator.ownership import Left, Owned, Restored, Tree, restore, take
from tests.migrator.trees import differences, snapshot
from tests.vfs.hostile import Swapper
from vfs import bulk
from vfs.beneath import Directory
from vfs.errors import NotFound

FILES = [b"ownership-%d.jsonl" % number for number in range(4)]

JOBS = pytest.mark.parametrize("jobs", [1, 2])

EVERYTHING = [Tree("user-data", ())]


class Place:
    """A root to work on, and a state folder."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "root"
        self.state_path = folder / "state"
        self.top.mkdir(0o755)
        self.state_path.mkdir(0o700)
        self.root = Directory.open(self.top)
        self.state = Directory.open(self.state_path)

    def close(self) -> None:
        self.root.close()
        self.state.close()

    def journal(self, number: int) -> Appender:
        return Appender.open(self.state, FILES[number])

    def take(self, *trees: Tree, jobs: int = 1) -> Owned:
        return take({"user-data": self.root}, trees or EVERYTHING, journal=self.journal, jobs=jobs)

    def restore(self, files: list[bytes] = FILES) -> Restored:
        return restore({"user-data": self.root}, self.state, files)

    def recorded(self) -> int:
        """Entries on record."""
        there = [file for file in FILES if file in self.state.names()]
        return sum(len(old.names) for file in there for old in read(records(self.state, file)))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


HOSTILE = [b"-rf", b"a\nb", b"back\\slash", b"\xff\xfe", b"n" * 255, b"\xe2\x80\xae", b"..."]


def plant(top: Path) -> None:
    """Entries of every type, owner, mode and kind of name, three levels deep."""
    for directory in (top, top / "one", top / "one" / "two"):
        directory.mkdir(exist_ok=True)
        for number, mode in enumerate((0o666, 0o755, 0o4711, 0o2755, 0o6777, 0o1644, 0, 0o600)):
            path = directory / f"file-{number}"
            path.write_bytes(b"x")
            os.chown(path, number % 3, 1000 if number % 2 else 5)
            path.chmod(mode)
        for name in HOSTILE:
            path = directory / os.fsdecode(name)
            path.write_bytes(b"y")
            path.chmod(0o666)
        (directory / "dangling").symlink_to("/nowhere")
        os.chown(directory / "dangling", 7, 8, follow_symlinks=False)
        (directory / "sticky").mkdir()
        (directory / "sticky").chmod(0o3777)
        os.mkfifo(directory / "fifo", 0o644)
        os.mknod(directory / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chown(directory, 3, 4)
        directory.chmod(0o2775)


def facts(top: Path) -> dict[bytes, tuple[str, tuple[int, int], int]]:
    """Type, owner and mode of everything."""
    found = {}
    for path, node in snapshot(top).items():
        assert node.owner is not None and node.mode is not None
        found[path] = (node.kind, node.owner, node.mode)
    return found


def owned(before: dict[bytes, tuple[str, tuple[int, int], int]]) -> object:
    """What the contract makes of it."""
    after = {}
    for path, (kind, _, mode) in before.items():
        if kind == "directory":
            mode = 0o700
        elif kind == "file":
            mode = 0o700 if mode & 0o111 else 0o600
        after[path] = (kind, (1000, 1000), mode)
    return after


@JOBS
@pytest.mark.parametrize("way", ["fchmodat2", "held"])
def test_all_gets_the_owner_and_the_modes_of_the_contract_and_gets_the_old_ones_back(
    place: Place, jobs: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "held":
        monkeypatch.setattr(bulk, "has_fchmodat2", lambda: False)
    plant(place.top)
    before, exact = facts(place.top), snapshot(place.top)
    done = place.take(jobs=jobs)
    assert facts(place.top) == owned(before)
    special = [Left("special", "user-data", tuple(path.split(b"/"))) for path in before
               if before[path][0] in ("fifo", "device")]  # fmt: skip
    left, done.left = done.left, []
    assert sorted(left, key=lambda one: one.path) == sorted(special, key=lambda one: one.path)
    assert done == Owned(changed=len(before), seen=len(before), special=len(special))
    assert place.recorded() == len(before)
    assert place.restore() == Restored(back=len(before))
    assert differences(snapshot(place.top), exact) == []


@JOBS
def test_a_second_pass_changes_and_records_nothing(place: Place, jobs: int) -> None:
    plant(place.top)
    place.take(jobs=jobs)
    files = snapshot(place.state_path)
    times = {path: path.lstat().st_ctime_ns for path in place.top.rglob("*")}
    done = place.take(jobs=jobs)
    assert (done.changed, done.seen) == (0, len(times) + 1)
    assert {path: path.lstat().st_ctime_ns for path in times} == times
    assert differences(snapshot(place.state_path), files) == []


def test_one_entry_alone_a_file_as_a_tree_and_one_that_is_not_there(place: Place) -> None:
    plant(place.top)
    before = facts(place.top)
    done = place.take(
        Tree("user-data", (b"one",), recursive=False),
        Tree("user-data", (b"one", b"two", b"file-0")),
        Tree("user-data", (b"one", b"missing")),
        Tree("user-data", (b"missing", b"too")),
    )
    assert done == Owned(changed=2, seen=2)
    expected = dict(before)
    expected[b"one"] = ("directory", (1000, 1000), 0o700)
    expected[b"one/two/file-0"] = ("file", (1000, 1000), 0o600)
    assert facts(place.top) == expected


def test_a_root_alone_is_changed_without_what_is_in_it(place: Place) -> None:
    plant(place.top)
    before = facts(place.top)
    assert place.take(Tree("user-data", (), recursive=False)) == Owned(changed=1, seen=1)
    assert facts(place.top) == {**before, b"": ("directory", (1000, 1000), 0o700)}
    assert place.restore() == Restored(back=1)
    assert facts(place.top) == before


def test_several_roots_are_told_apart(place: Place, tmp_path: Path) -> None:
    skills = tmp_path / "skills"
    for top in (place.top, skills):
        (top / "x").mkdir(parents=True)
    before = facts(skills), facts(place.top)
    with Directory.open(skills) as other:
        roots = {"user-data": place.root, "skill-store": other}
        trees = [Tree("user-data", (b"x",)), Tree("skill-store", ())]
        take(roots, trees, journal=place.journal, jobs=1)
        assert facts(skills) == owned(before[0])
        assert restore({"user-data": place.root}, place.state, FILES) == Restored(back=1, gone=2)
        assert restore(roots, place.state, FILES) == Restored(back=2, same=1)
    assert (facts(skills), facts(place.top)) == before


def test_a_link_is_changed_itself_and_not_followed(place: Place, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "sub" / "file").write_bytes(b"x")
    before = facts(outside)
    (place.top / "to-file").symlink_to(outside / "sub" / "file")
    (place.top / "to-directory").symlink_to(outside)
    assert place.take().failed == 0
    assert facts(outside) == before
    for name in ("to-file", "to-directory"):
        status = (place.top / name).lstat()
        assert (status.st_uid, status.st_gid) == (1000, 1000)
    # Nor is one that a path leads through.
    done = place.take(Tree("user-data", (b"to-directory", b"sub")))
    assert (done.changed, done.failed) == (0, 1)
    assert facts(outside) == before


def test_a_file_with_another_name_outside_is_changed_like_any_other(
    place: Place, tmp_path: Path
) -> None:
    """A migration by hard links leaves the old name where it was: that is the usual case."""
    old = tmp_path / "old-name"
    old.write_bytes(b"x")
    os.chown(old, 5, 5)
    os.link(old, place.top / "new-name")
    assert place.take().changed == 2
    assert (old.stat().st_uid, stat.S_IMODE(old.stat().st_mode)) == (1000, 0o600)
    assert place.restore().back == 2
    assert (old.stat().st_uid, stat.S_IMODE(old.stat().st_mode)) == (5, 0o644)


@contextmanager
def mounted(point: Path, *arguments: str | Path) -> Iterator[None]:
    subprocess.run(["mount", *arguments, point], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


def test_mounts_are_left_alone_and_told(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "inside").mkdir(parents=True)
    before = facts(other)
    (place.top / "a" / "bind").mkdir(parents=True)
    (place.top / "a" / "file").write_bytes(b"")
    with (
        mounted(place.top / "a" / "bind", "--bind", other),
        mounted(place.top / "a" / "file", "--bind", Path("/etc/hostname")),
    ):
        hostname = os.stat("/etc/hostname")
        done = place.take()
        again = os.stat("/etc/hostname")
        assert (again.st_uid, again.st_mode) == (hostname.st_uid, hostname.st_mode)
    assert sorted(left.path for left in done.left) == [(b"a", b"bind"), (b"a", b"file")]
    assert {left.why for left in done.left} == {"mount"}
    assert (done.changed, done.mounts) == (2, 2)
    assert facts(other) == before
    assert place.take().changed == 2


@contextmanager
def immutable(*paths: Path) -> Iterator[None]:
    subprocess.run(["chattr", "+i", *paths], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", *paths], check=True)


@JOBS
def test_what_is_immutable_is_told_and_stops_nothing_else(place: Place, jobs: int) -> None:
    plant(place.top)
    before = facts(place.top)
    told = Left("failed", "user-data", (b"one", b"file-0"), os.strerror(errno.EPERM))
    with immutable(place.top / "one" / "file-0"):
        done = place.take(jobs=jobs)
        assert (done.failed, done.changed) == (1, len(before) - 1)
        assert told in done.left
        expected = dict(owned(before))  # type: ignore[call-overload]
        assert facts(place.top) == {**expected, b"one/file-0": before[b"one/file-0"]}
        # It keeps what it had: there is nothing to give back to it.
        assert place.restore() == Restored(back=len(before) - 1, same=1)
    for file in FILES[:jobs]:
        place.state.unlink(file)
    place.take(jobs=jobs)
    with immutable(place.top / "one" / "file-1"):
        restored = place.restore()
        assert (restored.back, restored.failed) == (len(before) - 1, 1)
        assert restored.left == [Left("failed", "user-data", (b"one", b"file-1"), told.message)]
    assert place.restore().back == 1
    assert facts(place.top) == before


def test_a_result_names_some_of_many_entries_and_counts_all(place: Place) -> None:
    for number in range(130):
        os.mkfifo(place.top / f"fifo-{number}")
    done = place.take(jobs=2)
    assert (done.special, len(done.left)) == (130, 100)
    whole = Owned()
    whole.add(done)
    whole.add(done)
    whole.leave(Left("failed", "user-data", (b"x",), "why"))
    assert (whole.special, len(whole.left), whole.failed) == (260, 101, 1)


def test_old_values_are_durable_before_anything_is_changed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every sync: what is changed by then was synced before; at the end all of it was."""
    monkeypatch.setattr(chowning, "BATCH", 10)
    plant(place.top)
    before = facts(place.top)
    durable: set[bytes] = set()
    syncs = 0

    def fsync(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        now = facts(place.top)
        assert {path for path in now if now[path] != before[path]} <= durable
        os.fsync(fd)
        for old in read(records(place.state, FILES[0])):
            durable.update(b"/".join((*old.path, n)) if n != b"." else b"" for n in old.names)

    def journal(number: int) -> Appender:
        return Appender.open(place.state, FILES[number], fsync=fsync)

    take({"user-data": place.root}, EVERYTHING, journal=journal, jobs=1)
    assert syncs > 4
    assert facts(place.top) == owned(before)
    assert durable == before.keys()


def test_nothing_is_changed_when_old_values_cannot_be_recorded(place: Place) -> None:
    plant(place.top)
    before = facts(place.top)

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def journal(number: int) -> Appender:
        return Appender.open(place.state, FILES[number], fsync=full)

    for jobs in (1, 2):
        with pytest.raises(Retryable) as caught:
            take({"user-data": place.root}, EVERYTHING, journal=journal, jobs=jobs)
        assert "No space left on device" in caught.value.message
        assert facts(place.top) == before
    place.take()
    place.restore()
    assert facts(place.top) == before


def test_an_error_of_the_state_folder_is_raised_as_it_is(place: Place) -> None:
    (place.state_path / os.fsdecode(FILES[0])).write_bytes(b"not of this program\nx")
    for jobs in (1, 2):
        with pytest.raises(Mismatch):
            place.take(jobs=jobs)


def test_entries_are_counted_in_the_workers_and_ticks_come(place: Place) -> None:
    plant(place.top)
    counted: Counter[str] = Counter()

    def count(entries: int) -> None:
        counted["done"] += entries

    for changed in (True, False):
        counted.clear()
        done = take(
            {"user-data": place.root}, EVERYTHING, journal=place.journal, jobs=1, count=count
        )
        assert counted["done"] == done.seen
        assert bool(done.changed) is changed
    counted.clear()
    place_back = restore({"user-data": place.root}, place.state, FILES, count=count)
    assert counted["done"] == place_back.back


# Sharing


def test_one_tree_of_many_directories_keeps_two_workers_busy(place: Place) -> None:
    for number in range(40):
        (place.top / "only" / f"d{number}").mkdir(parents=True)
    assert place.take(Tree("user-data", (b"only",)), jobs=2).changed == 41
    shares = [sum(len(old.names) for old in read(records(place.state, f))) for f in FILES[:2]]
    # One lists the directories and changes them; that is all there is to change.
    assert sum(shares) == 41
    for number in range(40):
        (place.top / "only" / f"d{number}" / "file").touch()
    assert place.take(jobs=2).changed == 41
    shares = [sum(len(old.names) for old in read(records(place.state, f))) for f in FILES[:2]]
    assert min(shares) >= 5


def test_one_large_directory_keeps_two_workers_busy(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chowning, "SPLIT", 100)
    for number in range(500):
        (place.top / f"{number}").touch()
    assert place.take(jobs=2).changed == 501
    shares = [sum(len(old.names) for old in read(records(place.state, f))) for f in FILES[:2]]
    assert sum(shares) == 501
    assert min(shares) >= 100
    assert place.restore() == Restored(back=501)


# Restoring


def test_what_somebody_changed_since_stays_and_is_counted(place: Place) -> None:
    names = ["owner", "group", "mode", "both", "other-inode", "gone", "type", "kept"]
    for name in names:
        (place.top / name).write_bytes(b"x")
        (place.top / name).chmod(0o644)
    place.take()
    os.chown(place.top / "owner", 1001, 1000)
    os.chown(place.top / "group", 1000, 1001)
    (place.top / "mode").chmod(0o640)
    os.chown(place.top / "both", 0, 1000)
    (place.top / "other-inode").rename(place.top / "moved")
    (place.top / "other-inode").write_bytes(b"new")
    os.chown(place.top / "other-inode", 1000, 1000)
    (place.top / "other-inode").chmod(0o600)
    (place.top / "gone").unlink()
    (place.top / "type").rename(place.top / "file-by-now-elsewhere")
    (place.top / "type").mkdir(0o700)
    before = facts(place.top)
    assert place.restore() == Restored(back=2, changed=4, gone=3)
    expected = {
        **before,
        b"": ("directory", (0, 0), 0o755),
        b"kept": ("file", (0, 0), 0o644),
    }
    assert facts(place.top) == expected
    assert place.restore() == Restored(same=2, changed=4, gone=3)
    assert facts(place.top) == expected


def test_a_directory_that_is_a_link_by_now_is_not_followed(place: Place, tmp_path: Path) -> None:
    (place.top / "d" / "e").mkdir(parents=True)
    (place.top / "d" / "e" / "file").write_bytes(b"x")
    place.take()
    outside = tmp_path / "outside"
    (place.top / "d").rename(outside)
    (place.top / "d").symlink_to(outside)
    before = facts(outside)
    assert place.restore() == Restored(back=1, gone=3)
    assert facts(outside) == before


def test_a_file_of_records_that_was_never_made_tells_nothing(place: Place) -> None:
    assert place.restore() == Restored()


def test_a_damaged_file_of_records_is_refused(place: Place) -> None:
    plant(place.top)
    place.take()
    path = place.state_path / os.fsdecode(FILES[0])
    path.write_bytes(path.read_bytes().replace(b"1000", b"1001", 1))
    with pytest.raises(MigratorError):
        place.restore()


# Killed at any moment


def die_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this process kill itself in the midst of the `number`th step of its work, from 0.

    A step is one call that looks, records, syncs or changes, of which half of the names are changed
    when it dies, or all of them: the two are steps of their own.
    """
    left = number

    def step() -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def halved(change: Callable[..., dict[bytes, OSError]]) -> Callable[..., dict[bytes, OSError]]:
        def halves(dirfd: int, names: list[bytes], *columns: list[int]) -> dict[bytes, OSError]:
            step()
            half = len(names) // 2
            failed = change(dirfd, names[:half], *[column[:half] for column in columns])
            step()
            failed |= change(dirfd, names[half:], *[column[half:] for column in columns])
            step()
            return failed

        return halves

    def before(call: Callable[..., object]) -> Callable[..., object]:
        def stepped(*arguments: object) -> object:
            step()
            return call(*arguments)

        return stepped

    for module in (chowning, restoring):
        monkeypatch.setattr(module, "change_owners", halved(bulk.change_owners))
        monkeypatch.setattr(module, "change_modes", halved(bulk.change_modes))
    monkeypatch.setattr(Recorder, "append", before(Recorder.append))
    monkeypatch.setattr(Appender, "sync", before(Appender.sync))
    monkeypatch.setattr(Appender, "write", before(Appender.write))
    monkeypatch.setattr(chowning, "BATCH", 8)


def killed(place: Place, number: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a pass in a process of its own was killed at its step `number`, or ended before."""
    pid = os.fork()
    if pid == 0:
        try:
            die_at(number, monkeypatch)
            place.take()
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def few(top: Path) -> None:
    """A tree in which each kind of change is met in several batches."""
    for directory in (top, top / "d"):
        directory.mkdir(exist_ok=True)
        for number, mode in enumerate((0o4755, 0o6711, 0o2644, 0o666, 0o600, 0o777)):
            (directory / f"{number}").write_bytes(b"x")
            os.chown(directory / f"{number}", 1000 if number == 5 else number, 1000)
            (directory / f"{number}").chmod(mode)
        os.link(directory / "0", directory / "twin")
        directory.chmod(0o2777)
    os.link(top / "1", top / "d" / "far-twin")
    os.chown(top / "d", 1000, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("then", ["restored", "taken", "killed again"])
def test_whenever_it_is_killed_what_was_before_comes_back_exactly(
    place: Place, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(place.top)
    before = facts(place.top)
    number = 0
    while killed(place, number, monkeypatch):
        if then == "killed again":
            # Later in what is left to do, by another worker's file.
            with monkeypatch.context() as patches:
                patches.setattr(place, "journal", lambda _: Appender.open(place.state, FILES[1]))
                killed(place, number // 2, monkeypatch)
        if then != "restored":
            place.take()
            assert facts(place.top) == owned(before)
        for files in (FILES[:2], FILES[1::-1]) if number % 2 else (FILES[1::-1], FILES[:2]):
            restored = place.restore(files)
            assert (restored.changed, restored.gone, restored.failed) == (0, 0, 0)
            assert facts(place.top) == before
        for file in FILES[:2]:
            with suppress(NotFound):
                place.state.unlink(file)
        number += 1
    assert number > 20
    place.restore()
    assert facts(place.top) == before


@pytest.mark.slow
def test_whenever_giving_back_is_killed_it_is_gone_on_with(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(place.top)
    before = facts(place.top)
    place.take()
    number = 0
    while True:
        pid = os.fork()
        if pid == 0:
            try:
                die_at(number, monkeypatch)
                place.restore()
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert code in (0, -signal.SIGKILL)
        restored = place.restore()
        assert (restored.changed, restored.gone, restored.failed) == (0, 0, 0)
        assert facts(place.top) == before
        if code == 0:
            break
        place.state.unlink(FILES[0])
        place.take()
        number += 1
    assert number > 10


def test_two_workers_that_meet_at_one_file_leave_it_restorable(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sees it when the first has set the owner, and not yet the mode."""
    path = place.top / "file"
    path.write_bytes(b"x")
    path.chmod(0o6755)
    os.link(path, place.top / "other")

    def meet(dirfd: int, names: list[bytes], modes: list[int]) -> dict[bytes, OSError]:
        if b"file" in names:
            monkeypatch.setattr(chowning, "change_modes", bulk.change_modes)
            take(
                {"user-data": place.root},
                [Tree("user-data", (b"other",))],
                journal=lambda _: place.journal(1),
                jobs=1,
            )
        return bulk.change_modes(dirfd, names, modes)

    for files in (FILES[:2], FILES[1::-1]):
        monkeypatch.setattr(chowning, "change_modes", meet)
        place.take(Tree("user-data", (b"file",)))
        assert facts(place.top)[b"file"] == ("file", (1000, 1000), 0o700)
        (one,) = read(records(place.state, FILES[1]))
        assert (one.uids, one.modes) == ([1000], [stat.S_IFREG | 0o755])
        for _ in range(2):
            restored = place.restore(files)
            assert (restored.changed, restored.gone, restored.failed) == (0, 0, 0)
            assert facts(place.top)[b"file"] == ("file", (0, 0), 0o6755)
        for file in files:
            place.state.unlink(file)


def test_a_killed_worker_is_a_retryable_error_and_the_next_pass_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(place.top)
    before = facts(place.top)
    with monkeypatch.context() as patches:
        parent = os.getpid()

        def change(dirfd: int, names: list[bytes], modes: list[int]) -> dict[bytes, OSError]:
            assert os.getpid() != parent
            os.kill(os.getpid(), signal.SIGKILL)
            return {}

        patches.setattr(chowning, "change_modes", change)
        with pytest.raises(Retryable) as caught:
            place.take(jobs=2)
    assert caught.value.message == "a worker process was killed by SIGKILL"
    assert place.take(jobs=2).failed == 0
    assert facts(place.top) == owned(before)
    restored = place.restore()
    assert (restored.changed, restored.gone, restored.failed) == (0, 0, 0)
    assert facts(place.top) == before


# Hostile and large trees


@pytest.mark.slow
def test_a_directory_swapped_for_a_link_gets_nothing_outside_changed(
    place: Place, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    for number in range(6):
        (outside / f"d{number}" / "sub").mkdir(parents=True)
        (outside / f"d{number}" / "sub" / "file").write_bytes(b"x")
        (place.top / f"d{number}" / "sub").mkdir(parents=True)
        (place.top / f"d{number}" / "sub" / "file").write_bytes(b"x")
        (place.top / f"link{number}").symlink_to(outside / f"d{number}")
        (place.top / f"d{number}" / "link").symlink_to(outside / f"d{number}" / "sub")
    before = outside_facts(outside)
    pairs = [(place.top / f"d{n}", place.top / f"link{n}") for n in range(6)]
    pairs += [(place.top / f"d{n}" / "sub", place.top / f"d{n}" / "link") for n in range(6)]
    seen = Counter[str]()
    with Swapper(tmp_path / "board", *pairs) as swapper:
        passes = 0
        while swapper.swaps < 10_000 or passes < 50 or len(seen) < 2:
            done = place.take()
            restored = place.restore()
            seen["went in"] += done.seen > 30
            seen["found another"] += restored.gone > 0
            seen += Counter()
            place.state.unlink(FILES[0])
            passes += 1
    assert outside_facts(outside) == before


def outside_facts(top: Path) -> object:
    """All that could be changed, the time of the change among it."""
    return {path: (path.lstat().st_mode, path.lstat().st_uid, path.lstat().st_ctime_ns)
            for path in [top, *top.rglob("*")]}  # fmt: skip


@pytest.fixture
def memory(place: Place) -> Iterator[Place]:
    """The same on a tmpfs, for trees that take a disk long."""
    with mounted(place.top, "-t", "tmpfs", "-o", "size=900m,nr_inodes=1m", "none"):
        place.root.close()
        place.root = Directory.open(place.top)
        yield place


def chain(top: Path, depth: int) -> list[tuple[int, int]]:
    """Owners and modes down a chain of directories, and of the file in each."""
    found = []
    fd = os.open(top, os.O_PATH)
    for _ in range(depth):
        for name in ("file", "d"):
            status = os.stat(name, dir_fd=fd)
            found.append((status.st_uid, stat.S_IMODE(status.st_mode)))
        below = os.open("d", os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    return found


@pytest.mark.slow
@JOBS
def test_a_tree_of_any_depth(memory: Place, jobs: int) -> None:
    depth = 5_000
    fd = os.open(memory.top, os.O_PATH)
    for _ in range(depth):
        os.mkdir("d", 0o755, dir_fd=fd)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))
        below = os.open("d", os.O_PATH, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_024, limit[1]))
    try:
        assert memory.take(jobs=jobs) == Owned(changed=2 * depth + 1, seen=2 * depth + 1)
        assert chain(memory.top, depth) == [(1000, 0o600), (1000, 0o700)] * depth
        assert memory.restore() == Restored(back=2 * depth + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert chain(memory.top, depth) == [(0, 0o644), (0, 0o755)] * depth


@pytest.mark.slow
def test_a_directory_of_any_width(memory: Place) -> None:
    count = 200_000
    fd = os.open(memory.top, os.O_PATH)
    for number in range(count):
        os.mknod(f"{number}", 0o666 | stat.S_IFREG, dir_fd=fd)
    os.close(fd)
    assert memory.take(jobs=2) == Owned(changed=count + 1, seen=count + 1)
    assert memory.take(jobs=2) == Owned(seen=count + 1)
    assert memory.restore() == Restored(back=count + 1)
