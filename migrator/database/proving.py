"""The proof, on a connection of its own, that a database is as a cut-over leaves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final

from migrator.database import texts
from migrator.database.columns import PAGE, among, many
from migrator.database.cutover import batches, without_project
from migrator.database.model import Assignment, Change
from migrator.database.reading import OPTION
from migrator.database.records import current
from migrator.database.schema import Found, find
from migrator.database.tables import has_aids

if TYPE_CHECKING:
    from migrator.database.engine import Session

SHOWN: Final = 20
"""Differences that are named; the rest is counted."""


def differences(session: Session, change: Change, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is not as it has to be; see `Database.differences`."""
    found = find(session)
    if found.schema.state not in ("migrated", "partly"):
        return list(found.schema.names) or ["conversations have no projects yet"]
    all_of_them = _all(session, found, change, rows)
    named = list(islice(all_of_them, SHOWN))
    rest = sum(1 for _ in all_of_them)
    return [*named, f"and {rest} more"] if rest else named


def _all(
    session: Session, found: Found, change: Change, rows: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    yield from _schema(session, found)
    if all(name in found.tables for name in ("projects", "config_options")):
        yield from _assigned(session, change.assignments)
        yield from _options(session, change.options)
    yield from _skills(session, change.skills)
    yield from _written(session, rows)


def _schema(session: Session, found: Found) -> Iterator[str]:
    for name in ("projects", "config_options"):
        if name not in found.tables:
            yield f"table {name} is missing"
    if without_project(session):
        if not has_aids(session):
            yield "new conversations need no project"
    elif found.schema.state != "migrated":
        yield "conversations.project_id is not held to projects"


def _assigned(session: Session, assignments: Mapping[int, Assignment]) -> Iterator[str]:
    sql = (
        "SELECT c.id, c.uid, c.project_id, p.uid AS owner, p.workdir_path, p.directory_mode"
        " FROM (SELECT id, uid, project_id FROM conversations"
        f" WHERE {among(session, 'conversations', 'ids')}) c"
        " LEFT JOIN projects p ON p.id = c.project_id"
    )
    for page in batches(assignments.items(), PAGE):
        rows = session.rows(sql, ids=many(session, [key for key, _ in page]))
        there = {row.id: row for row in rows}
        for key, one in page:
            row = there.get(key)
            if row is None:
                continue  # somebody deleted it since, as users do
            if row.project_id != one.project_id:
                yield f"conversation {key} has the project {row.project_id}, not {one.project_id}"
            elif row.owner is None:
                yield f"project {one.project_id} is gone"
            elif (row.uid, row.owner) != (one.uid, one.uid):
                yield f"conversation {key} or its project is not of the user {one.uid}"
            elif (row.workdir_path, row.directory_mode) != (one.workdir_path, "managed"):
                yield f"project {one.project_id} is not in {one.workdir_path}"


def _skills(session: Session, slugs: Iterable[str]) -> Iterator[str]:
    for page in batches(slugs, PAGE):
        rows = session.rows(
            f"SELECT slug, dir_path FROM skills WHERE {among(session, 'skills', 'slugs')}",
            slugs=many(session, page),
        )
        for row in rows:
            if row.dir_path == f"skills/{row.slug}":
                yield f"skill {row.slug} is still in {row.dir_path}"


def _options(session: Session, options: Mapping[str, Any]) -> Iterator[str]:
    if not options:
        return
    value = texts.select(session, "value")
    rows = session.rows(f"SELECT {value} AS text FROM config_options WHERE key = :key", key=OPTION)
    if not rows:
        yield f"config_options has no {OPTION}"
        return
    kind, settings = texts.parse(rows[0].text)
    if kind == "null":
        settings = {}
    elif kind != "object":
        return  # it was left as it is, and counted
    for key in options:
        if key not in settings:
            yield f"config_options {OPTION} has no {key}"


def _written(session: Session, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The texts that are not those that were written any more."""
    changed = (row for row in rows if row["kind"] == "row")
    for table, records in groupby(changed, lambda row: str(row["table"])):
        for page in batches(records, PAGE):
            for column in sorted({column for record in page for column in record["wrote"]}):
                wanted = {
                    record["key"]: record["wrote"][column]
                    for record in page
                    if column in record["wrote"]
                }
                now = current(session, table, column, list(wanted))
                for key, wrote in wanted.items():
                    if key not in now or texts.digest(now[key]) != wrote:
                        yield f"{table} {key}: {column} is not what was written"
