"""The verbs that make storages and users, and what they say of storages that are none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.program import Vfs
from vfs.naming import safe_uid


def tree(top: Path) -> dict[str, tuple[int, int, int]]:
    """Path → mode, uid, gid of all that is at and beneath `top`."""
    found = [top, *top.rglob("*")]
    return {
        str(path.relative_to(top)): (stat.S_IMODE(s.st_mode), s.st_uid, s.st_gid)
        for path in found
        for s in [path.lstat()]
    }


NOBODY = 65534
MADE = (0o700, 1000, 1000)


def test_init_makes_the_folders_for_1000_whatever_the_umask(vfs: Vfs) -> None:
    assert vfs.good("init", umask=0o777) == b"the storage is ready, with 0 users\n"
    assert tree(vfs.storage) == dict.fromkeys(
        [".", "user-data", "user-data/shared", "skill-projections", "skill-store",
         "skill-store/shared"],
        MADE,
    )  # fmt: skip


def test_init_again_changes_nothing(alice: Vfs) -> None:
    (alice.storage / "user-data").chmod(0o750)
    before = tree(alice.storage)
    assert alice("init", "--json").json == {"users": 1}
    assert tree(alice.storage) == before


def test_user_add_makes_the_workspace_and_the_projection(vfs: Vfs) -> None:
    vfs.good("init")
    assert vfs.good("user", "add", "alice") == b"alice has a workspace, in the directory alice\n"
    made = set(tree(vfs.storage)) - {".", "user-data", "skill-projections", "skill-store"}
    assert made == {
        "user-data/shared", "user-data/shared/alice", "user-data/shared/alice/workspace",
        "skill-projections/alice", "skill-store/shared",
    }  # fmt: skip
    assert set(tree(vfs.storage).values()) == {MADE}
    done = vfs("user", "add", "alice")
    assert (done.status, done.out) == (4, b"")


def test_users_lists_directory_names(vfs: Vfs) -> None:
    vfs.good("init")
    assert vfs.good("users") == b""
    for uid in ("zoe", "小王@example.org"):
        assert vfs("user", "add", uid, "--json").json == {"uid": uid, "directory": safe_uid(uid)}
    directories = [safe_uid("小王@example.org"), "zoe"]
    assert vfs.good("users").decode().split() == directories
    assert vfs("users", "--json").json == {"users": [{"directory": d} for d in directories]}


@pytest.mark.parametrize(
    ("uid", "message"),
    [
        (b"", "the user id is empty; give a user id"),
        (
            b"\xff",
            r"the user id cannot be written as UTF-8: \xff; give it as valid Unicode text",
        ),
    ],
)
@pytest.mark.parametrize("verb", [("user", "add"), ("ls",), ("du",)])
def test_what_is_no_uid_is_refused(
    alice: Vfs, verb: tuple[str, ...], uid: bytes, message: str
) -> None:
    done = alice(*verb, uid)
    assert (done.status, done.out, done.err.decode()) == (19, b"", f"vfs: {message}\n")
    assert alice.good("users") == b"alice\n"


def test_a_missing_storage_is_said_with_the_fix(vfs: Vfs) -> None:
    done = vfs("users")
    assert (done.status, done.out, done.err.decode()) == (
        3,
        b"",
        "vfs: the storage is not there; make it with `vfs init`, or name another folder\n",
    )
    assert not vfs.storage.exists()


def test_a_storage_that_is_a_link_is_refused(alice: Vfs, tmp_path: Path) -> None:
    real = tmp_path / "real"
    os.rename(alice.storage, real)
    os.symlink(real, alice.storage)
    done = alice("users")
    assert (done.status, done.err.decode()) == (
        8,
        "vfs: the storage is a symbolic link; name the real directory\n",
    )


def test_a_root_that_is_a_link_is_refused(alice: Vfs, tmp_path: Path) -> None:
    os.rename(alice.storage / "user-data", tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", alice.storage / "user-data")
    done = alice("users")
    assert (done.status, done.err.decode()) == (
        8,
        "vfs: user-data is a symbolic link; name the real directory\n",
    )


def test_a_storage_that_is_a_file_is_refused(vfs: Vfs) -> None:
    vfs.storage.touch()
    for verb in ("users", "init"):
        done = vfs(verb)
        assert (done.status, done.err.decode()) == (
            6,
            "vfs: the storage is not a directory; name a directory\n",
        )


def test_as_anybody_else_than_root_what_is_made_is_the_callers(vfs: Vfs, reachable: Path) -> None:
    reachable.chmod(0o777)
    mine = vfs.by(NOBODY, reachable / "storage")
    mine.good("init")
    mine.good("user", "add", "alice")
    mine.good("put", "alice", "/d/f", "-", "--mkdirs", stdin=b"x")
    owners = {(uid, gid) for _, uid, gid in tree(mine.storage).values()}
    assert owners == {(NOBODY, NOBODY)}


def test_without_the_right_to_enter_the_storage_it_says_so(alice: Vfs, reachable: Path) -> None:
    storage = reachable / "storage"
    os.rename(alice.storage, storage)
    done = alice.by(NOBODY, storage)("ls", "alice")
    assert (done.status, done.out) == (10, b"")
    assert done.err.decode().endswith("run as the owner of the storage, or as root\n")
