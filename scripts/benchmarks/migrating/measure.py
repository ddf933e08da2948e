"""Contenders that take turns on the same saves: each run is timed as whole processes.

Before each, what earlier ones have written is on the disk, and the saves are as they were made. The
saves' pages are in the kernel's cache, or, where that is asked for, on the disk alone.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mounting.measure import say

from migrating.contenders import OWNER, Contender
from migrating.data import Data
from migrating.programs import Failed, Program, Watched, drop_caches, run, sync, watch


class Run(NamedTuple):
    """What one run took."""

    seconds: float
    """Until its last process has ended."""
    synced: float
    """Until all that it wrote is on the disk: the same and a `sync -f`."""


@dataclass
class Results:
    """What was measured."""

    runs: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    """Line of the table → contender → runs."""
    watched: dict[str, dict[str, Watched]] = field(default_factory=dict)
    """Line → contender → what it took, memory included."""
    failures: list[str] = field(default_factory=list)
    """What did not work, one line each."""

    def median(self, line: str, contender: str) -> Run | None:
        """Of both figures; None where nothing was measured."""
        found = self.runs.get(line, {}).get(contender)
        if not found:
            return None
        return Run(
            statistics.median(run.seconds for run in found),
            statistics.median(run.synced for run in found),
        )


@dataclass
class Bench:
    """Where contenders write, and what came of it."""

    folder: Path
    results: Results = field(default_factory=Results)
    _count: int = 0

    def transfer(
        self,
        line: str,
        data: Data,
        contenders: Sequence[Contender],
        runs: int,
        *,
        keep: bool,
        cold: bool = False,
    ) -> None:
        """Has the contenders bring saves to new places; what they made stays if it is to `keep`."""
        for number in range(runs):
            for contender in contenders:
                say(f"{line}: run {number + 1} of {runs}, {contender.name}")
                target = self._target()
                self._prepare(data, contender)
                programs = contender.programs(data, target)
                if cold:
                    drop_caches()
                self._timed(line, contender.name, programs)
                if not keep:
                    remove(target)

    def memory(self, data: Data, contender: Contender) -> None:
        """Runs a contender of one program once more, and looks at its memory."""
        say(f"{data.name}: memory, {contender.name}")
        self._prepare(data, contender)
        try:
            (program,) = contender.programs(data, self._target())
            taken = watch(program)
        except Failed as exc:
            self.results.failures.append(f"{data.name}, {contender.name}: {exc}")
            return
        self.results.watched.setdefault(data.name, {})[contender.name] = taken

    def ownership(self, line: str, tree: Path, jobs: int, runs: int) -> None:
        """Gives a tree of root's to the owner, in each way."""

        def ours() -> list[Program]:
            script = str(Path(__file__).with_name("own.py"))
            return [Program([sys.executable, script, str(tree), str(self._target()), str(jobs)])]

        chown = Program(["chown", "-R", OWNER, "--", str(tree)])
        chmod = Program(["chmod", "-R", "u=rwX,go=", "--", str(tree)])
        ways: dict[str, Callable[[], list[Program]]] = {
            "chown -R": lambda: [chown],
            "chown -R + chmod -R": lambda: [chown, chmod],
            "ownership pass": ours,
        }
        for number in range(runs):
            for name, programs in ways.items():
                say(f"{line}: run {number + 1} of {runs}, {name}")
                give_back(tree)
                sync(self.folder)
                self._timed(line, name, programs())

    def _target(self) -> Path:
        self._count += 1
        return self.folder / f"run-{self._count}"

    def _prepare(self, data: Data, contender: Contender) -> None:
        if contender.links:
            give_back(data.saves)
        sync(self.folder)

    def _timed(self, line: str, name: str, programs: Sequence[Program]) -> None:
        try:
            seconds = sum(map(run, programs))
        except Failed as exc:
            self.results.failures.append(f"{line}, {name}: {exc}")
            return
        runs = self.results.runs.setdefault(line, {}).setdefault(name, [])
        runs.append(Run(seconds, seconds + sync(self.folder)))


def give_back(tree: Path) -> None:
    """Makes a tree root's and open to all, as old saves are."""
    subprocess.run(["chown", "-R", "0:0", "--", tree], check=True)
    subprocess.run(["chmod", "-R", "a=rwX", "--", tree], check=True)


def remove(tree: Path) -> None:
    """Removes a tree of one file system, if it is there."""
    if os.path.lexists(tree):
        subprocess.run(["rm", "-rf", "--one-file-system", "--", tree], check=True)
