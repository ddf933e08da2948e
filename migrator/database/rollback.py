"""The way back: rows and schema as a cut-over recorded them, in one transaction.

A text is given back where it still is what was written; whatever somebody changed or added since
stays. The records are read once, in their order, a page at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from migrator.database import sqlite_tables, sqlite_text
from migrator.database.columns import KEYS, PAGE, update
from migrator.database.cutover import batches, lock
from migrator.database.model import Counts
from migrator.database.records import current
from migrator.database.schema import AID, INDEX, KEY, NEW_TABLES
from migrator.database.tables import alter_conversations, remove_aids
from migrator.database.texts import digest
from migrator.errors import Mismatch

if TYPE_CHECKING:
    from migrator.database.engine import Session

_ADDED: Final = "gemspace_added"
"""A temporary table: the projects that were added, which may be more than memory should hold."""


def roll_back(session: Session, rows: Iterable[Mapping[str, Any]]) -> Counts:
    """Does all of it in the session's transaction; see `Database.roll_back`."""
    lock(session)
    back = _Back(session)
    for (kind, table), records in groupby(rows, lambda row: (row["kind"], row.get("table"))):
        for page in batches(records, PAGE):
            if kind == "row":
                back.restore(str(table), page)
            elif kind == "added":
                back.take_away(str(table), page)
            elif kind == "made":
                back.made.update((record["what"], record["name"]) for record in page)
            elif kind == "statement":
                back.statements += [(record["old"], record["new"]) for record in page]
    back.finish()
    return back.counts


class _Back:
    """One roll back, in one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.counts = Counts()
        self.made: set[tuple[str, str]] = set()
        self.statements: list[tuple[str, str]] = []
        conversations = session.table("conversations")
        if conversations is None:
            raise Mismatch(
                "table conversations is missing", fix="give the database that was migrated"
            )
        self._has_column = "project_id" in conversations.columns
        self._is_sqlite = session.dialect == "sqlite"
        self._statement = (
            sqlite_tables.statement(session, "conversations") if self._is_sqlite else ""
        )
        self._orphans = sqlite_tables.orphans(session) if self._is_sqlite else {}
        self._relaxed = False
        temporary = f"CREATE TEMPORARY TABLE {_ADDED} (id VARCHAR(64) PRIMARY KEY)"
        session.raw(temporary if self._is_sqlite else f"{temporary} ON COMMIT DROP")

    def restore(self, table: str, records: list[Mapping[str, Any]]) -> None:
        """Gives back the texts of changed rows."""
        if table == "conversations":
            self._relax()
        columns = {column for record in records for column in record["old"]}
        if not self._has_column:
            columns.discard("project_id")
        if self._session.table(table) is None:
            return
        kept = set()
        for column in sorted(columns):
            wanted = [record for record in records if column in record["old"]]
            now = current(self._session, table, column, [record["key"] for record in wanted])
            changes = []
            for record in wanted:
                key, old = record["key"], record["old"][column]
                if key not in now or now[key] == old:
                    continue
                if digest(now[key]) == record["wrote"][column]:
                    changes.append((key, old))
                elif column != "project_id":  # those are counted at the end, with other rows'
                    kept.add(key)
            update(self._session, table, [column], changes)
            name = _COUNTED[table, column]
            setattr(self.counts, name, getattr(self.counts, name) + len(changes))
        self.counts.kept += len(kept)

    def take_away(self, table: str, records: list[Mapping[str, Any]]) -> None:
        """Removes rows that were added: options now, projects when no conversation has one."""
        if table == "projects":
            self._session.run_many(
                f"INSERT INTO {_ADDED} (id) VALUES (:id) ON CONFLICT DO NOTHING",
                [{"id": record["key"]} for record in records],
            )
            return
        if self._session.table(table) is None:
            return
        for record in records:
            (column, wrote), *_ = record["wrote"].items()
            now = current(self._session, table, column, [record["key"]])
            if digest(now.get(record["key"])) == wrote:
                self._session.run(
                    f"DELETE FROM {table} WHERE {KEYS[table]} = :key", key=record["key"]
                )
                self.counts.options += 1

    def finish(self) -> None:
        """The projects, and then the schema."""
        others = 0
        if self._has_column:
            if self.made & {("key", KEY), ("not null", "project_id"), ("aids", AID)}:
                self._relax()
            others = int(
                self._session.value(
                    "SELECT count(*) FROM conversations WHERE project_id IS NOT NULL"
                )
            )
            self.counts.kept += others
        self._remove_projects()
        if self._has_column:
            self._restore_conversations(others)
        for name in NEW_TABLES:
            if ("table", name) in self.made:
                self._drop(name)
        if self._is_sqlite:
            sqlite_tables.prove(self._session, self._orphans)

    def _relax(self) -> None:
        """Lets conversations be without a project."""
        if self._relaxed or not self._has_column:
            return
        self._relaxed = True
        remove_aids(self._session)
        alter_conversations(self._session, _relaxed, _RELAX)

    def _remove_projects(self) -> None:
        """Removes the projects that were added, unless something refers to them."""
        if self._session.table("projects") is None:
            return
        references = [
            (name, column)
            for name, reference in self._session.referrers("projects")
            for column, target in zip(reference.columns, reference.target, strict=True)
            if target in ("id", "")
        ]
        if self._has_column:
            references.append(("conversations", "project_id"))
        free = "".join(
            f" AND NOT EXISTS (SELECT 1 FROM {name} r WHERE r.{column} = projects.id)"
            for name, column in references
        )
        self.counts.projects += self._session.run(
            f"DELETE FROM projects WHERE id IN (SELECT id FROM {_ADDED}){free}"
        )

    def _restore_conversations(self, others: int) -> None:
        """Takes the column and the index away, as far as they were made and nobody uses them."""
        made_column = ("column", "project_id") in self.made
        if made_column and others:
            return
        if ("index", INDEX) in self.made:
            self._session.raw(f"DROP INDEX IF EXISTS {INDEX}")
        if not self._is_sqlite:
            if made_column:
                self._session.raw("SET CONSTRAINTS ALL IMMEDIATE")
                self._session.raw("ALTER TABLE conversations DROP COLUMN project_id")
            return
        sql = self._statement
        for old, new in reversed(self.statements):
            if sql == new:
                sql = old
        if made_column:
            # Does nothing unless somebody else changed the table since.
            sql = sqlite_text.without_constraint(sql, KEY)
            sql = sqlite_text.without_column(sql, "project_id")
        if sql != sqlite_tables.statement(self._session, "conversations"):
            sqlite_tables.rebuild(self._session, "conversations", sql)

    def _drop(self, name: str) -> None:
        """Drops a table that was made, unless others have rows in it or keys to it."""
        if self._session.table(name) is None:
            return
        rows = int(self._session.value(f"SELECT count(*) FROM {name}"))
        self.counts.kept += rows
        if not rows and not self._session.referrers(name):
            self._session.raw(f"DROP TABLE {name}")


def _relaxed(sql: str) -> str:
    return sqlite_text.without_not_null(sqlite_text.without_constraint(sql, KEY), "project_id")


_RELAX: Final = f"DROP CONSTRAINT IF EXISTS {KEY}, ALTER COLUMN project_id DROP NOT NULL"

_COUNTED: Final = {
    ("conversations", "project_id"): "conversations",
    ("conversations", "extra_metadata"): "metadata",
    ("tool_calls", "tool_input"): "tool_calls",
    ("skills", "dir_path"): "skills",
    ("config_options", "value"): "options",
}
"""The field of `Counts` in which each column's rows are counted."""
