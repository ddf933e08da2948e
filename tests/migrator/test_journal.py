"""The journal's files: whole records or none, whatever happened to the file or its writer."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator import lines
from migrator.errors import Mismatch, Precondition
from migrator.journal import (
    JOURNAL,
    Appender,
    Journal,
    exact,
    path_exact,
    path_text,
    read,
    records,
    set_aside,
    text,
)
from migrator.lines import BATCH, line
from migrator.state import State
from tests.vfs.steps import ended, killed_at
from vfs.beneath import Directory
from vfs.errors import IsADirectory, LinkRefused, NotFound

NAME = b"records.jsonl"
SOME: list[dict[str, Any]] = [
    {"kind": "one", "n": 1},
    {"kind": "two", "name": "\udcff\n\\ \u2028 \U0001f600", "list": [None, True, -1, 1.5, {}]},
    {},
    {"kind": "three", "long": "x" * 100},
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Directory]:
    with Directory.open(tmp_path) as directory:
        yield directory


def written(folder: Directory, some: list[dict[str, Any]], name: bytes = NAME) -> None:
    """A file of just these records."""
    with Appender.create(folder, name) as appender:
        for record in some:
            appender.append(record)
        appender.sync()


def test_what_was_appended_is_read_back_in_order(folder: Directory) -> None:
    written(folder, SOME)
    assert list(records(folder, NAME)) == SOME


def test_a_line_is_a_checksum_and_a_json_object_in_ascii(folder: Directory, tmp_path: Path) -> None:
    written(folder, [{"a": [1, "\udcff\u00e9"]}])
    # The CRC is the one that gzip(1) writes after the same bytes.
    assert (tmp_path / "records.jsonl").read_bytes() == (
        b"e3dc81dd " + b'{"a":[1,"\\udcff\\u00e9"]}' + b"\n"
    )


def test_a_new_file_is_for_its_owner_alone(folder: Directory, tmp_path: Path) -> None:
    written(folder, SOME)
    assert stat.S_IMODE((tmp_path / "records.jsonl").stat().st_mode) == 0o600


def test_opening_again_goes_on_after_the_last_record(folder: Directory) -> None:
    written(folder, SOME[:2])
    with Appender.open(folder, NAME) as appender:
        appender.append(SOME[3])
        appender.sync()
    assert list(records(folder, NAME)) == [*SOME[:2], SOME[3]]


def test_creating_forgets_what_was_there(folder: Directory) -> None:
    written(folder, SOME)
    written(folder, SOME[:1])
    assert list(records(folder, NAME)) == SOME[:1]


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=5))
def test_any_name_is_read_back_exactly(names: list[bytes]) -> None:
    record = {"path": path_text(names), "name": text(b"".join(names))}
    again = json.loads(line(record)[9:])
    assert path_exact(again["path"]) == tuple(names)
    assert exact(again["name"]) == b"".join(names)


def test_a_file_cut_at_any_byte_holds_exactly_its_whole_records(
    folder: Directory, tmp_path: Path
) -> None:
    whole = [line(record) for record in SOME]
    content = b"".join(whole)
    ends = [sum(map(len, whole[:count])) for count in range(len(whole) + 1)]
    path = tmp_path / "records.jsonl"
    for size in range(len(content) + 1):
        count = sum(end <= size for end in ends) - 1
        path.write_bytes(content[:size])
        assert list(records(folder, NAME)) == SOME[:count], size
        assert path.stat().st_size == size  # reading changes nothing
        with Appender.open(folder, NAME) as appender:
            assert path.read_bytes() == content[: ends[count]], size
            appender.append({"after": size})
            appender.sync()
        assert list(records(folder, NAME)) == [*SOME[:count], {"after": size}], size


def test_blocks_that_were_never_written_are_a_torn_end(folder: Directory, tmp_path: Path) -> None:
    written(folder, SOME)
    whole = (tmp_path / "records.jsonl").read_bytes()
    for torn in (b"\0" * 5000, line(SOME[1])[:20] + b"\0" * 4096, b"0123abcd\0"):
        (tmp_path / "records.jsonl").write_bytes(whole + torn)
        assert list(records(folder, NAME)) == SOME
        Appender.open(folder, NAME).close()
        assert (tmp_path / "records.jsonl").read_bytes() == whole


def test_a_long_torn_end_is_cut_to_the_last_newline(folder: Directory, tmp_path: Path) -> None:
    written(folder, SOME)
    whole = (tmp_path / "records.jsonl").read_bytes()
    (tmp_path / "records.jsonl").write_bytes(whole + line({"long": "x" * 200_000})[:-1])
    Appender.open(folder, NAME).close()
    assert (tmp_path / "records.jsonl").read_bytes() == whole


def test_a_file_that_is_no_journal_is_not_cut(folder: Directory, tmp_path: Path) -> None:
    for content in (b"precious", b"# notes\nof mine", b"abcdefg", b"0123abcd{", b"\n precious"):
        (tmp_path / "records.jsonl").write_bytes(content)
        with pytest.raises(Mismatch):
            list(records(folder, NAME))
        with pytest.raises(Mismatch):
            Appender.open(folder, NAME)
        assert (tmp_path / "records.jsonl").read_bytes() == content


def test_any_flipped_bit_in_a_whole_record_is_found(folder: Directory, tmp_path: Path) -> None:
    content = b"".join(map(line, SOME))
    path = tmp_path / "records.jsonl"
    for at in range(len(content) - 1):
        for bit in (0x01, 0x20, 0x80):
            flipped = bytearray(content)
            flipped[at] ^= bit
            path.write_bytes(flipped)
            with pytest.raises(Mismatch):
                list(records(folder, NAME))


def test_damage_is_told_with_its_line(folder: Directory, tmp_path: Path) -> None:
    whole = [line(record) for record in SOME]
    (tmp_path / "records.jsonl").write_bytes(whole[0] + whole[1].replace(b"two", b"tow") + whole[2])
    reading = records(folder, NAME)
    assert next(reading) == SOME[0]
    with pytest.raises(Mismatch) as damaged:
        next(reading)
    assert damaged.value.to_json() == {
        "error": "mismatch",
        "message": "records.jsonl in the state folder is damaged: line 2 is not what was written",
        "fix": "give back the file as the migrator left it, from a backup of the state folder",
        "exit_status": 4,
    }


@pytest.mark.parametrize("body", [b"[]", b"7", b"{", b'{"a":"\xff"}', b""])
def test_a_line_with_the_right_checksum_but_no_record_is_damage(
    folder: Directory, tmp_path: Path, body: bytes
) -> None:
    (tmp_path / "records.jsonl").write_bytes(b"%08x %b\n" % (lines.crc32(body), body))
    with pytest.raises(Mismatch, match="line 1 holds no record"):
        list(records(folder, NAME))


def test_a_file_is_read_while_it_is_written(folder: Directory) -> None:
    with Appender.open(folder, NAME) as appender:
        for count, record in enumerate(SOME):
            assert list(records(folder, NAME)) == SOME[:count]
            appender.append(record)
            assert list(records(folder, NAME)) == SOME[:count]
            appender.write()
        assert list(records(folder, NAME)) == SOME


def test_what_was_not_written_is_dropped_by_closing(folder: Directory) -> None:
    with Appender.open(folder, NAME) as appender:
        appender.append(SOME[0])
        appender.write()
        appender.append(SOME[1])
        appender.close()
    assert list(records(folder, NAME)) == SOME[:1]


def test_a_missing_file_is_not_found(folder: Directory) -> None:
    with pytest.raises(NotFound):
        next(records(folder, NAME))


def test_nothing_but_a_regular_file_is_opened(folder: Directory, tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "sub").mkdir()
    for name, error in ((b"link", LinkRefused), (b"sub", IsADirectory)):
        with pytest.raises(error):
            next(records(folder, name))
        with pytest.raises(error):
            Appender.open(folder, name)


def test_no_descriptor_is_lost_by_a_failure(folder: Directory, tmp_path: Path) -> None:
    (tmp_path / "records.jsonl").write_bytes(b"precious")
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(Mismatch):
            Appender.open(folder, NAME)
        with pytest.raises(Mismatch):
            list(records(folder, NAME))
    assert os.listdir("/proc/self/fd") == before


def test_records_are_written_in_batches(folder: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    real = os.write

    def write(fd: int, data: Any) -> int:
        sizes.append(len(data))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    record = {"long": "x" * 1000}
    count = 3 * BATCH // len(line(record))
    with Appender.open(folder, NAME) as appender:
        for _ in range(count):
            appender.append(record)
        appender.sync()
        appender.sync()
    assert len(sizes) == 3
    assert sum(sizes) == count * len(line(record))
    assert max(sizes) < BATCH + len(line(record))


def test_syncing_makes_the_records_durable_and_then_the_name(
    folder: Directory, tmp_path: Path
) -> None:
    synced: list[tuple[str, int]] = []

    def fsync(fd: int) -> None:
        synced.append((os.readlink(f"/proc/self/fd/{fd}"), os.fstat(fd).st_size))

    with Appender.open(folder, NAME, fsync=fsync) as appender:
        appender.append(SOME[0])
        assert synced == []
        appender.sync()
        size = len(line(SOME[0]))
        folder_size = os.fstat(folder.fd).st_size
        assert synced == [(f"{tmp_path}/records.jsonl", size), (str(tmp_path), folder_size)]
        appender.append(SOME[1])
        appender.sync()
        assert synced[2:] == [(f"{tmp_path}/records.jsonl", size + len(line(SOME[1])))]


def test_after_a_failing_sync_nothing_more_is_taken(folder: Directory) -> None:
    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Appender.open(folder, NAME, fsync=fsync) as appender:
        appender.append(SOME[0])
        calls: list[Callable[[], None]] = [
            appender.sync,
            appender.sync,
            appender.write,
            lambda: appender.append(SOME[1]),
        ]
        for call in calls:
            with pytest.raises(OSError) as failed:
                call()
            assert failed.value.errno == errno.EIO
    with Appender.open(folder, NAME) as appender:
        appender.append(SOME[2])
        appender.sync()
    assert list(records(folder, NAME)) == [SOME[0], SOME[2]]


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Directory]:
    """A folder on a real file system with hardly any room: eight pages."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k,mode=700", "tmpfs", str(place)]
    subprocess.run(mount, check=True)
    try:
        with Directory.open(place) as directory:
            yield directory
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_leaves_whole_records_and_a_file_that_opens_again(
    full_disk: Directory, tmp_path: Path
) -> None:
    record = {"long": "x" * 1000}
    with Appender.open(full_disk, NAME) as appender:
        for _ in range(40):
            appender.append(record)
        with pytest.raises(OSError) as full:
            appender.sync()
        assert full.value.errno == errno.ENOSPC
        with pytest.raises(OSError) as still:
            appender.append(record)
        assert still.value.errno == errno.ENOSPC
    kept = list(records(full_disk, NAME))
    assert kept == [record] * (32 * 1024 // len(line(record)))
    size = len(line(record)) * len(kept)
    assert (tmp_path / "small" / "records.jsonl").stat().st_size > size  # the torn end
    Appender.open(full_disk, NAME).close()
    assert (tmp_path / "small" / "records.jsonl").stat().st_size == size


def test_a_file_size_limit_leaves_whole_records(folder: Directory) -> None:
    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150, 150))
        with Appender.open(folder, NAME) as appender:
            for record in SOME:
                appender.append(record)
            with pytest.raises(OSError) as limit:
                appender.sync()
            assert limit.value.errno == errno.EFBIG

    assert ended(limited) == 0
    kept = list(records(folder, NAME))
    assert kept == SOME[: len(kept)]
    assert len(kept) == 3


