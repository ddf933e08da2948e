"""New tables that a newer application has made already, with what it put into them."""

from __future__ import annotations

import pytest

from migrator.database import Change, Schema, connect
from migrator.errors import Conflict, Precondition
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.database.exact import everything

PROJECTS = """
CREATE TABLE projects (
    id VARCHAR(64) NOT NULL, uid VARCHAR(64) NOT NULL, name VARCHAR(255),
    selection_status VARCHAR(20) NOT NULL, workdir_path VARCHAR(512) NOT NULL,
    directory_mode VARCHAR(20) NOT NULL, status VARCHAR(20) DEFAULT 'active' NOT NULL,
    idempotency_key VARCHAR(128),
    created_at TIMESTAMP {zone} NOT NULL, updated_at TIMESTAMP {zone} NOT NULL,
    PRIMARY KEY (id), CONSTRAINT uq_projects_id_uid UNIQUE (id, uid),
    UNIQUE (uid, idempotency_key),
    FOREIGN KEY(uid) REFERENCES users (uid) ON DELETE CASCADE
)
"""
OPTIONS = """
CREATE TABLE config_options (
    id {serial} PRIMARY KEY, key VARCHAR(100) NOT NULL, name VARCHAR(100) NOT NULL,
    description TEXT NOT NULL, params {json} NOT NULL, value {json} NOT NULL,
    created_by VARCHAR(100) NOT NULL, updated_by VARCHAR(100) NOT NULL,
    created_at TIMESTAMP {zone} NOT NULL, updated_at TIMESTAMP {zone} NOT NULL
)
"""
INDEX = "CREATE UNIQUE INDEX ix_config_options_key ON config_options (key)"
POSTGRES = {"zone": "WITH TIME ZONE", "serial": "SERIAL", "json": "JSONB"}
SQLITE = {"zone": "", "serial": "INTEGER", "json": "JSON"}


@pytest.fixture
def newer(old: str) -> str:
    """A database in which a newer application has started once: its tables are there, empty."""
    words = SQLITE if old.startswith("sqlite") else POSTGRES
    with rows.connection(old) as opened:
        for statement in (PROJECTS, OPTIONS, INDEX):
            opened.exec_driver_sql(statement.format(**words))
    return old


def option(opened: rows.Connection, value: str) -> None:
    rows.insert(
        opened,
        "config_options",
        key="system_options",
        name="n",
        description="d",
        params={"fields": [{"key": "default_model"}, {"key": "fast_model"}, {"no": "key"}]},
        value=value,
        created_by="a",
        updated_by="b",
        created_at="2026-01-01 00:00:00",
        updated_at="2026-01-01 00:00:00",
    )


def project(opened: rows.Connection, key: str, uid: str, path: str) -> None:
    rows.insert(
        opened,
        "projects",
        id=key,
        uid=uid,
        selection_status="implicit",
        workdir_path=path,
        directory_mode="managed",
        created_at="2026-01-01 00:00:00",
        updated_at="2026-01-01 00:00:00",
    )


def test_empty_ones_are_filled_and_emptied_again(newer: str) -> None:
    change = samples.small(newer)
    before = everything(newer)

    _, recorded = samples.cut(newer, change)

    with connect(newer) as database:
        assert database.differences(change, recorded) == []
        with rows.connection(newer) as opened:
            (made,) = opened.exec_driver_sql(
                "SELECT name, created_by, updated_by FROM config_options"
            )
            assert tuple(made) == ("System settings", "system", "system")
            times = "SELECT count(*) FROM projects WHERE created_at IS NULL OR updated_at IS NULL"
            assert opened.exec_driver_sql(times).scalar() == 0
        database.roll_back(recorded)
    after = everything(newer)
    after.pop("sqlite_sequence", None)
    before.pop("sqlite_sequence", None)
    assert after == before


def test_only_settings_that_are_missing_are_added(newer: str) -> None:
    change = samples.small(newer)
    with rows.connection(newer) as opened:
        option(opened, '{"default_model": "kept", "limit": 1.10, "other": [1e400]}')
        text = opened.exec_driver_sql("SELECT CAST(value AS text) FROM config_options").scalar()
    more = Change(change.assignments, (), {**change.options, "fast_model": "m2"})
    with connect(newer) as database:
        assert database.option_keys() == {"default_model", "fast_model"}

    counts, recorded = samples.cut(newer, more)

    assert counts.options == 1
    value = "SELECT CAST(value AS text) FROM config_options"
    with rows.connection(newer) as opened:
        now = str(opened.exec_driver_sql(value).scalar())
        assert "1.10" in now and '"kept"' in now and '"fast_model": "m2"' in now
        assert ("1e400" in now) == newer.startswith("sqlite")  # jsonb writes the zeros
    with connect(newer) as database:
        assert database.differences(more, recorded) == []
        database.roll_back(recorded)
    with rows.connection(newer) as opened:
        assert opened.exec_driver_sql(value).scalar() == text


