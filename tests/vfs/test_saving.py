"""Saving: whole or not at all, under a full disk, a kill at any step, and other writers."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.vfs.steps import as_user, killed_at
from vfs import linux, saving
from vfs.beneath import Directory
from vfs.errors import (
    AlreadyExists,
    Busy,
    Changed,
    InvalidPath,
    IsADirectory,
    LinkRefused,
    NoSpace,
    NotFound,
    SpecialFileRefused,
    StorageFailure,
    Unavailable,
    VfsError,
)
from vfs.saving import ANY, etag, is_temporary, save, temporary_name

OLD = b"old content"
NEW = b"new content that is longer"


def without_nameless_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the file system one that does not know O_TMPFILE."""
    real = os.open

    def refusing(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)


@pytest.fixture(params=["nameless", "named"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to hold what is not finished: without a name, and under a temporary one."""
    if request.param == "named":
        without_nameless_files(monkeypatch)
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Directory]:
    top = tmp_path / "root"
    top.mkdir(mode=0o700)
    os.chown(top, 1000, 1000)
    with Directory.open(top) as directory:
        yield directory


@pytest.fixture
def top(root: Directory, tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB."""
    point = tmp_path / "small"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "small", point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True)


def tree(top: Path) -> dict[str, bytes]:
    """Every name in a directory, and its content."""
    return {path.name: path.read_bytes() for path in top.iterdir()}


def facts(path: Path) -> tuple[str, int, int, int]:
    status = path.lstat()
    return (stat.filemode(status.st_mode), status.st_uid, status.st_gid, status.st_nlink)


# What is saved.


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (lambda: b"", b""),
        (lambda: b"some", b"some"),
        (lambda: bytearray(b"some"), b"some"),
        (lambda: memoryview(b"some"), b"some"),
        (lambda: [b"so", b"", b"me"], b"some"),
        (lambda: [], b""),
        (lambda: (b"x" * 100_000 for _ in range(3)), b"x" * 300_000),
    ],
    ids=["nothing", "bytes", "bytearray", "memoryview", "list", "no chunks", "generator"],
)
def test_the_content_is_what_the_chunks_make(
    root: Directory, top: Path, way: str, content: Callable[[], Any], expected: bytes
) -> None:
    status = save(root, b"file", content())
    assert tree(top) == {"file": expected}
    assert (status.size, status.nlink) == (len(expected), 1)
    assert etag(status) == etag(root.stat(b"file"))


def test_a_wide_memoryview_is_saved_as_its_bytes(root: Directory, top: Path) -> None:
    save(root, b"file", memoryview(b"abcdefgh").cast("I"))
    assert tree(top) == {"file": b"abcdefgh"}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_a_new_file_has_its_mode_and_owner_whatever_the_umask(
    root: Directory, top: Path, way: str, umask: int
) -> None:
    before = os.umask(umask)
    try:
        save(root, b"plain", OLD)
        save(root, b"given", OLD, mode=0o4755, owner=(1000, 1000))
        save(root, b"closed", OLD, mode=0)
    finally:
        os.umask(before)
    assert {path.name: facts(path) for path in top.iterdir()} == {
        "plain": ("-rw-------", 0, 0, 1),
        "given": ("-rwxr-xr-x", 1000, 1000, 1),
        "closed": ("----------", 0, 0, 1),
    }


@pytest.mark.parametrize("if_match", [None, ANY])
def test_mode_and_owner_stay_and_set_id_bits_do_not(
    root: Directory, top: Path, way: str, if_match: str | None
) -> None:
    path = top / "file"
    path.write_bytes(OLD)
    os.chown(path, 1234, 4321)
    path.chmod(0o7754)
    save(root, b"file", NEW, owner=(1000, 1000), if_match=if_match)
    assert tree(top) == {"file": NEW}
    assert facts(path) == ("-rwxr-xr--", 1234, 4321, 1)
    save(root, b"file", NEW, mode=0o6600, owner=(1000, 1000), if_match=if_match)
    assert facts(path) == ("-rw-------", 1234, 4321, 1)


def test_rights_of_a_group_do_not_pass_to_another(top: Path, root: Directory) -> None:
    path = top / "file"
    path.write_bytes(OLD)
    os.chown(path, 1000, 4321)
    path.chmod(0o660)

    # Root's descriptor of the directory serves the user as well.
    assert as_user(lambda: save(root, b"file", NEW)) == 0
    assert tree(top) == {"file": NEW}
    assert facts(path) == ("-rw-------", 1000, 1000, 1)


