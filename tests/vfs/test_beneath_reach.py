"""Any depth, width and length; other users, other processes, other moments; both resolvers."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vfs.calls import ALL, CHANGING, READING
from tests.vfs.conftest import Mount
from tests.vfs.hostile import NOBODY, run_python
from vfs.beneath import Directory, reopen
from vfs.errors import (
    LinkRefused,
    NotEmpty,
    NotFound,
    Unavailable,
    VfsError,
)

pytestmark = pytest.mark.usefixtures("way")

# Sizes and depths.


@pytest.fixture
def chain(folder: Path, root: Directory) -> object:
    """Directories 5 000 deep; their path is longer than any call of the system takes."""
    parts = [b"d"] * 5000
    root.make_directories(parts).close()
    yield parts
    subprocess.run(["rm", "-rf", "--", folder], check=True)


@pytest.mark.slow
def test_a_path_of_any_length_is_worked_with(chain: list[bytes], root: Directory) -> None:
    held = os.listdir("/proc/self/fd")
    path = b"/".join([*chain, b"file"])
    assert len(path) > 2 * 4096
    fd = root.create_file(path)
    os.write(fd, b"deep")
    os.close(fd)
    fd = root.open_file(path)
    assert os.read(fd, 10) == b"deep"
    os.close(fd)
    assert root.stat(path).size == 4
    assert root.names(chain) == [b"file"]
    root.rename(path, [*chain, b"moved"])
    root.make_link([*chain, b"link"], b"moved")
    with pytest.raises(LinkRefused):
        root.open_file([*chain, b"link", b"x"])
    root.unlink([*chain, b"moved"])
    with pytest.raises(NotEmpty):
        root.remove_directory(chain)
    root.unlink([*chain, b"link"])
    root.remove_directory(chain)
    with pytest.raises(NotFound):
        root.stat(chain)
    assert os.listdir("/proc/self/fd") == held


@pytest.mark.parametrize("length", [4094, 4095, 4096, 4097, 8190, 8191, 8192, 12288])
def test_a_path_around_the_kernels_limit_is_resolved(root: Directory, length: int) -> None:
    parts = [b"n" * 254] * (length // 255)
    if rest := length - len(b"/".join(parts)):
        parts.append(b"r" * (rest - 1))
    parts = [part for part in parts if part]
    path = b"/".join(parts)
    assert abs(len(path) - length) <= 1
    root.make_directories(path).close()
    with root.directory(path) as directory:
        os.close(directory.create_file(b"f"))
        assert directory.stat().identity == root.stat(path).identity
    assert root.names(path) == [b"f"]
    assert root.stat(path + b"/f").size == 0


@pytest.mark.slow
def test_a_link_beyond_the_kernels_limit_is_refused(
    chain: list[bytes], root: Directory, outside: Path
) -> None:
    for depth in (2047, 2048, 2049, 4990):
        at = [*chain[:depth], b"link"]
        root.make_link(at, os.fsencode(outside))
        for call in (READING | CHANGING).values():
            with pytest.raises(LinkRefused):
                call(root, b"/".join(at))
            with pytest.raises(LinkRefused):
                call(root, b"/".join([*at, b"secret"]))


def test_a_file_of_the_largest_size_is_taken_for_what_it_is(
    folder: Path, root: Directory, mount: Mount
) -> None:
    mount(folder, "-t", "tmpfs", "-o", "size=64k", "none")
    with Directory.open(folder) as directory:
        fd = directory.create_file(b"sparse")
        os.truncate(fd, 2**63 - 1)
        os.close(fd)
        status = directory.stat(b"sparse")
        assert (status.size, status.blocks) == (2**63 - 1, 0)


@pytest.mark.slow
def test_a_directory_of_100_000_entries_is_listed_whole(
    folder: Path, root: Directory, mount: Mount
) -> None:
    mount(folder, "-t", "tmpfs", "-o", "size=64m", "none")
    with Directory.open(folder) as directory:
        wanted = [b"%06d" % number for number in range(100_000)]
        for name in wanted:
            os.close(directory.create_file((name,)))
        assert sorted(directory.names()) == wanted
        assert directory.stat(wanted[-1]).size == 0


# Other users, other processes.


def test_what_another_user_may_not_read_is_denied_by_kind(folder: Path) -> None:
    os.chmod(folder, 0o755)
    for name, mode in (("closed", 0o000), ("blind", 0o111), ("listed", 0o444)):
        (folder / name / "sub").mkdir(parents=True)
        (folder / name / "f").write_bytes(b"")
        os.chmod(folder / name / "f", 0o600)
        os.chmod(folder / name, mode)
    answers = run_python(
        "import json, os, sys\n"
        "from vfs.beneath import Directory\n"
        "from vfs.errors import VfsError\n"
        "root = Directory.open(sys.argv[1])\n"
        f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
        "def kind(call, *arguments):\n"
        "    try: call(*arguments)\n"
        "    except VfsError as error: return error.kind\n"
        "    return 'done'\n"
        "print(json.dumps({name: [\n"
        "    kind(root.names, name),\n"
        "    kind(root.stat, name + '/f'), kind(root.stat, name + '/sub'),\n"
        "    kind(root.open_file, name + '/f'), kind(root.create_file, name + '/new'),\n"
        "    kind(root.unlink, name + '/f'), kind(root.stat, name),\n"
        "] for name in ('closed', 'blind', 'listed')}))\n",
        folder,
    )
    denied = "permission"
    assert answers == {
        "closed": [denied, denied, denied, denied, denied, denied, "done"],
        "blind": [denied, "done", "done", denied, denied, denied, "done"],
        "listed": ["done", denied, denied, denied, denied, denied, "done"],
    }


def test_no_descriptor_reaches_a_child(planted: Path, root: Directory) -> None:
    with root.directory(b"dir") as directory, root.make_directories(b"made/deep") as made:
        fds = [
            root.open_file(b"source", os.O_RDWR),
            root.open_file(b"dir/secret"),
            root.create_file(b"new"),
            directory.create_file(b"new"),
            root.open_listing(),
            directory.open_listing(),
            root.open_listing(b"dir"),
        ]
        held = [root.fd, directory.fd, made.fd, *fds]
        try:
            assert [fd for fd in held if os.get_inheritable(fd)] == []
            code = (
                "import os\n"
                "for name in os.listdir('/proc/self/fd'):\n"
                "    try: print(os.readlink('/proc/self/fd/' + name))\n"
                "    except FileNotFoundError: pass\n"
            )
            done = subprocess.run(
                [sys.executable, "-c", code], close_fds=False, stdout=subprocess.PIPE, check=True
            )
            assert os.fsencode(planted) not in done.stdout
        finally:
            for fd in fds:
                os.close(fd)


def test_a_pinned_directory_stays_the_same_one_when_it_is_moved(
    planted: Path, root: Directory, outside: Path
) -> None:
    with root.directory(b"dir") as directory:
        (planted / "dir").rename(planted / "elsewhere")
        (planted / "dir").symlink_to(outside)
        fd = directory.open_file(b"secret")
        assert os.read(fd, 10) == b"inside"
        os.close(fd)
    with pytest.raises(LinkRefused):
        root.directory(b"dir")


def test_a_directory_that_is_gone_holds_nothing_and_takes_nothing(
    planted: Path, root: Directory
) -> None:
    with root.make_directories(b"gone") as directory:
        (planted / "gone").rmdir()
        for call in ALL.values():
            with pytest.raises(NotFound):
                call(directory, b"source")


def test_no_descriptor_is_left_whatever_is_refused(planted: Path, root: Directory) -> None:
    held = os.listdir("/proc/self/fd")
    for path in (b"to-file", b"to-directory/x", b"dir/deep/x/y", b"no/there", b"source/x", b".."):
        for call in (READING | CHANGING).values():
            with pytest.raises(VfsError):
                call(root, path)
    assert os.listdir("/proc/self/fd") == held


def test_without_proc_a_file_is_unavailable_and_not_missing(
    planted: Path, root: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def without_proc(path: str | bytes, flags: int, *args: int, **kwargs: int) -> int:
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", without_proc)
    with pytest.raises(Unavailable):
        root.open_file(b"source")


def test_a_held_file_is_opened_again_even_when_its_name_is_gone(
    planted: Path, root: Directory
) -> None:
    held = os.open(planted / "source", os.O_PATH)
    (planted / "source").unlink()
    (planted / "source").symlink_to("/etc/passwd")
    fd = reopen(held, os.O_RDONLY)
    assert os.read(fd, 10) == b"inside"
    assert not os.get_inheritable(fd)
    os.close(fd)
    os.close(held)
