"""The tests' own PostgreSQL server."""

from __future__ import annotations

from tests.migrator.postgres import Server


def test_a_database_of_its_own_is_empty_and_gone_afterwards(postgres: Server) -> None:
    with postgres.database() as name, postgres.connect(name) as opened:
        tables = opened.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchone() == (0,)
    with postgres.connect() as opened:
        assert (
            opened.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
            is None
        )
