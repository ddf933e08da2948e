"""Special files, leases, planted hard links and modes, with both resolvers."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vfs.calls import write
from tests.vfs.hostile import NOBODY, PATIENCE, OpenWitness, deadline, run_python, snapshot
from vfs.beneath import Directory
from vfs.errors import (
    AlreadyExists,
    Busy,
    LinkRefused,
    NotADirectory,
    PermissionDenied,
    SpecialFileRefused,
)

pytestmark = pytest.mark.usefixtures("way")

# Special files.


@pytest.fixture
def specials(folder: Path) -> list[Path]:
    os.mkfifo(folder / "fifo")
    os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.mknod(folder / "loop", stat.S_IFBLK | 0o666, os.makedev(7, 250))
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_RDONLY)  # the path of a socket must be short
        try:
            listener.bind(f"/proc/self/fd/{here}/socket")
        finally:
            os.close(here)
    return [folder / name for name in ("fifo", "null", "loop", "socket")]


def test_a_special_file_is_refused_at_once_and_never_opened(
    specials: list[Path], root: Directory
) -> None:
    witness = OpenWitness(*specials)
    os.close(os.open(specials[1], os.O_RDONLY))
    assert witness.seen() == ["null"]
    with deadline(20):
        for path in specials:
            for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND):
                with pytest.raises(SpecialFileRefused):
                    root.open_file(os.fsencode(path.name), flags)
            for call in (Directory.directory, Directory.names, Directory.open_listing):
                with pytest.raises(NotADirectory):
                    call(root, os.fsencode(path.name))
            with pytest.raises(NotADirectory):
                root.open_file(os.fsencode(path.name) + b"/x")
            with pytest.raises(AlreadyExists):
                root.create_file(os.fsencode(path.name))
    assert witness.seen() == []
    witness.close()


def test_a_special_file_is_looked_at_changed_moved_and_removed_unopened(
    specials: list[Path], root: Directory
) -> None:
    witness = OpenWitness(*specials)
    assert [stat.S_IFMT(root.stat(os.fsencode(path.name)).mode) for path in specials] == [
        stat.S_IFIFO,
        stat.S_IFCHR,
        stat.S_IFBLK,
        stat.S_IFSOCK,
    ]
    assert root.stat(b"null").rdev == os.makedev(1, 3)
    with deadline(20):
        for path in specials:
            name = os.fsencode(path.name)
            root.change_mode(name, 0o640)
            root.change_owner(name, 4, 5)
            root.change_times(name, 1, 2)
            status = root.stat(name)
            assert (status.mode & 0o7777, status.uid, status.gid) == (0o640, 4, 5)
            assert (status.atime_ns, status.mtime_ns) == (1, 2)
            root.rename(name, b"moved")
            root.unlink(b"moved")
    assert root.names() == []
    assert witness.seen() == []
    witness.close()


def test_a_lease_on_a_file_makes_it_busy_and_nobody_waits(folder: Path, root: Directory) -> None:
    (folder / "f").write_bytes(b"x")
    code = (
        "import fcntl, os, signal, sys\n"
        "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "fd = os.open(sys.argv[1], os.O_RDWR)\n"
        "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "print('leased', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, folder / "f"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"leased\n"
        with deadline(20), pytest.raises(Busy):
            root.open_file(b"f")
        holder.communicate(timeout=PATIENCE)
    os.close(root.open_file(b"f"))


# Hard links.


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A file outside that another user owns, and a second name of it beneath the root."""
    secret = tmp_path / "their-file"
    secret.write_bytes(b"theirs")
    os.chmod(secret, 0o644)
    os.chown(secret, NOBODY, NOBODY)
    return secret


def test_a_hard_link_of_somebody_elses_file_is_read_and_never_written_or_changed(
    folder: Path, root: Directory, elsewhere: Path
) -> None:
    os.link(elsewhere, folder / "planted")
    before = snapshot(elsewhere)
    fd = root.open_file(b"planted")
    assert os.read(fd, 10) == b"theirs"
    os.close(fd)
    for call in (
        lambda: root.open_file(b"planted", os.O_WRONLY),
        lambda: root.open_file(b"planted", os.O_RDWR | os.O_APPEND),
        lambda: root.change_mode(b"planted", 0o777),
        lambda: root.change_owner(b"planted", 0, 0),
        lambda: root.change_times(b"planted", 1, 2),
    ):
        with pytest.raises(PermissionDenied):
            call()
    assert snapshot(elsewhere) == before
    root.unlink(b"planted")
    assert elsewhere.read_bytes() == b"theirs"


