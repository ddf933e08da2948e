"""The verbs that look at files and change them, by what they print and what is on the disk then."""

from __future__ import annotations

import base64
import hashlib
import os
import pty
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, SECONDS, Vfs

WHEN = (1_700_000_000_123_456_789, 1_700_000_000_123_456_789)
"""2023-11-14T22:13:20.123456789Z, as os.utime takes it."""

NOBODY = 65534

HOSTILE = b"\x1b[2J\n\xff\\x41 -rf "
"""Moves the cursor, forges a line, is not UTF-8, looks like an escape, ends with a space."""
SHOWN = r"\x1b[2J\x0a\xff\x5cx41 -rf "


def workspace(vfs: Vfs, user: str = "alice") -> Path:
    """Where the user's files are on the disk."""
    return vfs.storage / "user-data" / "shared" / user / "workspace"


def make(vfs: Vfs, path: str | bytes, content: bytes = b"", mode: int = 0o600) -> Path:
    """A file on the disk, with its directories, as an agent would have made it."""
    file = Path(os.fsdecode(os.path.join(os.fsencode(workspace(vfs)), os.fsencode(path))))
    for folder in reversed(file.relative_to(workspace(vfs)).parents[:-1]):
        (workspace(vfs) / folder).mkdir(mode=0o700, exist_ok=True)
        os.chown(workspace(vfs) / folder, 1000, 1000)
    file.write_bytes(content)
    file.chmod(mode)
    os.chown(file, 1000, 1000)
    os.utime(file, ns=WHEN)
    return file


def names(vfs: Vfs) -> list[str]:
    """Every path beneath the workspace."""
    top = workspace(vfs)
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


# ls


def test_ls_shows_mode_owner_size_time_and_name_directories_first(alice: Vfs) -> None:
    make(alice, "a.txt", b"hello")
    make(alice, "b/c", bytes(12345))
    os.utime(workspace(alice) / "b", ns=WHEN)
    os.symlink("/etc/passwd", workspace(alice) / "link")
    os.utime(workspace(alice) / "link", ns=WHEN, follow_symlinks=False)
    size = (workspace(alice) / "b").stat().st_size
    assert alice.good("ls", "alice").decode() == (
        f"drwx------  1000:1000  {size}  2023-11-14T22:13:20Z  b\n"
        f"-rw-------  1000:1000  {5:{len(str(size))}}  2023-11-14T22:13:20Z  a.txt\n"
        f"lrwxrwxrwx  0:0        {11:{len(str(size))}}  2023-11-14T22:13:20Z  link\n"
    )
    assert alice.good("ls", "alice", "/b/c").decode() == (
        "-rw-------  1000:1000  12345  2023-11-14T22:13:20Z  c\n"
    )
    assert alice.good("ls", "alice", "b") == alice.good("ls", "alice", "/b/")


def test_ls_json_has_every_entry_exactly(alice: Vfs) -> None:
    make(alice, HOSTILE, b"x", 0o644)
    assert alice.good("ls", "alice", "--json").count(b"\n") == 1
    assert alice("ls", "alice", "--json").json == {
        "path": "/",
        "entries": [
            {
                "path": f"/{SHOWN}",
                "path_bytes": base64.urlsafe_b64encode(b"/" + HOSTILE).decode(),
                "type": "file",
                "mode": "0644",
                "uid": 1000,
                "gid": 1000,
                "size": 1,
                "modified": "2023-11-14T22:13:20.123456789Z",
            }
        ],
        "cut": None,
    }


def test_ls_is_bounded_and_says_so(alice: Vfs) -> None:
    for number in range(3):
        make(alice, f"d/{number}")
    done = alice("ls", "alice", "/d", "--limit", "2")
    assert (done.status, done.out.count(b"\n"), done.err.decode()) == (
        0,
        2,
        "vfs: not all is shown: 1 directory with more entries than the limit; "
        "--unlimited shows it\n",
    )
    done = alice("ls", "alice", "/d", "--limit", "2", "--json")
    assert (len(done.json["entries"]), done.err) == (2, b"")
    assert done.json["cut"]["entries_per_directory"] == 1
    assert alice.good("ls", "alice", "/d", "--limit", "3").count(b"\n") == 3


