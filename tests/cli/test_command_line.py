"""The command as such: its help, its usage errors, its ends."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest

from tests.cli.program import PROGRAM, SECONDS, Vfs, until
from vfs.cli import cli, run
from vfs.commands.base import Settings
from vfs.verbs import Verb


def every_verb(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The command lines of all verbs, and of the groups."""
    context = click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield (*path, name), below
            yield from every_verb(below, (*path, name))


VERBS = dict(every_verb())
IDS = [" ".join(path) for path in VERBS]

ALL_VERBS = """\
init user users check ls tree cat stat find du put mkdir mv rm skills mount umount mounts completion
"""


def test_the_help_lists_every_verb_in_its_section(vfs: Vfs) -> None:
    text = vfs.good("--help").decode()
    words = [line.split()[0] for line in text.split("\n") if line.startswith("  ")]
    assert [word for word in words if (word,) in VERBS] == ALL_VERBS.split()
    sections = [line for line in text.split("\n") if line.endswith(":") and line[0] != " "]
    assert sections == ["Options:", "Storage:", "Files:", "Skills:", "Mounts:", "Shell:"]


@pytest.mark.parametrize("path", VERBS, ids=IDS)
def test_the_help_of_a_verb_ends_with_examples_of_that_verb(path: tuple[str, ...]) -> None:
    verb = VERBS[path]
    if isinstance(verb, click.Group):
        return
    assert isinstance(verb, Verb)
    command = " ".join(("vfs", *path))
    assert any(command in example for example in verb.examples)
    help_text = verb.get_help(click.Context(verb, info_name=command))
    assert help_text.split("Examples:\n")[1] == "\n".join(f"  {line}" for line in verb.examples)


@pytest.mark.parametrize("path", VERBS, ids=IDS)
def test_the_first_sentence_of_a_verb_fits_into_a_list(path: tuple[str, ...]) -> None:
    assert not VERBS[path].get_short_help_str(70).endswith("...")


@pytest.mark.parametrize("path", VERBS, ids=IDS)
def test_every_verb_takes_json(path: tuple[str, ...]) -> None:
    options = [option for param in VERBS[path].params for option in param.opts]
    assert options.count("--json") == 1


def test_the_help_does_not_load_what_the_verbs_work_with() -> None:
    program = (
        "import sys; from vfs.cli import run; run(['--help']);"
        "print(sorted(m for m in sys.modules if m.startswith('vfs.')), file=sys.stderr)"
    )
    python = os.path.join(os.path.dirname(PROGRAM), "python")
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stderr
    assert "vfs.commands.mount" in loaded
    for heavy in ("vfs.workspace", "vfs.tree", "vfs.skills", "vfs.mount.operations", "ctypes"):
        assert heavy not in loaded


def test_the_version_is_the_distributions(vfs: Vfs) -> None:
    assert vfs.good("--version") == f"gemspace {version('gemspace')}\n".encode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing command; see vfs --help"),
        (("lss",), "No such command 'lss'; see vfs --help"),
        (("ls",), "Missing argument 'UID'; see vfs ls --help"),
        (("ls", "alice", "/", "x"), "Got unexpected extra argument (x); see vfs ls --help"),
        (("skills", "add"), "Missing argument 'FOLDER'; see vfs skills add --help"),
        (("ls", "alice", "--\x1b[2J"), r"No such option '--\x1b[2J'; see vfs ls --help"),
        (("cat", "alice"), "Missing argument 'PATH'; see vfs cat --help"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    vfs: Vfs, arguments: tuple[str, ...], message: str
) -> None:
    done = vfs(*arguments)
    assert (done.status, done.out, done.err.decode()) == (2, b"", f"vfs: {message}\n")


def test_wrong_usage_is_a_json_document_where_json_is_wanted(vfs: Vfs) -> None:
    done = vfs("--json", "lss")
    assert (done.status, done.out) == (2, b"")
    assert done.error == {
        "error": "usage",
        "message": "No such command 'lss'",
        "fix": "see vfs --help",
        "path": None,
    }


def test_without_a_storage_it_says_how_to_name_one(vfs: Vfs) -> None:
    done = vfs("users", env={"GEMSPACE_STORAGE": ""})
    assert (done.status, done.out, done.err.decode()) == (
        2,
        b"",
        "vfs: No storage is named: give --storage DIR before the verb, or set GEMSPACE_STORAGE; "
        "see vfs users --help\n",
    )


def test_an_error_is_one_line_with_the_fix_and_the_status_of_its_kind(alice: Vfs) -> None:
    done = alice.real("ls", "bob")
    assert (done.status, done.out, done.err.decode()) == (
        3,
        b"",
        "vfs: there is no user bob; check the uid, or add the user: vfs user add bob\n",
    )


