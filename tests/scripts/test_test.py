"""scripts/test: every step counts, and its last line adds up honestly."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FLOOR = """
import os


def test_opens():
    assert os.environ.get("GEMSPACE_NO_OPENAT2") != "{broken_with}"
"""
OTHER = """
import pytest


def test_other():
    assert True


@pytest.mark.slow
def test_slow():
    assert True
"""
LEAVES_A_PROCESS = """
import subprocess


def test_leaves():
    subprocess.run("exec >/dev/null 2>&1; setsid sleep 600 &", shell=True, check=True)
"""


@pytest.fixture
def project(root, copy, run, tmp_path_factory):
    """A small project under the same scripts: one test of the floor, and two others, one slow.

    Calling it runs its scripts/test with those arguments.
    """
    (copy / "scripts/setup").write_text("#!/bin/sh\n")
    shutil.rmtree(copy / "scripts/benchmarks", ignore_errors=True)
    (copy / ".venv").symlink_to(root / ".venv")
    for package in ("vfs", "migrator", "provisioner"):
        (copy / package).mkdir()
        (copy / package / "__init__.py").touch()
    write(copy / "tests/vfs/test_floor.py", FLOOR.format(broken_with="never"))
    write(copy / "tests/cli/test_other.py", OTHER)

    def project(*arguments: str):
        cache = tmp_path_factory.getbasetemp() / "mypy-cache"
        environment = {**os.environ, "MYPY_CACHE_DIR": str(cache)}
        return run(copy / "scripts/test", *arguments, env=environment, cwd=copy.parent)

    return project


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.lstrip("\n"))


def outcome(result) -> tuple[int, str, list[str]]:
    """Exit status, last line, and the steps that failed."""
    lines = result.stdout.splitlines()
    failed = [line.removeprefix("step failed: ") for line in lines if "step failed: " in line]
    return result.returncode, lines[-1], failed


def test_the_floor_is_tested_twice_and_all_else_once(project):
    assert outcome(project()) == (0, "4 passed, 0 failed", [])


def test_a_fault_of_the_fallback_alone_fails_the_whole(project, copy):
    write(copy / "tests/vfs/test_floor.py", FLOOR.format(broken_with="1"))
    expected = (1, "3 passed, 1 failed", ["the floor's tests without openat2"])
    assert outcome(project()) == expected


def test_lint_and_types_fail_the_whole_though_all_tests_pass(project, copy):
    write(copy / "vfs/untidy.py", "import os\nx: int = 'text'  \n")
    expected = (1, "2 passed, 0 failed", ["ruff format --check", "ruff check", "mypy"])
    assert outcome(project("quick")) == expected


def test_quick_leaves_out_slow_tests_and_the_second_run(project):
    assert outcome(project("quick")) == (0, "2 passed, 0 failed", [])


def test_arguments_choose_tests_in_both_runs(project):
    assert outcome(project("-k", "opens")) == (0, "2 passed, 0 failed", [])
    assert outcome(project("tests/cli/test_other.py")) == (0, "2 passed, 0 failed", [])
    assert outcome(project("-k", "missing")) == (1, "0 passed, 0 failed", ["tests"])


def test_a_process_left_behind_fails_the_whole(project, copy):
    write(copy / "tests/cli/test_leaves.py", LEAVES_A_PROCESS)
    result = project("quick")
    assert outcome(result) == (1, "3 passed, 0 failed", ["the quick tests"])
    assert "left running" in result.stderr


def test_a_run_without_a_report_is_a_failure(project, copy):
    write(copy / "tests/cli/test_dies.py", "import os\n\n\ndef test_dies():\n    os._exit(0)\n")
    assert outcome(project("quick")) == (1, "0 passed, 1 failed", ["the quick tests"])
