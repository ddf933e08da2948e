"""scripts/setup: what it installs for which use, where it refuses, and a second run's cost."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

COMMON = ["fuse3", "libfuse3-dev", "pkg-config", "gcc", "libc6-dev", "git"]


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Name, size and modification time of everything in a folder."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
    }


def os_release(tmp_path: Path, text: str) -> dict[str, str]:
    file = tmp_path / "os-release"
    file.write_text(text)
    return {**os.environ, "GEMSPACE_OS_RELEASE": str(file)}


@pytest.fixture
def bare(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """The environment of a machine without packages, and the file that records what apt is asked.

    Its apt-get fails to install, its dpkg-query knows nothing, and its sudo does as it is told.
    """
    tools = tmp_path / "tools"
    tools.mkdir()
    asked = tmp_path / "asked"
    asked.touch()
    stubs = {
        "apt-get": f'echo "$*" >>"{asked}"; [ "$1" = update ]',
        "dpkg-query": "exit 1",
        "sudo": '[ "$1" != -n ] || shift; exec "$@"',
    }
    for name, text in stubs.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}, asked


def test_second_run_takes_under_three_seconds_and_changes_nothing(root, run, tmp_path):
    first = run(root / "scripts/setup", cwd=tmp_path)
    assert (first.returncode, first.stdout) == (0, "")
    stamp = root / ".venv/.setup-stamp"
    before = stamp.stat()

    started = time.monotonic()
    second = run(root / "scripts/setup", cwd=tmp_path)
    assert time.monotonic() - started < 3

    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert stamp.stat() == before


@pytest.mark.parametrize("text", ["ID=fedora\n", 'ID=arch\nID_LIKE="archlinux"\n', ""])
def test_other_systems_get_one_message_and_no_change(copy, run, tmp_path, text):
    before = snapshot(copy)
    result = run(copy / "scripts/setup", env=os_release(tmp_path, text))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    for word in ["nothing was changed", *COMMON, "rsync", "fio", "sqlite3", "python3-venv"]:
        assert word in result.stderr
    assert snapshot(copy) == before


def test_a_system_without_os_release_is_another_system(copy, run, tmp_path):
    environment = {**os.environ, "GEMSPACE_OS_RELEASE": str(tmp_path / "missing")}
    result = run(copy / "scripts/setup", env=environment)
    assert (result.returncode, "only Debian and Ubuntu" in result.stderr) == (1, True)


@pytest.mark.parametrize(
    "text",
    ["ID=debian\n", "ID=ubuntu\nID_LIKE=debian\n", 'ID=linuxmint\nID_LIKE="ubuntu debian"\n'],
)
def test_debian_and_its_children_are_served(copy, run, tmp_path, bare, text):
    environment, asked = bare
    environment["GEMSPACE_OS_RELEASE"] = os_release(tmp_path, text)["GEMSPACE_OS_RELEASE"]
    run(copy / "scripts/setup", env=environment)
    assert "install" in asked.read_text()


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        ([], ["rsync", "fio", "sqlite3"]),
        (["--for", "test"], ["rsync", "fio", "sqlite3"]),
        (["--for", "demo"], []),
        (["--for", "bench"], ["bindfs"]),
    ],
)
def test_asks_apt_once_for_what_the_use_needs(copy, run, bare, arguments, more):
    environment, asked = bare
    before = snapshot(copy)
    result = run(copy / "scripts/setup", *arguments, env=environment)
    update, install = asked.read_text().splitlines()
    assert update.split()[0] == "update"
    packages = [word for word in install.split() if word in {*COMMON, *more, "bindfs", "fio"}]
    assert packages == COMMON + more

    assert result.returncode == 1
    assert "run as root: apt-get install" in result.stderr
    assert snapshot(copy) == before


def test_installed_packages_are_not_asked_for(root, run, bare):
    environment, asked = bare
    dpkg_query = Path(environment["PATH"].split(":")[0]) / "dpkg-query"
    dpkg_query.write_text('#!/bin/sh\n[ "$4" = git ] && exit 1\necho installed\n')
    run(root / "scripts/setup", "--for", "demo", env=environment)
    assert asked.read_text().splitlines()[1].split()[-1] == "git"


@pytest.mark.parametrize(
    "arguments", [["--for"], ["--for", "all"], ["--fro", "demo"], ["demo"], ["--for", "demo", "x"]]
)
def test_wrong_arguments_show_the_usage(copy, run, arguments):
    before = snapshot(copy)
    result = run(copy / "scripts/setup", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("usage: scripts/setup [--for demo|test|bench]\n")
    assert snapshot(copy) == before


def test_help_goes_to_stdout(copy, run):
    result = run(copy / "scripts/setup", "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("usage: scripts/setup")


@pytest.mark.slow
def test_a_fresh_copy_gets_the_pinned_versions_and_working_commands(root, copy, run, tmp_path):
    for package in ("vfs", "migrator", "provisioner"):
        shutil.copytree(root / package, copy / package)

    result = run(copy / "scripts/setup", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr

    frozen = run(copy / ".venv/bin/python", "-m", "pip", "freeze", "--exclude-editable", "--all")
    installed = set(frozen.stdout.splitlines())
    pinned = set((copy / "constraints.txt").read_text().splitlines())
    assert {
        line for line in installed if line.split("==")[0] not in {"pip", "setuptools"}
    } <= pinned

    where = run(copy / ".venv/bin/python", "-I", "-c", "import pyfuse3, vfs; print(vfs.__file__)")
    assert where.stdout == f"{copy / 'vfs/__init__.py'}\n"
    command = run(copy / ".venv/bin/migrator", "--version")
    assert (command.returncode, command.stdout) == (0, "gemspace 0.1.0\n")
