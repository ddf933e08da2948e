"""scripts/benchmarks/mount.py: runs small, reports what is missing, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

DEADLINE = 60.0


@pytest.fixture
def benchmarks(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the benchmarks, from which their modules can be imported."""
    folder = root / "scripts" / "benchmarks"
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "mounting"]:
        del sys.modules[name]


def command(benchmarks: Path, *arguments: str | Path) -> list[str | Path]:
    return [sys.executable, benchmarks / "mount.py", "--quick", "--runs", "1", *arguments]


def mounts_beneath(folder: Path) -> list[str]:
    with open("/proc/self/mountinfo") as lines:
        return [line for line in lines if str(folder) in line]


@pytest.mark.slow
def test_the_rows_and_systems_asked_for_fill_the_tables(benchmarks: Path, tmp_path: Path) -> None:
    data, report = tmp_path / "data", tmp_path / "report.md"
    data.mkdir()
    chosen = ["--rows", "unlink,small", "--systems", "fuse-pyfuse3,native,kernel"]
    done = subprocess.run(
        command(benchmarks, *chosen, "--folder", data, "--markdown", report),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    lines = report.read_text().splitlines()
    assert lines[0] == "### Seconds, median (multiple of native)"
    assert lines[2] == "| work | native | kernel | fuse-pyfuse3 |"
    work = [line.split(" | ")[0].removeprefix("| ") for line in lines[4:8]]
    assert work == [
        "open+read+close, 1000 files, cached below",
        "open+read+close, 1000 files, warm",
        "open+read+close, 1000 files, cold",
        "unlink 300 files",
    ]
    cells = [line.strip("| ").split(" | ") for line in lines[4:8]]
    assert [cell[2] == "-" for cell in cells] == [False, False, False, True]
    assert all(cell[3].endswith("x)") for cell in cells)
    assert lines[9] == "### Microseconds of one request (GETATTR)"
    assert lines[13].startswith("| fuse-pyfuse3 | ")
    assert "open+read+close, 1000 files, warm" in done.stdout
    assert (os.listdir(data), mounts_beneath(data)) == ([], [])


@pytest.mark.slow
def test_a_system_that_is_missing_is_left_out_with_the_reason(
    benchmarks: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        command(benchmarks, "--rows", "status", "--systems", "native,bindfs", "--folder", tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
        env={**os.environ, "PATH": _path_without_bindfs(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "bindfs is left out: bindfs is not installed" in done.stdout


def _path_without_bindfs(folder: Path) -> str:
    tools = folder / "tools"
    tools.mkdir()
    for name in ("git", "rm", "umount"):
        for place in os.environ["PATH"].split(os.pathsep):
            if os.path.exists(f"{place}/{name}"):
                (tools / name).symlink_to(f"{place}/{name}")
                break
    return str(tools)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_leaves_nothing_behind(
    benchmarks: Path, tmp_path: Path, number: int
) -> None:
    rows = ["--rows", "tar", "--systems", "fuse-pyfuse3", "--folder", tmp_path]
    with subprocess.Popen(
        command(benchmarks, *rows), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
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
    assert subprocess.run(["pgrep", "-f", str(tmp_path)], check=False).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--rows", "read,nothing"], "there is no 'nothing'; there are: read, find, ls"),
        (["--systems", "mine"], "there is no 'mine'; there are: native, kernel"),
        (["--runs", "0"], "--runs is at least 1"),
    ],
)
def test_an_unknown_choice_is_refused(
    benchmarks: Path, arguments: list[str], complaint: str
) -> None:
    done = subprocess.run(
        [sys.executable, benchmarks / "mount.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_work_that_takes_too_long_is_given_up(benchmarks: Path, tmp_path: Path) -> None:
    from mounting import work

    def endless(folder: Path) -> None:
        subprocess.run(["sleep", "600"], check=True, cwd=folder)

    assert work.timed(endless, tmp_path, limit=0.2) == float("inf")
    assert work.timed(lambda folder: None, tmp_path) < 5
    with pytest.raises(work.Failed, match=r"^ValueError: no$"):
        work.timed(_fail, tmp_path)


def _fail(folder: Path) -> None:
    raise ValueError("no")


def test_systems_take_turns_and_slow_ones_have_one_run(benchmarks: Path, tmp_path: Path) -> None:
    from mounting import data, measure, systems

    class Recorded:
        writable = True
        pid = None
        shown = tmp_path

        def __init__(self, name: str, *, starts: bool = True) -> None:
            self.name = name
            self.starts = starts

        def start(self) -> None:
            seen.append(self.name)
            if not self.starts:
                raise systems.CannotStart("it is broken")

        def stop(self) -> None:
            seen.append(f"{self.name} ends")

    class Row:
        key = "row"
        writes = False

        def prepare(self, native: Path, sizes: object, tags: list[str]) -> None:
            seen.append(" ".join(tags))

        def measure(self, stage: object) -> Iterator[tuple[str, float]]:
            yield "line", measure.BUDGET_SECONDS if seen[-1] == "slow" else len(seen)

    seen: list[str] = []
    listed = [Recorded("fast"), Recorded("slow"), Recorded("none", starts=False)]
    bench = measure.Bench(listed, tmp_path, data.QUICK, cold=False)
    bench.measure([Row()], 2)
    assert seen == [
        "0-fast 0-slow 0-none 1-fast 1-slow 1-none",
        *("fast", "fast ends", "slow", "slow ends", "none", "fast", "fast ends"),
    ]
    assert bench.results.seconds == {"line": {"fast": [2, 7], "slow": [measure.BUDGET_SECONDS]}}
    assert bench.results.failures == ["none is left out: it is broken"]
    assert bench.results.median("line", "fast") == 4.5