def test_a_writer_killed_at_any_system_call_leaves_a_prefix(
    folder: Directory, tmp_path: Path
) -> None:
    def write() -> None:
        with Appender.open(folder, NAME) as appender:
            for record in SOME:
                appender.append(record)
                appender.sync()

    step = 0
    counts = set()
    while killed_at(step, write):
        if (tmp_path / "records.jsonl").exists():
            kept = list(records(folder, NAME))
            assert kept == SOME[: len(kept)]
            counts.add(len(kept))
            with Appender.open(folder, NAME) as appender:
                appender.append({"after": step})
                appender.sync()
            assert list(records(folder, NAME)) == [*kept, {"after": step}]
            (tmp_path / "records.jsonl").unlink()
        step += 1
    assert counts == {0, 1, 2, 3, 4}


def test_a_writer_killed_at_any_time_leaves_what_it_had_synced(folder: Directory) -> None:
    """SIGKILL from outside, after the writer told how many records are durable."""
    told, tells = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        with Appender.open(folder, NAME) as appender:
            number = 0
            while True:
                appender.append({"number": number})
                appender.sync()
                number += 1
                os.write(tells, b".")
    os.close(tells)
    synced = 0
    while synced < 50:
        synced += len(os.read(told, 10))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while more := os.read(told, 4096):
        synced += len(more)
    os.close(told)
    Appender.open(folder, NAME).close()
    kept = list(records(folder, NAME))
    assert kept == [{"number": number} for number in range(len(kept))]
    assert len(kept) - synced in (0, 1)


