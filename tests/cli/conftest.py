"""The command on a storage of the test's own."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import Forker, Vfs


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    """The process that commands are forked from."""
    with closing(Forker()) as process:
        yield process


@pytest.fixture
def vfs(forker: Forker, tmp_path: Path) -> Vfs:
    """The command, on a storage that is not made yet."""
    return Vfs(forker, tmp_path / "storage")


@pytest.fixture
def alice(vfs: Vfs) -> Vfs:
    """The command, on a storage in which alice has an empty workspace."""
    vfs.good("init")
    vfs.good("user", "add", "alice")
    return vfs


@pytest.fixture
def reachable(tmp_path: Path) -> Iterator[Path]:
    """A folder that other users than root reach: those above it let them through meanwhile."""
    opened: list[tuple[Path, int]] = []
    for folder in tmp_path.parents:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & 0o001:
            opened.append((folder, mode))
            folder.chmod(mode | 0o001)
    folder = tmp_path / "reachable"
    tmp_path.chmod(0o711)
    folder.mkdir(mode=0o755)
    yield folder
    for above, mode in opened:
        above.chmod(mode)
