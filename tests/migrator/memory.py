"""A file system in memory for one test: no run on it waits for a disk or sees what others open."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """The folder of a tmpfs, which takes any tree with it when the test ends."""
    folder = tmp_path / "memory"
    folder.mkdir()
    options = "size=2g,nr_inodes=2m,mode=0755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
