"""What a look at the old saves brought up, by severity: for the report and the exit status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from migrator.errors import Conflict, Precondition

Severity = Literal["note", "warning", "conflict", "blocker"]
"""note: left alone on purpose. warning: not taken over, or only in part; look at it. conflict: not
taken over since something is in the way. blocker: `run` would not start."""

WARNINGS = 1
"""Exit status of a verb that finished with warnings."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that an operator should know."""

    code: str
    """What kind of thing: snake_case, never changed; docs/migrator.md lists them."""
    severity: Severity
    subject: str
    """What it is about, printable: a thread, a uid, a skill, a path beneath the saves."""
    message: str
    """One line without a full stop, printable."""
    fix: str | None = None
    """What to do about it, one line in the imperative; None if nothing need be done."""

    def to_json(self) -> dict[str, str | None]:
        """The fields by their names."""
        return asdict(self)


def exit_status(findings: Iterable[Finding]) -> int:
    """The exit status of a verb that finished with these: 3, 6, 1 or 0, the first that holds."""
    severities = {finding.severity for finding in findings}
    if "blocker" in severities:
        return Precondition.exit_status
    if "conflict" in severities:
        return Conflict.exit_status
    return WARNINGS if "warning" in severities else 0
