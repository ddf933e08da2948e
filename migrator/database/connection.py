"""One database, by its URL: what the verbs of the migrator ask of it.

Every call is a transaction of its own, or several when it reads much; nothing is open in between.
Errors are `migrator.errors`: Precondition and Retryable say what to put right, Mismatch that the
database is not what was expected. None of them, and no label, shows a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from migrator.database import access, cutover, proving, reading, rollback, schema
from migrator.database.failures import UNREACHABLE
from migrator.database.model import Change, Conversation, Counts, Schema, SkillRow
from migrator.errors import MigratorError, Precondition, Usage
from vfs.closing import Closing
from vfs.printable import printable

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from migrator.database.engine import Engine

_FORMS = "give postgresql://user:password@host/database or sqlite:////folder/file.db"


def connect(url: str) -> Database:
    """The database at SQLAlchemy's URL, after one connection to see whether it answers.

    ``postgresql`` with any driver is opened with psycopg, ``sqlite`` with any driver by Python's
    own module. A file of SQLite's is never made.
    Usage for a URL of no such form; Precondition if the package that is needed is not installed, or
    there is no connection.
    """
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError

        from migrator.database.engine import Engine
    except ModuleNotFoundError as exc:
        raise _missing(exc, "gemspace[migrator]") from None
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # What is wrong with it may be in the middle of the password: it is not shown.
        raise Usage("the database URL cannot be read", fix=_FORMS) from None
    dialect = _dialect(parsed)
    if dialect == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise Usage("the database URL names no file", fix=_FORMS)
    try:
        database = Database(Engine(parsed, dialect), _label(parsed, dialect))
    except ModuleNotFoundError as exc:
        raise _missing(exc, "gemspace[postgres]") from None
    database.probe()
    return database


class Database(Closing):
    """A database that answered."""

    def __init__(self, engine: Engine, label: str) -> None:
        self._engine = engine
        self.dialect: Literal["postgresql", "sqlite"] = engine.dialect
        self.label = label
        """The URL without password and options, to show."""
        self.file: bytes | None = engine.file
        """SQLite: the absolute path of the file, beside which ``-journal`` and ``-wal`` stand."""

    def close(self) -> None:
        """Nothing is held between calls; here so that a block can hold the database."""

    def probe(self) -> None:
        """Connects once. Precondition if that fails."""
        if self.file is not None:
            access.require_file(self.file, self.label)
        try:
            with self._engine.reading() as session:
                session.value("SELECT 1")
        except Precondition:
            raise
        except MigratorError as exc:
            raise Precondition(
                f"cannot connect to {self.label}: {exc.message.removeprefix(UNREACHABLE)}",
                fix="see to it that the URL is right and the database runs",
            ) from None

    def inspect(self) -> Schema:
        """Which schema it has."""
        with self._engine.reading() as session:
            return schema.inspect(session)

    def conversations(self) -> Iterator[Conversation]:
        """Every conversation in the order of ids; memory for a thousand of them.

        Each thousand is read on its own, so leaving off in the middle leaves nothing open.
        """
        return reading.conversations(self._engine)

    def users(self) -> set[str]:
        """The uids that have a user row."""
        with self._engine.reading() as session:
            return reading.users(session)

    def skills(self) -> list[SkillRow]:
        """Every skill in the order of slugs."""
        with self._engine.reading() as session:
            return reading.skills(session)

    def option_keys(self) -> set[str]:
        """The settings that the option `system_options` describes in its `params`.

        Empty where the table or the row is not there yet.
        """
        with self._engine.reading() as session:
            return reading.option_keys(session)

    def other_sessions(self) -> list[str]:
        """Who else uses the database now, a phrase each; writes nothing."""
        return access.other_sessions(self._engine)

    def rights(self) -> list[str]:
        """What `cut_over` would not be allowed to do, a phrase each; writes nothing."""
        return access.rights(self._engine)

    def cut_over(
        self,
        change: Change,
        record: Callable[[Mapping[str, Any]], None],
        commit_gate: Callable[[], None],
    ) -> Counts:
        """Makes the new schema and writes `change`, in one transaction.

        Every row that is changed or added, and every change of the schema, is given to `record`
        before; then `commit_gate` is called, and when it returns the transaction is committed.
        Whatever either raises passes through, and nothing has changed. Only conversations without
        a project are touched, so what was done before is not done twice.

        Precondition if the schema is none that this can start from; Conflict if a project of
        `change` is there already with another user or folder; Mismatch if a conversation is gone
        or another user's.
        """
        with self._engine.writing() as session:
            counts = cutover.cut_over(session, change, record)
            commit_gate()
        return counts

    def differences(self, change: Change, rows: Iterable[Mapping[str, Any]] = ()) -> list[str]:
        """What is not as a cut-over of `change` leaves it, a phrase each; writes nothing.

        At most twenty are named, and the rest counted. Rows that were deleted since are none.
        `rows`: what `record` was given; with it every rewritten text is compared too.
        """
        with self._engine.reading() as session:
            return proving.differences(session, change, rows)

    def roll_back(self, rows: Iterable[Mapping[str, Any]]) -> Counts:
        """Gives back rows and schema as they were before the cut-overs that gave `rows`, in order.

        In one transaction; a second time changes nothing. What was added by others, or changed
        since, stays and is counted as `kept`; the new column and tables stay as far as that needs
        them.
        """
        with self._engine.writing() as session:
            return rollback.roll_back(session, rows)


def _dialect(url: URL) -> Literal["postgresql", "sqlite"]:
    name = url.get_backend_name()
    if name == "postgresql":
        return "postgresql"
    if name == "sqlite":
        return "sqlite"
    raise Usage(f"databases of the kind {name} are not supported", fix=_FORMS)


def _label(url: URL, dialect: str) -> str:
    if dialect == "sqlite":
        return printable(f"sqlite:///{url.database}")
    plain = type(url).create(dialect, url.username, None, url.host, url.port, url.database)
    return printable(plain.render_as_string())


def _missing(exc: ModuleNotFoundError, extra: str) -> Precondition:
    return Precondition(
        f"the Python package {str(exc.name).partition('.')[0]} is not installed",
        fix=f"run: pip install '{extra}'",
    )
