"""What a shell is offered, asked as its script asks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import PROGRAM, Vfs


def offered(vfs: Vfs, *words: str) -> list[str]:
    """What is offered for the last of the words."""
    done = vfs.real(
        env={
            "_VFS_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(("vfs", *words)),
            "COMP_CWORD": str(len(words)),
        }
    )
    assert done.err == b""
    return [line.partition(",")[2] for line in done.out.decode().splitlines() if line]


def folder(vfs: Vfs, name: str | bytes) -> None:
    top = vfs.storage / "user-data" / "shared" / "alice" / "workspace"
    os.mkdir(os.path.join(os.fsencode(top), os.fsencode(name)))


def test_verbs_and_options_are_offered(alice: Vfs) -> None:
    assert offered(alice, "mo") == ["mount", "mounts"]
    assert offered(alice, "skills", "") == ["add", "list", "project", "remove", "verify"]
    assert offered(alice, "ls", "--lim") == ["--limit"]
    assert offered(alice, "mount", "--links", "") == ["show", "hide", "contained"]


def test_users_are_offered_whose_directory_has_their_name(alice: Vfs) -> None:
    alice.good("user", "add", "albert")
    alice.good("user", "add", "al@example.org")
    assert offered(alice, "ls", "al") == ["albert", "alice"]
    assert offered(alice, "ls", "") == ["albert", "alice"]
    assert offered(alice, "skills", "project", "b") == []


def test_paths_are_offered_that_mean_themselves_to_a_shell(alice: Vfs) -> None:
    folder(alice, "projects")
    folder(alice, "projects/报告")
    for name in ("projects/a b", "projects/$(reboot)", "projects/x\ny", b"projects/\xff"):
        folder(alice, name)
    alice.good("put", "alice", "/projects/a.txt", "-")
    assert offered(alice, "cat", "alice", "/pro") == ["/projects/"]
    assert offered(alice, "cat", "alice", "pro") == ["projects/"]
    assert offered(alice, "ls", "alice", "/projects/") == ["/projects/报告/", "/projects/a.txt"]
    assert offered(alice, "ls", "--workdir", "projects", "alice", "/") == ["/报告/", "/a.txt"]
    assert offered(alice, "cat", "alice", "/none/") == []
    assert offered(alice, "cat", "bob", "/") == []
    assert offered(alice, "cat", "alice", "/home/gem/") == []


def test_without_a_storage_nothing_is_offered_and_nothing_is_said(vfs: Vfs) -> None:
    assert offered(vfs, "ls", "a") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(vfs: Vfs, shell: str) -> None:
    script = vfs.good("completion", shell).decode()
    assert f"_VFS_COMPLETE={shell}_complete" in script
    assert vfs("completion", shell, "--json").json == {
        "shell": shell, "script": script,
    }  # fmt: skip


def test_bash_completes_with_the_script(alice: Vfs, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(alice.good("completion", "bash"))
    ask = (
        f"source {script}; COMP_WORDS=(vfs moun); COMP_CWORD=1; _vfs_completion vfs; "
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    path = f"{os.path.dirname(PROGRAM)}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", ask],
        env={**alice.environment, "PATH": path}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == (["mount", "mounts"], "")
