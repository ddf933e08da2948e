"""The rows of `projects` that a cut-over adds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from migrator.database.columns import among, from_text, many
from migrator.database.model import Assignment
from migrator.errors import Conflict

if TYPE_CHECKING:
    from migrator.database.engine import Session
    from migrator.database.records import Log


def now(session: Session) -> str:
    """The present time in UTC, as the database reads it.

    SQLite has no type for it: the text is that of SQLAlchemy's DateTime, which knows no zone.
    """
    time = datetime.now(UTC)
    if session.dialect == "sqlite":
        return time.strftime("%Y-%m-%d %H:%M:%S.%f")
    return time.isoformat(sep=" ")


class Projects:
    """Adds projects, each once."""

    def __init__(self, session: Session, log: Log) -> None:
        self._session = session
        self._log = log
        columns = {
            "id": ":id",
            "uid": ":uid",
            "selection_status": "'implicit'",
            "workdir_path": ":path",
            "directory_mode": "'managed'",
            "created_at": from_text(session, "projects", "created_at", "now"),
            "updated_at": from_text(session, "projects", "updated_at", "now"),
        }
        self._insert = (
            f"INSERT INTO projects ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"
        )
        self._now = now(session)

    def add(self, assignments: Iterable[Assignment]) -> int:
        """Adds those that are not there yet; how many.

        Conflict if one is there, or asked for, with another user or folder.
        """
        wanted: dict[str, Assignment] = {}
        for one in assignments:
            if wanted.setdefault(one.project_id, one) != one:
                raise _taken(one)
        if not wanted:
            return 0
        there = self._session.rows(
            "SELECT id, uid, workdir_path FROM projects"
            f" WHERE {among(self._session, 'projects', 'ids')}",
            ids=many(self._session, list(wanted)),
        )
        for row in there:
            one = wanted.pop(row.id)
            if (row.uid, row.workdir_path) != (one.uid, one.workdir_path):
                raise _taken(one)
        self._session.run_many(
            self._insert,
            [
                {"id": one.project_id, "uid": one.uid, "path": one.workdir_path, "now": self._now}
                for one in wanted.values()
            ],
        )
        for key in wanted:
            self._log.added("projects", key, {})
        return len(wanted)


def _taken(one: Assignment) -> Conflict:
    return Conflict(
        f"the project {one.project_id} is there already, and not as the project of {one.uid}"
        f" in {one.workdir_path}",
        fix="find out whose it is; a project that nobody needs can be deleted",
    )
