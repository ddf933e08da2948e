"""SQLite: tables made anew under the same name, and what proves a file sound before a commit.

SQLite cannot alter a constraint, so the table is moved aside, made anew by another statement and
filled, and the old one is dropped. Kept: every column and row, indexes, triggers, the sequence of
AUTOINCREMENT, other tables' references to it, and views. It needs a connection on which
foreign_keys is off and legacy_alter_table is on (`migrator.database.engine` opens such).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from migrator.errors import Mismatch

if TYPE_CHECKING:
    from migrator.database.engine import Session

_ASIDE: Final = "gemspace_moved_aside"

Orphans = dict[tuple[str, str], int]
"""Rows without the row that they refer to: their number by table and table referred to."""


def statement(session: Session, table: str) -> str:
    """The statement that made the table, exactly."""
    sql = session.value(
        "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name", name=table
    )
    assert isinstance(sql, str)
    return sql


def rebuild(session: Session, table: str, sql: str) -> None:
    """Makes the table anew by `sql`, which may lack columns: those are dropped."""
    belongings = session.rows(
        "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = :name"
        " AND type IN ('index', 'trigger') AND sql IS NOT NULL ORDER BY rowid",
        name=table,
    )
    sequence = _sequence(session, table)
    session.raw(f"ALTER TABLE {table} RENAME TO {_ASIDE}")
    for belonging in belongings:
        session.raw(f"DROP {belonging.type} {_quoted(belonging.name)}")
    session.raw(sql)
    kept = set(_columns(session, _ASIDE))
    columns = ", ".join(_quoted(name) for name in _columns(session, table) if name in kept)
    session.raw(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {_ASIDE}")
    session.raw(f"DROP TABLE {_ASIDE}")
    for belonging in belongings:
        session.raw(belonging.sql)
    _set_sequence(session, table, sequence)


def _columns(session: Session, table: str) -> list[str]:
    """The columns that are stored, not computed (hidden: 2 and 3)."""
    rows = session.rows(f"SELECT name FROM pragma_table_xinfo('{table}') WHERE hidden = 0")
    return [row.name for row in rows]


def _has_sequences(session: Session) -> bool:
    """Whether any table of the file has, or had, an AUTOINCREMENT."""
    return session.value("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'") is not None


def _sequence(session: Session, table: str) -> int | None:
    """The largest number that AUTOINCREMENT gave; None if it gave none, or there is none."""
    if not _has_sequences(session):
        return None
    number = session.value("SELECT seq FROM sqlite_sequence WHERE name = :name", name=table)
    return None if number is None else int(number)


def _set_sequence(session: Session, table: str, number: int | None) -> None:
    if _has_sequences(session):
        session.run("DELETE FROM sqlite_sequence WHERE name = :name", name=table)
    if number is not None:
        session.run(
            "INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)",
            name=table,
            number=number,
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def orphans(session: Session) -> Orphans:
    """What the foreign keys of the whole file miss."""
    rows = session.rows(
        'SELECT "table" AS child, "parent" AS parent, count(*) AS number'
        " FROM pragma_foreign_key_check GROUP BY 1, 2"
    )
    return {(row.child, row.parent): row.number for row in rows}


def prove(session: Session, before: Orphans) -> None:
    """Mismatch if the file is not sound, or rows miss what they refer to and did not before."""
    for (child, parent), number in orphans(session).items():
        if number > before.get((child, parent), 0):
            raise Mismatch(
                f"{number} rows of {child} would refer to rows of {parent} that are missing",
                fix="nothing was changed; mend those rows and run the same command again",
            )
    said = session.value("PRAGMA integrity_check(1)")
    if said != "ok":
        raise Mismatch(
            f"the database file is damaged: {said}",
            fix="nothing was changed; give a sound copy of the file",
        )
