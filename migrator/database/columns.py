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
    known = session.types.get((table, column))
    if known is None:
        known = session.types[table, column] = str(
            session.value(
                "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = to_regclass(:name) AND attname = :column",
                name=table,
                column=column,
            )
        )
    return known


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


def update(
    session: Session, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Writes the texts of `columns` into rows of `table`; each of `rows` is a key and the texts."""
    if not rows:
        return
    key = KEYS[table]
    if session.dialect == "sqlite":
        places = ", ".join(f"{column} = CAST(:{column} AS TEXT)" for column in columns)
        session.run_many(
            f"UPDATE {table} SET {places} WHERE {key} = :the_key",
            [dict(zip(("the_key", *columns), row, strict=True)) for row in rows],
        )
        return
    # One statement for all of them takes half the time of one for each.
    types = [type_of(session, table, column) for column in columns]
    places = ", ".join(
        f"{column} = CAST(v.{column} AS {kept})"
        for column, kept in zip(columns, types, strict=True)
    )
    arrays = ", ".join(f"CAST(:{column} AS text[])" for column in columns)
    session.run(
        f"UPDATE {table} t SET {places}"
        f" FROM unnest(CAST(:the_key AS {type_of(session, table, key)}[]), {arrays})"
        f" AS v(the_key, {', '.join(columns)}) WHERE t.{key} = v.the_key",
        **{
            name: list(values)
            for name, values in zip(("the_key", *columns), zip(*rows, strict=True), strict=True)
        },
    )


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