@pytest.mark.parametrize("value", ["[1]", '"{}"', "7"])
def test_settings_of_another_form_are_left_and_counted(newer: str, value: str) -> None:
    change = samples.small(newer)
    with rows.connection(newer) as opened:
        option(opened, value)
    counts, _ = samples.cut(newer, change)
    assert counts.options == 0
    assert [name for name in counts.unfit if name.startswith("config_options.value ")] != []
    with connect(newer) as database:
        assert database.differences(change) == []


def test_settings_that_are_null_are_an_empty_object(newer: str) -> None:
    change = samples.small(newer)
    with rows.connection(newer) as opened:
        option(opened, "null")
    samples.cut(newer, change)
    assert rows.read(newer).options == {"default_model": "m1", "limit": 2.5}


def test_a_project_that_is_there_as_it_has_to_be_is_kept(newer: str) -> None:
    change = samples.small(newer)
    one = change.assignments[1]
    with rows.connection(newer) as opened:
        project(opened, one.project_id, one.uid, one.workdir_path)
    before = everything(newer)

    counts, recorded = samples.cut(newer, change)

    assert (counts.projects, counts.conversations) == (1, 3)
    with connect(newer) as database:
        counts = database.roll_back(recorded)
    assert (counts.projects, counts.kept) == (1, 0)
    assert everything(newer)["projects"] == before["projects"]


@pytest.mark.parametrize("field", ["uid", "path"])
def test_a_project_that_is_another_one_is_a_conflict(newer: str, field: str) -> None:
    change = samples.small(newer)
    one = change.assignments[1]
    with rows.connection(newer) as opened:
        project(
            opened,
            one.project_id,
            "bob" if field == "uid" else one.uid,
            "elsewhere" if field == "path" else one.workdir_path,
        )
    before = everything(newer)

    with pytest.raises(Conflict, match=one.project_id):
        samples.cut(newer, change)

    assert everything(newer) == before


def test_a_column_of_the_newer_application_is_completed(newer: str) -> None:
    change = samples.small(newer)
    with rows.connection(newer) as opened:
        opened.exec_driver_sql("ALTER TABLE conversations ADD COLUMN project_id VARCHAR(64)")
        opened.exec_driver_sql("CREATE INDEX theirs ON conversations (project_id)")
    before = everything(newer)
    with connect(newer) as database:
        assert database.inspect() == Schema("partly")

        _, recorded = samples.cut(newer, change)

        assert database.inspect() == Schema("migrated")
        assert database.differences(change, recorded) == []
        database.roll_back(recorded)
    assert everything(newer) == before


def broken(statement: str, old: str, new: str) -> str:
    assert old in statement
    return statement.replace(old, new)


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            [broken(PROJECTS, "workdir_path VARCHAR(512) NOT NULL,", "")],
            "column projects.workdir_path is missing",
        ),
        (
            [broken(PROJECTS, "created_at TIMESTAMP {zone} NOT NULL", "created_at TIMESTAMP")],
            "column projects.created_at may be NULL",
        ),
        (
            [broken(PROJECTS, "uid VARCHAR(64) NOT NULL", "uid VARCHAR(30) NOT NULL")],
            "column projects.uid is shorter than 64 characters",
        ),
        (
            [broken(PROJECTS, "DEFAULT 'active' NOT NULL", "NOT NULL")],
            "column projects.status is not known, and it needs a value",
        ),
        (
            [broken(PROJECTS, "name VARCHAR(255)", "name INTEGER")],
            "column projects.name is of another type than text",
        ),
        (
            [broken(PROJECTS, "CONSTRAINT uq_projects_id_uid UNIQUE (id, uid),", "")],
            "table projects has no unique constraint on (id, uid)",
        ),
        (
            [broken(PROJECTS, "UNIQUE (uid, idempotency_key),", "")],
            "table projects has no unique constraint on (uid, idempotency_key)",
        ),
        (
            [broken(PROJECTS, " ON DELETE CASCADE", "")],
            "table projects has no foreign key (uid) to users (uid) ON DELETE CASCADE",
        ),
        (
            [broken(PROJECTS, "PRIMARY KEY (id),", "PRIMARY KEY (id, uid),")],
            "table projects does not have id as its primary key",
        ),
        ([OPTIONS], "column config_options.key is not unique"),
        (
            [OPTIONS, "CREATE UNIQUE INDEX i ON config_options (key) WHERE id > 7"],
            "column config_options.key is not unique",
        ),
        (
            [broken(OPTIONS, "value {json} NOT NULL", "value INTEGER NOT NULL"), INDEX],
            "column config_options.value is of another type than json",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_as_it_has_to_be_is_named_and_nothing_is_changed(
    old: str, statements: list[str], said: str
) -> None:
    change = samples.small(old)
    words = SQLITE if old.startswith("sqlite") else POSTGRES
    with rows.connection(old) as opened:
        for statement in statements:
            opened.exec_driver_sql(statement.format(**words))
    before = everything(old)

    with connect(old) as database:
        assert database.inspect() == Schema("unknown", (said,))
        assert database.differences(change) == [said]
        with pytest.raises(Precondition, match="has not the schema to start from") as caught:
            database.cut_over(change, lambda _: None, lambda: None)
    assert said in caught.value.message
    assert everything(old) == before
