"""URLs, and what is said when there is no connection; a password is shown nowhere."""

from __future__ import annotations

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from migrator.database import connect
from migrator.errors import MigratorError, Precondition, Usage
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.postgres import Server

SECRET = "s3cr%t/@:w"
QUOTED = "s3cr%25t%2F%40%3Aw"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "the database URL cannot be read"),
        ("nonsense", "the database URL cannot be read"),
        (f"postgresql://u:{QUOTED}@host:port/db", "the database URL cannot be read"),
        (f"mysql://u:{QUOTED}@host/db", "databases of the kind mysql are not supported"),
        (f"postgres://u:{QUOTED}@host/db", "databases of the kind postgres are not supported"),
        ("sqlite://", "the database URL names no file"),
        ("sqlite:///:memory:", "the database URL names no file"),
    ],
)
def test_a_url_that_cannot_be_used(url: str, said: str) -> None:
    with pytest.raises(Usage) as caught:
        connect(url)
    assert caught.value.message == said
    assert caught.value.fix is not None
    assert "postgresql://user:password@host/database" in caught.value.fix


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(
        Precondition, match=r"there is no database sqlite:///.*missing\.db: No such"
    ):
        connect(f"sqlite:///{tmp_path}/missing.db")
    with pytest.raises(Precondition, match="is not a file"):
        connect(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "driver", ["sqlite", "sqlite+aiosqlite", "sqlite+pysqlite", "sqlite+anything"]
)
def test_any_driver_of_sqlite(tmp_path: Path, driver: str) -> None:
    (tmp_path / "old.db").touch()
    with connect(f"{driver}:///{tmp_path}/old.db") as database:
        assert (database.dialect, database.label) == ("sqlite", f"sqlite:///{tmp_path}/old.db")
        assert database.file == bytes(tmp_path / "old.db")


@pytest.mark.parametrize(
    "driver", ["postgresql", "postgresql+asyncpg", "postgresql+psycopg2", "postgresql+psycopg"]
)
def test_any_driver_of_postgresql(postgres: Server, driver: str) -> None:
    with (
        postgres.database() as name,
        connect(postgres.url(name, user=f"postgres:{QUOTED}", driver=driver)) as database,
    ):
        assert (database.dialect, database.label, database.file) == (
            "postgresql",
            f"postgresql://postgres@/{name}",
            None,
        )


def test_the_options_of_asyncpg_are_understood(postgres: Server) -> None:
    with postgres.database() as name:
        url = postgres.url(name, driver="postgresql+asyncpg")
        # Over a Unix socket there is no encryption, whatever is asked for.
        connect(f"{url}&ssl=disable&prepared_statement_cache_size=0").close()


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(error)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://locked:{QUOTED}@/postgres?host={{socket}}",
        f"postgresql://locked@/postgres?host={{socket}}&password={QUOTED}",
        f"postgresql://u:{QUOTED}@/postgres?host=/nowhere",
        f"postgresql://u:{QUOTED}@/postgres?host={{socket}}&{QUOTED}=1",
        f"postgresql://u:{QUOTED}@/nothing_of_that_name?host={{socket}}",
        f"postgresql://u:{QUOTED}@127.0.0.1:1/postgres",
    ],
)
def test_a_server_that_refuses_is_told_without_the_password(postgres: Server, url: str) -> None:
    with pytest.raises(MigratorError) as caught:
        connect(url.format(socket=postgres.socket))
    error = caught.value
    assert type(error) is Precondition
    assert error.message.startswith("cannot connect to postgresql://")
    for form in (SECRET, QUOTED, "s3cr"):
        assert form not in shown(error)
    assert "\n" not in str(error)


def test_the_role_with_a_password_may_use_it(postgres: Server) -> None:
    with postgres.connect() as admin:
        admin.execute(f"CREATE ROLE locked LOGIN PASSWORD '{SECRET}'".encode())
        try:
            url = f"postgresql://locked:{QUOTED}@/postgres?host={postgres.socket}"
            with connect(url) as database:
                assert database.label == "postgresql://locked@/postgres"
                for name in dir(database):
                    assert "s3cr" not in repr(getattr(database, name))
        finally:
            admin.execute("DROP ROLE locked")


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [
        ("sqlalchemy", "sqlite:///old.db", "gemspace[migrator]"),
        ("psycopg", "postgresql://u@/db", "gemspace[postgres]"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    module: str, url: str, extra: str
) -> None:
    program = f"""
import sys
sys.modules[{module!r}] = None
from migrator.database import Change, Database, connect
from migrator.errors import Precondition
try:
    connect({url!r})
except Precondition as exc:
    print(exc)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (
        f"the Python package {module} is not installed; run: pip install '{extra}'\n",
        "",
    )


def test_nothing_is_imported_before_something_connects() -> None:
    program = "import sys, migrator.database; print({'sqlalchemy', 'psycopg'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"set()\n"


def test_tables_in_another_schema_than_public(postgres: Server) -> None:
    with postgres.database() as name:
        with postgres.connect(name) as admin:
            admin.execute('CREATE SCHEMA "The App"; CREATE SCHEMA postgres')
            admin.execute(
                f"ALTER DATABASE {name} SET search_path = '$user', \"The App\", public".encode()
            )
        url = postgres.url(name)
        with rows.connection(url) as opened:
            opened.exec_driver_sql('SET search_path = "The App"')
            rows.create(opened)
        change = samples.small(url)

        _, recorded = samples.cut(url, change)

        with connect(url) as database:
            assert database.differences(change, recorded) == []
            assert database.rights() == []
            with postgres.connect(name) as admin:
                tables = admin.execute(
                    "SELECT schemaname FROM pg_tables"
                    " WHERE tablename IN ('projects', 'config_options', 'conversations')"
                ).fetchall()
                assert tables == [("The App",)] * 3
            database.roll_back(recorded)
            assert database.inspect().state == "legacy"