def test_a_record_without_a_json_form_is_refused_and_leaves_nothing(folder: Directory) -> None:
    with Appender.open(folder, NAME) as appender:
        with pytest.raises(TypeError):
            appender.append({"name": b"bytes"})
        appender.append(SOME[0])
        appender.sync()
    assert list(records(folder, NAME)) == SOME[:1]


# The main journal.

FACTS: dict[str, Any] = {
    "run": "4be1",
    "time": 1_700_000_000.5,
    "layout": "yuxi",
    "method": "link",
    "database": "postgresql://gem@db/gem",
    "places": {"source": b"/srv/saves\xff", "user-data": b"/srv/user-data"},
}


def test_a_folder_without_a_journal_is_one_where_nothing_was_begun(folder: Directory) -> None:
    assert read(folder) == State()
    assert folder.names() == []
    with Journal.open(folder) as journal:
        assert journal.state == State()


def test_the_state_read_back_is_the_state_of_the_writer(folder: Directory) -> None:
    with Journal.open(folder) as journal:
        journal.begin(**FACTS)
        journal.record("unit", key="workdir-a", step="staged", files=3, sync=False)
        journal.record("made", root="user-data", path=path_text((b"shared", b"\xff")), sync=False)
        journal.record("cut_over", step="recorded")
        state = journal.state
    assert state.facts is not None
    assert state.facts.places == FACTS["places"]
    assert read(folder) == state
    with Journal.open(folder) as journal:
        assert journal.state == state
        journal.record("cut_over", step="committed")
    assert read(folder).cut_over == "committed"


