"""What only PostgreSQL has: triggers that wait for the commit, encodings, identity, other kinds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from migrator.database import connect
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.database.exact import dumped, everything
from tests.migrator.postgres import Server


@pytest.fixture
def url(postgres: Server) -> Iterator[str]:
    """The URL of an empty database."""
    with postgres.database() as name:
        yield postgres.url(name)


def test_triggers_that_wait_for_the_commit_are_not_in_the_way(old: str) -> None:
    change = samples.small(old)
    with rows.connection(old) as opened:
        run = opened.exec_driver_sql
        run("CREATE TABLE log (id INTEGER)")
        run(
            "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN INSERT INTO log VALUES (NEW.id); RETURN NULL; END $$"
        )
        run(
            "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON conversations"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION noted()"
        )
        run(
            "ALTER TABLE messages ADD CONSTRAINT late FOREIGN KEY (conversation_id)"
            " REFERENCES conversations (id) DEFERRABLE INITIALLY DEFERRED"
        )
    before = everything(old)

    _, recorded = samples.cut(old, change)

    with connect(old) as database:
        assert database.differences(change, recorded) == []
        database.roll_back(recorded)
    after = everything(old)
    assert len(after.pop("log")) > len(before.pop("log"))
    assert after == before


def test_a_database_without_an_encoding(postgres: Server) -> None:
    with postgres.connect() as admin:
        admin.execute("CREATE DATABASE plain ENCODING sql_ascii LOCALE 'C' TEMPLATE template0")
    try:
        url = postgres.url("plain")
        with rows.connection(f"{url}&client_encoding=utf8") as opened:
            rows.create(opened)
        change = samples.small(f"{url}&client_encoding=utf8")
        _, recorded = samples.cut(url, change)
        with connect(url) as database:
            assert database.differences(change, recorded) == []
            assert database.users() == {"alice", "bob"}
    finally:
        with postgres.connect() as admin:
            admin.execute("DROP DATABASE plain WITH (FORCE)")


def test_pg_dump_sees_no_difference_after_a_roll_back(old: str) -> None:
    change = samples.small(old)
    before = dumped(old)
    _, recorded = samples.cut(old, change)
    with connect(old) as database:
        assert dumped(old) != before
        database.roll_back(recorded)
    assert dumped(old) == before


def test_views_of_the_tables_are_no_tables_to_drop(old: str) -> None:
    change = samples.small(old)
    with rows.connection(old) as opened:
        opened.exec_driver_sql("CREATE VIEW all_of_them AS SELECT * FROM conversations")
    before = everything(old)
    _, recorded = samples.cut(old, change)
    with connect(old) as database:
        database.roll_back(recorded)
    assert everything(old) == before
