"""What came of giving trees to one owner: counts, and the entries that were not changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from migrator.units import Path

TOLD: Final = 100
"""Entries that a result names of each kind; the others are counted."""

Why = Literal["failed", "mount", "special", "elsewhere"]


@dataclass(frozen=True, slots=True)
class Left:
    """One entry that was not changed, or not in full."""

    why: Why
    """failed: the system refused it. mount: something else is mounted there; it was left alone
    with all that is in it. special: a FIFO, socket or device; its owner was set, its mode is never
    touched. elsewhere: a file with a further name elsewhere; it was left alone."""
    root: str
    path: Path
    message: str = ""
    """What the system said, for what failed."""


@dataclass(slots=True)
class Owned:
    """What came of a pass, or of a part of it."""

    changed: int = 0
    """Entries whose owner or mode was set."""
    seen: int = 0
    """Entries looked at."""
    failed: int = 0
    mounts: int = 0
    special: int = 0
    elsewhere: int = 0
    left: list[Left] = field(default_factory=list)
    """Of each of those four kinds up to `TOLD`."""

    def leave(self, left: Left) -> None:
        """Counts one entry, and names it if there is room."""
        if self._count(left.why) < TOLD:
            self.left.append(left)
        if left.why == "failed":
            self.failed += 1
        elif left.why == "mount":
            self.mounts += 1
        elif left.why == "special":
            self.special += 1
        else:
            self.elsewhere += 1

    def add(self, other: Owned) -> None:
        """Takes in what came of another part."""
        told = {why: min(self._count(why), TOLD) for why in get_args(Why)}
        for left in other.left:
            if told[left.why] < TOLD:
                told[left.why] += 1
                self.left.append(left)
        self.changed += other.changed
        self.seen += other.seen
        self.failed += other.failed
        self.mounts += other.mounts
        self.special += other.special
        self.elsewhere += other.elsewhere

    def _count(self, why: Why) -> int:
        counts = {
            "failed": self.failed,
            "mount": self.mounts,
            "special": self.special,
            "elsewhere": self.elsewhere,
        }
        return counts[why]