def test_ls_shows_600_entries_only_when_all_are_asked_for(alice: Vfs) -> None:
    (workspace(alice) / "d").mkdir()
    for number in range(600):
        (workspace(alice) / "d" / f"{number:03}").touch()
    assert alice("ls", "alice", "/d").out.count(b"\n") == 500
    assert alice.good("ls", "alice", "/d", "--unlimited").count(b"\n") == 600


# tree, find, du


def test_tree_indents_by_depth_and_marks_types(alice: Vfs) -> None:
    make(alice, "a/b/c")
    make(alice, b"a/" + HOSTILE)
    os.symlink("b", workspace(alice) / "a" / "link")
    os.mkfifo(workspace(alice) / "z")
    assert (
        alice.good("tree", "alice").decode()
        == f"/\n  a/\n    {SHOWN}\n    b/\n      c\n    link@\n  z|\n"
    )
    assert alice.good("tree", "alice", "/a/b").decode() == "/a/b\n  c\n"
    assert [entry["path"] for entry in alice("tree", "alice", "--json").json["entries"]] == [
        "/a", f"/a/{SHOWN}", "/a/b", "/a/b/c", "/a/link", "/z",
    ]  # fmt: skip


def test_tree_stops_at_the_limits_and_says_what_is_left_out(alice: Vfs) -> None:
    make(alice, "/".join("d" * 20))
    done = alice("tree", "alice")
    assert (done.out.count(b"\n"), done.err) == (
        16,
        b"vfs: not all is shown: 1 directory too deep; --unlimited shows it\n",
    )
    assert alice.good("tree", "alice", "--unlimited").count(b"\n") == 21


def test_find_matches_a_glob_or_a_part_of_the_name_and_the_type(alice: Vfs) -> None:
    make(alice, "Report.csv")
    make(alice, "old/report.txt")
    make(alice, "reports/x")
    os.symlink("x", workspace(alice) / "reports" / "l")
    found = lambda *options: alice.good("find", "alice", *options).decode().split()  # noqa: E731
    assert found("--name", "report") == ["/Report.csv", "/reports", "/old/report.txt"]
    assert found("--name", "*.CSV") == ["/Report.csv"]
    assert found("--name", "report", "--type", "d") == ["/reports"]
    assert found("--type", "l") == ["/reports/l"]
    assert found("/reports", "--type", "f") == ["/reports/x"]
    assert found("--name", "nothing") == []


def test_find_null_gives_exact_bytes_that_other_verbs_take(alice: Vfs) -> None:
    make(alice, b"d/" + HOSTILE, b"content")
    found = alice.good("find", "alice", "--type", "f", "--null")
    assert found == b"/d/" + HOSTILE + b"\0"
    assert alice.good("cat", "alice", found[:-1]) == b"content"
    assert alice.good("find", "alice", "--type", "f").decode() == f"/d/{SHOWN}\n"


def test_find_says_when_there_are_more(alice: Vfs) -> None:
    for number in range(3):
        make(alice, f"f{number}")
    done = alice("find", "alice", "--name", "f", "--limit", "2")
    assert (done.out, done.err) == (
        b"/f0\n/f1\n",
        b"vfs: not all is shown: more results than the limit; --unlimited shows it\n",
    )


