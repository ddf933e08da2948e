"""The border to SQLAlchemy: connections, transactions, and errors in our own terms.

Only this module and `reflection` import SQLAlchemy, so all the others may be imported without it.

Every transaction has a connection of its own that is closed with it: nothing stays open in between,
and a forked child never inherits one. A transaction that reads cannot write.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Literal
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import Connection, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from migrator.database.failures import failure, without
from migrator.database.reflection import referrers, reflect
from migrator.database.shape import Reference, Table
from migrator.errors import Mismatch

Dialect = Literal["postgresql", "sqlite"]

CONNECT_TIMEOUT: Final = 10
"""Seconds that a server may take to answer, unless the URL says otherwise."""

LOCK_TIMEOUT: Final = 10
"""Seconds that a cut-over waits for a lock: in downtime nobody should hold one."""


class Session:
    """One transaction."""

    __slots__ = ("_connection", "dialect", "schema", "types")

    def __init__(self, connection: Connection, dialect: Dialect, schema: str | None) -> None:
        self._connection = connection
        self.dialect: Dialect = dialect
        self.schema = schema
        """PostgreSQL: the schema that has the conversations, first on the search path now."""
        self.types: dict[tuple[str, str], str] = {}
        """PostgreSQL: the types of columns, by table and column, that were asked for before."""

    def rows(self, sql: str, **values: Any) -> Sequence[Any]:
        """All rows of the answer, as named tuples; `values` stand at ``:name``."""
        return self._connection.execute(text(sql), values).all()

    def value(self, sql: str, **values: Any) -> Any:
        """The first column of the first row; None if there is none."""
        return self._connection.execute(text(sql), values).scalar()

    def run(self, sql: str, **values: Any) -> int:
        """Runs one statement; the number of rows it changed."""
        return self._connection.execute(text(sql), values).rowcount

    def run_many(self, sql: str, values: Sequence[Mapping[str, Any]]) -> None:
        """Runs one statement for each of `values`."""
        if values:
            self._connection.execute(text(sql), values)

    def raw(self, sql: str) -> None:
        """Runs one statement as it is: colons in it stand for nothing."""
        self._connection.exec_driver_sql(sql)

    def table(self, name: str) -> Table | None:
        """The table as it is now; None if there is none."""
        return self.tables([name]).get(name)

    def tables(self, names: Collection[str]) -> dict[str, Table]:
        """The tables of these names as they are now, as far as they are there."""
        return reflect(self._connection, self.schema, names)

    def referrers(self, name: str) -> list[tuple[str, Reference]]:
        """The foreign keys of other tables to this one, with the tables that have them."""
        return referrers(self._connection, self.schema, name)


class Engine:
    """Opens transactions on one database."""

    def __init__(self, url: URL, dialect: Dialect) -> None:
        """`url` has passed `migrator.database.connection`'s checks; nothing is opened here."""
        self.dialect: Dialect = dialect
        self.secret = None if url.password is None else str(url.password)
        # Names our own sessions to us, also one that is closed but not gone yet.
        self.application = f"gemspace migrator {secrets.token_hex(4)}"
        if dialect == "sqlite":
            assert url.database is not None
            self.file: bytes | None = os.path.abspath(os.fsencode(url.database))
            self._reader = _sqlite(self.file, writing=False)
            self._writer = _sqlite(self.file, writing=True)
        else:
            self.file = None
            self._reader = self._writer = sqlalchemy.create_engine(
                url.set(drivername="postgresql+psycopg", query=_options(url)),
                poolclass=NullPool,
                hide_parameters=True,
                connect_args={
                    "application_name": self.application,
                    # What comes back is text, also of a database without an encoding.
                    "client_encoding": "utf8",
                    # A pooler in between may give the next statement to another backend.
                    "prepare_threshold": None,
                },
            )

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A transaction that only reads. MigratorError for whatever the database answers amiss."""
        with _translated(self.secret), self._reader.connect() as connection:
            if self.dialect == "postgresql":
                connection.execute(text("SET TRANSACTION READ ONLY"))
                connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'"))
            yield self._session(connection)

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A transaction that is committed, durably, when the block ends without an error."""
        with _translated(self.secret), self._writer.begin() as connection:
            if self.dialect == "postgresql":
                connection.execute(text("SET TRANSACTION READ WRITE"))
                for name, value in _POSTGRES_WRITING.items():
                    connection.execute(text(f"SET LOCAL {name} = '{value}'"))
            yield self._session(connection)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """SQLite only: a lock that nobody shares, held for the block and tried for just once.

        Nothing is written. Raises what `writing` raises when somebody else has any lock.
        """
        assert self.file is not None
        with _translated(self.secret):
            connection = _open_sqlite(self.file, writing=True, timeout=0)
            try:
                connection.execute("BEGIN EXCLUSIVE")
                yield
                connection.execute("ROLLBACK")
            finally:
                connection.close()

    def _session(self, connection: Connection) -> Session:
        if self.dialect == "sqlite":
            return Session(connection, self.dialect, None)
        schema = connection.execute(text(_SCHEMA)).scalar() or "public"
        connection.execute(text(_SEARCH_PATH), {"schema": schema})
        return Session(connection, self.dialect, schema)


