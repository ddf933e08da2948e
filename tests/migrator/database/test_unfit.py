"""JSON of every kind in the two columns that are rewritten, on both databases."""

from __future__ import annotations

import pytest

from migrator.database import Change, connect
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.database.exact import everything

UNFIT = {
    "null": "null",
    "list": '[{"path": "/home/gem/user-data/uploads/x"}]',
    "string": '"{\\"attachments\\": []}"',
    "scalar": "1.10",
}
PLAIN = {
    "without attachments": '{ "a" : 1.10 }',
    "attachments that are no list": '{"attachments": {"path": "/home/gem/user-data/uploads/x"}}',
    "attachments that are no objects": '{"attachments": ["/home/gem/user-data/uploads/x", 1]}',
}


def raw(old: str, texts: dict[str, str]) -> Change:
    """A conversation and a tool call with each of the texts."""
    with rows.connection(old) as opened:
        samples.user(opened, "alice")
        for number, text in enumerate(texts.values(), 1):
            samples.conversation(opened, number, f"t{number}", metadata=text, inputs=(text,))
    return Change(
        {number: samples.assignment(f"t{number}") for number, _ in enumerate(texts.values(), 1)}
    )


def test_what_is_no_object_is_left_as_it_is_and_counted(old: str) -> None:
    change = raw(old, UNFIT)
    before = everything(old)

    counts, recorded = samples.cut(old, change)

    assert counts.unfit == {
        f"{column} {kind}": 1
        for column in ("tool_calls.tool_input", "conversations.extra_metadata")
        for kind in UNFIT
    }
    assert (counts.conversations, counts.metadata, counts.tool_calls) == (4, 0, 0)
    assert everything(old)["tool_calls"] == before["tool_calls"]
    assert all(entry["old"] == {"project_id": None} for entry in recorded if entry["kind"] == "row")
    with connect(old) as database:
        database.roll_back(recorded)
    assert everything(old) == before


def test_an_object_without_old_paths_is_not_written(old: str) -> None:
    change = raw(old, PLAIN)
    before = everything(old)

    counts, _ = samples.cut(old, change)

    assert (counts.conversations, counts.metadata, counts.tool_calls) == (3, 0, 0)
    assert counts.unfit == {}
    assert everything(old)["tool_calls"] == before["tool_calls"]


@pytest.mark.parametrize("kind", ["json", "jsonb", "text", "varchar"])
def test_every_type_that_a_json_column_may_have(old: str, kind: str) -> None:
    if old.startswith("sqlite") and kind == "jsonb":
        kind = "blob"  # text in it is text
    with rows.connection(old) as opened:
        retype(opened, "conversations", "extra_metadata", kind)
        retype(opened, "tool_calls", "tool_input", kind)
    change = samples.small(old)
    before = everything(old)

    counts, recorded = samples.cut(old, change)

    assert (counts.metadata, counts.tool_calls) == (1, 1)
    path = f"/home/gem/user-data/{change.assignments[1].workdir_path}/uploads/a.txt"
    assert rows.read(old).metadata["t1"]["attachments"] == [{"file_id": "f", "path": path}]
    with connect(old) as database:
        assert database.differences(change, recorded) == []
        database.roll_back(recorded)
    assert everything(old) == before


def retype(opened: rows.Connection, table: str, column: str, kind: str) -> None:
    if opened.dialect.name == "postgresql":
        opened.exec_driver_sql(
            f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {kind} USING {column}::text::{kind}"
        )
        return
    opened.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    opened.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")


def test_text_that_is_malformed_is_left_as_it_is(old: str) -> None:
    with rows.connection(old) as opened:
        retype(opened, "conversations", "extra_metadata", "text")
    texts = {"a": "{", "b": "", "c": "{'attachments': []}"}
    with rows.connection(old) as opened:
        samples.user(opened, "alice")
        for number, text in enumerate(texts.values(), 1):
            samples.conversation(opened, number, f"t{number}", metadata=text)
    change = Change({number: samples.assignment(f"t{number}") for number in (1, 2, 3)})

    counts, _ = samples.cut(old, change)

    assert counts.unfit == {"conversations.extra_metadata malformed": 3}
    with rows.connection(old) as opened:
        found = opened.exec_driver_sql("SELECT extra_metadata FROM conversations ORDER BY id").all()
    assert [row[0] for row in found] == list(texts.values())