def test_du_shows_each_entry_and_the_total(alice: Vfs) -> None:
    make(alice, "a/one", bytes(10_000))
    make(alice, "b", bytes(1))
    os.link(workspace(alice) / "b", workspace(alice) / "c")
    blocks = {p: (workspace(alice) / p).stat().st_blocks * 512 for p in ("", "a", "a/one", "b")}
    a = blocks["a"] + blocks["a/one"]
    lines = [
        (a, "/a"),
        (blocks["b"], "/b"),
        (blocks["b"], "/c"),
        (blocks[""] + a + blocks["b"], "/"),
    ]
    width = max(len(str(size)) for size, _ in lines)
    expected = "".join(f"{size:{width}}  {path}\n" for size, path in lines)
    assert alice.good("du", "alice").decode() == expected
    assert alice.good("du", "alice", "-s").decode() == f"{lines[-1][0]}  /\n"
    assert alice.good("du", "alice", "/b").decode() == f"{blocks['b']}  /b\n"
    document = alice("du", "alice", "--json").json
    assert [entry["path"] for entry in document.pop("entries")] == ["/a", "/b", "/c"]
    assert document == {
        "path": "/", "allocated": lines[-1][0], "size": 10_001, "files": 3, "directories": 2,
        "links": 0, "special": 0, "cut": None,
    }  # fmt: skip


def test_du_counts_what_cannot_be_read_and_shows_the_rest(alice: Vfs, reachable: Path) -> None:
    storage = reachable / "storage"
    os.rename(alice.storage, storage)
    mine = alice.by(NOBODY, storage)
    for name in ("secret", "open"):
        (workspace(mine) / name).mkdir(mode=0o755)
    for folder in (storage, *storage.rglob("*")):
        os.chown(folder, NOBODY, NOBODY)
    (workspace(mine) / "secret").chmod(0)
    done = mine("du", "alice")
    assert (done.status, [line.split()[1] for line in done.out.splitlines()], done.err) == (
        0,
        [b"/open", b"/secret", b"/"],
        b"vfs: not all is shown: 1 entry that cannot be read\n",
    )


# stat, cat


def test_stat_shows_all_of_a_link_but_its_target(alice: Vfs) -> None:
    link = workspace(alice) / "l"
    os.symlink("/etc/pass\x1bwd", link)
    os.utime(link, ns=WHEN, follow_symlinks=False)
    document = alice("stat", "alice", "/l", "--json").json
    status = os.lstat(link)
    assert document.pop("changed").endswith("Z")
    assert document == {
        "path": "/l", "type": "link", "mode": "0777", "uid": 0, "gid": 0, "size": 12,
        "modified": "2023-11-14T22:13:20.123456789Z", "allocated": 0, "names": 1,
        "etag": f"{status.st_ino:x}-c-{WHEN[0]:x}",
        "target": r"/etc/pass\x1bwd",
        "target_bytes": base64.urlsafe_b64encode(b"/etc/pass\x1bwd").decode(),
    }  # fmt: skip
    lines = alice.good("stat", "alice", "/l").decode().splitlines()
    assert lines[:3] == ["path          /l", "type          link", "mode          0777"]


def test_cat_gives_the_bytes(alice: Vfs) -> None:
    content = bytes(range(256)) * 10_000
    make(alice, "f", content)
    assert alice.good("cat", "alice", "/f") == content


def cat_on_a_terminal(vfs: Vfs, *options: str) -> bytes:
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [PROGRAM, "cat", "alice", "/f", *options],
            env=vfs.environment,
            stdout=theirs,
            timeout=SECONDS,
            check=True,
        )
        return os.read(ours, 4096).replace(b"\r\n", b"\n")
    finally:
        os.close(ours)
        os.close(theirs)


def test_cat_on_a_terminal_escapes_what_would_move_the_cursor(alice: Vfs) -> None:
    make(alice, "f", b"\x1b[2Jred\tx\n\xff \\ 100%\x00\n" + "报\u202e".encode())
    shown = "\\x1b[2Jred\tx\n\\xff \\ 100%\\x00\n报\\u202e".encode()
    # What the terminal makes of a tab is its own matter.
    assert cat_on_a_terminal(alice).expandtabs() == shown.expandtabs()
    assert cat_on_a_terminal(alice, "--raw").startswith(b"\x1b[2Jred")


