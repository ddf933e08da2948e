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


_OURS = (
    "relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace,"
    " 'pg_toast'::regnamespace)"
)
_SCHEMA = f"""
    WITH r AS (SELECT * FROM pg_class WHERE {_OURS})
    SELECT concat_ws(' ', r.oid::regclass, r.relkind, r.relowner::regrole, r.relacl,
        CASE WHEN r.relkind = 'v' THEN pg_get_viewdef(r.oid) END) FROM r
    UNION ALL
    SELECT concat_ws(' ', r.oid::regclass, attname, format_type(atttypid, atttypmod),
        attnotnull, attidentity, attgenerated, pg_get_expr(adbin, adrelid),
        rank() OVER (PARTITION BY attrelid ORDER BY attnum))
    FROM r JOIN pg_attribute a ON attrelid = r.oid AND attnum > 0 AND NOT attisdropped
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
    UNION ALL
    SELECT concat_ws(' ', r.oid::regclass, conname, pg_get_constraintdef(c.oid), convalidated)
    FROM r JOIN pg_constraint c ON conrelid = r.oid
    UNION ALL
    SELECT pg_get_indexdef(r.oid) FROM r WHERE relkind = 'i'
    UNION ALL
    SELECT concat_ws(' ', pg_get_triggerdef(t.oid), tgenabled)
    FROM r JOIN pg_trigger t ON tgrelid = r.oid AND NOT tgisinternal
"""


def _postgres(url: str) -> Everything:
    with rows.connection(url) as opened:
        run = opened.exec_driver_sql
        found = {"schema": sorted(row[0] for row in run(_SCHEMA))}
        tables = run(f"SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND {_OURS}")
        for (table,) in tables.all():
            found[table] = sorted(row[0] for row in run(f"SELECT CAST(t AS text) FROM {table} t"))
        return found


def dumped(url: str) -> str:
    """What pg_dump makes of a PostgreSQL database's schema."""
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
    return re.sub(r"^\\(un)?restrict .*$", "", dump, flags=re.MULTILINE)
