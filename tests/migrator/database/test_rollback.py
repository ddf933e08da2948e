"""The way back, on both databases."""

from __future__ import annotations

import pytest

from migrator.database import Change, Counts, Schema, connect
from migrator.errors import Mismatch
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.database.exact import everything


def test_the_old_rows_and_the_old_schema_are_back_exactly(old: str) -> None:
    change = samples.small(old)
    before = everything(old)
    _, recorded = samples.cut(old, change)

    with connect(old) as database:
        counts = database.roll_back(recorded)
        assert everything(old) == before
        assert counts == Counts(
            projects=2, conversations=3, metadata=1, tool_calls=1, skills=1, options=1
        )
        assert database.roll_back(recorded) == Counts()
        assert database.inspect() == Schema("legacy")
    assert everything(old) == before


def test_what_was_rolled_back_can_be_cut_over_again(old: str) -> None:
    change = samples.small(old)
    first, recorded = samples.cut(old, change)
    with connect(old) as database:
        database.roll_back(recorded)

    second, _ = samples.cut(old, change)

    assert second == first
    with connect(old) as database:
        assert database.differences(change) == []


def test_two_cut_overs_are_rolled_back_together(old: str) -> None:
    change = samples.small(old)
    before = everything(old)
    _, first = samples.cut(old, Change({1: change.assignments[1]}))
    _, second = samples.cut(old, change)

    with connect(old) as database:
        database.roll_back([*first, *second])

    assert everything(old) == before


def test_an_empty_database_comes_back_too(old: str) -> None:
    before = everything(old)
    _, recorded = samples.cut(old, samples.NOTHING)
    with connect(old) as database:
        assert database.inspect() == Schema("migrated")
        database.roll_back(recorded)
    assert everything(old) == before


def test_records_of_an_attempt_that_was_not_committed_do_no_harm(old: str) -> None:
    change = samples.small(old)
    before = everything(old)
    attempt: list[dict[str, object]] = []

    def give_up() -> None:
        raise InterruptedError

    with connect(old) as database:
        with pytest.raises(InterruptedError):
            database.cut_over(change, lambda entry: attempt.append(dict(entry)), give_up)
        assert everything(old) == before
        _, recorded = samples.cut(old, change)
        counts = database.roll_back([*attempt, *recorded])
    assert counts.kept == 0
    assert everything(old) == before


def test_rows_that_others_added_stay_with_what_they_need(old: str) -> None:
    change = samples.small(old)
    _, recorded = samples.cut(old, change)
    project = change.assignments[1].project_id
    own = {
        "selection_status": "selectable",
        "workdir_path": "mine",
        "directory_mode": "linked",
        "created_at": "2026-02-01 00:00:00",
        "updated_at": "2026-02-01 00:00:00",
    }
    with rows.connection(old) as opened:
        rows.insert(opened, "projects", id="new", uid="bob", **own)
        for number, given in ((11, "new"), (12, project)):
            uid = "bob" if given == "new" else "alice"
            samples.conversation_in(opened, number, f"n{number}", given, uid)

    with connect(old) as database:
        counts = database.roll_back(recorded)
        # Two conversations with a project, and the two projects.
        assert (counts.kept, counts.projects, counts.conversations) == (4, 1, 3)
        assert database.inspect() == Schema("partly")
        assert [(one.id, one.project_id) for one in database.conversations() if one.project_id] == [
            (11, "new"),
            (12, project),
        ]
        # The old version writes conversations without a project again.
        with rows.connection(old) as opened:
            samples.conversation(opened, 20, "t20")
        again = database.roll_back(recorded)
        assert (again.kept, again.projects, again.conversations) == (4, 0, 0)
        # And a later cut-over completes it.
        samples.cut(old, Change({**change.assignments, 20: samples.assignment("t20")}))
        assert database.inspect() == Schema("migrated")


def test_a_row_that_somebody_changed_since_stays_as_it_is(old: str) -> None:
    change = samples.small(old)
    _, recorded = samples.cut(old, change)
    with rows.connection(old) as opened:
        opened.exec_driver_sql(
            "UPDATE conversations SET extra_metadata = '{\"new\": 1}' WHERE id = 1"
        )
        opened.exec_driver_sql("UPDATE skills SET dir_path = 'elsewhere' WHERE slug = 'pdf'")
        opened.exec_driver_sql('UPDATE config_options SET value = \'{"default_model": "m2"}\'')

    with connect(old) as database:
        counts = database.roll_back(recorded)

    assert counts == Counts(projects=2, conversations=3, tool_calls=1, kept=3)
    with rows.connection(old) as opened:
        run = opened.exec_driver_sql
        assert run(
            "SELECT CAST(extra_metadata AS text) FROM conversations WHERE id = 1"
        ).scalar() == ('{"new": 1}')
        assert run("SELECT dir_path FROM skills WHERE slug = 'pdf'").scalar() == "elsewhere"
        assert run("SELECT count(*) FROM config_options").scalar() == 1


def test_a_row_that_somebody_deleted_since_stays_deleted(old: str) -> None:
    change = samples.small(old)
    _, recorded = samples.cut(old, change)
    with rows.connection(old) as opened:
        opened.exec_driver_sql("DELETE FROM tool_calls")
        opened.exec_driver_sql("DELETE FROM messages")
        opened.exec_driver_sql("DELETE FROM subagent_threads")
        opened.exec_driver_sql("DELETE FROM conversations WHERE id <> 3")
    with connect(old) as database:
        assert database.differences(change) == []
        assert database.roll_back(recorded).conversations == 1
        assert [one.id for one in database.conversations()] == [3]


def test_a_table_of_others_that_refers_to_projects_keeps_what_it_refers_to(old: str) -> None:
    change = samples.small(old)
    _, recorded = samples.cut(old, change)
    with rows.connection(old) as opened:
        opened.exec_driver_sql(
            "CREATE TABLE pins (project VARCHAR(64) REFERENCES projects (id) ON DELETE CASCADE)"
        )
        rows.insert(opened, "pins", project=change.assignments[3].project_id)
    with connect(old) as database:
        counts = database.roll_back(recorded)
    assert (counts.projects, counts.kept) == (1, 1)
    with rows.connection(old) as opened:
        assert opened.exec_driver_sql("SELECT count(*) FROM pins").scalar() == 1


def test_nothing_recorded_is_nothing_to_do(old: str) -> None:
    samples.small(old)
    before = everything(old)
    with connect(old) as database:
        assert database.roll_back([]) == Counts()
    assert everything(old) == before


def test_a_cut_over_of_no_conversation_at_all_leaves_nothing_either(old: str) -> None:
    samples.small(old)
    before = everything(old)
    counts, recorded = samples.cut(old, samples.NOTHING)
    assert counts.without_project == 3
    with connect(old) as database:
        assert database.roll_back(recorded) == Counts()
    assert everything(old) == before


def test_a_database_without_the_table_is_told(url: str) -> None:
    with connect(url) as database, pytest.raises(Mismatch, match="conversations"):
        database.roll_back([])