@pytest.mark.parametrize("arguments", [("--json", "ls", "b\x1bb"), ("ls", "b\x1bb", "--json")])
def test_with_json_an_error_is_one_document_on_stderr(
    alice: Vfs, arguments: tuple[str, ...]
) -> None:
    done = alice(*arguments)
    assert (done.status, done.out, done.err.count(b"\n")) == (3, b"", 1)
    assert done.error == {
        "error": "not_found",
        "message": r"there is no user b\x1bb",
        "fix": r"check the uid, or add the user: vfs user add b\x1bb",
        "path": None,
    }


def test_json_behind_two_dashes_is_an_argument(alice: Vfs) -> None:
    done = alice("stat", "--", "alice", "--json")
    assert done.status == 3
    assert done.err.startswith(b"vfs: ")


def test_debugging_shows_where_an_error_came_from(alice: Vfs) -> None:
    done = alice("ls", "bob", env={"GEMSPACE_DEBUG": "1"})
    lines = done.err.decode().splitlines()
    assert (done.status, lines[0]) == (3, "Traceback (most recent call last):")
    assert lines[-1] == (
        "vfs: there is no user bob; check the uid, or add the user: vfs user add bob"
    )


def test_an_error_of_the_program_is_one_line_and_status_70(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(_self: Settings) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.delenv("GEMSPACE_DEBUG", raising=False)
    monkeypatch.setattr(Settings, "open", broken)
    assert run(["users"]) == 70
    assert capfd.readouterr() == (
        "",
        r"vfs: an error of this program: RuntimeError: two\x0alines; "
        "set GEMSPACE_DEBUG=1 to see where, and report it\n",
    )


def test_a_full_disk_behind_stdout_is_reported_once(alice: Vfs) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [PROGRAM, "users"], env=alice.environment, stdout=full, stderr=subprocess.PIPE
        )
    assert (done.returncode, done.stderr.decode()) == (
        13,
        "vfs: cannot finish: no space is left; delete something, or ask for a larger quota\n",
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_hurt_nothing(alice: Vfs, closed: str) -> None:
    alice.good("put", "alice", "/f", "-", stdin=b"content")
    for words in ("stat alice /f", "ls bob", "cat alice /f"):
        done = subprocess.run(
            ["sh", "-c", f"exec {PROGRAM} {words} {closed}"],
            env=alice.environment, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == (3 if "bob" in words else 0)
        assert b"Traceback" not in done.stderr
    assert alice.good("cat", "alice", "/f") == b"content"


def test_a_closed_stdin_is_not_saved_as_an_empty_file(alice: Vfs) -> None:
    alice.good("put", "alice", "/f", "-", stdin=b"content")
    done = subprocess.run(
        ["sh", "-c", f"exec {PROGRAM} put alice /f - <&-"],
        env=alice.environment, capture_output=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        b"",
        b"vfs: Stdin is closed: nothing can be read from it; see vfs put --help\n",
    )
    assert alice.good("cat", "alice", "/f") == b"content"


@pytest.mark.parametrize(("words", "status"), [("cat alice /none", 3), ("cat alice", 2)])
def test_an_error_that_cannot_be_written_keeps_its_exit_status(
    alice: Vfs, words: str, status: int
) -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {PROGRAM} {words} 2>/dev/full"], env=alice.environment, check=False
    )
    assert done.returncode == status


def test_a_reader_that_ends_early_ends_the_command_without_a_word(alice: Vfs) -> None:
    alice.good("put", "alice", "/big", "-", stdin=bytes(4 << 20))
    with subprocess.Popen(
        [PROGRAM, "cat", "alice", "/big"],
        env=alice.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(SECONDS) == -signal.SIGPIPE


def test_an_interrupt_ends_it_with_130_and_nothing_saved(alice: Vfs) -> None:
    with subprocess.Popen(
        [PROGRAM, "put", "alice", "/new", "-"],
        env=alice.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"half")
        process.stdin.flush()
        pipe = process.stdin.fileno()

        def has_read() -> bool:
            waiting = fcntl.ioctl(pipe, termios.FIONREAD, struct.pack("i", 0))
            return waiting == struct.pack("i", 0)

        until(has_read, "it reads its stdin")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 130
        assert process.stderr.read() == b"\n"
    assert alice.good("ls", "alice") == b""


def test_output_is_whole_where_the_locale_has_no_such_letters(alice: Vfs) -> None:
    alice.good("mkdir", "alice", "/报告")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = alice.real("find", "alice", env={**ascii_only, "PYTHONIOENCODING": "ascii"})
    assert (done.status, done.out) == (0, b"/\\u62a5\\u544a\n")
    done = alice.real("find", "alice", "--json", env=ascii_only)
    assert [entry["path"] for entry in done.json["entries"]] == ["/报告"]


def test_a_root_that_is_named_apart_is_used(alice: Vfs, tmp_path: Path) -> None:
    storage = alice.storage
    os.rename(storage / "user-data", tmp_path / "apart")
    assert (
        alice("users").err
        == b"vfs: user-data is not there; make it with `vfs init`, or name another folder\n"
    )
    options = ("--user-data", tmp_path / "apart")
    assert alice.good(*options, "users") == b"alice\n"
