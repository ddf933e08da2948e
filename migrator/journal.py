"""The main journal: every step of a migration, recorded before it counts, folded when opened.

It lies in the state folder with the records that are too many for it:

====================  =========================================================================
name                  holds
====================  =========================================================================
`JOURNAL`             the steps, as `migrator.state` lists them
`UNITS`               a folder with one manifest for each unit, ``<key>.jsonl``
`ROWS`                the database's rows as they were before the cut-over
``ownership-N.jsonl``  owners and modes as they were before
`PROGRESS`            what `migrator.progress` shows; no record
`LOCK`                what `migrator.locks` locks
====================  =========================================================================

All but the last two have the format of `migrator.lines`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

from migrator.lines import Appender, exact, path_exact, path_text, records, text
from migrator.state import FORMAT, State, fold
from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.errors import NotFound

__all__ = [
    "JOURNAL",
    "LOCK",
    "PROGRESS",
    "ROWS",
    "UNITS",
    "Appender",
    "Journal",
    "exact",
    "path_exact",
    "path_text",
    "read",
    "records",
    "set_aside",
    "text",
]

JOURNAL: Final = b"journal.jsonl"
UNITS: Final = b"units"
ROWS: Final = b"rows.jsonl"
PROGRESS: Final = b"progress.json"
LOCK: Final = b"lock"

_ASIDE: Final = b"rolled-back-"
"""How the folder's name begins into which the records of a rolled back migration are moved."""

_STAYS: Final = frozenset((JOURNAL, LOCK))
"""What `set_aside` leaves for last, and what it leaves."""


class Journal(Closing):
    """The main journal, open for appending. The caller holds `migrator.locks`."""

    __slots__ = ("_appender", "state")

    def __init__(self, appender: Appender, state: State) -> None:
        """Takes over `appender`, the file whose records `state` is the fold of."""
        self._appender = appender
        self.state = state
        """Where it stands, with all that was recorded through this object."""

    @classmethod
    def open(cls, directory: Directory, *, fsync: Callable[[int], None] = os.fsync) -> Journal:
        """Opens the journal of a state folder, made if missing, and makes what it holds durable.

        Mismatch if it is damaged, Precondition if its format is not known; then nothing is changed.
        """
        state = read(directory)
        appender = Appender.open(directory, JOURNAL, fsync=fsync)
        try:
            # A killed run may have written what never reached the disk; from here on it counts.
            appender.sync()
            return cls(appender, state)
        except BaseException:
            appender.close()
            raise

    def close(self) -> None:
        """Releases the file. What was not synced is not lost, unless the machine fails."""
        self._appender.close()

    def begin(
        self,
        *,
        run: str,
        time: float,
        layout: str,
        method: str,
        database: str | None,
        places: Mapping[str, bytes],
    ) -> None:
        """Records what is to be done, durably; the first record. See `migrator.state.Facts`."""
        self.record(
            "begin",
            format=FORMAT,
            program=f"gemspace {version('gemspace')}",
            run=run,
            time=time,
            layout=layout,
            method=method,
            database=database,
            places={name: text(place) for name, place in places.items()},
        )

    def record(self, kind: str, *, sync: bool = True, **fields: Any) -> None:
        """Records one step; durable when it returns, unless it need not be yet.

        Raises OSError, and then nothing more can be recorded until it is opened again; Mismatch
        for a record that cannot be there, and then nothing was recorded.
        """
        record = {"kind": kind, **fields}
        self.state.fold(record)
        self._appender.append(record)
        if sync:
            self._appender.sync()
        else:
            self._appender.write()

    def sync(self) -> None:
        """Makes every step recorded so far durable."""
        self._appender.sync()


def read(directory: Directory) -> State:
    """Where the migration of this state folder stands; nothing is changed.

    A folder without a journal is one in which nothing was begun. Errors as of `records` and
    `State.fold`.
    """
    try:
        return fold(records(directory, JOURNAL))
    except NotFound:
        return State()


def set_aside(directory: Directory) -> bytes:
    """Moves all that a rolled back migration has recorded into a folder; that folder's name.

    The next one starts afresh then. The journal goes last, so that a call that was interrupted is
    made up for by the next.
    """
    names = directory.names()
    number = 1
    while True:
        aside = _ASIDE + b"%d" % number
        if aside not in names:
            directory.make_directory(aside)
            break
        if JOURNAL not in directory.names(aside):
            break
        number += 1
    others = [name for name in names if name not in _STAYS and not name.startswith(_ASIDE)]
    with directory.directory(aside) as moved:
        for batch in (others, [JOURNAL]):
            for name in batch:
                directory.rename(name, name, to=moved)
            moved.sync()
            directory.sync()
    return aside
