"""Why a verb of the migrator ends early: each kind has one exit status.

============  ====  ==========================================================
class         exit  meaning
============  ====  ==========================================================
`Usage`       2     the command line asks for what cannot be
`Precondition`  3   something must be put right first; nothing was changed
`Mismatch`    4     target, database or journal are not what was recorded
`Retryable`   5     reading or writing failed; the same command goes on later
`Conflict`    6     something stands where the migrator would have to write
============  ====  ==========================================================

0 is done or nothing to do, 1 is done with warnings, 130 and 143 are interrupted and resumable.
Messages may name the paths of the host: they are the operator's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from vfs.errors import VfsError
from vfs.printable import one_line

INTERRUPTED = 130
"""Exit status after Ctrl-C, as a shell reports it; 143 after SIGTERM."""
TERMINATED = 143


class MigratorError(Exception):
    """Base of every error of the migrator; only its subclasses are raised.

    `str()` is one line, ``message; fix``, that is safe on a terminal.
    """

    kind: ClassVar[str]
    """The code that programs compare: snake_case, never changed."""
    exit_status: ClassVar[int]

    def __init__(
        self, message: str, *, fix: str | None = None, details: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.message = one_line(message)
        """What went wrong, one line without a full stop."""
        self.fix = None if fix is None else one_line(fix)
        """What to do next, one line, in the imperative; None where nothing can be advised."""
        self.details = [one_line(detail) for detail in details]
        """All of what the message tells the first of, a line each."""

    def __str__(self) -> str:
        return self.message if self.fix is None else f"{self.message}; {self.fix}"

    def to_json(self) -> dict[str, object]:
        """Return ``{"error": kind, "message": …, "fix": …|None, "exit_status": N}``.

        With ``"details": [line, …]`` where there are any.
        """
        document: dict[str, object] = {
            "error": self.kind,
            "message": self.message,
            "fix": self.fix,
            "exit_status": self.exit_status,
        }
        return {**document, "details": self.details} if self.details else document


class Usage(MigratorError):
    """The command line asks for what cannot be."""

    kind = "usage"
    exit_status = 2


class Precondition(MigratorError):
    """Something must be put right first; nothing was changed."""

    kind = "precondition"
    exit_status = 3


class Mismatch(MigratorError):
    """Target, database or journal are not what was recorded."""

    kind = "mismatch"
    exit_status = 4


class Retryable(MigratorError):
    """Reading or writing failed; the same command goes on later."""

    kind = "retryable"
    exit_status = 5


class Conflict(MigratorError):
    """Something stands where the migrator would have to write."""

    kind = "conflict"
    exit_status = 6


def retryable(exc: OSError | VfsError, doing: str) -> Retryable:
    """The error for a failure of the system while `doing` something (``read threads/t1``)."""
    if isinstance(exc, VfsError):
        return Retryable(f"cannot {doing}: {exc.message}", fix=exc.fix or _AGAIN)
    return Retryable(f"cannot {doing}: {exc.strerror or exc}", fix=_AGAIN)


_AGAIN = "put that right and run the same command again: it goes on where it was"
