"""What is known of a mount counts while it is there, and is kept where nobody else writes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vfs.errors import NotFound, PermissionDenied
from vfs.mount import mountapi, registry, table
from vfs.mount.registry import Record


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "records"
    monkeypatch.setattr(registry, "ROOT_FOLDER", str(folder))
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder for mountpoints; whatever is mounted in it is unmounted at the end."""
    folder = tmp_path / "place"
    folder.mkdir()
    yield folder
    for mount in reversed(table.beneath(os.fsencode(tmp_path))):
        mountapi.umount(mount.point, mountapi.MNT_DETACH)


def make_mount(point: Path, source: bytes = b"one") -> int:
    point.mkdir(exist_ok=True)
    mountapi.mount(source, bytes(point), b"tmpfs", 0, b"size=4k")
    mount = table.at(bytes(point))
    assert mount is not None
    return mount.id


def note(mount_id: int, label: str = "ada", **options: str) -> None:
    registry.record(mount_id, engine="kernel", pid=None, label=label, options=options)


def run(code: str, *arguments: object, **environment: str) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_what_was_noted_is_read_back_whole(records: Path, place: Path) -> None:
    point = place / os.fsdecode(b"a \xff\n")
    mount_id = make_mount(point)
    registry.record(
        mount_id, engine="fuse", pid=4242, label="oidc:ö\udcff", options={"links": "show", "x": ""}
    )
    expected = Record(
        mount_id=mount_id,
        point=bytes(point),
        engine="fuse",
        pid=4242,
        label="oidc:ö\udcff",
        options={"links": "show", "x": ""},
        dead=False,
    )
    assert registry.entries() == [expected]
    assert registry.find(bytes(point)) == expected


def test_only_the_owner_can_read_a_record(records: Path, place: Path) -> None:
    old = os.umask(0)
    try:
        note(make_mount(place / "m"))
    finally:
        os.umask(old)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (records, *records.iterdir())]
    assert modes == [0o700, 0o600]


def test_without_records_there_is_nothing_and_no_folder_is_made(records: Path) -> None:
    registry.forget(1)
    assert (registry.entries(), registry.find(b"/"), records.exists()) == ([], None, False)


def test_mounts_are_listed_in_the_tables_order_and_ours_only(records: Path, place: Path) -> None:
    ids = [make_mount(place / name) for name in ("a", "b", "c")]
    note(ids[2], "third")
    note(ids[0], "first")
    assert [(entry.mount_id, entry.label) for entry in registry.entries()] == [
        (ids[0], "first"),
        (ids[2], "third"),
    ]
    assert registry.find(bytes(place / "b")) is None


def test_a_mount_over_ours_is_not_taken_for_it(records: Path, place: Path) -> None:
    note(make_mount(place / "m"))
    make_mount(place / "m", source=b"another")
    assert registry.find(bytes(place / "m")) is None
    assert len(registry.entries()) == 1


def test_the_record_of_a_mount_that_is_gone_is_removed(records: Path, place: Path) -> None:
    note(make_mount(place / "m"))
    mountapi.umount(bytes(place / "m"))
    assert registry.entries() == []
    assert list(records.iterdir()) == []


@pytest.mark.parametrize("change", ["source", "attributes"])
def test_another_mount_with_the_same_id_is_not_ours(
    records: Path, place: Path, change: str
) -> None:
    mount_id = make_mount(place / "m")
    note(mount_id)
    mountapi.umount(bytes(place / "m"))
    again = make_mount(place / "m", source=b"two" if change == "source" else b"one")
    assert again == mount_id  # the kernel gives the lowest free number
    if change == "attributes":
        fd = os.open(place / "m", os.O_PATH)
        mountapi.mount_setattr(fd, attr_set=mountapi.MOUNT_ATTR_NOEXEC)
        os.close(fd)
    assert registry.find(bytes(place / "m")) is None
    assert list(records.iterdir()) == []


def test_a_mount_is_known_where_it_is_now(records: Path, place: Path) -> None:
    (place / "above").mkdir()
    note(make_mount(place / "above" / "m"))
    (place / "above").rename(place / "renamed")
    assert [entry.point for entry in registry.entries()] == [bytes(place / "renamed" / "m")]


def test_a_second_record_replaces_the_first(records: Path, place: Path) -> None:
    mount_id = make_mount(place / "m")
    note(mount_id, "first")
    note(mount_id, "second")
    assert [entry.label for entry in registry.entries()] == ["second"]
    assert len(list(records.iterdir())) == 1


def test_a_forgotten_mount_is_not_listed_and_others_are(records: Path, place: Path) -> None:
    first, second = make_mount(place / "a"), make_mount(place / "b")
    note(first)
    note(second)
    registry.forget(first)
    assert [entry.mount_id for entry in registry.entries()] == [second]


def test_a_mount_that_is_not_there_cannot_be_noted(records: Path, place: Path) -> None:
    mount_id = make_mount(place / "m")
    mountapi.umount(bytes(place / "m"))
    with pytest.raises(NotFound, match="gone already"):
        note(mount_id)
    assert not records.exists()


