"""Who else uses the database, and what we may do there: found out without writing anything."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

from migrator.database.schema import NEW_TABLES
from migrator.errors import Precondition, Retryable
from vfs.printable import one_line, printable

if TYPE_CHECKING:
    from migrator.database.engine import Engine, Session


def require_file(file: bytes, label: str) -> None:
    """Precondition unless there is a regular file."""
    try:
        found = os.stat(file)
    except OSError as exc:
        raise Precondition(
            f"there is no database {label}: {exc.strerror}", fix="give the path of the file"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        raise Precondition(f"{label} is not a file", fix="give the path of the file")


def other_sessions(engine: Engine) -> list[str]:
    """Who else uses the database now, a phrase each.

    PostgreSQL names every session of this database but our own, and prepared transactions. SQLite
    tells only that there is a lock: a program that has the file open and does nothing is not seen.
    """
    if engine.dialect == "sqlite":
        try:
            with engine.alone():
                return []
        except Retryable as exc:
            return [exc.message]
        except Precondition:
            return []  # it may not be written; that is for `rights` to say
    with engine.reading() as session:
        rows = session.rows(_SESSIONS, application=engine.application)
        found = [one_line(row.told) for row in rows]
        prepared = session.rows(_PREPARED)
        return found + [f"prepared transaction {one_line(row.gid)}" for row in prepared]


# Of other users' sessions a user without the rights of pg_read_all_stats sees neither what kind
# they are nor what they do: those columns are NULL.
_SESSIONS: Final = """
    SELECT concat_ws(', ',
        'session ' || pid,
        'user ' || usename,
        CASE WHEN application_name <> '' THEN 'application ' || application_name END,
        CASE WHEN client_addr IS NOT NULL THEN 'from ' || host(client_addr) END,
        state) AS told
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND coalesce(backend_type, 'client backend') = 'client backend'
        AND coalesce(application_name, '') <> :application
    ORDER BY backend_start, pid
"""

_PREPARED: Final = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"


def rights(engine: Engine) -> list[str]:
    """What a cut-over would not be allowed to do, a phrase each."""
    if engine.file is not None:
        return _file_rights(engine.file)
    with engine.reading() as session:
        return _server_rights(session)


def _file_rights(file: bytes) -> list[str]:
    folder = os.path.dirname(file)
    wrong = []
    if not os.access(file, os.R_OK | os.W_OK, effective_ids=True):
        wrong.append(f"the file {printable(file)} cannot be written")
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        wrong.append(f"the folder {printable(folder)} cannot be written, for SQLite's journal")
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    # The journal takes every page that is changed, and one table is written anew.
    need = os.stat(file).st_size
    if free < need:
        wrong.append(f"{printable(folder)} has {free} bytes free, and SQLite may need {need}")
    return wrong


def _server_rights(session: Session) -> list[str]:
    wrong = []
    if session.value("SELECT pg_is_in_recovery()"):
        wrong.append("the server is a standby that takes no writes")
    tables = session.tables(_NEEDED)
    if not all(name in tables for name in NEW_TABLES) and not session.value(
        "SELECT has_schema_privilege(:schema, 'CREATE')", schema=session.schema
    ):
        wrong.append(f"no right to make tables in the schema {session.schema}")
    for name, needed in _NEEDED.items():
        if name not in tables:
            continue  # `inspect` tells of those that have to be there
        for right in needed:
            if not session.value(f"SELECT {_RIGHTS[right]} FROM {_TABLE}", name=name):
                wrong.append(f"no right to {right} the table {name}")
        if session.value(f"SELECT row_security_active(c.oid) FROM {_TABLE}", name=name):
            wrong.append(f"a policy hides rows of the table {name}")
    return wrong


_NEEDED: Final = {
    "conversations": ("read", "change rows of", "alter"),
    "messages": ("read",),
    "tool_calls": ("read", "change rows of"),
    "users": ("read", "refer to"),
    "skills": ("read", "change rows of"),
    "subagent_threads": ("read",),
    "projects": ("read", "add rows to", "delete rows of", "refer to"),
    "config_options": ("read", "add rows to", "change rows of", "delete rows of"),
}
"""What a cut-over, and the way back, do with each table."""

_RIGHTS: Final = {
    "read": "has_table_privilege(c.oid, 'SELECT')",
    "change rows of": "has_table_privilege(c.oid, 'UPDATE')",
    "add rows to": "has_table_privilege(c.oid, 'INSERT')",
    "delete rows of": "has_table_privilege(c.oid, 'DELETE')",
    "refer to": "has_table_privilege(c.oid, 'REFERENCES')",
    "alter": "pg_has_role(c.relowner, 'USAGE')",
}

_TABLE: Final = "pg_class c WHERE c.oid = to_regclass(:name)"