def test_a_recorded_step_is_durable_unless_it_need_not_be_yet(folder: Directory) -> None:
    synced = 0

    def fsync(fd: int) -> None:
        nonlocal synced
        synced += stat.S_ISREG(os.fstat(fd).st_mode)

    with Journal.open(folder, fsync=fsync) as journal:
        assert synced == 1  # what an earlier process wrote counts from now on
        journal.begin(**FACTS)
        assert synced == 2
        journal.record("unit", key="a", step="publishing", sync=False)
        assert synced == 2
        assert read(folder) == journal.state  # a kill loses nothing
        journal.sync()
        assert synced == 3


def test_a_record_that_cannot_be_is_not_recorded(folder: Directory) -> None:
    with Journal.open(folder) as journal:
        with pytest.raises(Mismatch):
            journal.record("unit", key="a", step="staged")  # before it was begun
        journal.begin(**FACTS)
        with pytest.raises(Mismatch):
            journal.begin(**FACTS)
        with pytest.raises(Mismatch):
            journal.record("unit", step="staged")
    assert len(list(records(folder, JOURNAL))) == 1


def test_a_damaged_journal_is_not_opened_and_not_changed(folder: Directory, tmp_path: Path) -> None:
    with Journal.open(folder) as journal:
        journal.begin(**FACTS)
        journal.record("cut_over", step="recorded")
    path = tmp_path / "journal.jsonl"
    content = path.read_bytes().replace(b"4be1", b"4be2") + b"012"
    path.write_bytes(content)
    with pytest.raises(Mismatch):
        Journal.open(folder)
    assert path.read_bytes() == content