@contextmanager
def _translated(secret: str | None) -> Iterator[None]:
    """Raises the migrator's error for a database's; the password `secret` is shown in none."""
    try:
        yield
    except DBAPIError as exc:
        raise failure(exc.orig, secret) from None
    except sqlite3.Error as exc:
        raise failure(exc, secret) from None
    except SQLAlchemyError as exc:
        said = without(str(exc).partition("\n")[0], secret)
        raise Mismatch(f"the database cannot be used: {said}") from None


_POSTGRES_WRITING: Final = {
    "lock_timeout": f"{LOCK_TIMEOUT}s",
    "statement_timeout": "0",
    # Between the last statement and the commit the journal is made durable.
    "idle_in_transaction_session_timeout": "0",
    "synchronous_commit": "on",
}

_SCHEMA: Final = """
    SELECT coalesce(
        (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.oid = to_regclass('conversations')),
        current_schema())
"""

# What was on the path stays: types of extensions have their operators there.
_SEARCH_PATH: Final = """
    SELECT set_config(
        'search_path',
        concat_ws(', ', quote_ident(:schema), nullif(current_setting('search_path'), '')),
        true)
"""


_ONLY_ASYNCPG: Final = frozenset(
    {
        "async_fallback",
        "command_timeout",
        "direct_tls",
        "max_cacheable_statement_size",
        "max_cached_statement_lifetime",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "server_settings",
        "statement_cache_size",
        "timeout",
    }
)
"""Options of asyncpg's that say how to go about it, not where to; psycopg knows none of them."""


def _options(url: URL) -> dict[str, str | tuple[str, ...]]:
    """The URL's options for psycopg, which takes those of libpq."""
    options: dict[str, str | tuple[str, ...]] = {"connect_timeout": str(CONNECT_TIMEOUT)}
    for name, value in url.query.items():
        if "asyncpg" not in url.drivername:
            options[name] = value
        elif name not in _ONLY_ASYNCPG:
            options["sslmode" if name == "ssl" else name] = value
    return options


def _sqlite(file: bytes, *, writing: bool) -> sqlalchemy.Engine:
    engine = sqlalchemy.create_engine(
        "sqlite://",
        creator=partial(_open_sqlite, file, writing=writing, timeout=LOCK_TIMEOUT),
        poolclass=NullPool,
        hide_parameters=True,
    )
    begin = "BEGIN IMMEDIATE" if writing else "BEGIN"

    def begun(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    event.listen(engine, "begin", begun)
    return engine


def _open_sqlite(file: bytes, *, writing: bool, timeout: float) -> sqlite3.Connection:
    """A connection without transactions of the driver's own; the file is never made.

    One that only reads may write as well as far as SQLite itself is concerned: it has to undo what
    a killed writer left, and to remove the files again that it makes beside one in WAL mode.
    """
    if writing:
        return _connect_sqlite(file, "mode=rw", timeout)
    try:
        connection = _connect_sqlite(file, "mode=rw", timeout)
    except sqlite3.OperationalError as exc:
        # WAL mode on a file system that is read-only: nobody can change it, so no lock is needed.
        if exc.sqlite_errorcode != sqlite3.SQLITE_CANTOPEN or not _is_at_rest(file):
            raise
        connection = _connect_sqlite(file, "immutable=1", timeout)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _is_at_rest(file: bytes) -> bool:
    """Whether a file cannot be written, and has all that was ever written to it."""
    if not os.statvfs(file).f_flag & os.ST_RDONLY:
        return False
    try:
        return os.stat(file + b"-wal").st_size == 0
    except FileNotFoundError:
        return True


def _connect_sqlite(file: bytes, options: str, timeout: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(file)}?{options}", uri=True, timeout=timeout, isolation_level=None
    )
    try:
        # Text that is not UTF-8 comes back with every byte.
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        # A table that is rebuilt is dropped meanwhile, and no other table's references to it
        # follow it anywhere. Both can be set only outside of a transaction.
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA legacy_alter_table = ON")
        # EXTRA also makes the removal of the rollback journal durable, which is the commit.
        connection.execute("PRAGMA synchronous = EXTRA")
        # Opens the file in earnest, which a connection otherwise does when it has to.
        connection.execute("SELECT count(*) FROM sqlite_master")
    except BaseException:
        connection.close()
        raise
    return connection
