"""The command as such: its options, its help, what it prints where, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import click
import pytest

import migrator
from migrator import errors
from migrator.cli import SECTIONS, cli, run
from migrator.commands import base
from migrator.findings import Finding
from migrator.journal import Journal
from migrator.outcome import Outcome
from migrator.request import Request
from vfs.beneath import Directory
from vfs.errors import NoSpace
from vfs.verbs import Verb

VERBS = [name for names in SECTIONS.values() for name in names]
FUNCTIONS = {
    "plan": ("planning", "plan_verb"),
    "check": ("checking", "check"),
    "run": ("running", "run"),
    "status": ("status", "status"),
    "verify": ("verifying", "verify"),
    "rollback": ("rolling_back", "rollback"),
    "finalize": ("finalizing", "finalize"),
}
PLACES = ("--source", "saves", "--storage", "new")
PROGRAM = os.path.join(os.path.dirname(sys.executable), "migrator")
SECONDS = 60

Answer = Callable[..., Outcome]


@dataclass
class Work:
    """What stands in for the work of the verbs: it remembers what was asked for."""

    asked: list[tuple[str, Request]] = field(default_factory=list)
    answer: Answer = lambda: Outcome("any", "done", "nothing to do")

    def of(self, verb: str) -> Answer:
        """The function of a verb."""

        def function(request: Request, *_more: object, **_options: object) -> Outcome:
            self.asked.append((verb, request))
            return self.answer()

        return function

    @property
    def request(self) -> Request:
        """The one request that was made."""
        ((_, request),) = self.asked
        return request


class NoProgress:
    """What stands in for the progress."""

    def __init__(self, **_options: object) -> None: ...

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *_exc: object) -> None: ...


def begin(storage: Path, source: Path, database: str | None = None) -> None:
    """Writes the journal of a migration that was begun."""
    state = storage / ".gemspace-migration"
    state.mkdir(parents=True)
    names = ("user-data", "skill-store", "skill-projections")
    with Directory.open(state) as directory, Journal.open(directory) as journal:
        journal.begin(
            run="r1",
            time=0.0,
            layout="yuxi",
            method="link",
            database=database,
            places={
                "source": os.fsencode(source),
                **{name: os.fsencode(storage / name) for name in names},
            },
        )


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Work:
    """The verbs' work, replaced; a migration was begun in the folder ``new``."""
    work = Work()
    begin(tmp_path / "new", tmp_path / "saves")
    for verb, (module, function) in FUNCTIONS.items():
        fake = SimpleNamespace(**{function: work.of(verb)})
        monkeypatch.setattr(migrator, module, fake, raising=False)
    progress = ModuleType("migrator.progress")
    progress.Progress = NoProgress  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "migrator.progress", progress)
    for name in ("GEMSPACE_STORAGE", "GEMSPACE_DATABASE", "GEMSPACE_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return work


def command_of(verb: str) -> Verb:
    command = cli.get_command(click.Context(cli), verb)
    assert isinstance(command, Verb)
    return command


# The help.


def test_the_help_lists_every_verb_in_its_section(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capfd.readouterr().out
    words = [line.split()[0] for line in text.split("\n") if line.startswith("  ")]
    assert [word for word in words if word in VERBS] == list(FUNCTIONS)
    sections = [line for line in text.split("\n") if line.endswith(":") and line[0] != " "]
    assert sections == ["Options:", "Before:", "The migration:", "After:"]


@pytest.mark.parametrize("verb", VERBS)
def test_the_first_sentence_of_a_verb_fits_into_a_list(verb: str) -> None:
    assert not command_of(verb).get_short_help_str(65).endswith("...")


@pytest.mark.parametrize(
    ("verb", "example"), [(verb, line) for verb in VERBS for line in command_of(verb).examples]
)
def test_the_examples_of_the_help_can_be_typed(work: Work, verb: str, example: str) -> None:
    words = shlex.split(example.replace("/srv/gemspace", "new"), comments=True)
    start = words.index("migrator") + 1
    ends = (words.index(mark) for mark in ("|", "&&") if mark in words)
    arguments = words[start : next(ends, len(words))]
    yes = ["--yes"] if verb in ("rollback", "finalize") else []
    assert run([*arguments, *yes]) == 0
    assert [asked for asked, _ in work.asked] == [verb]


def test_the_help_loads_nothing_that_the_verbs_work_with() -> None:
    program = (
        "import sys; from migrator.cli import run; run(['--help']);"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    loaded = set(done.stderr.decode().split())
    assert {"migrator.commands.run", "migrator.commands.finalize"} <= loaded
    assert not loaded & {
        "rich", "sqlalchemy", "psycopg", "ctypes", "migrator.running", "migrator.journal",
        "vfs.beneath", "multiprocessing",
    }  # fmt: skip


def test_the_version_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capfd.readouterr().out.startswith("gemspace ")


# The options.


@pytest.fixture
def plain(tmp_path: Path) -> Request:
    """What `PLACES` ask for."""
    here = os.fsencode(tmp_path)
    return Request(
        source=here + b"/saves",
        user_data=here + b"/new/user-data",
        skill_store=here + b"/new/skill-store",
        skill_projections=here + b"/new/skill-projections",
        state=here + b"/new/.gemspace-migration",
        jobs=len(os.sched_getaffinity(0)),
    )


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "status"])
def test_a_verb_is_given_what_the_command_line_says(work: Work, plain: Request, verb: str) -> None:
    yes = ("--yes",) if verb in ("rollback", "finalize") else ()
    assert run([verb, *PLACES, *yes]) == 0
    assert work.asked == [(verb, plain)]


@pytest.mark.parametrize("before", [True, False])
def test_every_option_may_stand_before_the_verb_and_after_it(work: Work, before: bool) -> None:
    options = [
        "--source", "/saves", "--user-data", "/u", "--skill-store", "/s",
        "--skill-projections", "/p", "--database", "sqlite:///x", "--state", "/state",
        "--layout", "yuxi", "--jobs", "7", "--json", "--owners", "/owners.csv",
        "--transfer", "copy",
    ]  # fmt: skip
    assert run([*options, "run"] if before else ["run", *options]) == 0
    assert work.request == Request(
        source=b"/saves",
        user_data=b"/u",
        skill_store=b"/s",
        skill_projections=b"/p",
        state=b"/state",
        database="sqlite:///x",
        layout="yuxi",
        owners=b"/owners.csv",
        jobs=7,
        transfer="copy",
    )


def test_what_stands_after_the_verb_counts(work: Work, plain: Request) -> None:
    assert run(["--source", "a", "--jobs", "1", "plan", "--storage", "new", "--source", "/b"]) == 0
    assert work.request == replace(plain, source=b"/b", jobs=1)


def test_the_environment_stands_for_storage_and_database(
    work: Work, plain: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMSPACE_STORAGE", "new")
    monkeypatch.setenv("GEMSPACE_DATABASE", "sqlite:///env")
    assert run(["plan", "--source", "saves"]) == 0
    assert work.asked.pop() == ("plan", replace(plain, database="sqlite:///env"))
    options = ["--storage", "/x", "--source", "saves", "--database", "sqlite:///y"]
    for arguments in (["plan", *options], [*options, "plan"]):
        assert run(arguments) == 0
        _, request = work.asked.pop()
        assert (request.user_data, request.database) == (b"/x/user-data", "sqlite:///y")


def test_an_empty_environment_stands_for_nothing(
    work: Work, plain: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMSPACE_DATABASE", "")
    assert run(["plan", *PLACES]) == 0
    assert work.request == plain


@pytest.mark.parametrize(
    ("user_data", "state"),
    [
        ("/saves/threads", b"/saves/.gemspace-migration"),
        ("/saves/threads///", b"/saves/.gemspace-migration"),
        ("/saves/./threads/.", b"/saves/.gemspace-migration"),
        # Where `threads/x` is a link, `threads/x/..` is not `threads`.
        ("/saves/threads/x/..", b"/saves/threads/x/../../.gemspace-migration"),
        ("/threads", b"/.gemspace-migration"),
    ],
)
def test_the_state_is_kept_beside_the_user_data(work: Work, user_data: str, state: bytes) -> None:
    assert run(["plan", *PLACES, "--user-data", user_data]) == 0
    assert work.request.state == state


def test_a_relative_path_is_taken_from_where_the_command_was_started(
    work: Work, tmp_path: Path
) -> None:
    name = os.fsdecode(b"\xff\n-x")
    assert run(["plan", "--source", f"./{name}/", "--storage", ".", "--owners", "o.csv"]) == 0
    here = os.fsencode(tmp_path)
    assert (work.request.source, work.request.user_data, work.request.owners) == (
        here + b"/\xff\n-x",
        here + b"/user-data",
        here + b"/o.csv",
    )


# What the journal knows need not be said again.


@pytest.mark.parametrize(
    "places", [("--storage", "new"), ("--state", "new/.gemspace-migration"), PLACES]
)
@pytest.mark.parametrize("verb", ["verify", "rollback", "finalize"])
def test_a_migration_that_was_begun_knows_its_folders(
    work: Work, plain: Request, verb: str, places: tuple[str, ...]
) -> None:
    yes = () if verb == "verify" else ("--yes",)
    assert run([verb, *places, *yes]) == 0
    assert work.asked == [(verb, plain)]


def test_what_is_named_goes_before_what_the_journal_knows(work: Work, plain: Request) -> None:
    arguments = ["--state", "new/.gemspace-migration", "--source", "/s", "--user-data", "/u"]
    assert run(["verify", *arguments]) == 0
    assert work.request == replace(plain, source=b"/s", user_data=b"/u")


@pytest.mark.parametrize("verb", ["verify", "rollback", "finalize"])
def test_the_database_of_a_migration_is_not_forgotten(
    work: Work, tmp_path: Path, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    begin(tmp_path / "other", tmp_path / "saves", "postgresql://app@db/app")
    assert run([verb, "--storage", "other"]) == 2
    assert capfd.readouterr().err.startswith(
        "migrator: The migration is also that of postgresql://app@db/app: give --database URL, or "
        "set GEMSPACE_DATABASE; "
    )
    assert work.asked == []


@pytest.mark.parametrize("verb", ["verify", "rollback", "finalize"])
def test_where_no_migration_was_begun_there_is_none_to_go_on_with(
    work: Work, tmp_path: Path, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    assert run([verb, "--storage", "none"]) == 3
    assert capfd.readouterr().err == (
        f"migrator: there is no migration in {tmp_path}/none/.gemspace-migration; "
        "name its state folder with --state, or begin with: migrator plan\n"
    )
    assert work.asked == []


@pytest.mark.parametrize(
    "places", [("--storage", "new"), ("--state", "new/.gemspace-migration"), PLACES]
)
def test_the_status_needs_the_state_folder_alone(
    work: Work, plain: Request, places: tuple[str, ...]
) -> None:
    assert run(["status", *places]) == 0
    assert work.request.state == plain.state


# Wrong usage.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing command; see migrator --help"),
        (("plam",), "No such command 'plam'; see migrator --help"),
        (("plan", "--storage", "/new"), "No old saves are named: give --source DIR; "),
        (
            ("plan", "--source", "/saves"),
            "No place is named for the user-data: give --storage DIR (or set GEMSPACE_STORAGE), or "
            "--user-data DIR; ",
        ),
        (
            ("status", "--source", "/saves"),
            "Nothing tells where the journal is: give --state DIR, --storage DIR (or set "
            "GEMSPACE_STORAGE), or --user-data DIR; ",
        ),
        (("plan", *PLACES, "--source", ""), "An empty path names no folder; "),
        (
            ("plan", *PLACES, "--owners", "f", "--owner", "u"),
            "--owners and --owner exclude each other; ",
        ),
        (("status", *PLACES, "--transfer", "copy"), "No such option '--transfer'"),
        (
            ("plan", *PLACES, "--jobs", "0"),
            "Invalid value for '--jobs': 0 is not in the range 1<=x<=1024",
        ),
        (("plan", *PLACES, "--layout", "x"), "Invalid value for '--layout': 'x' is not one of "),
        (("plan", *PLACES, "a\x1b[2Jb"), "Got unexpected extra argument (a\\x1b[2Jb); "),
        (
            ("plan", *PLACES, "postgresql://u:p@ss/word@h/x"),
            "Got unexpected extra argument (postgresql://u:***@h/x); ",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    work: Work, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert run(arguments) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n"), work.asked) == ("", 1, [])
    assert err.startswith(f"migrator: {message}")


@pytest.mark.parametrize("verb", ["rollback", "finalize"])
def test_what_cannot_be_asked_for_needs_yes(
    work: Work, capfd: pytest.CaptureFixture[str], verb: str
) -> None:
    assert run([verb, *PLACES]) == 2
    out, err = capfd.readouterr()
    assert (out, work.asked) == ("", [])
    assert err.startswith(f"migrator: {verb} ")
    assert err.endswith(
        f"Nobody can be asked here: give --yes to have it done; see migrator {verb} --help\n"
    )


# The answer.

FULL = Outcome(
    "plan",
    "planned",
    "2 Workdirs to migrate",
    next="run the migration",
    findings=[Finding("orphan", "warning", "t1", "it has no row")],
    numbers={"files": 3},
    details={"left": [{"path": "config"}], "name": "\udcff"},
)


@pytest.mark.parametrize("arguments", [("--json", "plan"), ("plan", "--json")])
def test_with_json_the_answer_is_one_document_on_stdout(
    work: Work, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    work.answer = lambda: FULL
    assert run([*arguments, *PLACES]) == 1
    out, err = capfd.readouterr()
    assert (out.count("\n"), err) == (1, "")
    assert json.loads(out) == {
        "verb": "plan",
        "state": "planned",
        "summary": "2 Workdirs to migrate",
        "next": "run the migration",
        "exit_status": 1,
        "numbers": {"files": 3},
        "findings": [
            {
                "code": "orphan",
                "severity": "warning",
                "subject": "t1",
                "message": "it has no row",
                "fix": None,
            }
        ],
        "left": [{"path": "config"}],
        "name": "\udcff",
    }


def test_the_answer_for_people_is_on_stdout(work: Work, capfd: pytest.CaptureFixture[str]) -> None:
    work.answer = lambda: FULL
    assert run(["plan", *PLACES]) == 1
    out, err = capfd.readouterr()
    assert (out.split("\n")[0], err) == ("2 Workdirs to migrate", "")


@pytest.mark.parametrize(
    ("severities", "status"),
    [
        ((), 0),
        (("note",), 0),
        (("note", "warning"), 1),
        (("warning", "conflict"), 6),
        (("conflict", "blocker"), 3),
    ],
)
def test_the_exit_status_is_that_of_the_worst_finding(
    work: Work, severities: tuple[Any, ...], status: int
) -> None:
    found = [Finding("code", severity, "subject", "message") for severity in severities]
    work.answer = lambda: Outcome("check", "ready", "looked", findings=found)
    assert run(["check", *PLACES, "--json"]) == status


def test_a_reader_that_ends_early_changes_no_exit_status(
    work: Work, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    work.answer = lambda: FULL
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert run(["plan", *PLACES]) == 1
    assert capfd.readouterr().err == ""


def test_a_full_disk_behind_stdout_is_told_and_can_be_tried_again(
    work: Work, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(["plan", *PLACES]) == 5
    assert capfd.readouterr().err.startswith(
        "migrator: cannot write the answer: No space left on device; "
    )


# How it ends otherwise.


def raising(exc: BaseException) -> Answer:
    def answer() -> Outcome:
        raise exc

    return answer


@pytest.mark.parametrize(
    ("exc", "status", "kind"),
    [
        (errors.Usage("m", fix="f"), 2, "usage"),
        (errors.Precondition("m", fix="f"), 3, "precondition"),
        (errors.Mismatch("m", fix="f"), 4, "mismatch"),
        (errors.Retryable("m", fix="f"), 5, "retryable"),
        (errors.Conflict("m", fix="f"), 6, "conflict"),
    ],
)
def test_an_error_is_one_line_with_the_fix_and_the_status_of_its_kind(
    work: Work,
    capfd: pytest.CaptureFixture[str],
    exc: errors.MigratorError,
    status: int,
    kind: str,
) -> None:
    work.answer = raising(exc)
    assert run(["run", *PLACES]) == status
    assert capfd.readouterr() == ("", "migrator: m; f\n")
    assert run(["run", *PLACES, "--json"]) == status
    out, err = capfd.readouterr()
    document = {"error": kind, "message": "m", "fix": "f", "exit_status": status}
    assert (out, json.loads(err)) == ("", document)


@pytest.mark.parametrize(
    ("exc", "message"),
    [
        (OSError(5, "Input/output error"), "cannot finish: Input/output error"),
        (NoSpace("no space is left", fix="delete"), "cannot finish: no space is left"),
    ],
)
def test_a_failure_of_the_system_can_be_tried_again(
    work: Work, capfd: pytest.CaptureFixture[str], exc: Exception, message: str
) -> None:
    work.answer = raising(exc)
    assert run(["run", *PLACES]) == 5
    assert capfd.readouterr().err.startswith(f"migrator: {message}; ")


@pytest.mark.parametrize(
    ("package", "extra"),
    [("rich", "migrator"), ("sqlalchemy", "migrator"), ("psycopg", "postgres")],
)
def test_a_missing_package_is_one_line_that_names_the_extra(
    work: Work, capfd: pytest.CaptureFixture[str], package: str, extra: str
) -> None:
    work.answer = raising(ModuleNotFoundError(f"No module named '{package}'", name=package))
    assert run(["run", *PLACES]) == 3
    assert capfd.readouterr().err == (
        f"migrator: the Python package {package} is not installed; "
        f"run: pip install 'gemspace[{extra}]'\n"
    )


def test_without_rich_nothing_is_begun_that_could_not_be_told(
    work: Work, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    assert run(["run", *PLACES]) == 3
    assert work.asked == []
    assert capfd.readouterr().err == (
        "migrator: the Python package rich is not installed; "
        "run: pip install 'gemspace[migrator]'\n"
    )
    assert run(["run", *PLACES, "--json"]) == 0


def test_an_error_of_the_program_is_one_line_and_status_70(
    work: Work, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    work.answer = raising(RuntimeError("two\nlines postgresql://u:secret@h"))
    assert run(["run", *PLACES]) == 70
    line = (
        "migrator: an error of this program: RuntimeError: two\\x0alines postgresql://u:***@h; "
        "set GEMSPACE_DEBUG=1 to see where, and report it\n"
    )
    assert capfd.readouterr() == ("", line)
    monkeypatch.setenv("GEMSPACE_DEBUG", "1")
    assert run(["run", *PLACES]) == 70
    err = capfd.readouterr().err
    assert err.startswith("Traceback (most recent call last):\n") and err.endswith(line)


@pytest.mark.parametrize(
    ("verb", "fix"),
    [
        ("run", "run the same command again: it goes on where it was"),
        ("rollback", "run the same command again: it goes on where it was"),
        ("plan", "nothing was changed"),
    ],
)
def test_ctrl_c_ends_it_with_130(
    work: Work, capfd: pytest.CaptureFixture[str], verb: str, fix: str
) -> None:
    work.answer = raising(KeyboardInterrupt())
    yes = ("--yes",) if verb == "rollback" else ()
    assert run([verb, *PLACES, *yes]) == 130
    assert capfd.readouterr() == ("", f"migrator: interrupted; {fix}\n")


KILLED = f"""
import os, signal, sys
import migrator
from types import SimpleNamespace
from migrator.cli import main
def kill(request, **options): signal.raise_signal(signal.SIGTERM)
migrator.planning = SimpleNamespace(plan_verb=kill)
sys.argv = ["migrator", "plan", *{PLACES!r}, "--json"]
sys.exit(main())
"""


def test_sigterm_ends_it_with_143_and_one_document() -> None:
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (143, b"")
    assert json.loads(done.stderr) == {
        "error": "interrupted",
        "message": "interrupted by SIGTERM",
        "fix": "nothing was changed",
        "exit_status": 143,
    }


def test_closed_streams_hurt_nothing() -> None:
    done = subprocess.run(["sh", "-c", f"exec {PROGRAM} plan <&- >&- 2>&-"], timeout=SECONDS)
    assert done.returncode == 2


# The question beforehand.


def on_a_terminal(arguments: Sequence[str], typed: bytes) -> tuple[int, bytes]:
    """The exit status of a command whose stdin and stderr are a terminal, and what it shows."""
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    with (
        os.fdopen(os.dup(theirs)) as stdin,
        os.fdopen(theirs, "w") as stderr,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stderr", stderr)
        status = run(arguments)
    shown = b""
    with suppress(OSError):  # EIO: all that was written has been read
        while piece := os.read(ours, 10_000):
            shown += piece
    os.close(ours)
    return status, shown


@pytest.mark.parametrize("verb", ["rollback", "finalize"])
def test_on_a_terminal_it_asks_and_does_it_after_a_yes(work: Work, verb: str) -> None:
    status, shown = on_a_terminal([verb, *PLACES], b"y\n")
    assert (status, [asked for asked, _ in work.asked]) == (0, [verb])
    assert f"{verb} ".encode() in shown and b"Go on? [y/N]: " in shown


@pytest.mark.parametrize("typed", [b"n\n", b"\n", b"\x04"])
def test_without_a_yes_nothing_is_done(work: Work, typed: bytes) -> None:
    status, shown = on_a_terminal(["finalize", *PLACES], typed)
    assert (status, work.asked) == (130, [])
    assert shown.endswith(b"migrator: not confirmed: nothing was changed\r\n")


def test_the_layouts_that_can_be_insisted_on_are_those_there_are() -> None:
    assert base.LAYOUTS == ("yuxi", "thread-local", "deerflow")
