"""Whether the storage is at rest: what is told of what was found, and the operator's token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from migrator import downtime, procfs
from migrator.downtime import TOKEN, TOKEN_FILE
from migrator.findings import Finding
from migrator.procfs import Mounted, Survey, Use
from tests.migrator.engines import Docker, answering, docker, listing
from tests.migrator.procs import apart, comm, doing
from vfs.beneath import Directory


@pytest.fixture(scope="module")
def real() -> Iterator[Docker]:
    with docker() as started:
        yield started


@pytest.fixture
def saves(tmp_path: Path) -> Path:
    """The old saves, in a folder that holds nothing else."""
    top = tmp_path / "saves"
    (top / "threads" / "shared" / "u1" / "workspace").mkdir(parents=True)
    (top / "threads" / "shared" / "u1" / "workspace" / "a").touch()
    return top


class Database:
    """Stands in for a database: only what it is asked."""

    def __init__(self, *sessions: str) -> None:
        self.sessions = sessions

    def other_sessions(self) -> list[str]:
        return list(self.sessions)


def look(
    saves: Path,
    socket: Path | str | None = None,
    *,
    database: Database | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[Finding]:
    """What is found, without what is so of the whole machine: processes that refuse to be seen."""
    given = {"DOCKER_HOST": f"unix://{saves}/none.sock"} if environment is None else environment
    with Directory.open(saves) as root:
        found = downtime.look(
            {"source": root},
            bytes(saves / "state"),
            database,
            given,
            engine_socket=None if socket is None else str(socket),
        )
    return [one for one in found if one.code not in ("processes_unreadable", "processes_unseen")]


def test_a_storage_at_rest_gives_nothing(saves: Path) -> None:
    assert look(saves, database=Database()) == []


def test_each_session_of_the_database_is_named(saves: Path) -> None:
    found = look(saves, database=Database("pid 12 (psql) of app from 10.0.0.2, idle", "pid 13"))
    assert found == [
        Finding(
            "database_session",
            "blocker",
            "database",
            f"the database has another session: {text}",
            "stop the program that holds it, then check again",
        )
        for text in ("pid 12 (psql) of app from 10.0.0.2, idle", "pid 13")
    ]


def test_a_process_is_named_with_what_it_has_open(saves: Path) -> None:
    statement = "os.chdir(a[0]); f = open('threads/new\\n', 'w')"
    with doing(statement, saves) as pid:
        name = os.fsdecode(comm(pid))
        assert look(saves) == [
            Finding(
                "open_files",
                "blocker",
                f"process {pid} ({name})",
                f"process {pid} ({name}) has threads/new\\x0a beneath the source open for writing, "
                "and 1 more",
                "stop it, then check again",
            )
        ]


def test_a_sandbox_without_an_engine_is_named_by_its_mount(saves: Path) -> None:
    point = saves.parent / "point"
    point.mkdir()
    with apart('mount --bind "$1" "$2"', saves / "threads" / "shared", point) as pid:
        assert look(saves) == [
            Finding(
                "mounted_elsewhere",
                "blocker",
                f"process {pid} (sh)",
                f"threads/shared beneath the source is mounted at {point} in the mount namespace "
                f"of process {pid} (sh)",
                "stop it, then check again",
            )
        ]


@pytest.mark.parametrize(
    ("use", "finding"),
    [
        (
            Use(7, b"python3", None, "cwd", "source", b""),
            ("open_files", "blocker", "works in the source itself", "stop it"),
        ),
        (
            Use(7, b"python3", "yuxi.service", "root", "source", b"a"),
            (
                "open_files",
                "blocker",
                "has a beneath the source for its root directory; it belongs to yuxi.service",
                "stop yuxi.service",
            ),
        ),
        (
            Use(7, b"python3", "3f" * 32, "mapped", "source", b"a", things=3),
            (
                "open_files",
                "blocker",
                "has a beneath the source mapped, and 2 more; it belongs to container 3f3f3f3f3f3f",
                "stop container 3f3f3f3f3f3f",
            ),
        ),
        (
            Use(7, b"python3", None, "open", "source", None),
            (
                "open_path_unknown",
                "warning",
                "has something in or about the source whose path is too long to show open",
                "see what it works on",
            ),
        ),
        (
            Use(7, b"python3", None, "open", "source", b"a", ancestor=True),
            ("open_files", "blocker", "has a beneath the source open", "stop it"),
        ),
        (
            Use(7, b"python3", None, "cwd", "source", b"a", ancestor=True),
            (
                "shell_inside",
                "note",
                "works in a beneath the source; this program was started from it",
                None,
            ),
        ),
    ],
)
def test_each_use_has_its_words(use: Use, finding: tuple[str, Any, str, str | None]) -> None:
    code, severity, message, fix = finding
    shown = "process 7 (python3)"
    assert downtime._process(use) == Finding(
        code,
        severity,
        shown,
        f"{shown} {message}",
        None if fix is None else f"{fix}, then check again",
    )


def test_the_shell_that_the_program_was_started_from_may_stand_in_the_saves(saves: Path) -> None:
    code = """
