"""Who else uses the database, and what we may do there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from migrator.database import connect
from migrator.errors import Precondition, Retryable
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.database.exact import everything

if TYPE_CHECKING:
    from tests.migrator.postgres import Server


@pytest.fixture
def name(postgres: Server) -> Iterator[str]:
    """The name of a database with the old schema."""
    with postgres.database() as name:
        with rows.connection(postgres.url(name)) as opened:
            rows.create(opened)
        yield name


@pytest.fixture
def guest(postgres: Server) -> Iterator[str]:
    """A role that may connect, and nothing else."""
    with postgres.connect() as admin:
        admin.execute("CREATE ROLE guest LOGIN")
        yield "guest"
        admin.execute("DROP ROLE guest")


def test_a_database_that_nobody_else_uses(postgres: Server, name: str) -> None:
    with connect(postgres.url(name)) as database, postgres.connect("postgres"):
        database.inspect()
        assert database.other_sessions() == []
        assert database.other_sessions() == []


def test_other_sessions_are_told_with_what_they_do(postgres: Server, name: str) -> None:
    with connect(postgres.url(name)) as database, postgres.connect(name) as other:
        other.execute("SET application_name = 'the\nworker'")
        other.autocommit = False
        other.execute("SELECT 1")
        pid = other.info.backend_pid
        assert database.other_sessions() == [
            f"session {pid}, user postgres, application the?worker, idle in transaction"
        ]


def test_what_a_guest_cannot_see_of_a_session_does_not_hide_it(
    postgres: Server, name: str, guest: str
) -> None:
    with connect(postgres.url(name, user=guest)) as database, postgres.connect(name) as other:
        assert database.other_sessions() == [f"session {other.info.backend_pid}, user postgres"]


def test_another_migrator_is_another_session(postgres: Server, name: str) -> None:
    with connect(postgres.url(name)) as database, connect(postgres.url(name)) as other:

        def look() -> None:
            (found,) = other.other_sessions()
            assert "application gemspace migrator " in found

        samples.small(postgres.url(name))
        database.cut_over(samples.NOTHING, lambda _: None, look)
        assert other.other_sessions() == []


def test_the_owner_lacks_no_right(postgres: Server, name: str) -> None:
    with connect(postgres.url(name)) as database:
        assert database.rights() == []


def test_what_a_guest_lacks_is_named(postgres: Server, name: str, guest: str) -> None:
    with postgres.connect(name) as admin:
        admin.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
        admin.execute("GRANT UPDATE ON skills TO guest")
        admin.execute("ALTER TABLE messages ENABLE ROW LEVEL SECURITY")
        admin.execute("REVOKE SELECT ON users FROM guest")
        try:
            with connect(postgres.url(name, user=guest)) as database:
                assert database.rights() == [
                    "no right to make tables in the schema public",
                    "no right to change rows of the table conversations",
                    "no right to alter the table conversations",
                    "a policy hides rows of the table messages",
                    "no right to change rows of the table tool_calls",
                    "no right to read the table users",
                    "no right to refer to the table users",
                ]
                with pytest.raises(Precondition, match="the database user lacks a right"):
                    database.cut_over(samples.NOTHING, lambda _: None, lambda: None)
        finally:
            admin.execute("DROP OWNED BY guest")


def test_a_role_that_owns_the_tables_and_no_more_can_do_it_all(
    postgres: Server, name: str, guest: str
) -> None:
    samples.small(postgres.url(name))
    with postgres.connect(name) as admin:
        admin.execute(f"ALTER DATABASE {name} OWNER TO guest".encode())
        admin.execute("GRANT CREATE ON SCHEMA public TO guest")
        for table in ("users", "conversations", "messages", "tool_calls", "skills"):
            admin.execute(f"ALTER TABLE {table} OWNER TO guest".encode())
        admin.execute("ALTER TABLE subagent_threads OWNER TO guest")
    url = postgres.url(name, user=guest)
    try:
        with connect(url) as database:
            assert database.rights() == []
            _, recorded = samples.cut(url, samples.NOTHING)
            assert database.inspect().state == "partly"
            assert database.rights() == []
            database.roll_back(recorded)
    finally:
        with postgres.connect(name) as admin:
            admin.execute(f"ALTER DATABASE {name} OWNER TO postgres".encode())
            admin.execute("REASSIGN OWNED BY guest TO postgres")
            admin.execute("DROP OWNED BY guest")


def test_a_lock_of_another_session_is_not_waited_for_for_ever(
    postgres: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(_settings(), "lock_timeout", "10ms")
    url = postgres.url(name)
    change = samples.small(url)
    before = everything(url)
    with connect(url) as database:
        with postgres.connect(name) as other:
            other.autocommit = False
            other.execute("LOCK TABLE tool_calls IN ROW EXCLUSIVE MODE")
            with pytest.raises(Retryable, match="another session holds a lock in the database"):
                database.cut_over(change, lambda _: None, lambda: None)
        assert everything(url) == before
        # What a run that is in nobody's way does.
        assert database.cut_over(change, lambda _: None, lambda: None).conversations == 3


def _settings() -> dict[str, str]:
    from migrator.database import engine

    return engine._POSTGRES_WRITING


def test_settings_of_the_server_that_would_be_in_the_way_are_not(
    postgres: Server, name: str
) -> None:
    with postgres.connect(name) as admin:
        for setting in (
            "default_transaction_read_only = on",
            "statement_timeout = '1min'",
            "synchronous_commit = off",
        ):
            admin.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    url = postgres.url(name)
    with connect(url) as database:
        assert database.cut_over(samples.NOTHING, lambda _: None, lambda: None).conversations == 0
        assert database.inspect().state == "migrated"


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that nobody can write to."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    (tmp_path / "real").mkdir()
    for command in (
        ["mount", "--bind", "real", "read-only"],
        ["mount", "-o", "remount,bind,ro", "read-only"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_file_on_a_read_only_file_system_is_read(
    tmp_path: Path, read_only: Path, mode: str
) -> None:
    (tmp_path / "real/old.db").touch()
    url = f"sqlite:///{tmp_path}/real/old.db"
    with rows.connection(url) as opened:
        rows.create(opened)
        opened.exec_driver_sql(f"PRAGMA journal_mode = {mode}")
    change = samples.small(url)
    with connect(f"sqlite:///{read_only}/old.db") as database:
        assert len(list(database.conversations())) == 3
        assert database.other_sessions() == []
        assert database.rights() == [
            f"the file {read_only}/old.db cannot be written",
            f"the folder {read_only} cannot be written, for SQLite's journal",
        ]
        with pytest.raises(Precondition):
            database.cut_over(change, lambda _: None, lambda: None)
    assert os.listdir(read_only) == ["old.db"]
