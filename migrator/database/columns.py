"""Pieces of SQL that both databases need, each in its own way: keys, types, and many values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from migrator.database.engine import Session

KEYS: Final[Mapping[str, str]] = {
    "conversations": "id",
    "tool_calls": "id",
    "projects": "id",
    "skills": "slug",
    "config_options": "key",
}
"""The column that names a row of each table that is written."""

PAGE: Final = 1000
"""Rows read or written at once: even with documents of 100 KB in each that is 100 MB."""


def type_of(session: Session, table: str, column: str) -> str:
    """The type of a column as SQL writes it; for SQLite, where any column takes a text, TEXT."""
    if session.dialect == "sqlite":
        return "TEXT"
    return str(
        session.value(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(:name) AND attname = :column",
            name=table,
            column=column,
        )
    )


def from_text(session: Session, table: str, column: str, name: str) -> str:
    """The expression that makes the column's value of the text at ``:name``."""
    if session.dialect == "sqlite":
        return f"CAST(:{name} AS TEXT)"
    return f"CAST(CAST(:{name} AS text) AS {type_of(session, table, column)})"


def among(session: Session, table: str, name: str) -> str:
    """The condition that the key of `table` is among the values at ``:name``."""
    key = KEYS[table]
    if session.dialect == "sqlite":
        return f"{key} IN (SELECT value FROM json_each(:{name}))"
    return f"{key} = ANY(CAST(:{name} AS {type_of(session, table, key)}[]))"


def many(session: Session, values: Sequence[Any]) -> Any:
    """The values as the one that `among` takes."""
    return json.dumps(list(values)) if session.dialect == "sqlite" else list(values)


def pages(session: Session, table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Conditions on the key of `table`, with their values, that take all rows a page at a time.

    Each is of the form ``t.id > :after AND t.id <= :upto``, so no plan for it reads other pages.
    """
    key = KEYS[table]
    after: dict[str, Any] = {}
    while True:
        lower = f"t.{key} > :after" if after else "TRUE"
        upto = session.value(
            f"SELECT t.{key} FROM {table} t WHERE {lower} ORDER BY t.{key}"
            f" LIMIT 1 OFFSET {PAGE - 1}",
            **after,
        )
        if upto is None:
            yield lower, after
            return
        yield f"{lower} AND t.{key} <= :upto", {**after, "upto": upto}
        after = {"after": upto}