def test_a_file_of_somebody_else_becomes_the_savers(top: Path, root: Directory) -> None:
    path = top / "file"
    path.write_bytes(OLD)
    os.chown(path, 1234, 1000)
    path.chmod(0o640)

    assert as_user(lambda: save(root, b"file", NEW, if_match=ANY)) == 0
    assert tree(top) == {"file": NEW}
    assert facts(path) == ("-rw-r-----", 1000, 1000, 1)


def test_another_name_of_what_is_replaced_keeps_the_old_content(root: Directory, top: Path) -> None:
    (top / "file").write_bytes(OLD)
    os.link(top / "file", top / "other")
    save(root, b"file", NEW)
    assert tree(top) == {"file": NEW, "other": OLD}


NAMES = st.binary(min_size=1, max_size=255).filter(
    lambda name: name not in (b".", b"..") and not {0, 0x2F} & set(name)
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, content=st.binary(max_size=5000))
@pytest.mark.parametrize("length", [None, 255])
def test_any_name_holds_any_content(
    root: Directory, name: bytes, content: bytes, length: int | None
) -> None:
    if length is not None:
        name = (name * length)[:length]
    save(root, (name,), OLD)
    status = save(root, (name,), content, if_match=etag(root.stat((name,))))
    assert root.names() == [name]
    assert (status.size, status.nlink) == (len(content), 1)
    fd = root.open_file((name,))
    with open(fd, "rb") as file:
        assert file.read() == content
    root.unlink((name,))


def test_a_file_deep_below_is_saved_beside_itself(root: Directory, top: Path, way: str) -> None:
    (top / "a" / "b").mkdir(parents=True)
    save(root, b"a/b/file", OLD)
    save(root, "a/b/file", NEW)
    save(root, (b"a", b"b", b"file"), OLD, if_match=ANY)
    assert tree(top / "a" / "b") == {"file": OLD}


# What is refused.


def make_link(path: Path) -> None:
    path.symlink_to("elsewhere")


def make_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def make_device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


@pytest.mark.parametrize("options", [{}, {"if_match": ANY}, {"clobber": False}], ids=repr)
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (Path.mkdir, IsADirectory),
        (make_link, LinkRefused),
        (os.mkfifo, SpecialFileRefused),
        (make_socket, SpecialFileRefused),
        (make_device, SpecialFileRefused),
    ],
)
def test_only_a_regular_file_is_replaced(
    root: Directory,
    top: Path,
    make: Callable[[Path], None],
    error: type[VfsError],
    options: dict[str, Any],
) -> None:
    make(top / "file")
    before = (top / "file").lstat()
    with pytest.raises(error) as caught:
        save(root, b"file", NEW, **options)
    assert (caught.value.path, os.listdir(top)) == (b"file", ["file"])
    assert (top / "file").lstat() == before


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (b"", InvalidPath),
        (b"..", InvalidPath),
        (b"/file", InvalidPath),
        (b"a\0b", InvalidPath),
        (b"x" * 256, InvalidPath),
        (b"missing/file", NotFound),
        (b"link/file", LinkRefused),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(
    root: Directory, top: Path, path: bytes, error: type[VfsError]
) -> None:
    (top / "link").symlink_to(top)
    with pytest.raises(error) as caught:
        save(root, path, NEW)
    assert caught.value.path in (path, b"/")
    assert os.listdir(top) == ["link"]


def test_what_is_mounted_at_the_name_is_not_replaced(root: Directory, top: Path) -> None:
    (top / "file").write_bytes(OLD)
    (top / "other").write_bytes(OLD)
    subprocess.run(["mount", "--bind", top / "other", top / "file"], check=True)
    try:
        for options in ({}, {"if_match": ANY}):
            with pytest.raises(InvalidPath, match="another filesystem is mounted there"):
                save(root, b"file", NEW, **options)
    finally:
        subprocess.run(["umount", top / "file"], check=True)
    assert tree(top) == {"file": OLD, "other": OLD}


def test_a_file_that_must_be_new_has_no_etag(root: Directory) -> None:
    with pytest.raises(ValueError, match="has no ETag"):
        save(root, b"file", NEW, clobber=False, if_match=ANY)


