"""The system's settings in `config_options`: only what is missing is added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from migrator.database import texts
from migrator.database.columns import from_text
from migrator.database.projects import now
from migrator.database.reading import OPTION
from migrator.database.records import Changed

if TYPE_CHECKING:
    from migrator.database.engine import Session
    from migrator.database.model import Counts
    from migrator.database.records import Log

_NAME: Final = "System settings"
_DESCRIPTION: Final = "Settings of the whole system, for administrators."


def add(session: Session, log: Log, options: Mapping[str, Any], counts: Counts) -> None:
    """Adds the settings that the option has not; makes the option if it is missing."""
    if not options:
        return
    value = texts.select(session, "value")
    rows = session.rows(f"SELECT {value} AS text FROM config_options WHERE key = :key", key=OPTION)
    if not rows:
        _insert(session, log, options)
        counts.options += len(options)
        return
    old = rows[0].text
    kind, settings = texts.parse(old)
    if kind not in ("object", "null"):
        counts.leave("config_options.value", kind)
        return
    settings = settings or {}
    added = {key: option for key, option in options.items() if key not in settings}
    if not added:
        return
    new = texts.dump({**settings, **added}, like=old or "")
    session.run(
        f"UPDATE config_options SET value = {from_text(session, 'config_options', 'value', 'text')}"
        " WHERE key = :key",
        key=OPTION,
        text=new,
    )
    log.rows("config_options", [Changed(OPTION, {"value": old}, {"value": new})])
    counts.options += len(added)


def _insert(session: Session, log: Log, options: Mapping[str, Any]) -> None:
    table = session.table("config_options")
    assert table is not None
    time = now(session)
    value = texts.dump(dict(options))
    fields = [{"key": key} for key in options]
    row = {
        "key": OPTION,
        "name": _NAME,
        "description": _DESCRIPTION,
        "params": texts.dump({"internal": True, "fields": fields}),
        "value": value,
        "created_by": "system",
        "updated_by": "system",
        "created_at": time,
        "updated_at": time,
    }
    row = {name: text for name, text in row.items() if name in table.columns}
    places = [from_text(session, "config_options", name, name) for name in row]
    session.run(
        f"INSERT INTO config_options ({', '.join(row)}) VALUES ({', '.join(places)})", **row
    )
    log.added("config_options", OPTION, {"value": value})