import json, os, sys
from migrator import downtime
from vfs.beneath import Directory
with Directory.open(os.getcwd()) as root:
    found = downtime.look({"source": root}, None, None, {"DOCKER_HOST": "unix:///none"})
print(json.dumps([[one.severity, one.code] for one in found if "processes" not in one.code]))
"""
    command = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", code]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=saves, env=environment, stdout=subprocess.PIPE, check=True)
    assert json.loads(done.stdout) == [["note", "shell_inside"]]


def test_of_very_many_the_first_are_told_and_the_number_of_the_rest() -> None:
    uses = [Use(pid, b"x", None, "open", "source", b"a") for pid in range(1, 51)]
    found = downtime._bounded([downtime._process(use) for use in uses])
    assert [one.subject for one in found] == [
        *(f"process {pid} (x)" for pid in range(1, 21)),
        "and more",
    ]
    assert found[-1] == Finding(
        "open_files",
        "blocker",
        "and more",
        "30 more were found like the 20 above",
        "stop it, then check again",
    )


def test_blockers_come_first_however_they_were_found() -> None:
    kinds = [("a", "note"), ("b", "blocker"), ("c", "warning"), ("b", "blocker"), ("d", "blocker")]
    given = [Finding(code, severity, "", "") for code, severity in kinds]  # type: ignore[arg-type]
    assert [one.code for one in downtime._bounded(given)] == ["b", "b", "d", "c", "a"]


@pytest.mark.parametrize(
    ("pids", "entitled", "severity", "message", "fix"),
    [
        ((1,), True, "note", "1 process cannot be looked into (pid 1)", None),
        (
            (1, 2, 3, 4, 5, 6, 7),
            False,
            "warning",
            "7 processes cannot be looked into (pid 1, 2, 3, 4, 5, …)",
            "run as root, with CAP_SYS_PTRACE; or see to it that none of them uses the storage",
        ),
    ],
)
def test_processes_that_cannot_be_looked_into_are_counted(
    saves: Path,
    monkeypatch: pytest.MonkeyPatch,
    pids: tuple[int, ...],
    entitled: bool,
    severity: Any,
    message: str,
    fix: str | None,
) -> None:
    survey = Survey((), (), (), pids, entitled, partial=False)
    monkeypatch.setattr(procfs, "survey", lambda *_args, **_options: survey)
    with Directory.open(saves) as root:
        assert downtime.look({"source": root}, None, None, {}, engine_socket="/none") == [
            Finding("processes_unreadable", severity, "processes", message, fix)
        ]


UNSEEN_FIX = (
    "run on the host itself or with its PID namespace (--pid=host, hostPID: true); or see to it by "
    "other means that everything is stopped"
)


def test_in_a_namespace_that_hides_the_others_a_warning_says_so(
    saves: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survey = Survey((), (), (), (), entitled=True, partial=True)
    monkeypatch.setattr(procfs, "survey", lambda *_args, **_options: survey)
    with Directory.open(saves) as root:
        assert downtime.look({"source": root}, None, None, {}, engine_socket="/none") == [
            Finding(
                "processes_unseen",
                "warning",
                "processes",
                "only the processes of this container or PID namespace are seen",
                UNSEEN_FIX,
            )
        ]


def test_without_proc_a_warning_says_so_and_the_engine_is_asked_all_the_same(
    saves: Path, tmp_path: Path
) -> None:
    socket = tmp_path / "engine.sock"
    with Directory.open(saves) as root, answering(socket, listing({"Names": ["/yuxi-sandbox-a"]})):
        found = downtime.look(
            {"source": root}, None, None, {}, proc=str(tmp_path), engine_socket=str(socket)
        )
    assert [(one.severity, one.code, one.message) for one in found] == [
        (
            "blocker",
            "running_sandbox",
            "container yuxi-sandbox-a (000000000000) is running and is a sandbox",
        ),
        (
            "warning",
            "processes_unseen",
            "the processes cannot be looked at: No such file or directory",
        ),
    ]


def test_mounts_have_their_words() -> None:
    there = Mounted("source", b"a", b"/x\n", True, 7, b"sleep", "3f" * 32, mounts=2)
    assert downtime._mount(there) == Finding(
        "mounted_elsewhere",
        "blocker",
        "process 7 (sleep)",
        "a beneath the source is mounted read-only at /x\\x0a, and 1 more in the mount namespace "
        "of process 7 (sleep) of container 3f3f3f3f3f3f",
        "stop container 3f3f3f3f3f3f, then check again",
    )
    assert downtime._own_mount(Mounted("source", b"", b"/x", False)) == Finding(
        "mounted_here", "note", "/x", "the source itself is also mounted at /x"
    )


@pytest.mark.slow
def test_a_sandbox_of_a_real_engine_is_told_once_and_by_its_name(real: Docker, saves: Path) -> None:
    workspace = saves / "threads" / "shared" / "u1" / "workspace"
    options = ("--label=sandbox-id=s1", f"--volume={workspace}:/home/gem/user-data")
    command = "exec 3>>/home/gem/user-data/a; echo; sleep 600"
    with real.container("sandbox", *options, command=command) as id_:
        real.wait_for_a_line(id_)
        assert look(saves, real.socket) == [
            Finding(
                "container_mount",
                "blocker",
                "container sandbox",
                f"container sandbox ({id_[:12]}) is running and has threads/shared/u1/workspace "
                "beneath the source mounted at /home/gem/user-data (label sandbox-id=s1)",
                "stop it (docker stop sandbox), then check again",
            )
        ]
        # Without the engine's word the kernel's is enough, and names the container all the same.
        file, point = (one.message for one in look(saves))
        assert (
            f"workspace/a beneath the source open for writing; it belongs to container {id_[:12]}"
            in file
        )
        assert "is mounted at /home/gem/user-data in the mount namespace of process" in point
        assert point.endswith(f"(sleep) of container {id_[:12]}")
    assert look(saves, real.socket) == []


@pytest.fixture
def word(saves: Path) -> Path:
    return saves / ".storage-migration-quiesced"


def test_a_token_in_the_environment_and_the_same_in_the_file_are_the_operators_word(
    saves: Path, word: Path, tmp_path: Path
) -> None:
    word.write_text("5e1f\n")
    assert downtime.token({TOKEN: "5e1f"}, bytes(saves)) is None
    assert downtime.token({TOKEN: " 5e1f\n", TOKEN_FILE: ""}, bytes(saves)) is None
    elsewhere = tmp_path / "word"
    elsewhere.write_text("other")
    assert downtime.token({TOKEN: "other", TOKEN_FILE: str(elsewhere)}, bytes(saves)) is None
    (tmp_path / "link").symlink_to(saves)
    environment = {TOKEN: "5e1f", TOKEN_FILE: f"{tmp_path}/link/{word.name}"}
    assert downtime.token(environment, bytes(saves)) is None


def test_a_token_file_in_the_working_folder_may_be_named_without_one(
    saves: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (saves / "word").write_text("5e1f")
    monkeypatch.chdir(saves)
    assert downtime.token({TOKEN: "5e1f", TOKEN_FILE: "word"}, b"/none") is None


def test_a_token_of_any_bytes_is_compared_as_they_are(saves: Path, word: Path) -> None:
    word.write_bytes(b"\xff\xc3\xa9")
    assert downtime.token({TOKEN: os.fsdecode(b"\xff\xc3\xa9")}, bytes(saves)) is None


@pytest.mark.parametrize("given", [{}, {TOKEN: ""}, {TOKEN: " \n"}])
def test_without_a_token_in_the_environment_there_is_no_word(
    saves: Path, word: Path, given: dict[str, str]
) -> None:
    word.write_text("")
    assert downtime.token(given, bytes(saves)) == Finding(
        "quiescence_token",
        "blocker",
        str(word),
        f"the environment variable {TOKEN} is not set",
        f"stop every service that uses the storage, then put one new token into {TOKEN} and into "
        "the file; scripts/migrate-storage does all of it",
    )


def test_a_token_file_that_is_not_what_it_should_be_is_named_with_the_reason(
    saves: Path, word: Path
) -> None:
    def message() -> str:
        found = downtime.token({TOKEN: "5e1f"}, bytes(saves))
        assert found is not None
        return found.message.removeprefix(f"the token file {word} ").replace(f" {word.name}:", ":")

    assert message() == "cannot be read: cannot open: no such file or directory"
    word.write_text("\n")
    assert message() == "is empty"
    word.write_text("5e1e\n")
    assert message() == f"holds another token than {TOKEN}"
    word.write_text("5e1f" + " " * 5000)
    assert message() == "is longer than 4096 bytes"
    word.unlink()
    (saves / "real").write_text("5e1f")
    word.symlink_to("real")
    assert message() == "cannot be read: cannot open: a symbolic link stands on the path"
    word.unlink()
    os.mkfifo(word)
    assert message() == "cannot be read: cannot open: it is a FIFO, socket or device"
    word.unlink()
    word.mkdir()
    assert message() == "cannot be read: cannot open: it is a directory"
