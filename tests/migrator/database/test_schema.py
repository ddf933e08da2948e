"""Which schema a database has, and what is named when it is none to start from."""

from __future__ import annotations

import pytest

from migrator.database import Change, Conversation, Schema, SkillRow, connect
from migrator.errors import Precondition
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.database.exact import everything


def test_an_empty_database_lacks_every_table(url: str) -> None:
    with connect(url) as database:
        assert database.inspect() == Schema(
            "unknown",
            tuple(
                f"table {name} is missing"
                for name in ("conversations", "messages", "tool_calls", "users", "skills")
            ),
        )
        with pytest.raises(Precondition):
            database.cut_over(samples.NOTHING, lambda _: None, lambda: None)
    assert rows.dump(url) == {}


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DROP TABLE tool_calls", "table tool_calls is missing"),
        ("ALTER TABLE messages RENAME conversation_id TO c", "column messages.conversation_id"),
        ("ALTER TABLE conversations RENAME extra_metadata TO m", "column conversations.extra_meta"),
        ("ALTER TABLE subagent_threads RENAME child_conversation_id TO c", "column subagent_thre"),
    ],
)
def test_what_is_missing_is_named(old: str, statement: str, said: str) -> None:
    samples.small(old)
    with rows.connection(old) as opened:
        opened.exec_driver_sql(statement)
    before = everything(old)
    with connect(old) as database:
        schema = database.inspect()
        assert schema.state == "unknown"
        (name,) = schema.names
        assert name.startswith(said)
        with pytest.raises(Precondition, match=name):
            database.cut_over(samples.NOTHING, lambda _: None, lambda: None)
    assert everything(old) == before


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("CREATE TABLE project_workdirs (id INTEGER)", "table project_workdirs"),
        (
            "CREATE TABLE file_storage_materializations (id INTEGER)",
            "table file_storage_materializations",
        ),
        (
            "ALTER TABLE conversations ADD COLUMN workdir_id VARCHAR(64)",
            "column conversations.workdir_id",
        ),
        (
            "ALTER TABLE conversations ADD COLUMN workdir_path VARCHAR(512)",
            "column conversations.workdir_path",
        ),
    ],
)
def test_a_schema_that_no_release_had_is_refused_by_name(
    old: str, statement: str, said: str
) -> None:
    samples.small(old)
    with rows.connection(old) as opened:
        opened.exec_driver_sql(statement)
    before = everything(old)
    with connect(old) as database:
        assert database.inspect() == Schema(
            "unreleased", (f"{said} is of a version that was never released",)
        )
        with pytest.raises(Precondition, match=said):
            database.cut_over(samples.NOTHING, lambda _: None, lambda: None)
    assert everything(old) == before


def test_users_need_a_unique_uid(old: str) -> None:
    with rows.connection(old) as opened:
        opened.exec_driver_sql("ALTER TABLE users RENAME TO people")
        opened.exec_driver_sql("CREATE TABLE users (uid VARCHAR(64))")
    with connect(old) as database:
        assert database.inspect() == Schema("unknown", ("column users.uid is not unique",))


def test_sub_agents_are_optional(old: str) -> None:
    change = samples.small(old)
    with rows.connection(old) as opened:
        opened.exec_driver_sql("DROP TABLE subagent_threads")
    with connect(old) as database:
        assert database.inspect() == Schema("legacy")
        assert [one.parent_id for one in database.conversations()] == [None, None, None]
        database.cut_over(change, lambda _: None, lambda: None)
        assert database.differences(change) == []


def test_what_is_read_before_a_plan(old: str) -> None:
    samples.small(old)
    with connect(old) as database:
        assert list(database.conversations()) == [
            Conversation(1, "t1", "alice", None, None),
            Conversation(2, "t2", "alice", 1, None),
            Conversation(3, "t3", "bob", None, None),
        ]
        assert database.users() == {"alice", "bob"}
        assert database.skills() == [
            SkillRow("own", "upload", "/opt/own"),
            SkillRow("pdf", "upload", "skills/pdf"),
        ]
        assert database.option_keys() == set()


def test_more_conversations_than_are_read_at_once(old: str) -> None:
    with rows.connection(old) as opened:
        samples.user(opened, "alice")
        for number in range(1, 2002):
            rows.insert(
                opened,
                "conversations",
                id=number * 3,
                thread_id=f"t{number}",
                uid="alice",
                agent_id="a",
                is_pinned=False,
            )
    change = Change({number * 3: samples.assignment(f"t{number}") for number in range(1, 2002)})
    with connect(old) as database:
        assert [one.id for one in database.conversations()] == list(change.assignments)
        counts, recorded = samples.cut(old, change)
        assert (counts.conversations, counts.projects) == (2001, 2001)
        assert database.differences(change, recorded) == []
        assert database.roll_back(recorded).conversations == 2001


def test_differences_are_named_and_beyond_twenty_counted(old: str) -> None:
    change = samples.small(old)
    one = change.assignments[1]
    _, recorded = samples.cut(old, change)
    with rows.connection(old) as opened:
        run = opened.exec_driver_sql
        run("UPDATE skills SET dir_path = 'skills/pdf' WHERE slug = 'pdf'")
        run("UPDATE projects SET workdir_path = 'x' WHERE uid = 'bob'")
        run("UPDATE conversations SET extra_metadata = '{}' WHERE id = 1")
        run("UPDATE config_options SET value = '{}'")
    other = change.assignments[3]
    with connect(old) as database:
        assert database.differences(change, recorded) == [
            f"project {other.project_id} is not in {other.workdir_path}",
            "config_options system_options has no default_model",
            "config_options system_options has no limit",
            "skill pdf is still in skills/pdf",
            "conversations 1: extra_metadata is not what was written",
            "skills pdf: dir_path is not what was written",
        ]
        wrong = {number: samples.assignment("other") for number in (1, 2, 3)}
        assert database.differences(Change(wrong)) == [
            f"conversation {number} has the project {project},"
            f" not {samples.assignment('other').project_id}"
            for number, project in (
                (1, one.project_id),
                (2, one.project_id),
                (3, other.project_id),
            )
        ]
        many = Change({}, options={f"key{number}": number for number in range(30)})
        found = database.differences(many)
        assert (len(found), found[-1]) == (21, "and 10 more")


def test_a_database_that_was_not_cut_over_differs(old: str) -> None:
    change = samples.small(old)
    with connect(old) as database:
        assert database.differences(change) == ["conversations have no projects yet"]
