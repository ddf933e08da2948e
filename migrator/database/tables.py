"""The changes of the schema: what each database needs for them, and what was done.

Every function does nothing where there is nothing to do. The log is told what was made, so
that a roll back takes away that and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from migrator.database import sqlite_tables, sqlite_text
from migrator.database.schema import (
    AID,
    INDEX,
    KEY,
    NEW_TABLES,
    TYPE_OF_PROJECT_ID,
    Found,
    definition,
    has_key,
)

if TYPE_CHECKING:
    from migrator.database.engine import Session
    from migrator.database.records import Log

COLUMN: Final = f"project_id {TYPE_OF_PROJECT_ID}"
CONSTRAINT: Final = f"CONSTRAINT {KEY} FOREIGN KEY (project_id, uid) REFERENCES projects (id, uid)"


class Making:
    """Makes the new schema in one transaction, and records what it makes."""

    def __init__(self, session: Session, found: Found, log: Log) -> None:
        self._session = session
        self._conversations = found.tables["conversations"]
        self._missing = [name for name in NEW_TABLES if name not in found.tables]
        self._log = log

    def begin(self) -> None:
        """Makes the new tables, and the column without a condition."""
        for name in self._missing:
            for statement in definition(name, self._session.dialect):
                self._session.raw(statement)
            self._log.made("table", name)
        if "project_id" not in self._conversations.columns:
            self._alter(lambda sql: sqlite_text.with_column(sql, COLUMN), f"ADD COLUMN {COLUMN}")
            self._log.made("column", "project_id")

    def hold(self) -> None:
        """While conversations are without a project: new ones have to have one."""
        self._index()
        if not has_aids(self._session):
            for statement in _AIDS[self._session.dialect]:
                self._session.raw(statement)
            self._log.made("aids", AID)

    def complete(self) -> None:
        """With every conversation having its project: as the new schema has it."""
        self._index()
        remove_aids(self._session)
        column = self._conversations.columns.get("project_id")
        needs_not_null = column is None or column.nullable
        needs_key = not has_key(self._conversations)
        if needs_not_null:
            self._log.made("not null", "project_id")
        if needs_key:
            self._log.made("key", KEY)

        def edit(sql: str) -> str:
            if needs_not_null:
                sql = sqlite_text.with_not_null(sql, "project_id")
            return sqlite_text.with_constraint(sql, CONSTRAINT) if needs_key else sql

        actions = []
        if needs_not_null:
            actions.append("ALTER COLUMN project_id SET NOT NULL")
        if needs_key:
            actions.append(f"ADD {CONSTRAINT}")
        if actions:
            self._alter(edit, ", ".join(actions))

    def _index(self) -> None:
        if not self._conversations.has_index_on("project_id"):
            self._session.raw(f"CREATE INDEX IF NOT EXISTS {INDEX} ON conversations (project_id)")
            self._log.made("index", INDEX)

    def _alter(self, edit: Callable[[str], str], action: str) -> None:
        before, after = alter_conversations(self._session, edit, action)
        if before is not None and after is not None:
            self._log.statement(before, after)


def alter_conversations(
    session: Session, edit: Callable[[str], str], action: str
) -> tuple[str | None, str | None]:
    """Changes the table: SQLite by a new statement, PostgreSQL by an action of ALTER TABLE.

    Returns SQLite's statement before and after, where it changed.
    """
    if session.dialect == "postgresql":
        # Checks that are put off to the commit stand in the way of ALTER TABLE.
        session.raw("SET CONSTRAINTS ALL IMMEDIATE")
        session.raw(f"ALTER TABLE conversations {action}")
        return None, None
    before = sqlite_tables.statement(session, "conversations")
    after = edit(before)
    if after == before:
        return None, None
    sqlite_tables.rebuild(session, "conversations", after)
    return before, after


def has_aids(session: Session) -> bool:
    """Whether the aids of `Making.hold` are there."""
    return session.value(_HAS_AIDS[session.dialect]) is not None


def remove_aids(session: Session) -> None:
    """Takes the aids of `Making.hold` away."""
    if has_aids(session):
        for statement in _NO_AIDS[session.dialect]:
            session.raw(statement)


_AIDS: Final = {
    # NOT VALID: rows that are there are not looked at, every row that is written is.
    "postgresql": (
        f"ALTER TABLE conversations ADD CONSTRAINT {AID} CHECK (project_id IS NOT NULL) NOT VALID",
    ),
    "sqlite": (
        f"CREATE TRIGGER {AID}_insert BEFORE INSERT ON conversations"
        " WHEN NEW.project_id IS NULL"
        " BEGIN SELECT RAISE(ABORT, 'conversations.project_id may not be NULL'); END",
        f"CREATE TRIGGER {AID}_update BEFORE UPDATE OF project_id ON conversations"
        " WHEN NEW.project_id IS NULL AND OLD.project_id IS NOT NULL"
        " BEGIN SELECT RAISE(ABORT, 'conversations.project_id may not be NULL'); END",
    ),
}

_HAS_AIDS: Final = {
    "postgresql": (
        f"SELECT 1 FROM pg_constraint WHERE conname = '{AID}'"
        " AND conrelid = to_regclass('conversations')"
    ),
    "sqlite": f"SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = '{AID}_insert'",
}

_NO_AIDS: Final = {
    "postgresql": (f"ALTER TABLE conversations DROP CONSTRAINT {AID}",),
    "sqlite": (f"DROP TRIGGER {AID}_insert", f"DROP TRIGGER {AID}_update"),
}