def test_a_journal_of_another_version_is_refused_with_its_program(
    folder: Directory, tmp_path: Path
) -> None:
    with Journal.open(folder) as journal:
        journal.begin(**FACTS)
    (record,) = records(folder, JOURNAL)
    written(folder, [{**record, "format": 2, "program": "gemspace 9.1", "run": 5}], JOURNAL)
    with pytest.raises(Precondition) as refused:
        Journal.open(folder)
    assert refused.value.to_json() == {
        "error": "precondition",
        "message": "the journal in the state folder has format 2, this program knows 1",
        "fix": "use the version that began the migration: gemspace 9.1",
        "exit_status": 3,
    }


def test_setting_aside_leaves_a_fresh_folder_and_loses_nothing(folder: Directory) -> None:
    with Journal.open(folder) as journal:
        journal.begin(**FACTS)
        state = journal.state
    folder.make_directory(b"units")
    written(folder, SOME, b"ownership-1.jsonl")
    with folder.directory(b"units") as units:
        written(units, SOME, b"workdir-a.jsonl")
    os.close(folder.create_file(b"lock"))
    assert set_aside(folder) == b"rolled-back-1"
    assert sorted(folder.names()) == [b"lock", b"rolled-back-1"]
    assert read(folder) == State()
    with folder.directory(b"rolled-back-1") as aside:
        assert sorted(aside.names()) == [JOURNAL, b"ownership-1.jsonl", b"units"]
        assert read(aside) == state
        with aside.directory(b"units") as units:
            assert list(records(units, b"workdir-a.jsonl")) == SOME
    with Journal.open(folder) as journal:
        journal.begin(**FACTS)
    assert set_aside(folder) == b"rolled-back-2"
    assert sorted(folder.names()) == [b"lock", b"rolled-back-1", b"rolled-back-2"]


def test_setting_aside_killed_at_any_step_is_made_up_for(tmp_path: Path) -> None:
    step = 0
    while True:
        place = tmp_path / str(step)
        place.mkdir()
        with Directory.open(place) as folder:
            with Journal.open(folder) as journal:
                journal.begin(**FACTS)
                state = journal.state
            written(folder, SOME, b"rows.jsonl")
            killed = killed_at(step, lambda folder=folder: set_aside(folder))  # type: ignore[misc]
            if killed and read(folder).begun:
                assert read(folder) == state
                set_aside(folder)
            assert folder.names() == [b"rolled-back-1"]
            with folder.directory(b"rolled-back-1") as aside:
                assert read(aside) == state
                assert list(records(aside, b"rows.jsonl")) == SOME
        if not killed:
            break
        step += 1
    assert step > 5


@pytest.mark.slow
def test_a_hundred_thousand_entries_are_written_fast(folder: Directory) -> None:
    """The share of a manifest in the transfer of that many files, which may take 0.6 s."""
    entries = [[f"file-{n:06}.txt", 0o100644, 0, 0, n, n, 10**18 + n] for n in range(4096)]
    start = time.process_time()
    with Appender.open(folder, NAME) as appender:
        for number in range(25):
            appender.append({"kind": "directory", "path": [str(number)], "entries": entries})
        appender.sync()
    assert time.process_time() - start < 0.5
    assert sum(len(record["entries"]) for record in records(folder, NAME)) == 25 * 4096