def test_ones_own_hard_links_are_written_and_changed(folder: Path, root: Directory) -> None:
    (folder / "a").write_bytes(b"mine")
    root.link(b"a", b"b")
    write(root, b"a")
    root.change_mode(b"b", 0o600)
    root.change_times(b"b", 1, 2)
    assert (folder / "b").read_bytes() == b"written"
    assert root.stat(b"a").mtime_ns == 2
    root.change_owner(b"b", NOBODY, NOBODY)
    assert root.stat(b"a").uid == NOBODY


def test_a_hard_link_to_a_link_is_the_link(planted: Path, root: Directory) -> None:
    root.link(b"to-file", b"second")
    assert stat.S_ISLNK(root.stat(b"second").mode)
    assert root.stat(b"second").nlink == 2
    with pytest.raises(LinkRefused):
        root.open_file(b"second")


# Modes.


def test_opening_to_write_takes_set_id_bits_away_and_opening_to_read_does_not(
    folder: Path, root: Directory
) -> None:
    (folder / "f").write_bytes(b"old")
    os.chmod(folder / "f", 0o6755)
    os.close(root.open_file(b"f"))
    assert root.stat(b"f").mode == stat.S_IFREG | 0o6755
    fd = root.open_file(b"f", os.O_WRONLY)
    os.write(fd, b"new")
    os.close(fd)
    assert root.stat(b"f").mode == stat.S_IFREG | 0o755


def test_no_file_made_or_changed_gets_set_id_bits(folder: Path, root: Directory) -> None:
    os.close(root.create_file(b"made", 0o6750))
    assert root.stat(b"made").mode == stat.S_IFREG | 0o750
    root.change_mode(b"made", 0o7711)
    assert root.stat(b"made").mode == stat.S_IFREG | 0o1711
    os.mkfifo(folder / "fifo")
    root.change_mode(b"fifo", 0o6600)
    assert root.stat(b"fifo").mode == stat.S_IFIFO | 0o600


def test_what_is_made_has_its_mode_and_owner_whatever_the_umask_and_the_parent(
    folder: Path, root: Directory
) -> None:
    os.chown(folder, 7, 8)
    os.chmod(folder, 0o2777)  # a set-group-id directory hands its group and the bit down
    for umask in (0o777, 0o022, 0):
        before = os.umask(umask)
        try:
            name = b"%o" % umask
            os.close(root.create_file(name + b"f"))
            os.close(root.create_file(name + b"g", 0o664, (1000, 1001)))
            root.make_directory(name + b"d")
            root.make_directory(name + b"e", 0o775, (1000, 1001))
            root.make_directories(name + b"h/i", 0o711, (1000, 1001)).close()
        finally:
            os.umask(before)
        made = {
            ending: (status.mode & 0o7777, status.uid, status.gid)
            for ending in (b"g", b"e", b"h", b"h/i")
            for status in [root.stat(name + ending)]
        }
        assert made == {
            b"g": (0o664, 1000, 1001),
            b"e": (0o775, 1000, 1001),
            b"h": (0o711, 1000, 1001),
            b"h/i": (0o711, 1000, 1001),
        }
        assert root.stat(name + b"f").mode == stat.S_IFREG | 0o600
        assert root.stat(name + b"d").mode == stat.S_IFDIR | 0o700


def test_an_owner_that_may_not_be_given_leaves_nothing(folder: Path) -> None:
    os.chmod(folder, 0o777)
    left = run_python(
        "import json, os, sys\n"
        "from vfs.beneath import Directory\n"
        "from vfs.errors import VfsError\n"
        "root = Directory.open(sys.argv[1])\n"
        f"os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
        "answers = []\n"
        "for call in (root.create_file, root.make_directory):\n"
        "    try: call(b'x', 0o600, (0, 0))\n"
        "    except VfsError as error: answers.append(error.kind)\n"
        "print(json.dumps([answers, [name.decode() for name in root.names()]]))\n",
        folder,
    )
    assert left == [["permission", "permission"], []]
