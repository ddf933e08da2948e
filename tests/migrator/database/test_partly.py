"""Conversations that get no project yet, and the cut-over that completes the rest."""

from __future__ import annotations

import pytest
from sqlalchemy.exc import IntegrityError

from migrator.database import Change, Conversation, Counts, Schema, connect
from migrator.errors import Mismatch
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.database.exact import everything


def only(change: Change, *numbers: int) -> Change:
    """The part of a change that is about these conversations."""
    return Change({number: change.assignments[number] for number in numbers})


def test_a_conversation_without_an_assignment_stays_as_it_was(old: str) -> None:
    change = samples.small(old)

    counts, _ = samples.cut(old, only(change, 2, 3))

    assert (counts.conversations, counts.without_project, counts.tool_calls) == (2, 1, 0)
    found = rows.read(old)
    assert found.conversations["t1"] is None
    assert found.metadata["t1"]["attachments"][0]["path"] == "/home/gem/user-data/uploads/a.txt"
    assert found.inputs[10] == {"filepaths": ["/home/gem/user-data/outputs/x", "/elsewhere"]}
    with connect(old) as database:
        assert database.inspect() == Schema("partly")
        assert database.differences(only(change, 2, 3)) == []
        assert list(database.conversations()) == [
            Conversation(1, "t1", "alice", None, None),
            Conversation(2, "t2", "alice", 1, change.assignments[2].project_id),
            Conversation(3, "t3", "bob", None, change.assignments[3].project_id),
        ]


def test_new_conversations_need_a_project_and_old_ones_may_still_be_changed(old: str) -> None:
    change = samples.small(old)
    samples.cut(old, only(change, 1, 2))

    with pytest.raises(IntegrityError), rows.connection(old) as opened:
        samples.conversation(opened, 9, "t9")
    with pytest.raises(IntegrityError), rows.connection(old) as opened:
        opened.exec_driver_sql("UPDATE conversations SET project_id = NULL WHERE id = 1")
    with rows.connection(old) as opened:
        opened.exec_driver_sql("UPDATE conversations SET title = 'x' WHERE id = 1")


def test_a_later_cut_over_completes_what_is_left_and_only_that(old: str) -> None:
    change = samples.small(old)
    samples.cut(old, only(change, 2, 3))

    counts, recorded = samples.cut(old, change)

    assert (counts.conversations, counts.projects, counts.metadata, counts.tool_calls) == (
        1,
        0,
        1,
        1,
    )
    assert {(entry["table"], entry["key"]) for entry in recorded if entry["kind"] == "row"} == {
        ("conversations", 1),
        ("tool_calls", 10),
        ("skills", "pdf"),
    }
    with connect(old) as database:
        assert database.inspect() == Schema("migrated")
        assert database.differences(change, recorded) == []


def test_the_result_is_that_of_one_cut_over(old: str) -> None:
    change = samples.small(old)
    whole, _ = samples.cut(old, change)
    at_once = rows.read(old)
    schema = {name for name in everything(old)["schema"] if "gemspace" in name}
    with connect(old) as database:
        assert database.differences(change) == []
    assert whole.without_project == 0
    assert schema == set()
    assert at_once.conversations["t1"] == change.assignments[1].project_id


def test_nothing_of_the_aids_is_left_when_it_is_complete(old: str) -> None:
    change = samples.small(old)
    samples.cut(old, only(change, 3))
    assert any("gemspace_project_id_is_set" in line for line in everything(old)["schema"])

    samples.cut(old, change)

    assert not any("gemspace" in line for line in everything(old)["schema"])


def test_cutting_over_the_same_part_twice_changes_nothing(old: str) -> None:
    change = samples.small(old)
    samples.cut(old, only(change, 3))
    before = everything(old)

    counts, recorded = samples.cut(old, only(change, 3))

    assert (counts, recorded) == (Counts(without_project=2), [])
    assert everything(old) == before


def test_it_is_complete_once_the_last_conversation_without_a_project_is_deleted(old: str) -> None:
    change = samples.small(old)
    samples.cut(old, only(change, 1, 2))
    with rows.connection(old) as opened:
        opened.exec_driver_sql("DELETE FROM messages WHERE conversation_id = 3")
        opened.exec_driver_sql("DELETE FROM conversations WHERE id = 3")
    with connect(old) as database:
        assert database.differences(only(change, 1, 2)) == [
            "conversations.project_id is not held to projects"
        ]

    samples.cut(old, only(change, 1, 2))

    with connect(old) as database:
        assert database.inspect() == Schema("migrated")


def test_a_path_that_is_right_is_never_rewritten_again(old: str) -> None:
    """What the first cut-over made of workspace/uploads/x looks like an old path of a thread."""
    with rows.connection(old) as opened:
        samples.user(opened, "alice")
        samples.conversation(
            opened,
            1,
            "t1",
            metadata={
                "attachments": [samples.attachment("/home/gem/user-data/workspace/uploads/x")]
            },
            inputs=({"filepaths": ["/home/gem/user-data/workspace/outputs/y"]},),
        )
        samples.conversation(opened, 2, "t2")
    change = Change({1: samples.assignment("t1"), 2: samples.assignment("t2")})

    for part in (only(change, 1), only(change, 1), change, change):
        samples.cut(old, part)
        found = rows.read(old)
        assert found.metadata["t1"]["attachments"][0]["path"] == "/home/gem/user-data/uploads/x"
        assert found.inputs[10] == {"filepaths": ["/home/gem/user-data/outputs/y"]}


@pytest.mark.parametrize("how", ["deleted", "given away"])
def test_a_conversation_that_changed_since_it_was_planned_stops_everything(
    old: str, how: str
) -> None:
    change = samples.small(old)
    with rows.connection(old) as opened:
        if how == "deleted":
            opened.exec_driver_sql("DELETE FROM messages WHERE conversation_id = 3")
            opened.exec_driver_sql("DELETE FROM conversations WHERE id = 3")
        else:
            opened.exec_driver_sql("UPDATE conversations SET uid = 'alice' WHERE id = 3")
    before = everything(old)

    with pytest.raises(Mismatch, match="conversation 3 "):
        samples.cut(old, change)

    assert everything(old) == before
