"""What a cut-over tells of every row and part of the schema that it changes, before it commits.

Each record has a `kind`:

=============  ====================================================================================
``made``       a part of the schema that was made: `what` and `name`
``statement``  SQLite: the statement that makes `conversations`, `old` and `new`
``row``        a row that was changed: `table`, `key`, and by column the exact text that it had
               (`old`) and what stands for the text that it has now (`wrote`: its SHA-256); both
               None for NULL
``added``      a row that was added: `table`, `key`, and `wrote` as above
=============  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migrator.database.columns import KEYS, among, many, type_of
from migrator.database.texts import digest, select

if TYPE_CHECKING:
    from migrator.database.engine import Session

Record = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Changed:
    """One row that was changed."""

    key: Any
    old: dict[str, str | None]
    """The texts of the changed columns before."""
    new: dict[str, str | None]
    """The texts that were written."""


class Log:
    """Gives records of one transaction to whoever keeps them."""

    def __init__(self, session: Session, record: Record) -> None:
        self._session = session
        self._record = record
        self.changed = False
        """Whether anything was recorded."""

    def made(self, what: str, name: str) -> None:
        """A ``table``, ``column``, ``index``, ``key``, ``not null`` or ``aids`` of the schema."""
        self._take({"kind": "made", "what": what, "name": name})

    def statement(self, old: str, new: str) -> None:
        """SQLite's statement of `conversations`."""
        self._take({"kind": "statement", "old": old, "new": new})

    def added(self, table: str, key: Any, new: Mapping[str, str | None]) -> None:
        """A row that was added; `new`: the texts in it that tell whether it was changed since."""
        wrote = self._wrote(table, [Changed(key, {}, dict(new))])
        self._take({"kind": "added", "table": table, "key": key, "wrote": wrote[key]})

    def rows(self, table: str, changes: Sequence[Changed]) -> None:
        """Rows that were changed, after they were written."""
        wrote = self._wrote(table, changes)
        for one in changes:
            self._take(
                {
                    "kind": "row",
                    "table": table,
                    "key": one.key,
                    "old": one.old,
                    "wrote": wrote[one.key],
                }
            )

    def _take(self, record: Mapping[str, Any]) -> None:
        self.changed = True
        self._record(record)

    def _wrote(self, table: str, changes: Sequence[Changed]) -> dict[Any, dict[str, str | None]]:
        wrote = {
            one.key: {column: digest(text) for column, text in one.new.items()} for one in changes
        }
        for column in {column for one in changes for column in one.new}:
            # jsonb does not keep the text that it is given.
            if type_of(self._session, table, column) == "jsonb":
                keys = [one.key for one in changes if column in one.new]
                for key, text in current(self._session, table, column, keys).items():
                    wrote[key][column] = digest(text)
        return wrote


def current(
    session: Session, table: str, column: str, keys: Sequence[Any]
) -> dict[Any, str | None]:
    """The exact texts that a column has now, by key; rows that are gone are left out."""
    rows = session.rows(
        f"SELECT {KEYS[table]} AS name, {select(session, column)} AS text FROM {table}"
        f" WHERE {among(session, table, 'keys')}",
        keys=many(session, keys),
    )
    return {row.name: row.text for row in rows}
