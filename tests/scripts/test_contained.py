"""scripts/contained.py: what a command leaves behind is found, named and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def contained(root, run, tmp_path):
    """Run a shell script contained, with temporary folders made in tmp_path/temporary."""
    (tmp_path / "temporary").mkdir()

    def contained(script: str) -> subprocess.CompletedProcess[str]:
        return run(
            *(sys.executable, root / "scripts/contained.py", "sh", "-c", script),
            env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
            cwd=tmp_path,
        )

    return contained


def test_passes_on_output_and_exit_status(contained):
    result = contained("echo out; echo err >&2; exit 7")
    assert (result.returncode, result.stdout, result.stderr) == (7, "out\n", "err\n")


def test_a_command_ended_by_a_signal_has_the_shells_status(contained):
    assert contained("kill -TERM $$").returncode == 128 + signal.SIGTERM


def test_removes_the_temporary_folder_whatever_is_in_it(contained, tmp_path):
    result = contained(
        'cd "$TMPDIR" && mkdir locked && touch locked/file && chmod 0 locked && ln -s /etc link && '
        "i=0; while [ $i -lt 1500 ]; do mkdir d && cd -P d; i=$((i+1)); done"
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert os.listdir(tmp_path / "temporary") == []


def test_a_detached_process_is_named_and_ended(contained, tmp_path):
    result = contained(
        "exec >/dev/null 2>&1; setsid sh -c 'echo $$ >pid; exec sleep 600' & "
        "while [ ! -s pid ]; do :; done"
    )
    pid = int((tmp_path / "pid").read_text())
    assert result.returncode == 1
    assert result.stderr == f"contained: left running: {pid} 'sleep 600'\n"
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_that_is_about_to_end_is_waited_for(contained, tmp_path):
    result = contained("exec >/dev/null 2>&1; setsid sh -c 'sleep 0.3; touch done' &")
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "done").exists()


def test_a_mount_is_named_and_unmounted_and_its_files_stay(contained, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_text("kept")
    result = contained('mkdir "$TMPDIR/a b" && mount --bind source "$TMPDIR/a b"; echo "$TMPDIR"')
    point = f"{result.stdout.strip()}/a b"
    assert result.returncode == 1
    assert result.stderr == f"contained: left mounted: {point!a}\n"
    assert os.listdir(tmp_path / "temporary") == []
    assert (tmp_path / "source/file").read_text() == "kept"


def test_being_terminated_ends_the_command_and_cleans_up(root, tmp_path):
    (tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, root / "scripts/contained.py", "sh", "-c", "echo started; sleep 600"],
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
    assert os.listdir(tmp_path / "temporary") == []
