"""Who is compared: each brings one set of saves into a new directory, as programs of their own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from migrating.data import TOKEN, Data
from migrating.programs import Program

OWNER = "1000:1000"

_MIGRATOR = Path(sys.executable).with_name("migrator")


class Contender(Protocol):
    """One column of the table."""

    @property
    def name(self) -> str:
        """As the table has it."""

    @property
    def links(self) -> bool:
        """Whether it changes owner and mode of the saves themselves, and copies no byte."""

    def programs(self, data: Data, target: Path) -> Sequence[Program]:
        """What is to be run, one after the other; `target` is not there yet."""


class CpChown:
    """cp -a, then chown -R."""

    name = "cp -a + chown -R"
    links = False

    def programs(self, data: Data, target: Path) -> Sequence[Program]:
        """Two of them."""
        return [
            Program(["cp", "-a", "--", str(data.saves / "threads"), str(target)]),
            Program(["chown", "-R", OWNER, "--", str(target)]),
        ]


class Rsync:
    """rsync -a, which verifies nothing of what it has written."""

    name = "rsync -a --chown"
    links = False

    def programs(self, data: Data, target: Path) -> Sequence[Program]:
        """One."""
        source = f"{data.saves / 'threads'}/"
        return [Program(["rsync", "-a", f"--chown={OWNER}", "--", source, f"{target}/"])]


class Plain:
    """The plain per-file copy in Python, hashed twice."""

    name = "hash, copy, hash"
    links = False

    def programs(self, data: Data, target: Path) -> Sequence[Program]:
        """One."""
        script = Path(__file__).with_name("plain.py")
        return [
            Program([sys.executable, str(script), str(data.saves / "threads"), str(target)]),
        ]


@dataclass(frozen=True)
class Migrator:
    """`migrator run`, from its start to its end: look, transfer, verify, database, owners."""

    transfer: Literal["link", "copy"]
    jobs: int

    @property
    def name(self) -> str:
        """With the way of its transfer."""
        return f"migrator, {self.transfer}"

    @property
    def links(self) -> bool:
        """Linked files are the saves' own."""
        return self.transfer == "link"

    def programs(self, data: Data, target: Path) -> Sequence[Program]:
        """One; the database is copied beforehand."""
        target.mkdir()
        shutil.copy(data.database, target / "saves.db")
        command = [
            *(str(_MIGRATOR), "run", "--source", str(data.saves), "--state", str(target / "state")),
            *("--user-data", str(target / "user-data")),
            *("--skill-store", str(target / "skill-store")),
            *("--skill-projections", str(target / "skill-projections")),
            *("--database", f"sqlite:///{target / 'saves.db'}"),
            *("--transfer", self.transfer, "--jobs", str(self.jobs), "--json"),
        ]
        return [Program(command, {"YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN": TOKEN})]
