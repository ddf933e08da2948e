"""scripts/migrate-storage, run by the shells that an operator may have.

Its docker and its migrator write down what they are asked.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.migrator import operator, sample

SCRIPTS = Path(__file__).parents[2] / "scripts"
SCRIPT = SCRIPTS / "migrate-storage"
SHELLS = (["dash"], ["busybox", "sh"])

DOCKER = """#!/bin/sh
echo "docker $*" >>"$ASKED"
case "$*" in
'compose config --services')
    printf '%s\\n' postgres api worker web-1
    exit "${DOCKER_CONFIG:-0}"
    ;;
'compose stop'*) exit "${DOCKER_STOP:-0}" ;;
'compose up'*) exit "${DOCKER_UP:-0}" ;;
esac
exit 99
"""

MIGRATOR = """#!/bin/sh
file=$YUXI_STORAGE_MIGRATION_QUIESCENCE_FILE
word=none
if [ -n "$YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN" ]; then
    word=bad
    [ "$(cat "$file")" != "$YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN" ] ||
        [ "$(stat -c %a "$file")" != 600 ] || word=good
fi
echo "migrator $* (word $word)" >>"$ASKED"
echo "answer of $1"
"""
ANSWER = 'eval "exit \\${EXIT_$1:-0}"\n'


SLOW = """
# Ends at the second word, and only when it is let go; signals that come meanwhile change nothing.
import os, signal, sys
asked = open(os.environ["ASKED"], "a", buffering=1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
open(os.environ["READY"], "w").close()
signal.sigwait([signal.SIGTERM])
print("passed on", file=asked)
os.kill(os.getppid(), int(sys.argv[1]))
signal.sigwait([signal.SIGTERM])
print("passed on again", file=asked)
open(os.environ["READY"]).read()
print("end", file=asked)
sys.exit(143)
"""


@dataclass
class Place:
    """A deployment's folder, with the tools that the script finds."""

    folder: Path
    shell: Sequence[str]

    @property
    def saves(self) -> Path:
        return self.folder / "old saves"

    @property
    def proof(self) -> Path:
        return self.saves / ".storage-migration-quiesced"

    @property
    def asked(self) -> list[str]:
        """What the tools were asked, in order."""
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []

    def tool(self, name: str, text: str) -> None:
        path = self.folder / "tools" / name
        path.write_text(text)
        path.chmod(0o755)

    def command(self, *words: str) -> list[str]:
        return [*self.shell, str(SCRIPT), *words]

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{self.folder}/tools:{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if "QUIESCENCE" not in name}
        return {**kept, "PATH": path, "ASKED": f"{self.folder}/asked", **more}

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def migrate(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs it as most tests do; nothing may be left over."""
        done = self.run(
            "--stop", "api", "--stop=worker", f"--source={self.saves}", "--yes", *words,
            **environment,
        )  # fmt: skip
        assert not self.proof.exists()
        return done


@pytest.fixture(params=SHELLS, ids=" ".join)
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    made = Place(tmp_path, request.param)
    made.saves.mkdir()
    (tmp_path / "tools").mkdir()
    made.tool("docker", DOCKER)
    made.tool("migrator", MIGRATOR + ANSWER)
    return made


def steps(place: Place, last: str) -> list[str]:
    """What is asked up to and with the step whose name is `last`, when all goes well."""
    source = f"--source {place.saves}"
    whole = {
        "config": "docker compose config --services",
        "first plan": f"migrator plan {source} (word none)",
        "stop": "docker compose stop api worker",
        "check": f"migrator check {source} (word good)",
        "plan": f"migrator plan {source} (word good)",
        "run": f"migrator run {source} (word good)",
        "up": "docker compose up --detach api worker",
    }
    return list(whole.values())[: list(whole).index(last) + 1]


def test_the_services_stop_the_rest_is_proved_and_the_plan_comes_before_the_run(
    place: Place,
) -> None:
    done = place.migrate()
    assert done.returncode == 0
    assert place.asked == steps(place, "run")
    assert done.stdout == "answer of check\nanswer of plan\nanswer of run\n"
    assert done.stderr == (
        "migrate-storage: stopping: api worker\n"
        "migrate-storage: the migration is done.\n"
        "migrate-storage: look at it with the new version; migrator verify proves it again, "
        "migrator rollback leads back,\n"
        "migrate-storage: and migrator finalize removes the old saves when you are sure.\n"
        "migrate-storage: start the new version's services: docker compose up --detach api worker\n"
    )


def test_the_migrators_options_are_passed_on_word_by_word(place: Place) -> None:
    show = 'printf "<%s>" "$@" >>"$ASKED"\necho >>"$ASKED"\n'
    place.tool("migrator", "#!/bin/sh\n" + show)
    words = ["--storage", "/a b", "--owner=*", "--state", "", "it's", "--jobs", "2"]
    assert place.migrate(*words).returncode == 0
    given = "".join(f"<{word}>" for word in ["--source", str(place.saves), *words])
    assert [line for line in place.asked if line.startswith("<")] == [
        f"<{verb}>{given}" for verb in ("plan", "check", "plan", "run")
    ]


@pytest.mark.parametrize("status", [0, 1])
def test_the_services_start_only_if_asked_for_and_done(place: Place, status: int) -> None:
    done = place.migrate("--start", EXIT_run=str(status))
    assert done.returncode == status
    assert place.asked == steps(place, "up")
    assert done.stderr.endswith("migrate-storage: starting: api worker\n")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (2, "the command line is wrong"),
        (3, "must be put right first"),
        (4, "not what was recorded"),
        (5, "it goes on where it was"),
        (6, "all else was migrated. Move it away"),
        (70, "the migrator ended with 70"),
        (130, "interrupted"),
        (137, "the migrator ended with 137"),
        (143, "interrupted"),
    ],
)
def test_after_a_failed_run_nothing_starts_and_the_next_step_is_told(
    place: Place, status: int, words: str
) -> None:
    done = place.migrate("--start", EXIT_run=str(status))
    assert done.returncode == status
    assert place.asked == steps(place, "run")
    assert words in done.stderr
    assert done.stderr.endswith(
        "migrate-storage: the services stay stopped: start neither the old ones nor the new before "
        "that.\n"
    )


@pytest.mark.parametrize("status", [3, 5, 143])
def test_what_is_not_at_rest_is_not_migrated(place: Place, status: int) -> None:
    done = place.migrate("--start", EXIT_check=str(status))
    assert done.returncode == status
    assert place.asked == steps(place, "check")
    assert "the services may be started instead: docker compose start api worker" in done.stderr


def test_warnings_of_the_check_and_conflicts_of_the_plan_do_not_stop_it(place: Place) -> None:
    done = place.migrate(EXIT_check="1", EXIT_plan="6", EXIT_run="6")
    assert done.returncode == 6
    assert place.asked == steps(place, "run")


@pytest.mark.parametrize("status", [2, 3, 5])
def test_a_plan_that_cannot_be_made_costs_no_downtime(place: Place, status: int) -> None:
    done = place.migrate(EXIT_plan=str(status))
    assert done.returncode == status
    assert place.asked == steps(place, "first plan")
    assert done.stderr.endswith("Nothing was stopped or changed.\n")


def test_services_that_cannot_be_stopped_end_it(place: Place) -> None:
    done = place.migrate(DOCKER_STOP="1")
    assert done.returncode == 3
    assert place.asked == steps(place, "stop")
    assert "docker compose could not stop them" in done.stderr


def test_services_that_cannot_be_started_again_are_an_error_after_the_migration(
    place: Place,
) -> None:
    done = place.migrate("--start", DOCKER_UP="1")
    assert done.returncode == 5
    assert done.stderr.endswith("as told above; the migration itself is done.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no service is named: give --stop SERVICE for each that uses the storage"),
        (["--stop", "api"], "no old saves are named: give --source DIR"),
        (["--stop"], "--stop needs a value"),
        (["--stop", "api", "--source"], "--source needs a value"),
        (["--stop", "a b", "--source", "."], "a service cannot be called 'a b'"),
        (["--stop=", "--source", "."], "a service cannot be called ''"),
        (["--stop", "--yes", "--source", "."], "a service cannot be called '--yes'"),
        (
            ["--stop", "api", "--source", "."],
            "nobody can be asked here: give --yes to migrate without it",
        ),
        (
            ["--stop", "web", "--source", ".", "--yes"],
            "the deployment has no service web, but: postgres api worker web-1",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_and_nothing_is_stopped(
    place: Place, words: list[str], message: str
) -> None:
    done = place.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"migrate-storage: {message}; migrate-storage --help tells more\n"
    assert set(place.asked) <= {"docker compose config --services"}


def test_help_tells_the_usage(place: Place) -> None:
    done = place.run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: migrate-storage --stop SERVICE... --source DIR")


def test_saves_that_are_not_there_or_no_deployment_stop_nothing(place: Place) -> None:
    done = place.run("--stop", "api", "--source", "nowhere", "--yes")
    assert (done.returncode, place.asked) == (3, [])
    assert done.stderr.startswith("migrate-storage: there is no folder nowhere: ")
    done = place.migrate(DOCKER_CONFIG="14")
    assert (done.returncode, place.asked) == (3, steps(place, "config"))


def test_only_root_may(place: Place) -> None:
    place.shell = ["unshare", "--user", *place.shell]  # there it is nobody
    done = place.migrate()
    assert (done.returncode, place.asked) == (3, [])
    assert done.stderr == "migrate-storage: this is not root: run it as root\n"


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_token_file_of_another_run_is_left_alone(place: Place, kind: str) -> None:
    if kind == "file":
        place.proof.write_text("theirs")
    else:
        place.proof.symlink_to("nowhere")
    done = place.run("--stop", "api", "--source", str(place.saves), "--yes")
    assert done.returncode == 3
    assert place.asked == steps(place, "config")
    assert os.path.lexists(place.proof)
    assert not (place.saves / "nowhere").exists()


def test_a_token_file_that_appears_meanwhile_is_not_written_to(place: Place) -> None:
    place.tool(
        "docker", DOCKER.replace("'compose stop'*)", "'compose stop'*) echo x >\"$PROOF\"; ")
    )
    done = place.run("--stop", "api", "--source", str(place.saves), "--yes", PROOF=str(place.proof))
    assert done.returncode == 5
    assert place.proof.read_text() == "x\n"
    assert "the token could not be written" in done.stderr


def test_the_token_file_may_be_named(place: Place) -> None:
    named = place.folder / "proof of rest"
    done = place.migrate(YUXI_STORAGE_MIGRATION_QUIESCENCE_FILE=str(named))
    assert done.returncode == 0
    assert place.asked == steps(place, "run")
    assert not named.exists()


def test_each_run_has_a_token_of_its_own(place: Place) -> None:
    place.tool(
        "migrator", '#!/bin/sh\necho "$YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN" >>"$ASKED"\n'
    )
    for _ in range(2):
        assert place.migrate().returncode == 0
    tokens = [line for line in place.asked if re.fullmatch("[0-9a-f]{64}", line)]
    assert [tokens.count(token) for token in set(tokens)] == [3, 3]


@pytest.mark.parametrize(
    ("answer", "agreed"), [("y", True), ("yes", True), ("n", False), ("", False)]
)
def test_without_yes_the_plan_is_shown_and_then_asked_for(
    place: Place, answer: str, agreed: bool
) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        done = subprocess.run(
            place.command("--stop", "api", "--stop", "worker", "--source", str(place.saves)),
            cwd=place.folder, env=place.environment(), stdin=theirs, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(theirs)
    assert "Migrate now? [y/N] " in done.stderr
    assert place.asked == steps(place, "run" if agreed else "plan")
    assert done.returncode == (0 if agreed else 130)
    assert not place.proof.exists()
    if not agreed:
        assert done.stderr.endswith("start them again: docker compose start api worker\n")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_signal_reaches_the_migrator_and_its_end_is_awaited(
    place: Place, number: signal.Signals, status: int, verb: str
) -> None:
    ready = place.folder / "ready"
    os.mkfifo(ready)
    place.tool("slow", f"#!{sys.executable} -I\n{SLOW}")
    place.tool("migrator", f'{MIGRATOR}[ "$1" != {verb} ] || exec slow {int(number)}\n')
    words = ("--stop", "api", "--stop", "worker", "--source", str(place.saves), "--yes", "--start")
    # What a shell was started with ignored, it cannot trap.
    heard = ["env", "--default-signal=HUP,INT,TERM", *place.command(*words)]
    with subprocess.Popen(
        heard, cwd=place.folder, env=place.environment(READY=str(ready)),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        ready.read_text()
        assert place.proof.exists()
        running.send_signal(number)
        ready.write_text("\n")
        assert running.stderr is not None
        told = running.stderr.read()
    assert running.returncode == status
    assert place.asked == [*steps(place, verb), "passed on", "passed on again", "end"]
    assert "interrupted" in told
    assert not place.proof.exists()


REAL = f"""#!/bin/sh
exec {sys.executable} -c 'import sys; from migrator.cli import main; sys.exit(main())' "$@"
"""


@pytest.mark.slow
def test_with_the_real_migrator_everything_is_in_its_place_in_the_end(
    place: Place, tmp_path: Path
) -> None:
    (tmp_path / "sample").mkdir()
    saves = sample.minimal(tmp_path / "sample")
    place.tool("migrator", REAL)
    modules = os.pathsep.join(sys.path)
    words = ("--stop", "api", "--yes", "--start", *saves.arguments)
    for _ in range(2):  # the second time there is nothing left to do
        done = place.run(*words, PYTHONPATH=modules)
        assert done.returncode == 1, done.stderr  # the sample has a setting that nobody knows
        assert operator.differences(saves) == []
        assert place.asked[-1] == "docker compose up --detach api"
        assert not (saves.source / place.proof.name).exists()


def test_the_script_has_the_line_ends_and_rights_that_every_shell_takes() -> None:
    text = SCRIPT.read_bytes()
    assert text.startswith(b"#!/bin/sh\n")
    assert b"\r" not in text
    assert os.access(SCRIPT, os.X_OK)
