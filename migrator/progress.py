"""How far the work is: one line that stays in place on a terminal, a line now and then elsewhere.

`Progress.count` may be called in forked workers; what they count is shared. Whoever forked them
shows it, whenever `Progress.tick` is called, and saves it as `migrator.journal.PROGRESS` for other
processes. Nothing that goes wrong with showing or saving it stops the work.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final, TextIO

from migrator.counters import Counters
from migrator.journal import PROGRESS
from migrator.tables import duration, number, size
from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.errors import VfsError
from vfs.printable import one_line
from vfs.saving import save

LOOK: Final = 0.2
"""Seconds between two looks at the counts, and two states of a terminal's line."""
SAVE: Final = 1.0
"""Seconds between two states of the file."""
PLAIN: Final = 10.0
"""Seconds between two lines where there is no terminal: a log stays readable."""

RATES: Final = 10.0
"""Seconds over which the rates are taken: long enough to be steady, short enough to follow."""

_ERASE: Final = "\r\x1b[K"
"""To the left margin, and clear the line (ECMA-48, EL)."""
_COLUMNS: Final = 80
"""The width of a terminal that does not tell it."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one part of the work is."""

    phase: str
    files: int
    bytes: int
    files_total: int | None
    bytes_total: int | None
    """None where it is not known beforehand."""
    files_per_second: float
    bytes_per_second: float
    """In the last ten seconds."""
    seconds_left: float | None
    """None if it cannot be told."""

    def line(self) -> str:
        """One line for people."""
        pieces = [_share(self.files, self.files_total, number) + " files"]
        if self.bytes or self.bytes_total:
            pieces.append(_share(self.bytes, self.bytes_total, size))
        pieces.append(f"{number(round(self.files_per_second))} files/s")
        if self.bytes_per_second:
            pieces.append(f"{size(self.bytes_per_second)}/s")
        if self.seconds_left is not None:
            pieces.append(f"{duration(self.seconds_left)} left")
        return one_line(f"{self.phase}: {', '.join(pieces)}")

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)


class Progress(Closing):
    """The progress of one verb, counted by its workers, shown by the process that made it."""

    __slots__ = (
        "_bytes_total",
        "_clock",
        "_counters",
        "_directory",
        "_due",
        "_files_total",
        "_looks",
        "_phase",
        "_pid",
        "_plain_due",
        "_save_due",
        "_stream",
        "_terminal",
        "_wall",
    )

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Shows on `stream`, stderr if None. `clock` and `wall` give seconds, the latter since the
        epoch."""
        self._stream: TextIO | None = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._clock = clock
        self._wall = wall
        self._pid = os.getpid()
        self._counters = Counters()
        self._directory: Directory | None = None
        self._phase: str | None = None
        self._files_total: int | None = None
        self._bytes_total: int | None = None
        self._looks: deque[tuple[float, int, int]] = deque()
        self._due = self._save_due = clock()
        self._plain_due = self._due + PLAIN

    def close(self) -> None:
        """Takes the line off the terminal; a second call does nothing."""
        if self._terminal and self._phase is not None:
            self._write(_ERASE)
        self._phase = None
        self._counters.close()

    def save_in(self, directory: Directory) -> None:
        """From now on the file is kept in this state folder, which must stay open."""
        self._directory = directory

    def phase(self, name: str, *, files: int | None = None, bytes: int | None = None) -> None:
        """Begins a part of the work, of so many files and bytes if that is known.

        No worker may be counting meanwhile.
        """
        self._phase = name
        self._files_total = files
        self._bytes_total = bytes
        self._counters.reset()
        self._looks.clear()
        self._due = self._save_due = self._clock()
        self.tick()

    def count(self, files: int, bytes: int) -> None:
        """Counts files and bytes that are done, in any process."""
        self._counters.add(files, bytes)
        if os.getpid() == self._pid:
            self.tick()

    def tick(self) -> None:
        """Shows and saves how far it is, if that is due; cheap, so call it often."""
        now = self._clock()
        if now < self._due or self._phase is None:
            return
        self._due = now + LOOK
        standing = self._look(self._phase, now)
        if self._terminal:
            self._write(_ERASE + standing.line()[: self._columns() - 1])
        elif now >= self._plain_due:
            self._plain_due = now + PLAIN
            self._write(standing.line() + "\n")
        if self._directory is not None and now >= self._save_due:
            self._save_due = now + SAVE
            self._save(self._directory, standing)

    def _look(self, phase: str, now: float) -> Standing:
        files, bytes_ = self._counters.totals()
        self._looks.append((now, files, bytes_))
        while len(self._looks) > 1 and self._looks[1][0] <= now - RATES:
            self._looks.popleft()
        since, files_then, bytes_then = self._looks[0]
        passed = now - since
        files_per_second = (files - files_then) / passed if passed else 0.0
        bytes_per_second = (bytes_ - bytes_then) / passed if passed else 0.0
        left = max(
            _left(files, self._files_total, files_per_second),
            _left(bytes_, self._bytes_total, bytes_per_second),
        )
        untold = math.isinf(left) or self._files_total is self._bytes_total is None
        return Standing(
            phase=phase,
            files=files,
            bytes=bytes_,
            files_total=self._files_total,
            bytes_total=self._bytes_total,
            files_per_second=files_per_second,
            bytes_per_second=bytes_per_second,
            seconds_left=None if untold else left,
        )

    def _columns(self) -> int:
        assert self._stream is not None
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _COLUMNS
        except OSError:
            return _COLUMNS

    def _write(self, shown: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(shown)
            self._stream.flush()
        except OSError:
            self._stream, self._terminal = None, False  # nobody reads it any more

    def _save(self, directory: Directory, standing: Standing) -> None:
        document = {"pid": self._pid, "time": self._wall(), **standing.to_json()}
        with suppress(VfsError):
            # After a failure of the machine it would tell nothing: it need not reach the disk.
            save(directory, PROGRESS, json.dumps(document).encode(), fsync=lambda _: None)


def _share(done: int, total: int | None, shown: Callable[[int], str]) -> str:
    return shown(done) if total is None else f"{shown(done)} of {shown(total)}"


def _left(done: int, total: int | None, rate: float) -> float:
    """Seconds until all is done at this rate; infinite where nothing moves."""
    if total is None or done >= total:
        return 0.0
    return (total - done) / rate if rate else math.inf