def test_without_clobber_what_exists_stays(root: Directory, top: Path, way: str) -> None:
    save(root, b"file", OLD, clobber=False)
    with pytest.raises(AlreadyExists) as caught:
        save(root, b"file", NEW, clobber=False)
    assert str(caught.value) == "cannot save file: it exists already; choose another name"
    assert tree(top) == {"file": OLD}


def test_without_clobber_what_appears_meanwhile_stays(root: Directory, top: Path, way: str) -> None:
    def appear(fd: int) -> None:
        (top / "file").write_bytes(OLD)

    with pytest.raises(AlreadyExists):
        save(root, b"file", NEW, clobber=False, fsync=appear)
    assert tree(top) == {"file": OLD}


def test_with_clobber_what_appears_meanwhile_is_replaced(
    root: Directory, top: Path, way: str
) -> None:
    def appear(fd: int) -> None:
        if not (top / "file").exists():
            (top / "file").write_bytes(OLD)

    save(root, b"file", NEW, fsync=appear)
    assert tree(top) == {"file": NEW}


def test_a_link_that_appears_meanwhile_is_replaced_and_not_followed(
    root: Directory, top: Path, tmp_path: Path, way: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(OLD)
    (top / "file").write_bytes(OLD)

    def swap(fd: int) -> None:
        if not (top / "file").is_symlink() and (top / "file").read_bytes() == OLD:
            (top / "file").unlink()
            (top / "file").symlink_to(outside)

    save(root, b"file", NEW, fsync=swap)
    assert tree(top) == {"file": NEW}
    assert facts(top / "file")[0] == "-rw-r--r--"
    assert outside.read_bytes() == OLD


def test_a_link_that_appears_just_before_the_exchange_is_put_back(
    root: Directory, top: Path, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(OLD)
    save(root, b"file", OLD)

    def swap() -> None:
        (top / "file").unlink()
        (top / "file").symlink_to(outside)

    before_the_exchange(monkeypatch, swap)
    with pytest.raises(Changed):
        save(root, b"file", NEW, if_match=ANY)
    assert os.listdir(top) == ["file"]
    assert os.readlink(top / "file") == str(outside)
    assert outside.read_bytes() == OLD


def test_a_file_system_without_rename_flags_still_keeps_what_exists(
    root: Directory, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_nameless_files(monkeypatch)

    def refuse(*args: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(linux, "renameat2", refuse)
    save(root, b"file", OLD, clobber=False)

    def appear(fd: int) -> None:
        (top / "other").write_bytes(OLD)

    with pytest.raises(AlreadyExists):
        save(root, b"other", NEW, clobber=False, fsync=appear)
    with pytest.raises(Unavailable, match="the filesystem lacks support for it"):
        save(root, b"file", NEW, if_match=ANY)
    assert tree(top) == {"file": OLD, "other": OLD}


# The precondition.


def test_an_etag_stays_while_only_name_mode_and_owner_change(root: Directory, top: Path) -> None:
    tag = etag(save(root, b"file", OLD))
    (top / "file").rename(top / "moved")
    (top / "moved").chmod(0o640)
    os.chown(top / "moved", 1234, 1234)
    assert etag(root.stat(b"moved")) == tag


def test_each_save_has_its_own_etag(root: Directory) -> None:
    tags = {etag(save(root, b"file", OLD)) for _ in range(50)}
    assert len(tags) == 50


def test_an_etag_changes_with_the_content(root: Directory, top: Path) -> None:
    tag = etag(save(root, b"file", OLD))
    os.utime(top / "file", ns=(0, 0))
    other = etag(root.stat(b"file"))
    (top / "file").write_bytes(NEW)
    os.utime(top / "file", ns=(0, 0))
    assert len({tag, other, etag(root.stat(b"file"))}) == 3


@pytest.mark.parametrize("if_match", [ANY, "right"])
def test_a_file_with_the_etag_is_replaced(
    root: Directory, top: Path, way: str, if_match: str
) -> None:
    tag = etag(save(root, b"file", OLD))
    save(root, b"file", NEW, if_match=tag if if_match == "right" else if_match)
    assert tree(top) == {"file": NEW}


def test_a_file_with_another_etag_stays(root: Directory, top: Path, way: str) -> None:
    tag = etag(save(root, b"file", OLD))
    save(root, b"file", OLD)
    with pytest.raises(Changed) as caught:
        save(root, b"file", NEW, if_match=tag)
    assert str(caught.value) == (
        "cannot save file: it is not the file that was read before; read it again, then save"
    )
    assert tree(top) == {"file": OLD}


@pytest.mark.parametrize("if_match", [ANY, "1-2-3"])
def test_no_file_has_no_etag(root: Directory, top: Path, way: str, if_match: str) -> None:
    with pytest.raises(Changed):
        save(root, b"file", NEW, if_match=if_match)
    assert tree(top) == {}


def before_the_exchange(monkeypatch: pytest.MonkeyPatch, *actions: Callable[[], object]) -> None:
    """Runs one action before each RENAME_EXCHANGE: what another writer does just then."""
    real, rest = linux.renameat2, list(actions)

    def renameat2(*args: Any) -> None:
        if args[4] == linux.RENAME_EXCHANGE and rest:
            rest.pop(0)()
        real(*args)

    monkeypatch.setattr(linux, "renameat2", renameat2)


def test_what_another_writer_saved_just_before_the_exchange_is_put_back(
    root: Directory, top: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = etag(save(root, b"file", OLD))
    before_the_exchange(monkeypatch, lambda: save(root, b"file", b"other"))
    with pytest.raises(Changed):
        save(root, b"file", NEW, if_match=tag)
    assert tree(top) == {"file": b"other"}


def test_what_another_writer_saved_while_it_was_put_back_wins(
    root: Directory, top: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = etag(save(root, b"file", OLD))
    before_the_exchange(
        monkeypatch,
        *(lambda text=text: save(root, b"file", text) for text in (b"1", b"2", b"3", b"4")),
    )
    with pytest.raises(Changed):
        save(root, b"file", NEW, if_match=tag)
    assert tree(top) == {"file": b"4"}


def test_what_was_taken_out_is_kept_when_the_name_is_removed_meanwhile(
    root: Directory, top: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = etag(save(root, b"file", OLD))
    before_the_exchange(
        monkeypatch, lambda: save(root, b"file", b"other"), lambda: root.unlink(b"file")
    )
    with pytest.raises(Changed):
        save(root, b"file", NEW, if_match=tag)
    assert tree(top) == {"file": b"other"}


def test_a_file_removed_just_before_the_exchange_stays_removed(
    root: Directory, top: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = etag(save(root, b"file", OLD))
    before_the_exchange(monkeypatch, lambda: root.unlink(b"file"))
    with pytest.raises(Changed):
        save(root, b"file", NEW, if_match=tag)
    assert tree(top) == {}


def test_a_directory_put_there_just_before_the_exchange_is_put_back(
    root: Directory, top: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(root, b"file", OLD)

    def swap() -> None:
        (top / "file").unlink()
        (top / "file").mkdir()

    before_the_exchange(monkeypatch, swap)
    with pytest.raises(Changed):
        save(root, b"file", NEW, if_match=ANY)
    assert [(path.name, path.is_dir()) for path in top.iterdir()] == [("file", True)]


def test_writers_that_never_pause_end_the_undoing_with_nothing_lost(
    root: Directory, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tag = etag(save(root, b"file", OLD))
    texts = iter(str(number).encode() for number in range(10_000))
    before_the_exchange(monkeypatch, *[lambda: save(root, b"file", next(texts))] * 10_000)
    with pytest.raises(Busy, match=r"it kept changing meanwhile; compare it with \.gemspace-"):
        save(root, b"file", NEW, if_match=tag)
    left = sorted(tree(top).items())
    assert [is_temporary(name.encode()) for name, _ in left] == [True, False]
    assert sorted(int(content) for _, content in left) == [99, 100]


def test_no_update_is_lost_among_writers_with_preconditions(root: Directory, top: Path) -> None:
    save(root, b"count", b"0000")
    failures: list[BaseException] = []

    def add(times: int) -> None:
        try:
            while times:
                with open(root.open_file(b"count"), "rb") as file:
                    tag = etag(linux.fstatx(file.fileno()))
                    count = int(file.read())
                try:
                    save(root, b"count", b"%04d" % (count + 1), if_match=tag, fsync=lambda fd: None)
                except Changed:
                    continue
                times -= 1
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=add, args=(50,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert tree(top) == {"count": b"0200"}


def test_a_save_with_a_precondition_waits_its_turn_and_not_for_ever(
    root: Directory, top: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(root, b"file", OLD)
    monkeypatch.setattr(saving, "TURN", 0)
    fd = os.open(top, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="cannot save file: it is in use"):
            save(root, b"file", NEW, if_match=ANY)
        assert tree(top) == {"file": OLD}
    finally:
        os.close(fd)
    save(root, b"file", NEW, if_match=ANY)
    assert tree(top) == {"file": NEW}


# What goes wrong.


def test_a_full_disk_loses_nothing(small: Path, way: str) -> None:
    with Directory.open(small) as directory:
        save(directory, b"file", OLD)
        save(directory, b"rest", b"r" * 60_000)
        for options in ({}, {"if_match": ANY}):
            with pytest.raises(NoSpace) as caught:
                save(directory, b"file", [b"n" * 40_000] * 10, **options)
            assert caught.value.path == b"file"
        with pytest.raises(NoSpace):
            save(directory, b"new", [b"n" * 40_000] * 10, clobber=False)
        assert tree(small) == {"file": OLD, "rest": b"r" * 60_000}
        # And the space came back.
        save(directory, b"file", b"n" * 40_000)
    assert tree(small) == {"file": b"n" * 40_000, "rest": b"r" * 60_000}


@pytest.mark.parametrize("failing_sync", [1, 2])
def test_a_failing_sync_is_told(root: Directory, top: Path, way: str, failing_sync: int) -> None:
    """The first makes the content durable, before the name is given; the second the name."""
    save(root, b"file", OLD)
    calls = 0

    def fsync(fd: int) -> None:
        nonlocal calls
        calls += 1
        if calls == failing_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(StorageFailure, match="cannot save file: the storage failed"):
        save(root, b"file", NEW, fsync=fsync)
    assert tree(top) == {"file": {1: OLD, 2: NEW}[failing_sync]}


def test_the_content_is_durable_before_the_name_and_the_name_before_the_return(
    root: Directory, top: Path, way: str
) -> None:
    seen: list[tuple[str, int, dict[str, bytes]]] = []

    def fsync(fd: int) -> None:
        status = os.fstat(fd)
        named = {name: content for name, content in tree(top).items() if name == "file"}
        seen.append((stat.filemode(status.st_mode), status.st_uid, named))
        os.fsync(fd)

    save(root, b"file", OLD, owner=(1000, 1000), mode=0o640, fsync=fsync)
    assert seen == [
        ("-rw-r-----", 1000, {}),
        ("drwx------", 1000, {"file": OLD}),
    ]


def test_an_error_of_the_source_passes_through_and_changes_nothing(
    root: Directory, top: Path, way: str
) -> None:
    def chunks() -> Iterator[bytes]:
        yield NEW
        raise ConnectionResetError(errno.ECONNRESET, "the sender went away")

    save(root, b"file", OLD)
    for options in ({}, {"if_match": ANY}):
        with pytest.raises(ConnectionResetError):
            save(root, b"file", chunks(), **options)
    assert tree(top) == {"file": OLD}


def test_a_directory_removed_meanwhile_is_told(root: Directory, top: Path, way: str) -> None:
    (top / "sub").mkdir()

    def remove(fd: int) -> None:
        for path in (top / "sub").iterdir():
            path.unlink()
        (top / "sub").rmdir()

    with pytest.raises(NotFound):
        save(root, b"sub/file", NEW, fsync=remove)
    assert tree(top) == {}


def test_a_temporary_name_that_is_taken_is_left_alone(root: Directory, top: Path, way: str) -> None:
    tokens = iter(["0" * 32, "1" * 32])
    taken = top / os.fsdecode(temporary_name("0" * 32))
    taken.write_bytes(b"another's")
    save(root, b"file", OLD)
    save(root, b"file", NEW, token=lambda: next(tokens))
    assert tree(top) == {"file": NEW, taken.name: b"another's"}


def test_a_generator_of_one_token_ends_with_an_error(root: Directory, top: Path, way: str) -> None:
    taken = top / os.fsdecode(temporary_name("0" * 32))
    taken.write_bytes(b"another's")
    save(root, b"file", OLD)
    with pytest.raises(AlreadyExists):
        save(root, b"file", NEW, token=lambda: "0" * 32)
    assert tree(top) == {"file": OLD, taken.name: b"another's"}


def test_no_descriptor_stays_open_and_none_is_inherited(
    root: Directory, top: Path, way: str
) -> None:
    def look(fd: int) -> None:
        inheritable.append(os.get_inheritable(fd))

    inheritable: list[bool] = []
    save(root, b"file", OLD)
    before = os.listdir("/proc/self/fd")
    save(root, b"file", NEW, fsync=look)
    save(root, b"file", NEW, if_match=ANY, fsync=look)
    for options in ({"clobber": False}, {"if_match": "1-2-3"}, {"token": lambda: 1 / 0}):
        with pytest.raises((VfsError, ZeroDivisionError)):
            save(root, b"file", NEW, **options)
    assert os.listdir("/proc/self/fd") == before
    assert inheritable == [False] * 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (temporary_name("0123456789abcdef" * 2), True),
        (temporary_name(saving.random_token()), True),
        (b".gemspace-", False),
        (b".gemspace-" + b"0" * 31, False),
        (b".gemspace-" + b"0" * 33, False),
        (b".gemspace-" + b"A" * 32, False),
        (b".gemspace-" + b"0" * 32 + b"\n", False),
        (b"x.gemspace-" + b"0" * 32, False),
    ],
)
def test_temporary_names_are_told_by_their_form(name: bytes, expected: bool) -> None:
    assert is_temporary(name) is expected


# A kill at any step.


Outcome = tuple[bytes | None, tuple[str, ...]]
"""What the name holds, and what each leftover holds, in words."""

PARTS = {NEW[:length]: "part" for length in range(len(NEW))} | {OLD: "old", NEW: "new"}

OUTCOMES: dict[tuple[str, str], set[Outcome]] = {
    ("nameless", "new"): {(None, ()), (NEW, ())},
    ("nameless", "no clobber"): {(None, ()), (NEW, ())},
    ("nameless", "replace"): {(OLD, ()), (OLD, ("new",)), (NEW, ())},
    ("nameless", "if match"): {(OLD, ()), (OLD, ("new",)), (NEW, ("old",)), (NEW, ())},
    ("named", "new"): {(None, ()), (None, ("part",)), (None, ("new",)), (NEW, ())},
    ("named", "no clobber"): {(None, ()), (None, ("part",)), (None, ("new",)), (NEW, ())},
    ("named", "replace"): {(OLD, ()), (OLD, ("part",)), (OLD, ("new",)), (NEW, ())},
    ("named", "if match"): {
        (OLD, ()),
        (OLD, ("part",)),
        (OLD, ("new",)),
        (NEW, ("old",)),
        (NEW, ()),
    },
}


@pytest.mark.parametrize("kind", ["new", "no clobber", "replace", "if match"])
def test_a_writer_killed_at_any_step_leaves_the_old_file_or_the_new_one_whole(
    tmp_path: Path, way: str, kind: str
) -> None:
    outcomes: set[Outcome] = set()
    for step in range(1000):
        top = tmp_path / str(step)
        top.mkdir()
        with Directory.open(top) as directory:
            options: dict[str, Any] = {}
            if kind in ("replace", "if match"):
                status = save(directory, b"file", OLD, mode=0o640, fsync=lambda fd: None)
                options = {"if_match": etag(status)} if kind == "if match" else {}
            elif kind == "no clobber":
                options = {"clobber": False}

            def action(directory: Directory = directory, options: dict[str, Any] = options) -> None:
                save(directory, b"file", NEW, mode=0o640, fsync=os.fsync, **options)

            killed = killed_at(step, action)
            found = tree(top)
            content = found.pop("file", None)
            assert all(is_temporary(name.encode()) for name in found)
            outcomes.add((content, tuple(PARTS[left] for left in found.values())))
            if content is not None:
                assert facts(top / "file") in (("-rw-r-----", 0, 0, 1), ("-rw-r-----", 0, 0, 2))
            # Whatever was left, the next save goes well.
            save(directory, b"file", b"next", fsync=lambda fd: None)
            assert (top / "file").read_bytes() == b"next"
        if not killed:
            break
    assert outcomes == OUTCOMES[way, kind]
    assert step > 15