def test_cat_json_holds_text_or_base64(alice: Vfs) -> None:
    make(alice, "t", "报\x1b\n".encode())
    make(alice, "b", b"\xff\x00")
    assert alice("cat", "alice", "/t", "--json").json == {
        "path": "/t", "size": 5, "encoding": "utf-8", "content": "报\x1b\n",
    }  # fmt: skip
    assert alice("cat", "alice", "/b", "--json").json == {
        "path": "/b", "size": 2, "encoding": "base64", "content": "/wA=",
    }  # fmt: skip


def test_cat_json_of_a_large_file_is_refused(alice: Vfs) -> None:
    file = make(alice, "big")
    os.truncate(file, (16 << 20) + 1)
    done = alice("cat", "alice", "/big", "--json")
    assert (done.status, done.out, done.error["error"]) == (12, b"", "too_large")
    assert done.error["fix"] == "leave --json away: the bytes are printed as they are"


# put


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 1])
def test_put_saves_stdin_or_a_host_file(alice: Vfs, tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    (tmp_path / "source").write_bytes(content)
    alice.good("put", "alice", "/from-stdin", "-", stdin=content)
    alice.good("put", "alice", "from-file", tmp_path / "source")
    for name in ("from-stdin", "from-file"):
        file = workspace(alice) / name
        assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(content).digest()
        status = file.stat()
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (1000, 1000, 0o600)


def test_put_keeps_the_mode_of_what_it_replaces(alice: Vfs) -> None:
    file = make(alice, "run", b"old", 0o755)
    alice.good("put", "alice", "/run", "-", stdin=b"new")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o755)


def test_put_makes_directories_only_when_asked(alice: Vfs) -> None:
    done = alice("put", "alice", "/a/b/c", "-", stdin=b"x")
    assert (done.status, names(alice)) == (3, [])
    alice.good("put", "alice", "/a/b/c", "-", "--mkdirs", stdin=b"x")
    assert names(alice) == ["a", "a/b", "a/b/c"]
    modes = [stat.S_IMODE((workspace(alice) / p).stat().st_mode) for p in ("a", "a/b", "a/b/c")]
    assert modes == [0o700, 0o700, 0o600]


def test_put_no_clobber_refuses_to_replace(alice: Vfs) -> None:
    alice.good("put", "alice", "/f", "-", "--no-clobber", stdin=b"first")
    done = alice("put", "alice", "/f", "-", "--no-clobber", stdin=b"second")
    assert (done.status, done.out, (workspace(alice) / "f").read_bytes()) == (4, b"", b"first")


def test_put_if_match_replaces_only_what_was_read(alice: Vfs) -> None:
    make(alice, "f", b"first")
    etag = alice("stat", "alice", "/f", "--json").json["etag"]
    saved = alice("put", "alice", "/f", "-", "--if-match", etag, "--json", stdin=b"second").json
    assert saved["etag"] == alice("stat", "alice", "/f", "--json").json["etag"] != etag
    assert (saved["path"], saved["size"]) == ("/f", 6)
    done = alice("put", "alice", "/f", "-", "--if-match", etag, stdin=b"third")
    assert (done.status, (workspace(alice) / "f").read_bytes()) == (14, b"second")
    assert done.err.decode().endswith("read it again, then save\n")


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        ("missing", 3, "cannot read missing: no such file or directory"),
        (".", 5, "cannot read .: it is a directory"),
    ],
)
def test_put_from_what_cannot_be_read_changes_nothing(
    alice: Vfs, tmp_path: Path, source: str, status: int, message: str
) -> None:
    make(alice, "f", b"old")
    done = alice("put", "alice", "/f", source, cwd=tmp_path)
    assert (done.status, done.err.decode().split("; ")[0]) == (status, f"vfs: {message}")
    assert (names(alice), (workspace(alice) / "f").read_bytes()) == (["f"], b"old")


