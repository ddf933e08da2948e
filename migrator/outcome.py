"""What a verb answers when it came to its end: for people as text, for machines as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from migrator import findings
from migrator.findings import Finding


@dataclass(slots=True)
class Outcome:
    """The answer of one verb."""

    verb: str
    state: str
    """Where the migration stands now, as a word: ``nothing``, ``planned``, ``staged`` … ``done``,
    ``rolled-back``, ``finalized``; docs/migrator.md lists them."""
    summary: str
    """One line for people, without a full stop."""
    next: str | None = None
    """What to do next, one line in the imperative."""
    findings: list[Finding] = field(default_factory=list)
    numbers: dict[str, int | float] = field(default_factory=dict)
    """Counts and bytes by name: ``files``, ``bytes``, ``workdirs`` …"""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What this verb tells beyond that, ready for JSON."""
    foretells: bool = False
    """Whether it tells what would be: what was found is then no failure of this verb."""

    @property
    def exit_status(self) -> int:
        """0, 1, 3 or 6, by the findings; 0 for what only foretells."""
        return 0 if self.foretells else findings.exit_status(self.findings)

    def to_json(self) -> dict[str, Any]:
        """The whole answer."""
        return {
            "verb": self.verb,
            "state": self.state,
            "summary": self.summary,
            "next": self.next,
            "exit_status": self.exit_status,
            "numbers": dict(self.numbers),
            "findings": [finding.to_json() for finding in self.findings],
            **self.details,
        }
