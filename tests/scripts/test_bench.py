"""scripts/bench: lists the benchmarks and hands its options on to one."""

from __future__ import annotations

import shutil

import pytest

BENCHMARK = '''"""Measures nothing."""

import sys

if __name__ == "__main__":
    print(sys.argv[1:])
    sys.exit(3)
'''


@pytest.fixture
def bench(root, copy, run):
    """Run scripts/bench of a copy with one benchmark, `nothing`, and one module that is none."""
    (copy / "scripts/setup").write_text('#!/bin/sh\necho "setup $*"\n')
    (copy / ".venv").symlink_to(root / ".venv")
    benchmarks = copy / "scripts/benchmarks"
    shutil.rmtree(benchmarks, ignore_errors=True)
    benchmarks.mkdir()
    (benchmarks / "nothing.py").write_text(BENCHMARK)
    (benchmarks / "helpers.py").write_text('"""No benchmark."""\n')

    def bench(*arguments: str):
        return run(copy / "scripts/bench", *arguments, cwd=copy.parent)

    return bench


def test_without_a_name_lists_the_benchmarks(bench):
    result = bench()
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[1:] == ["benchmarks:", "  nothing    Measures nothing."]


def test_hands_options_and_exit_status_on_after_setting_up(bench):
    result = bench("nothing", "--size", "a b", "")
    assert (result.returncode, result.stderr) == (3, "")
    assert result.stdout == "setup --for bench\n['--size', 'a b', '']\n"


@pytest.mark.parametrize("name", ["missing", "helpers", "../nothing", "-x", "a b"])
def test_an_unknown_name_is_refused_before_setting_up(bench, name):
    result = bench(name)
    assert (result.returncode, result.stdout) == (2, "")
    assert "usage: scripts/bench" in result.stderr