# mkdir, mv, rm


def test_mkdir_makes_one_directory_or_all_above_it(alice: Vfs) -> None:
    assert alice("mkdir", "alice", "/a/b").status == 3
    alice.good("mkdir", "alice", "/a")
    assert alice("mkdir", "alice", "/a").status == 4
    alice.good("mkdir", "alice", "-p", "/a/b/c")
    alice.good("mkdir", "alice", "-p", "/a/b/c")
    assert names(alice) == ["a", "a/b", "a/b/c"]
    made = alice("mkdir", "alice", "/d", "--json").json
    assert {key: made[key] for key in ("path", "type", "mode", "uid", "gid")} == {
        "path": "/d", "type": "directory", "mode": "0700", "uid": 1000, "gid": 1000,
    }  # fmt: skip


def test_mv_renames_to_exactly_the_target(alice: Vfs) -> None:
    make(alice, "f", b"f")
    make(alice, "g", b"g")
    make(alice, "d/x")
    alice.good("mv", "alice", "/f", "/g")
    assert (names(alice), (workspace(alice) / "g").read_bytes()) == (["d", "d/x", "g"], b"f")
    assert alice("mv", "alice", "/g", "/d").status == 5
    assert alice("mv", "alice", "/d", "/d/x/y").status == 7
    moved = alice("mv", "alice", "/g", "/d/g", "--json").json
    assert (moved["path"], names(alice)) == ("/d/g", ["d", "d/g", "d/x"])


def test_mv_can_refuse_to_replace_and_can_exchange(alice: Vfs) -> None:
    make(alice, "f", b"f")
    make(alice, "g", b"g")
    assert alice("mv", "alice", "/f", "/g", "--no-clobber").status == 4
    alice.good("mv", "alice", "/f", "/g", "--exchange")
    assert (workspace(alice) / "f").read_bytes() == b"g"
    assert (workspace(alice) / "g").read_bytes() == b"f"
    assert alice("mv", "alice", "/f", "/none", "--exchange").status == 3
    assert alice("mv", "alice", "/f", "/g", "--exchange", "--no-clobber").status == 2


def test_rm_takes_a_directory_only_with_r(alice: Vfs, tmp_path: Path) -> None:
    make(alice, "d/e/f")
    make(alice, HOSTILE)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    os.symlink(outside, workspace(alice) / "d" / "link")
    done = alice("rm", "alice", "/d")
    assert (done.status, done.err.decode()) == (
        5,
        "vfs: cannot remove /d: it is a directory; use -r to remove it with all that is in it\n",
    )
    alice.good("rm", "alice", "-r", "/d")
    assert alice("rm", "alice", b"/" + HOSTILE, "--json").json == {
        "removed": f"/{SHOWN}",
        "removed_bytes": base64.urlsafe_b64encode(b"/" + HOSTILE).decode(),
    }
    assert (names(alice), (outside / "kept").exists()) == ([], True)


def test_the_root_and_agents_cannot_be_removed(alice: Vfs) -> None:
    make(alice, "agents/AGENTS.md")
    assert alice("rm", "alice", "-r", "/").status == 7
    assert alice("rm", "alice", "-r", "/agents").status == 10
    assert alice("mv", "alice", "/agents", "/elsewhere").status == 10
    assert names(alice) == ["agents", "agents/AGENTS.md"]


