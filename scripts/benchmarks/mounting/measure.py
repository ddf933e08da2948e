"""Measurements of several systems side by side: one after the other, over and over, and medians.

Other load comes and goes; systems that take turns suffer from it alike.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from mounting.data import Sizes
from mounting.rows import Row, Stage
from mounting.systems import CannotStart, System
from mounting.work import Failed

BUDGET_SECONDS = 4.0
"""A system that took longer for a row is not asked for it again: how slow it is shows already."""


@dataclass
class Results:
    """What was measured."""

    seconds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """Line of the table → system → seconds of each run."""
    failures: list[str] = field(default_factory=list)
    """What did not work, one line each."""

    def add(self, line: str, system: str, seconds: float) -> None:
        """Adds one run."""
        self.seconds.setdefault(line, {}).setdefault(system, []).append(seconds)

    def median(self, line: str, system: str) -> float | None:
        """Seconds; None where nothing was measured."""
        found = self.seconds.get(line, {}).get(system)
        return statistics.median(found) if found else None


@dataclass
class Bench:
    """The systems and the folder that they show."""

    systems: list[System]
    native: Path
    sizes: Sizes
    cold: bool
    results: Results = field(default_factory=Results)

    def measure(self, rows: list[Row], runs: int) -> None:
        """Measures every row on every system."""
        for row in rows:
            able = [system for system in self.systems if system.writable or not row.writes]
            tags = [f"{run}-{system.name}" for run in range(runs) for system in able]
            row.prepare(self.native, self.sizes, tags)
            spent: dict[str, float] = defaultdict(float)
            for run in range(runs):
                for system in able:
                    if system in self.systems and spent[system.name] < BUDGET_SECONDS:
                        say(f"{row.key}: run {run + 1} of {runs}, {system.name}")
                        spent[system.name] += self._measure_one(row, run, system)

    def _measure_one(self, row: Row, run: int, system: System) -> float:
        """Measures a row once; the seconds that it took, infinite if it failed."""
        total = 0.0
        if not self.start(system):
            return float("inf")
        try:
            for line, seconds in row.measure(self.stage(system, f"{run}-{system.name}")):
                self.results.add(line, system.name, seconds)
                total += seconds
        except Failed as exc:
            self.results.failures.append(f"{row.key} on {system.name}: {exc}")
            return float("inf")
        finally:
            system.stop()
        return total

    def stage(self, system: System, tag: str) -> Stage:
        """Where a system's measurement takes place."""
        return Stage(system.shown, self.native, tag, self.sizes, self.cold)

    def start(self, system: System) -> bool:
        """Starts a system; one that cannot be started is left out from now on."""
        try:
            system.start()
        except CannotStart as exc:
            self.results.failures.append(f"{system.name} is left out: {exc}")
            self.systems.remove(system)
            return False
        return True


def say(progress: str) -> None:
    """Shows where it is, on a terminal in one line that is overwritten."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{progress}", end="", file=sys.stderr, flush=True)
    else:
        print(progress, file=sys.stderr, flush=True)
