"""scripts/benchmarks/migrate.py: runs small, says what fails, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEADLINE = 120.0


@pytest.fixture
def benchmarks(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the benchmarks, from which their modules can be imported."""
    folder = root / "scripts" / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in list(sys.modules):
        if name.partition(".")[0] in ("migrating", "mounting"):
            del sys.modules[name]


def command(benchmarks: Path, *arguments: str | Path) -> list[str | Path]:
    return [sys.executable, benchmarks / "migrate.py", "--quick", "--runs", "1", *arguments]


def mounts_beneath(folder: Path) -> list[str]:
    with open("/proc/self/mountinfo") as lines:
        return [line for line in lines if str(folder) in line]


@pytest.mark.slow
def test_the_rows_asked_for_fill_the_tables(benchmarks: Path, tmp_path: Path) -> None:
    data, report = tmp_path / "data", tmp_path / "report.md"
    data.mkdir()
    done = subprocess.run(
        command(benchmarks, "--rows", "ownership", "--folder", data, "--markdown", report),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = report.read_text().splitlines()
    assert lines[0] == "### Owner and mode, seconds, median (multiple of the first)"
    assert lines[2] == "| work | chown -R | chown -R + chmod -R | ownership pass |"
    assert [line.split(" | ")[0] for line in lines[4:6]] == [
        "| owner and mode of 10000 files",
        "| … on the disk (sync -f)",
    ]
    assert lines[4].count("x)") == 2
    assert (os.listdir(data), mounts_beneath(data)) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_nothing_behind(
    benchmarks: Path, tmp_path: Path, number: int
) -> None:
    with subprocess.Popen(
        command(benchmarks, "--rows", "small", "--folder", tmp_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + DEADLINE
        while not mounts_beneath(tmp_path):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert (os.listdir(tmp_path), mounts_beneath(tmp_path)) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--rows", "small,nothing"], "there is no 'nothing'; there are: small, large"),
        (["--runs", "0"], "--runs is at least 1"),
        (["--jobs", "0"], "--jobs is at least 1"),
    ],
)
def test_an_unknown_choice_is_refused(
    benchmarks: Path, arguments: list[str], complaint: str
) -> None:
    done = subprocess.run(
        [sys.executable, benchmarks / "migrate.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_a_program_is_timed_watched_and_judged(benchmarks: Path) -> None:
    from migrating.programs import Failed, Program, run, watch

    python = [sys.executable, "-c"]
    assert 0 < run(Program([*python, "pass"])) < DEADLINE
    hungry = "import time; taken = bytearray(64 << 20); time.sleep(0.5)"
    found = watch(Program([*python, hungry]))
    assert found.seconds > 0.5
    assert found.largest > 64 << 20
    assert found.together > 64 << 20
    with pytest.raises(Failed, match=r"^false ends with 1: it gives no reason$"):
        run(Program(["false"]))
    with pytest.raises(Failed, match=r"ends with 1: no$"):
        watch(Program([*python, "raise SystemExit('no')"]))


def test_the_plain_copy_keeps_what_it_copies(benchmarks: Path, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "file").write_bytes(b"content")
    (source / "link").symlink_to("deep/file")
    subprocess.run([sys.executable, benchmarks / "migrating/plain.py", source, target], check=True)
    assert (target / "deep" / "file").read_bytes() == b"content"
    assert (target / "deep" / "file").stat().st_uid == 1000
    assert os.readlink(target / "link") == "deep/file"


def test_medians_are_compared(benchmarks: Path) -> None:
    from migrating import report
    from migrating.contenders import CpChown, Migrator
    from migrating.measure import Results, Run

    results = Results()
    results.runs["work"] = {
        "cp -a + chown -R": [Run(10.0, 12.0), Run(30.0, 32.0), Run(20.0, 22.0)],
        "migrator, link": [Run(2.0, 2.2)],
    }
    sheet = report.transfers(results, ["work", "other"], [CpChown(), Migrator("link", 2)])
    assert sheet.rows == [
        ["work", "20.0", "2.000 (0.10x)"],
        ["… on the disk (sync -f)", "22.0", "2.200 (0.10x)"],
        ["other", "-", "-"],
        ["… on the disk (sync -f)", "-", "-"],
    ]
    assert report.comparisons(results) == [
        "work: migrator, link is 10.00 times as fast as cp -a + chown -R, "
        "10.00 times with a final sync"
    ]
