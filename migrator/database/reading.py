"""What the migrator reads of the old rows before it plans; nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from migrator.database import texts
from migrator.database.columns import PAGE
from migrator.database.model import Conversation, SkillRow

if TYPE_CHECKING:
    from migrator.database.engine import Engine, Session

OPTION = "system_options"
"""The key of the option that has the system's settings."""


def conversations(engine: Engine) -> Iterator[Conversation]:
    """Every conversation in the order of ids."""
    last: int | None = None
    while True:
        with engine.reading() as session:
            page = _conversations(session, last)
        for row in page:
            yield Conversation(*row)
        if len(page) < PAGE:
            return
        last = page[-1][0]


def _conversations(session: Session, last: int | None) -> list[tuple[Any, ...]]:
    table = session.table("conversations")
    project = "c.project_id" if table and "project_id" in table.columns else "NULL"
    parent = "NULL"
    if session.table("subagent_threads") is not None:
        parent = (
            "(SELECT s.parent_conversation_id FROM subagent_threads s"
            " WHERE s.child_conversation_id = c.id)"
        )
    after = "" if last is None else "WHERE c.id > :last"
    sql = (
        f"SELECT c.id, c.thread_id, c.uid, {parent}, {project} FROM conversations c {after}"
        f" ORDER BY c.id LIMIT {PAGE}"
    )
    return [tuple(row) for row in session.rows(sql, **({} if last is None else {"last": last}))]


def users(session: Session) -> set[str]:
    """The uids that have a user row."""
    return {row.uid for row in session.rows("SELECT uid FROM users WHERE uid IS NOT NULL")}


def skills(session: Session) -> list[SkillRow]:
    """Every skill in the order of slugs."""
    rows = session.rows("SELECT slug, source_type, dir_path FROM skills")
    return sorted((SkillRow(*row) for row in rows), key=lambda skill: skill.slug)


def option_keys(session: Session) -> set[str]:
    """The keys of the fields that the option describes: ``{"fields": [{"key": …}, …]}``."""
    table = session.table("config_options")
    if table is None or "params" not in table.columns:
        return set()
    params = texts.select(session, "params")
    text = session.value(f"SELECT {params} FROM config_options WHERE key = :key", key=OPTION)
    value = texts.parse(text).value
    fields = value.get("fields") if isinstance(value, Mapping) else None
    if not isinstance(fields, list):
        return set()
    keys = (field.get("key") for field in fields if isinstance(field, Mapping))
    return {key for key in keys if isinstance(key, str)}
