"""Many entries of a directory at once, against what the standard library says of each."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vfs.hostile import REFUSE_SYSTEM_CALL, run_python
from vfs import bulk
from vfs.beneath import Directory
from vfs.bulk import LOOKED_AT_ONCE, Columns, Looker, change_modes, change_owners, has_fchmodat2

NAMES = [b"file", b"directory", b"link", b"fifo", b"device", b"-\n\\\xff", b"n" * 255]


@pytest.fixture(params=["fchmodat2", "held"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fchmodat2, and as on a kernel without it."""
    assert has_fchmodat2()
    if request.param == "held":
        monkeypatch.setattr(bulk, "has_fchmodat2", lambda: False)


@pytest.fixture
def planted(folder: Path, outside: Path) -> Path:
    (folder / "file").write_bytes(b"x" * 5000)
    (folder / "directory").mkdir()
    (folder / "link").symlink_to(outside)
    os.mkfifo(folder / "fifo")
    os.mknod(folder / "device", stat.S_IFCHR | 0o640, os.makedev(1, 3))
    for name in NAMES[-2:]:
        (folder / os.fsdecode(name)).write_bytes(b"")
    for number, name in enumerate(NAMES):
        os.chown(folder / os.fsdecode(name), 70_000 + number, 4_294_967_294, follow_symlinks=False)
    (folder / "file").chmod(0o6751)
    return folder


def facts(folder: Path, name: bytes) -> tuple[int, int, int, int]:
    status = (folder / os.fsdecode(name)).lstat()
    return status.st_mode, status.st_uid, status.st_gid, status.st_ino


def rows(seen: Columns) -> dict[bytes, tuple[int, int, int, int]]:
    columns = zip(seen.modes, seen.uids, seen.gids, seen.inos, strict=True)
    return dict(zip(seen.names, columns, strict=True))


def test_columns_tell_what_lstat_tells(planted: Path, root: Directory) -> None:
    seen = Looker().look(root.fd, root.mnt_id, [*NAMES, b"."])
    assert rows(seen) == {name: facts(planted, name) for name in [*NAMES, b"."]}
    assert (seen.elsewhere, seen.errors) == ([], [])


def test_more_entries_than_the_buffer_holds(folder: Path, root: Directory) -> None:
    names = [b"%d" % number for number in range(2 * LOOKED_AT_ONCE + 5)]
    for name in names:
        (folder / os.fsdecode(name)).touch()
    missing = [b"missing-%d" % number for number in (0, 1)]
    seen = Looker().look(root.fd, root.mnt_id, [missing[0], *names, missing[1]])
    assert seen.names == names
    assert rows(seen) == {name: facts(folder, name) for name in names}
    assert [(name, error.errno) for name, error in seen.errors] == [
        (missing[0], errno.ENOENT),
        (missing[1], errno.ENOENT),
    ]


def test_no_names_are_no_columns(root: Directory) -> None:
    assert Looker().look(root.fd, root.mnt_id, []) == Columns([], [], [], [], [], [], [])
    assert change_owners(root.fd, [], [], []) == change_modes(root.fd, [], []) == {}


def test_what_is_mounted_on_an_entry_is_not_looked_at(
    planted: Path, root: Directory, outside: Path, mount: Callable[..., Path]
) -> None:
    mount(planted / "directory", "-t", "tmpfs", "none")
    mount(planted / "file", "--bind", outside / "secret")
    seen = Looker().look(root.fd, root.mnt_id, NAMES)
    assert seen.elsewhere == [b"file", b"directory"]
    assert rows(seen) == {name: facts(planted, name) for name in NAMES[2:]}


def test_owners_are_set_of_entries_themselves(
    planted: Path, root: Directory, outside: Path
) -> None:
    uids = [4_294_967_294 - number for number in range(len(NAMES))]
    gids = list(range(len(NAMES)))
    before = [facts(planted, name) for name in NAMES]
    assert change_owners(root.fd, NAMES, uids, gids) == {}
    for name, was, uid, gid in zip(NAMES, before, uids, gids, strict=True):
        mode = was[0] & ~0o6000 if name == b"file" else was[0]
        assert facts(planted, name) == (mode, uid, gid, was[3])


@pytest.mark.usefixtures("way")
def test_modes_are_set_whole_and_a_links_is_refused(
    planted: Path, root: Directory, outside: Path
) -> None:
    modes = [0o7000 + number for number in range(len(NAMES))]
    refused = change_modes(root.fd, NAMES, modes)
    assert {name: error.errno for name, error in refused.items()} == {b"link": errno.EOPNOTSUPP}
    for name, mode in zip(NAMES, modes, strict=True):
        if name != b"link":
            assert stat.S_IMODE(facts(planted, name)[0]) == mode


@pytest.fixture
def immutable(planted: Path) -> Iterator[bytes]:
    subprocess.run(["chattr", "+i", planted / "file"], check=True)
    yield b"file"
    subprocess.run(["chattr", "-i", planted / "file"], check=True)


@pytest.mark.usefixtures("way")
def test_who_refuses_is_told_and_stops_no_other(
    planted: Path, root: Directory, immutable: bytes
) -> None:
    names = [b"missing", immutable, b"directory"]
    before = facts(planted, immutable)
    owners = change_owners(root.fd, names, [1, 2, 3], [1, 2, 3])
    modes = change_modes(root.fd, names, [0o711] * 3)
    for refused in (owners, modes):
        told = {name: error.errno for name, error in refused.items()}
        assert told == {b"missing": errno.ENOENT, immutable: errno.EPERM}
    assert facts(planted, immutable) == before
    assert facts(planted, b"directory")[:3] == (stat.S_IFDIR | 0o711, 3, 3)


@pytest.mark.parametrize("answer", ["ENOSYS", "EPERM"])
def test_a_filter_that_does_not_know_fchmodat2_is_noticed(answer: str) -> None:
    code = f"""
{REFUSE_SYSTEM_CALL}
import errno
from vfs.bulk import has_fchmodat2
refuse(452, errno.{answer})
print(int(has_fchmodat2()))
"""
    assert run_python(code) == 0