def test_a_dead_fuse_mount_is_listed_as_dead(records: Path, place: Path) -> None:
    point = place / "m"
    point.mkdir()
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % device
    mountapi.mount(b"gemspace", bytes(point), b"fuse.gemspace", 0, options)
    mount = table.at(bytes(point))
    assert mount is not None
    registry.record(mount.id, engine="fuse", pid=1, label="ada", options={})
    os.close(device)
    expected = Record(mount.id, bytes(point), "fuse", 1, "ada", {}, dead=True)
    assert registry.entries() == [expected]
    assert registry.find(bytes(point)) == expected


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b'{"engine": "kernel"}', b"[" * 70_000, b"9" * 70_000],
)
def test_a_broken_record_is_removed(records: Path, place: Path, content: bytes) -> None:
    note(make_mount(place / "m"))
    (path,) = records.iterdir()
    path.write_bytes(content)
    assert registry.entries() == []
    assert list(records.iterdir()) == []


def test_a_record_that_is_a_link_is_not_read(records: Path, place: Path) -> None:
    note(make_mount(place / "m"))
    (path,) = records.iterdir()
    path.rename(place / "elsewhere")
    path.symlink_to(place / "elsewhere")
    assert registry.entries() == []
    assert (place / "elsewhere").exists()


def test_files_that_are_no_records_stay(records: Path, place: Path) -> None:
    note(make_mount(place / "m"))
    (records / "README").write_text("hands off")
    (records / "1-2.json").write_text("{}")
    assert len(registry.entries()) == 1
    assert sorted(path.name for path in records.iterdir())[-1] == "README"
    assert (records / "1-2.json").exists()


def test_an_unfinished_record_goes_with_its_mount(records: Path, place: Path) -> None:
    mount_id = make_mount(place / "m")
    note(mount_id)
    (path,) = records.iterdir()
    unfinished = path.with_name(path.name + ".new")
    path.rename(unfinished)  # as a kill just before the end leaves it
    assert registry.entries() == []
    assert unfinished.exists()
    mountapi.umount(bytes(place / "m"))
    assert registry.entries() == []
    assert not unfinished.exists()


def test_a_record_of_another_mount_namespace_is_left_alone(records: Path, place: Path) -> None:
    code = """if True:
        import sys
        from vfs.mount import mountapi, registry, table
        registry.ROOT_FOLDER = sys.argv[1]
        mountapi.unshare(mountapi.CLONE_NEWNS)
        mountapi.mount(b"", b"/", b"", mountapi.MS_REC | mountapi.MS_PRIVATE, b"")
        mountapi.mount(b"there", sys.argv[2].encode(), b"tmpfs", 0, b"size=4k")
        mount = table.at(sys.argv[2].encode())
        registry.record(mount.id, engine="kernel", pid=None, label="there", options={})
        print([entry.label for entry in registry.entries()])
    """
    assert run(code, records, place) == "['there']\n"
    assert registry.entries() == []
    assert len(list(records.iterdir())) == 1


@pytest.mark.parametrize("fault", ["open to others", "another's", "a link", "a file"])
def test_a_folder_that_is_not_the_callers_alone_is_refused(
    records: Path, place: Path, fault: str
) -> None:
    mount_id = make_mount(place / "m")
    if fault == "a link":
        (place / "target").mkdir(mode=0o700)
        records.symlink_to(place / "target")
    elif fault == "a file":
        records.touch(mode=0o600)
    else:
        records.mkdir(mode=0o700)
        os.chmod(records, 0o770 if fault == "open to others" else 0o700)
        os.chown(records, 1000 if fault == "another's" else 0, 0)
    for call in (lambda: note(mount_id), registry.entries, lambda: registry.forget(mount_id)):
        with pytest.raises(PermissionDenied) as caught:
            call()
        assert str(caught.value) == (
            f"the records of mounts in {records} are not yours alone; "
            "remove that folder, or have its owner remove it, and try again"
        )


@pytest.mark.parametrize("session", ["own", "another's", "missing", "unset"])
def test_who_is_not_root_has_records_of_their_own(place: Path, session: str) -> None:
    # /mnt, for its own eyes only: the way to pytest's folders is closed to others than root.
    code = """if True:
        import os, sys
        from vfs.mount import mountapi, registry, table
        mountapi.unshare(mountapi.CLONE_NEWNS)
        mountapi.mount(b"", b"/", b"", mountapi.MS_REC | mountapi.MS_PRIVATE, b"")
        mountapi.mount(os.fsencode(sys.argv[1]), b"/mnt", b"", mountapi.MS_BIND, b"")
        os.setgroups([])
        os.setgid(1234)
        os.setuid(1234)
        mount = table.at(b"/")
        registry.record(mount.id, engine="fuse", pid=7, label="ada", options={})
        print([(entry.point, entry.label) for entry in registry.entries()])
    """
    os.chmod(place, 0o777)
    runtime = place / "runtime"
    if session != "missing":
        runtime.mkdir(mode=0o700)
        os.chown(runtime, 1234 if session == "own" else 0, 0)
    variable = "" if session == "unset" else "/mnt/runtime"
    assert run(code, place, TMPDIR="/mnt", XDG_RUNTIME_DIR=variable) == "[(b'/', 'ada')]\n"
    folder = runtime / "gemspace" if session == "own" else place / "gemspace-1234"
    (path,) = folder.iterdir()
    assert json.loads(path.read_bytes())["label"] == "ada"
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, path)] == [0o700, 0o600]
