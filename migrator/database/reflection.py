"""The shapes of tables, as the database tells it now.

SQLite's keys are read from its pragmas: SQLAlchemy finds some of them by patterns in the statement,
which do not know every way to write one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, text
from sqlalchemy.engine.reflection import ObjectKind

from migrator.database.shape import Column, Reference, Table, kind_of


def reflect(connection: Connection, schema: str | None, names: Collection[str]) -> dict[str, Table]:
    """The tables and views of these names, as far as they are there."""
    found = sqlalchemy.inspect(connection)
    asked: dict[str, Any] = {
        "schema": schema,
        "filter_names": list(names),
        "kind": ObjectKind.ANY,
    }
    primaries = found.get_multi_pk_constraint(**asked)
    tables = {}
    if connection.dialect.name != "sqlite":
        all_indexes = found.get_multi_indexes(**asked)
        all_keys = found.get_multi_foreign_keys(**asked)
    for place, columns in found.get_multi_columns(**asked).items():
        primary = tuple(primaries[place]["constrained_columns"])
        if connection.dialect.name == "sqlite":
            keys = _sqlite_keys(connection, place[1])
        else:
            keys = _keys(all_indexes[place], all_keys[place])
        described = {column["name"]: _column(column, primary) for column in columns}
        tables[place[1]] = Table(place[1], described, primary, *keys)
    return tables


def referrers(connection: Connection, schema: str | None, name: str) -> list[tuple[str, Reference]]:
    """The foreign keys of other tables to this one, with the tables that have them."""
    found = sqlalchemy.inspect(connection)
    tables = [table for table in found.get_table_names(schema=schema) if table != name]
    if connection.dialect.name == "sqlite":
        keys = [
            (table, reference)
            for table in tables
            for reference in _sqlite_keys(connection, table)[1]
        ]
    else:
        all_keys = found.get_multi_foreign_keys(schema=schema)
        keys = [
            (table, _reference(key))
            for (_, table), of_table in all_keys.items()
            if table in tables
            for key in of_table
        ]
    return [(table, reference) for table, reference in keys if reference.table == name]


def _column(found: Any, primary: tuple[str, ...]) -> Column:
    kind = kind_of(found["type"])
    return Column(
        found["name"],
        kind,
        getattr(found["type"], "length", None),
        found["nullable"] and found["name"] not in primary,
        found.get("default") is not None
        or found.get("identity") is not None
        or found.get("computed") is not None
        # SQLite's rowid; PostgreSQL's serial has a default.
        or (primary == (found["name"],) and kind == "number"),
    )


Keys = tuple[frozenset[tuple[str, ...]], frozenset[Reference], frozenset[tuple[str, ...]]]
"""Unique sets of columns, foreign keys, and the columns of every index."""


def _keys(indexes: Iterable[Any], keys: Iterable[Any]) -> Keys:
    # An index over some of the rows only holds and finds nothing of the rest.
    whole = [
        (index["unique"], tuple(str(column) for column in index["column_names"]))
        for index in indexes
        if index.get("dialect_options", {}).get("postgresql_where") is None
    ]
    return (
        frozenset(columns for unique, columns in whole if unique),
        frozenset(_reference(key) for key in keys),
        frozenset(columns for _, columns in whole),
    )


def _reference(key: Any) -> Reference:
    return Reference(
        tuple(key["constrained_columns"]),
        key["referred_table"],
        tuple(key["referred_columns"]),
        (key.get("options", {}).get("ondelete") or "NO ACTION").upper(),
    )


def _sqlite_keys(connection: Connection, name: str) -> Keys:
    indexes: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for row in connection.execute(
        text(
            'SELECT i.name, i."unique" AS is_unique, c.name AS column_name'
            " FROM pragma_index_list(:name) i JOIN pragma_index_info(i.name) c"
            " WHERE NOT i.partial ORDER BY i.seq, c.seqno"
        ),
        {"name": name},
    ):
        # An expression has no name, and so equals no column.
        indexes[row.name, bool(row.is_unique)].append(row.column_name or "")
    keys: dict[int, list[Any]] = defaultdict(list)
    for row in connection.execute(
        text(
            'SELECT id, "table" AS target, "from" AS source, "to" AS destination, on_delete'
            " FROM pragma_foreign_key_list(:name) ORDER BY id, seq"
        ),
        {"name": name},
    ):
        keys[row.id].append(row)
    return (
        frozenset(tuple(columns) for (_, unique), columns in indexes.items() if unique),
        frozenset(
            Reference(
                tuple(row.source for row in rows),
                rows[0].target,
                # Without names it is the primary key, which nothing here depends on.
                tuple(row.destination or "" for row in rows),
                rows[0].on_delete,
            )
            for rows in keys.values()
        ),
        frozenset(tuple(columns) for columns in indexes.values()),
    )
