"""Changes made on the storage itself: they are seen, an open file stays itself, none leads out."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mount.posix_mount import DEADLINE, ROOT, Mounted, mounted, program, until
from tests.mount.posix_peer import Peer
from tests.mount.posix_tree import tree


@pytest.fixture(scope="module", params=["0", "0.1"], ids=["uncached", "cached"])
def outside(
    transport: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mounted]:
    """A mount that shows outside changes at once, or after a tenth of a second."""
    folder = tmp_path_factory.mktemp("outside")
    with mounted(folder, transport, "--cache", request.param) as made:
        yield made


def folder_of(made: Mounted, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """A new folder for one test: as the mount shows it, and on the disk."""
    return made.folder(request.node.name.replace("/", "_"))


@pytest.fixture(scope="module")
def uncached(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """A mount that is asked for every name each time: the most there is to race with."""
    with mounted(tmp_path_factory.mktemp("uncached"), transport, "--cache", "0") as made:
        yield made


@pytest.fixture
def view(outside: Mounted, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """A folder of the mount, and the same on the disk."""
    return folder_of(outside, request)


def seen(what: str, condition: Callable[[], bool]) -> None:
    """Polls until the mount shows it; 5 s is long for a cache of 0.1 s on a busy machine."""

    def holds() -> bool:
        try:
            return condition()
        except OSError:
            return False

    until(holds, f"the mount shows {what}", 5)


def missing(path: Path) -> bool:
    return not os.path.lexists(path)


@pytest.mark.parametrize("content", [b"B" * 10, b"B" * 5, b"B" * 200_000, b""])
def test_changed_content_is_seen(view: tuple[Path, Path], content: bytes) -> None:
    shown, disk = view
    (disk / "f").write_bytes(b"A" * 10)
    with open(shown / "f", "rb", buffering=0) as file:
        assert file.read(20) == b"A" * 10
        assert (shown / "f").read_bytes() == b"A" * 10
        (disk / "f").write_bytes(content)
        seen("the new bytes", lambda: (shown / "f").read_bytes() == content)
        seen("the new size", lambda: (shown / "f").stat().st_size == len(content))
        seen(
            "them to who has it open",
            lambda: os.pread(file.fileno(), 300_000, 0) == content,
        )


def test_changed_content_of_a_file_that_is_written_here_is_seen(view: tuple[Path, Path]) -> None:
    shown, disk = view
    with open(shown / "f", "w+b", buffering=0) as file:
        file.write(b"A" * 100_000)
        with open(disk / "f", "r+b", buffering=0) as other:
            os.pwrite(other.fileno(), b"B", 50_000)
            seen("the byte", lambda: os.pread(file.fileno(), 3, 49_999) == b"ABA")
        os.pwrite(file.fileno(), b"C", 50_001)
    assert (disk / "f").read_bytes()[49_999:50_003] == b"ABCA"


def test_a_replaced_file_is_seen_and_the_open_one_stays_itself(view: tuple[Path, Path]) -> None:
    shown, disk = view
    (disk / "f").write_bytes(b"old")
    with open(shown / "f", "r+b", buffering=0) as file:
        (disk / "new").write_bytes(b"the new one")
        os.rename(disk / "new", disk / "f")
        seen("the new file", lambda: (shown / "f").read_bytes() == b"the new one")
        assert os.pread(file.fileno(), 20, 0) == b"old"
        os.pwrite(file.fileno(), b"OLD", 0)
        assert os.fstat(file.fileno()).st_size == 3
        assert os.pread(file.fileno(), 20, 0) == b"OLD"
    assert (disk / "f").read_bytes() == b"the new one"


def test_a_renamed_file_is_seen_and_the_open_one_stays_itself(view: tuple[Path, Path]) -> None:
    shown, disk = view
    (disk / "d").mkdir()
    (disk / "f").write_bytes(b"same")
    with open(shown / "f", "r+b", buffering=0) as file:
        os.rename(disk / "f", disk / "d" / "g")
        seen("the old name gone", lambda: missing(shown / "f"))
        seen("the new name", lambda: (shown / "d" / "g").read_bytes() == b"same")
        file.write(b"MORE")
        os.fchmod(file.fileno(), 0o640)
        assert os.fstat(file.fileno()).st_nlink == 1
    assert (disk / "d" / "g").read_bytes() == b"MORE"
    assert stat.S_IMODE((disk / "d" / "g").stat().st_mode) == 0o640


def test_a_deleted_file_is_seen_and_the_open_one_stays_itself(view: tuple[Path, Path]) -> None:
    shown, disk = view
    (disk / "f").write_bytes(b"gone")
    with open(shown / "f", "r+b", buffering=0) as file:
        os.unlink(disk / "f")
        seen("it gone", lambda: missing(shown / "f"))
        assert os.listdir(shown) == []
        assert file.read(10) == b"gone"
        file.write(b" on")
        seen("no name left", lambda: os.fstat(file.fileno()).st_nlink == 0)
        assert os.pread(file.fileno(), 20, 0) == b"gone on"


def test_a_made_file_is_seen_where_there_was_none(view: tuple[Path, Path]) -> None:
    shown, disk = view
    assert missing(shown / "f")
    assert os.listdir(shown) == []
    (disk / "f").write_bytes(b"here")
    (disk / "d").mkdir()
    seen("the file", lambda: (shown / "f").read_bytes() == b"here")
    seen("both listed", lambda: sorted(os.listdir(shown)) == ["d", "f"])


def test_a_made_file_is_not_replaced_by_who_missed_it(view: tuple[Path, Path]) -> None:
    shown, disk = view
    assert missing(shown / "f")
    (disk / "f").write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        os.open(shown / "f", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    with open(shown / "f", "ab") as file:
        file.write(b" and ours")
    assert (disk / "f").read_bytes() == b"theirs and ours"


def test_changed_attributes_and_links_are_seen(view: tuple[Path, Path]) -> None:
    shown, disk = view
    (disk / "f").write_bytes(b"")
    assert (shown / "f").stat().st_nlink == 1
    os.link(disk / "f", disk / "g")
    os.chmod(disk / "f", 0o604)
    os.utime(disk / "f", ns=(5, 7))
    os.setxattr(disk / "f", "user.note", b"outside")

    def shows(name: str) -> bool:
        status = (shown / name).stat()
        found = (status.st_nlink, stat.S_IMODE(status.st_mode), status.st_mtime_ns)
        return found == (2, 0o604, 7) and os.getxattr(shown / name, "user.note") == b"outside"

    seen("them at the first name", lambda: shows("f"))
    seen("them at the second", lambda: shows("g"))
    assert (shown / "f").stat().st_ino == (shown / "g").stat().st_ino


def test_a_directory_moved_within_the_workspace_keeps_who_is_in_it(
    view: tuple[Path, Path],
) -> None:
    shown, disk = view
    (disk / "d" / "e").mkdir(parents=True)
    (disk / "to").mkdir()
    with Peer(shown) as peer:
        assert peer.call("chdir", b"d/e") is None
        os.rename(disk / "d", disk / "to" / "d2")
        seen("it gone", lambda: missing(shown / "d"))
        seen("it there", lambda: (shown / "to" / "d2" / "e").is_dir())
        assert peer.call("open", b"made", os.O_CREAT | os.O_WRONLY, 0o644, "f") != "ESTALE"
        assert peer.call("write", "f", b"inside") == 6
        assert peer.call("listdir", b".") == [(b"made", False, False)]
    assert (disk / "to" / "d2" / "e" / "made").read_bytes() == b"inside"


def test_a_directory_and_its_parent_that_change_places_are_both_reached(
    view: tuple[Path, Path],
) -> None:
    shown, disk = view
    (disk / "upper" / "lower").mkdir(parents=True)
    with Peer(shown) as peer:
        assert peer.call("chdir", b"upper/lower") is None
        assert peer.call("listdir", b".") == []
        os.rename(disk / "upper" / "lower", disk / "lower")
        os.rename(disk / "upper", disk / "lower" / "upper")
        # The kernel knows the one as the other's parent still, and refuses to make a loop of them.
        peer.call("listdir", b"upper")
        seen("one gone", lambda: missing(shown / "upper"))
        # To who is in it first: a look at its new name would tell where it is.
        assert peer.call("listdir", b".") in ([], [(b"upper", True, False)])
        seen("it in the other", lambda: os.listdir(shown / "lower") == ["upper"])
        seen("it as a directory", lambda: os.listdir(shown / "lower" / "upper") == [])
        assert peer.call("listdir", b".") == [(b"upper", True, False)]


def test_a_directory_moved_out_of_the_workspace_is_shut(
    outside: Mounted, view: tuple[Path, Path]
) -> None:
    shown, disk = view
    away = outside.storage / "user-data" / f"away-{shown.name}"
    (disk / "d").mkdir()
    (disk / "d" / "secret").write_bytes(b"secret")
    with Peer(shown) as peer:
        assert peer.call("chdir", b"d") is None
        os.rename(disk / "d", away)
        refused = ("ESTALE", "ENOENT")
        seen("it shut", lambda: peer.call("open", b"new", os.O_CREAT | os.O_WRONLY) in refused)
        made = os.listdir(away)  # what was made before it was seen to be away
        for call in (
            ("open", b"new2", os.O_CREAT | os.O_WRONLY),
            ("open", b"secret", os.O_RDONLY),
            ("mkdir", b"sub", 0o755),
            ("unlink", b"secret"),
            ("rename", b"secret", b"moved"),
        ):
            assert peer.call(*call) in refused, call
    assert os.listdir(away) == made
    shutil.rmtree(away)


def test_a_directory_replaced_by_a_link_shows_nothing_of_its_target(
    outside: Mounted, view: tuple[Path, Path]
) -> None:
    shown, disk = view
    target = outside.storage / "user-data" / f"target-{shown.name}"
    target.mkdir()
    (target / "secret").write_bytes(b"secret")
    before = tree(target)
    for there in (target, Path("/")):
        (disk / "d").mkdir()
        (disk / "d" / "f").write_bytes(b"inside")
        with Peer(shown) as peer:
            seen("the directory", lambda: (shown / "d" / "f").read_bytes() == b"inside")
            assert peer.call("chdir", b"d") is None
            shutil.rmtree(disk / "d")
            os.symlink(there, disk / "d")
            seen("the link", lambda: stat.S_ISLNK(os.lstat(shown / "d").st_mode))
            for call in (
                ("open", b"../d/secret", os.O_RDONLY),
                ("open", b"../d/etc/passwd", os.O_RDONLY),
                ("open", b"secret", os.O_RDONLY),
                ("open", b"new", os.O_CREAT | os.O_WRONLY),
                ("open", b"../d/new", os.O_CREAT | os.O_WRONLY),
                ("listdir", b"../d"),
                ("listdir", b"../d/."),
                ("readlink", b"../d"),
                ("stat", b"../d"),
                ("chdir", b"../d"),
                ("mkdir", b"../d/sub", 0o755),
                ("unlink", b"../d/secret"),
                ("truncate", b"../d/secret", 0),
                ("rename", b"../d/secret", b"../stolen"),
                ("link", b"../d/secret", b"../stolen"),
            ):
                result = peer.call(*call)
                assert result in ("ELOOP", "ENOENT", "ESTALE", "ENOTDIR"), (call, result)
        os.unlink(disk / "d")
    assert tree(target) == before
    shutil.rmtree(target)


# Races.


@contextmanager
def swapping(folder: Path, one: str, other: str) -> Iterator[Callable[[], int]]:
    """Has another process swap two names; the value given tells, afterwards, how often."""
    process = subprocess.Popen(
        program("posix_swap", folder, one, other),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    swaps: list[int] = []
    try:
        yield lambda: swaps[0]
    finally:
        output, _ = process.communicate(timeout=30)
        swaps.append(int(output or 0))


CREATE = os.O_CREAT | os.O_RDWR


def attempt(peer: Peer, number: int) -> list[object]:
    """One round of uses of `d`; their results."""
    name = b"d/new%d" % number
    results: list[object] = [peer.call("open", b"d/secret", os.O_RDWR, 0, "f")]
    if not str(results[0]).startswith("E"):
        results += [peer.call("read", "f", 100), peer.call("pwrite", "f", b"mine", 0)]
        peer.call("close", "f")
    results += [
        peer.call("open", name, CREATE, 0o644),
        peer.call("mkdir", b"d/sub%d" % number, 0o755),
        peer.call("rename", name, b"d/moved%d" % number),
        peer.call("chmod", b"d/secret", 0o777),
        peer.call("truncate", b"d/secret", 3),
        peer.call("unlink", b"d/gone%d" % number),
        peer.call("rmdir", b"d/kept"),
    ]
    return results


@pytest.mark.slow
def test_no_use_of_a_directory_that_is_swapped_with_a_link_lands_outside(
    uncached: Mounted, request: pytest.FixtureRequest
) -> None:
    shown, disk = folder_of(uncached, request)
    target = uncached.storage / "user-data" / f"target-{shown.name}"
    for folder, secret in ((disk / "d", b"inside"), (target, b"outside")):
        folder.mkdir()
        (folder / "secret").write_bytes(secret)
    (target / "kept").mkdir()
    for number in range(2000):
        (target / f"gone{number}").write_bytes(b"")
    os.symlink(target, disk / "l")
    before = tree(target)
    read = set()
    outcomes = set()
    with Peer(shown) as peer, swapping(disk, "d", "l") as swaps:
        for number in range(2000):
            results = attempt(peer, number)
            outcomes |= {str(result) for result in results if isinstance(result, str)}
            read |= {result for result in results if isinstance(result, bytes)}
    assert tree(target) == before
    assert all(not content.startswith(b"out") for content in read)
    # The race was run: the links were met, and the directory was too.
    assert swaps() > 4000
    assert "ELOOP" in outcomes or "ENOENT" in outcomes
    assert read
    # The same uses on the disk itself do land outside.
    with Peer(disk) as peer, swapping(disk, "d", "l"):
        for number in range(2000):
            attempt(peer, number)
    assert tree(target) != before
    shutil.rmtree(target)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["fifo", "device", "link"])
def test_a_file_swapped_with_what_must_not_be_opened_never_hangs(
    view: tuple[Path, Path], other: str
) -> None:
    shown, disk = view
    (disk / "f").write_bytes(b"inside")
    if other == "fifo":
        os.mkfifo(disk / "other")
    elif other == "device":
        os.mknod(disk / "other", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    else:
        os.symlink("/etc/hostname", disk / "other")
    contents = set()
    tries = 0
    # As long as what was looked up last is remembered, every try meets it again.
    end = time.monotonic() + DEADLINE
    with Peer(shown) as peer, swapping(disk, "f", "other") as swaps:
        while tries < 450 or (not contents and time.monotonic() < end):
            flags = (os.O_RDONLY, os.O_RDWR, os.O_WRONLY)[tries % 3]
            tries += 1
            if str(peer.call("open", b"f", flags, 0, "f")).startswith("E"):
                continue
            if flags != os.O_WRONLY:
                contents.add(peer.call("read", "f", 20))
            peer.call("close", "f")
    assert contents == {b"inside"}
    assert swaps() > 500


# What must not be opened or honoured.


def test_fifos_sockets_and_devices_refuse_at_once(view: tuple[Path, Path]) -> None:
    shown, disk = view
    os.mkfifo(disk / "fifo", 0o666)
    os.mknod(disk / "socket", stat.S_IFSOCK | 0o666)
    os.mknod(disk / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    os.mknod(disk / "disk", stat.S_IFBLK | 0o666, os.makedev(7, 250))
    with Peer(shown) as peer:
        for name in (b"fifo", b"socket", b"zero", b"disk"):
            for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, CREATE):
                result = peer.call("open", name, flags)  # blocking: the peer has a deadline
                assert result in ("ENXIO", "EACCES"), (name, flags, result)
    done = subprocess.run(["cat", "fifo"], cwd=shown, capture_output=True, timeout=10, check=False)
    assert done.returncode == 1
    assert sorted(os.listdir(shown)) == ["disk", "fifo", "socket", "zero"]


@pytest.fixture
def keeping(keeping_mount: Mounted, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """A folder of a mount that shows owners as they are and lets others in."""
    return folder_of(keeping_mount, request)


def test_a_set_user_id_program_runs_as_its_caller(keeping: tuple[Path, Path]) -> None:
    shown, disk = keeping
    program_file = disk / "id"
    shutil.copy("/usr/bin/id", program_file)
    program_file.chmod(0o6755)

    def effective(folder: Path) -> str:
        # The folder is entered before the user is changed, who may not pass its parents.
        done = subprocess.run(
            ["./id", "-u"], cwd=folder, user=65534, group=65534, extra_groups=[],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert effective(disk) == "0"
    assert effective(shown) == "65534"


def bits(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


def test_set_id_bits_go_when_a_file_is_made_changed_or_written_here(
    keeping: tuple[Path, Path],
) -> None:
    shown, disk = keeping

    def write(path: Path) -> None:
        with open(path, "r+b", buffering=0) as file:
            file.write(b"x")

    def append(path: Path) -> None:
        with open(path, "ab", buffering=0) as file:
            file.write(b"x")

    def by_handle(path: Path) -> None:
        with open(path, "r+b", buffering=0) as file:
            os.ftruncate(file.fileno(), 1)

    changes: dict[str, Callable[[Path], object]] = {
        "write": write,
        "append": append,
        "truncate": lambda path: os.truncate(path, 1),
        "ftruncate": by_handle,
        "O_TRUNC": lambda path: path.write_bytes(b""),
        "chmod": lambda path: os.chmod(path, 0o6755),
        "chown": lambda path: os.chown(path, 65534, 65534),
    }
    found = {}
    for name, change in changes.items():
        (disk / name).write_bytes(b"#!/bin/sh\n")
        (disk / name).chmod(0o6755)
        change(shown / name)
        found[name] = bits(disk / name)
    assert found == dict.fromkeys(changes, "0o755")
    os.close(os.open(shown / "made", CREATE | os.O_EXCL, 0o6755))
    os.mkdir(shown / "folder", 0o755)
    os.chmod(shown / "folder", 0o3775)
    assert (bits(disk / "made"), bits(disk / "folder")) == ("0o755", "0o3775")


def test_a_planted_hard_link_of_roots_file_is_not_written(
    outside: Mounted, view: tuple[Path, Path]
) -> None:
    shown, disk = view
    secret = outside.storage / "user-data" / f"secret-{shown.name}"
    secret.write_bytes(b"root's")
    os.link(secret, disk / "planted")
    with Peer(shown) as peer:
        for call in (
            ("open", b"planted", os.O_WRONLY),
            ("open", b"planted", os.O_RDONLY | os.O_TRUNC),
            ("open", b"planted", CREATE | os.O_APPEND),
            ("truncate", b"planted", 0),
        ):
            assert peer.call(*call) == "EPERM", call
    assert secret.read_bytes() == b"root's"
    secret.unlink()


def test_a_mount_below_the_workspace_is_not_entered(
    view: tuple[Path, Path], tmp_path: Path
) -> None:
    shown, disk = view
    (tmp_path / "secret").write_bytes(b"secret")
    (disk / "below").mkdir()
    (disk / "below" / "secret").write_bytes(b"beneath")
    before = tree(tmp_path)
    subprocess.run(["mount", "--bind", tmp_path, disk / "below"], check=True)
    try:
        with Peer(shown) as peer:
            if peer.call("open", b"below/secret", os.O_RDWR, 0, "f") == "0o100002":
                assert peer.call("read", "f", 20) == b"beneath"
                assert peer.call("write", "f", b" it") == 3
            peer.call("open", b"below/new", CREATE)
            peer.call("mkdir", b"below/sub", 0o755)
            peer.call("unlink", b"below/secret")
    finally:
        subprocess.run(["umount", disk / "below"], check=True)
    assert tree(tmp_path) == before


NAMES = (
    b"x" * 255, b"\xff\xfe\x80", b"new\nline", b"\x1b[31mred", b"-rf", b"*", b"back\\slash",
    b" spaces  ", b"dot.", "e\u0301".encode(), "\u00e9".encode(), b"case", b"CASE", "文件".encode(),
)  # fmt: skip


def test_names_of_any_bytes_pass_both_ways(view: tuple[Path, Path]) -> None:
    shown, disk = (os.fsencode(path) for path in view)
    for number, name in enumerate(NAMES):
        here, there = (shown, disk) if number % 2 else (disk, shown)
        with open(os.path.join(here, name), "wb") as file:
            file.write(name)
        with open(os.path.join(there, name), "rb") as file:
            assert file.read() == name
    assert sorted(os.listdir(shown)) == sorted(os.listdir(disk)) == sorted(NAMES)
    for name in NAMES:
        os.rename(os.path.join(shown, name), os.path.join(shown, name[:-1] + b"~"))
    assert len(os.listdir(disk)) == len({name[:-1] for name in NAMES})
    with pytest.raises(OSError) as caught:
        os.stat(os.path.join(shown, b"x" * 256))
    assert caught.value.errno == errno.ENAMETOOLONG


@pytest.mark.parametrize("links", ["show", "hide", "contained"])
def test_links_are_shown_hidden_or_followed_inside(
    transport: str, tmp_path: Path, links: str
) -> None:
    with mounted(tmp_path, transport, "--links", links) as made:
        shown, disk = made.folder("links")
        (disk / "d").mkdir()
        (disk / "f").write_bytes(b"inside")
        targets = {"good": "../f", "out": "../../../../../../etc/passwd", "root": "/etc/passwd"}
        for name, target in targets.items():
            os.symlink(target, disk / "d" / name)
        with Peer(shown) as peer:
            found = {
                name: (
                    peer.call("readlink", b"d/" + name.encode()),
                    peer.call("open", b"d/" + name.encode(), os.O_RDONLY, 0, name),
                )
                for name in targets
            }
            content = peer.call("read", "good", 10)
            listed = [name.decode() for name, _, _ in peer.call("listdir", b"d")]
            made_link = peer.call("symlink", b"../f", b"d/new")
    refused = dict.fromkeys(targets, ("ELOOP", "ELOOP"))
    if links == "hide":
        assert found == dict.fromkeys(targets, ("ENOENT", "ENOENT"))
        assert listed == []
    elif links == "show":
        assert (found, sorted(listed), made_link) == (refused, sorted(targets), "EPERM")
    else:
        assert (found["good"][0], content, made_link) == (b"../f", b"inside", None)
        assert [found[name] for name in ("out", "root")] == [("ELOOP", "ELOOP")] * 2
        assert os.readlink(disk / "d" / "new") == "../f"
