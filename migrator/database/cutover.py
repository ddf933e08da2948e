"""The cut-over: the new schema, and every row that it needs changed, in one transaction.

Tool calls are rewritten before conversations get their projects, since a conversation without a
project is what marks a call as not rewritten yet. Everything is read and written a page at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from migrator import rewriting
from migrator.database import options, sqlite_tables, texts
from migrator.database.columns import PAGE, among, many, pages, update
from migrator.database.model import Assignment, Change, Counts
from migrator.database.projects import Projects
from migrator.database.records import Changed, Log, Record
from migrator.database.schema import Found, find
from migrator.database.tables import Making
from migrator.errors import Mismatch, Precondition

if TYPE_CHECKING:
    from migrator.database.engine import Session

T = TypeVar("T")


def cut_over(session: Session, change: Change, record: Record) -> Counts:
    """Does all of it in the session's transaction; see `Database.cut_over`."""
    _startable(session)
    lock(session)
    found = _startable(session)
    orphans = sqlite_tables.orphans(session) if session.dialect == "sqlite" else {}
    counts = Counts()
    log = Log(session, record)
    making = Making(session, found, log)
    making.begin()
    if without_project(session):
        _rewrite_tool_calls(session, log, change.assignments, counts)
    _assign(session, log, change.assignments, counts)
    _move_skills(session, log, change.skills, counts)
    options.add(session, log, change.options, counts)
    counts.without_project = without_project(session)
    if counts.without_project:
        making.hold()
    else:
        making.complete()
    if log.changed and session.dialect == "sqlite":
        sqlite_tables.prove(session, orphans)
    return counts


def _startable(session: Session) -> Found:
    """The schema; Precondition if it is none that a cut-over can start from."""
    found = find(session)
    if found.schema.state in ("unreleased", "unknown"):
        raise Precondition(
            f"the database has not the schema to start from: {', '.join(found.schema.names)}",
            fix="give the database of the version that is to be migrated",
        )
    return found


def lock(session: Session) -> None:
    """Keeps others from what is changed; SQLite has locked the whole file from the beginning."""
    if session.dialect == "postgresql":
        session.raw("LOCK TABLE conversations IN ACCESS EXCLUSIVE MODE")
        session.raw("LOCK TABLE tool_calls, skills IN SHARE ROW EXCLUSIVE MODE")


def without_project(session: Session) -> int:
    """How many conversations have no project."""
    return int(session.value("SELECT count(*) FROM conversations WHERE project_id IS NULL"))


def _rewrite_tool_calls(
    session: Session, log: Log, assignments: Mapping[int, Assignment], counts: Counts
) -> None:
    """Rewrites the inputs of the calls in conversations that are about to get their project."""
    # As an expression of its own it is looked up for the few calls of that name, by primary keys,
    # whatever the database knows or does not know of the tables' sizes.
    conversation = (
        "(SELECT m.conversation_id FROM messages m JOIN conversations c ON c.id = m.conversation_id"
        " WHERE m.id = t.message_id AND c.project_id IS NULL)"
    )
    text = texts.select(session, "t.tool_input")
    for condition, values in pages(session, "tool_calls"):
        rows = session.rows(
            f"SELECT t.id, {text} AS text, {conversation} AS conversation FROM tool_calls t"
            f" WHERE {condition} AND t.tool_name = :tool ORDER BY t.id",
            tool=rewriting.ARTIFACTS_TOOL,
            **values,
        )
        changes = []
        for row in rows:
            one = assignments.get(row.conversation)
            if one is None:
                continue
            written = _rewritten(
                counts, "tool_calls.tool_input", row.text, rewriting.rewrite_tool_input, one
            )
            if written is not None:
                changes.append(Changed(row.id, {"tool_input": row.text}, {"tool_input": written}))
        update(session, "tool_calls", *_written_by(changes, "tool_input"))
        log.rows("tool_calls", changes)
        counts.tool_calls += len(changes)


def _assign(
    session: Session, log: Log, assignments: Mapping[int, Assignment], counts: Counts
) -> None:
    """Gives the conversations that have none their project, and rewrites their metadata."""
    text = texts.select(session, "extra_metadata")
    projects = Projects(session, log)
    for page in batches(assignments.items(), PAGE):
        rows = session.rows(
            f"SELECT id, uid, project_id, {text} AS text FROM conversations"
            f" WHERE {among(session, 'conversations', 'ids')}",
            ids=many(session, [key for key, _ in page]),
        )
        there = {row.id: row for row in rows}
        changes = []
        for key, one in page:
            row = there.get(key)
            if row is None or row.uid != one.uid:
                what = "is gone" if row is None else "is another user's"
                raise Mismatch(
                    f"conversation {key} {what} now, and was not when it was planned",
                    fix="run the same command again: it plans anew",
                )
            if row.project_id is not None:
                continue
            changed = Changed(key, {"project_id": None}, {"project_id": one.project_id})
            written = _rewritten(
                counts, "conversations.extra_metadata", row.text, rewriting.rewrite_metadata, one
            )
            if written is not None:
                changed.old["extra_metadata"] = row.text
                changed.new["extra_metadata"] = written
            changes.append(changed)
        counts.projects += projects.add(assignments[changed.key] for changed in changes)
        plain = [one for one in changes if "extra_metadata" not in one.new]
        rewritten = [one for one in changes if "extra_metadata" in one.new]
        update(session, "conversations", *_written_by(plain, "project_id"))
        update(session, "conversations", *_written_by(rewritten, "project_id", "extra_metadata"))
        log.rows("conversations", changes)
        counts.conversations += len(changes)
        counts.metadata += len(rewritten)


def _move_skills(session: Session, log: Log, slugs: Iterable[str], counts: Counts) -> None:
    """Names the new place of the skills that were moved, where the old one is named."""
    for page in batches(slugs, PAGE):
        rows = session.rows(
            f"SELECT slug, dir_path FROM skills WHERE {among(session, 'skills', 'slugs')}",
            slugs=many(session, page),
        )
        changes = [
            Changed(row.slug, {"dir_path": row.dir_path}, {"dir_path": f"shared/{row.slug}"})
            for row in rows
            if row.dir_path == f"skills/{row.slug}"
        ]
        update(session, "skills", *_written_by(changes, "dir_path"))
        log.rows("skills", changes)
        counts.skills += len(changes)


def _written_by(
    changes: Sequence[Changed], *columns: str
) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
    """The columns, and the rows that `update` takes for them."""
    return columns, [(one.key, *(one.new[column] for column in columns)) for one in changes]


def _rewritten(
    counts: Counts,
    column: str,
    text: str | None,
    rewrite: Callable[[Any, str], Any],
    assignment: Assignment,
) -> str | None:
    """The new text; None to leave the old one, which is counted if it is no object."""
    new, kind = texts.rewritten(text, lambda value: rewrite(value, assignment.workdir_path))
    if kind != "object":
        counts.leave(column, kind)
    return new


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in lists of `size`, the last one shorter; never an empty one."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
