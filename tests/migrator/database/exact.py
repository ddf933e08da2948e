"""Everything that a database holds, exactly: the schema as it was written, rows as their texts."""

from __future__ import annotations

import re
import subprocess

from sqlalchemy import make_url

from tests.migrator import rows
from tests.migrator.postgres import programs

Everything = dict[str, list[str]]


def everything(url: str) -> Everything:
    """The schema, and the rows of each table in an order of their own."""
    return _sqlite(url) if url.startswith("sqlite") else _postgres(url)


def _sqlite(url: str) -> Everything:
    with rows.connection(url) as opened:
        run = opened.exec_driver_sql
        found = {
            "schema": sorted(
                repr(tuple(row))
                for row in run("SELECT type, name, tbl_name, sql FROM sqlite_master")
            )
        }
        for (table,) in run("SELECT name FROM sqlite_master WHERE type = 'table'").all():
            columns = [f'"{row.name}"' for row in run(f"PRAGMA table_info({table})")]
            kinds = ", ".join(f"typeof({name}), {name}" for name in columns)
            found[table] = sorted(repr(tuple(row)) for row in run(f"SELECT {kinds} FROM {table}"))
        return found


def _postgres(url: str) -> Everything:
    parsed = make_url(url)
    dump = subprocess.run(
        [
            programs() / "pg_dump",
            "--schema-only",
            f"--host={parsed.query['host']}",
            f"--username={parsed.username}",
            str(parsed.database),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # The newest ones write a random word there, each time another.
    dump = re.sub(r"^\\(un)?restrict .*$", "", dump, flags=re.MULTILINE)
    found = {"schema": dump.splitlines()}
    with rows.connection(url) as opened:
        tables = opened.exec_driver_sql(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r'"
            " AND relnamespace NOT IN ('pg_catalog'::regnamespace,"
            " 'information_schema'::regnamespace, 'pg_toast'::regnamespace)"
        ).all()
        for (table,) in tables:
            found[table] = sorted(
                row[0] for row in opened.exec_driver_sql(f"SELECT CAST(t AS text) FROM {table} t")
            )
    return found