# Paths, links, Workdirs


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("", "the path is empty; give one that begins with /"),
        ("/a//b", "an empty part in it: /a//b; write the path out, name by name"),
        ("../x", "a . or .. in it: /../x; write the path out, name by name"),
        (".", "a . or .. in it: /.; write the path out, name by name"),
        (
            "/home/gem/user-data/a",
            "a runtime path, where one inside the Workdir belongs: /home/gem/user-data/a; "
            "give it from the Workdir on: /notes.txt is the Workdir's notes.txt",
        ),
        (
            "/home/gem/skills",
            "a runtime path, where one inside the Workdir belongs: /home/gem/skills; "
            "give it from the Workdir on: /notes.txt is the Workdir's notes.txt",
        ),
    ],
)
@pytest.mark.parametrize("verb", ["ls", "cat", "stat", "rm", "mkdir"])
def test_what_is_no_scope_path_is_refused_by_every_verb(
    alice: Vfs, verb: str, path: str, message: str
) -> None:
    done = alice(verb, "alice", path)
    assert (done.status, done.out, done.err.decode()) == (7, b"", f"vfs: {message}\n")
    assert names(alice) == []


def test_a_nul_in_a_path_is_refused(alice: Vfs, capfd: pytest.CaptureFixture[str]) -> None:
    from vfs.cli import run

    assert run(["--storage", str(alice.storage), "ls", "alice", "/a\0b"]) == 7
    assert capfd.readouterr() == (
        "",
        "vfs: a NUL character in it: /a\\x00b; write the path out, name by name\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("cat", "/l/passwd"),
        ("ls", "/l/x"),
        ("stat", "/l/passwd"),
        ("put", "/l/new", "-"),
        ("put", "/l", "-"),
        ("mkdir", "/l/new"),
        ("rm", "/l/passwd"),
        ("tree", "/l"),
        ("find", "/l"),
    ],
)
def test_no_verb_follows_a_link(alice: Vfs, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "passwd").write_bytes(b"secret")
    os.symlink(outside, workspace(alice) / "l")
    verb, path, *rest = arguments
    done = alice(verb, "alice", path, *rest, stdin=b"x")
    assert (done.status, done.out) == (8, b"")
    assert [p.name for p in outside.iterdir()] == ["passwd"]
    assert (outside / "passwd").read_bytes() == b"secret"


def test_a_fifo_is_listed_and_never_opened(alice: Vfs) -> None:
    os.mkfifo(workspace(alice) / "p")
    assert alice.good("ls", "alice").startswith(b"prw")
    for arguments in (("cat", "alice", "/p"), ("put", "alice", "/p", "-")):
        done = alice(*arguments)
        assert (done.status, done.out) == (9, b"")


def test_paths_start_at_the_workdir(alice: Vfs) -> None:
    make(alice, "notes/2024/a.txt", b"a")
    assert alice.good("find", "alice", "--workdir", "notes") == b"/2024\n/2024/a.txt\n"
    assert alice.good("cat", "alice", "--workdir", "notes/2024", "/a.txt") == b"a"
    done = alice("ls", "alice", "--workdir", "agents/x")
    assert done.status == 7
    assert alice("ls", "alice", "--workdir", "nowhere").status == 3


def test_a_managed_workdir_is_made_by_what_writes_and_by_nothing_else(alice: Vfs) -> None:
    managed = "projects/0B0E3A52-7C1D-4C8E-9D5F-6A3B1F2E4D5C"
    assert alice("ls", "alice", "--workdir", managed).status == 3
    assert names(alice) == []
    alice.good("put", "alice", "/a", "-", "--workdir", managed, stdin=b"a")
    assert names(alice) == ["projects", managed.lower(), f"{managed.lower()}/a"]


def test_two_users_never_see_each_others_files(alice: Vfs) -> None:
    alice.good("user", "add", "bob")
    make(alice, "secret", b"s")
    assert alice.good("find", "bob") == b""
    assert alice("cat", "bob", "/../../alice/workspace/secret").status == 7


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: os.mknod(path, 0o20600, os.makedev(1, 5))]
)
def test_put_takes_no_special_file(
    alice: Vfs, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "special")
    done = alice("put", "alice", "/x", tmp_path / "special")
    assert (done.status, done.err.decode()) == (
        9,
        f"vfs: {tmp_path}/special is no regular file; to save what a pipe or device gives, name - "
        "and redirect it to stdin\n",
    )
