"""A copy of the project's scripts in a folder of their own, where they can do no harm."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def root() -> Path:
    """The project itself."""
    return ROOT


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project's scripts and settings, in a folder whose name is easily quoted wrongly."""
    project = tmp_path / "a copy's folder"
    project.mkdir()
    for name in ("pyproject.toml", "constraints.txt", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, project)
    shutil.copytree(ROOT / "scripts", project / "scripts")
    return project


@pytest.fixture
def run() -> Run:
    """Run a command to its end with no stdin and return what it printed, as text."""

    def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **options
        )

    return run
