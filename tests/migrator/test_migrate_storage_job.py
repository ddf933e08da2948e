"""The Kubernetes Job: what it says, and what its shell makes of the migrator's end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.migrator import operator, sample

MANIFEST = Path(__file__).parents[2] / "scripts" / "migrate-storage-job.yaml"
SHELLS = (["dash"], ["busybox", "sh"])

Line = tuple[int, str]


def loaded(text: str) -> Any:
    """What a YAML document says, of the part of the language that the manifest keeps to."""
    lines = [
        (len(line) - len(line.lstrip()), line.strip())
        for line in text.splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
    value, rest = _block(lines, 0)
    assert rest == []
    return value


def _block(lines: list[Line], least: int) -> tuple[Any, list[Line]]:
    """The value that begins with the first line, and the lines behind it."""
    indent, first = lines[0]
    assert indent >= least
    if not first.startswith("- "):
        return _mapping(lines, indent)
    items = []
    while lines and lines[0][0] == indent and lines[0][1].startswith("- "):
        inner = lines[0][1][2:]
        if re.match(r"[\w]+:( |$)", inner):
            value, lines = _mapping([(indent + 2, inner), *lines[1:]], indent + 2)
        else:
            value, lines = _value(inner, lines[1:], indent)
        items.append(value)
    return items, lines


def _mapping(lines: list[Line], indent: int) -> tuple[dict[str, Any], list[Line]]:
    mapping: dict[str, Any] = {}
    while lines and lines[0][0] == indent and not lines[0][1].startswith("- "):
        key, colon, rest = lines[0][1].partition(":")
        assert colon and key not in mapping, lines[0]
        mapping[key], lines = _value(rest.strip(), lines[1:], indent)
    return mapping, lines


def _value(text: str, lines: list[Line], indent: int) -> tuple[Any, list[Line]]:
    if text == "":
        return _block(lines, indent)
    if text == "|":
        body = []
        while lines and lines[0][0] > indent:
            body.append(lines[0])
            lines = lines[1:]
        return "".join(" " * (left - body[0][0]) + line + "\n" for left, line in body), lines
    return _scalar(text.split(" #")[0]), lines


def _scalar(text: str) -> Any:
    if text.startswith("["):
        return [_scalar(one.strip()) for one in text[1:-1].split(",")]
    if text.startswith('"'):
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


@pytest.fixture(scope="module")
def job() -> dict[str, Any]:
    document = loaded(MANIFEST.read_text())
    assert isinstance(document, dict)
    return document


@pytest.fixture(scope="module")
def container(job: dict[str, Any]) -> dict[str, Any]:
    [only] = job["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def test_it_is_one_pod_that_is_tried_again_only_where_that_may_help(job: dict[str, Any]) -> None:
    spec = job["spec"]
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 3)
    assert spec["podFailurePolicy"] == {
        "rules": [
            {
                "action": "FailJob",
                "onExitCodes": {
                    "containerName": "migrator",
                    "operator": "In",
                    "values": [2, 3, 4, 6, 70],
                },
            }
        ]
    }
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_it_is_root_with_no_more_rights_than_it_needs(
    job: dict[str, Any], container: dict[str, Any]
) -> None:
    pod = job["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "runAsUser": 0,
        "runAsGroup": 0,
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {
            "drop": ["ALL"],
            "add": ["CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER"],
        },
    }


def test_its_secrets_come_from_a_secret_and_its_token_is_in_both_places(
    job: dict[str, Any], container: dict[str, Any]
) -> None:
    def secret(key: str) -> dict[str, Any]:
        return {"secretKeyRef": {"name": "storage-migration", "key": key}}

    assert container["env"] == [
        {"name": "GEMSPACE_DATABASE", "valueFrom": secret("database")},
        {"name": "YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN", "valueFrom": secret("token")},
        {"name": "YUXI_STORAGE_MIGRATION_QUIESCENCE_FILE", "value": "/quiescence/token"},
    ]
    assert container["volumeMounts"] == [
        {"name": "saves", "mountPath": "/saves"},
        {"name": "tmp", "mountPath": "/tmp"},
        {
            "name": "quiescence",
            "mountPath": "/quiescence/token",
            "subPath": "token",
            "readOnly": True,
        },
    ]
    assert job["spec"]["template"]["spec"]["volumes"] == [
        {"name": "saves", "persistentVolumeClaim": {"claimName": "saves"}},
        {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        {
            "name": "quiescence",
            "secret": {
                "secretName": "storage-migration",
                "defaultMode": 0o400,
                "items": [{"key": "token", "path": "token"}],
            },
        },
    ]


def test_its_options_are_the_migrators(container: dict[str, Any]) -> None:
    assert container["args"][0] == "run"
    code = "import sys; from migrator.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, *container["args"], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(params=SHELLS, ids=" ".join)
def started(
    container: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The container's command as that shell runs it, and an environment with our migrator."""
    shell: Sequence[str] = request.param
    assert container["command"][0] == "/bin/sh"
    (tmp_path / "migrator").write_text(
        f"#!{sys.executable} -I\n"
        "import os, signal, sys\n"
        "print(*sys.argv[1:], flush=True)\n"
        "if os.environ['END'] == 'signal':\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "    print('ready', flush=True)\n"
        "    signal.sigwait([signal.SIGTERM])\n"
        "    os.kill(os.getppid(), signal.SIGTERM)\n"
        "    signal.sigwait([signal.SIGTERM])\n"
        "    print('ended', flush=True)\n"
        "    sys.exit(143)\n"
        "sys.exit(int(os.environ['END']))\n"
    )
    (tmp_path / "migrator").chmod(0o755)
    command = [*shell, *container["command"][1:], *container["args"]]
    yield command, {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("status", "expected"), [(0, 0), (1, 0), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (70, 70)]
)
def test_it_ends_as_the_migrator_does_but_warnings_are_no_failure(
    started: tuple[list[str], dict[str, str]],
    container: dict[str, Any],
    status: int,
    expected: int,
) -> None:
    command, environment = started
    done = subprocess.run(
        command,
        env={**environment, "END": str(status)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (expected, "")
    assert done.stdout == " ".join(container["args"]) + "\n"


def test_a_pod_that_is_told_to_end_tells_the_migrator_and_waits_for_it(
    started: tuple[list[str], dict[str, str]],
) -> None:
    command, environment = started
    heard = ["env", "--default-signal=TERM", *command]
    with subprocess.Popen(
        heard, env={**environment, "END": "signal"}, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(2)][1] == "ready\n"
        running.send_signal(signal.SIGTERM)
        assert running.stdout.read() == "ended\n"
    assert running.returncode == 143


@pytest.mark.slow
def test_the_rights_that_it_has_are_enough(container: dict[str, Any], tmp_path: Path) -> None:
    saves = sample.minimal(tmp_path)
    (tmp_path / "token").write_text("5e1f")
    added = container["securityContext"]["capabilities"]["add"]
    rights = ",".join(["-all", *(f"+{name.lower()}" for name in added)])
    code = "import sys; from migrator.cli import main; sys.exit(main())"
    done = subprocess.run(
        [
            *("unshare", "--pid", "--fork", "--mount-proc"),
            *("setpriv", f"--bounding-set={rights}", "--no-new-privs"),
            *(sys.executable, "-c", code, "run", *saves.arguments),
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN": "5e1f",
            "YUXI_STORAGE_MIGRATION_QUIESCENCE_FILE": str(tmp_path / "token"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr  # the sample has a setting that nobody knows
    assert operator.differences(saves) == []
