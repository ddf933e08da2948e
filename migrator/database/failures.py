"""What a database answers amiss, as an error of the migrator: one line, and never a password."""

from __future__ import annotations

import sqlite3
from typing import Any, Final
from urllib.parse import quote, quote_plus

from migrator.errors import MigratorError, Mismatch, Precondition, Retryable

_AGAIN: Final = "run the same command again: nothing was changed in the database"


UNREACHABLE: Final = "the database cannot be reached: "
"""How the message begins when there is no connection, or none any more."""


def failure(exc: BaseException | None, secret: str | None) -> MigratorError:
    """The error of the migrator for one of sqlite3 or psycopg; `secret` is shown as ``***``."""
    said = _shown(exc, secret)
    if isinstance(exc, sqlite3.Error):
        return _of_sqlite(exc, said)
    return _of_postgres(str(getattr(exc, "sqlstate", None) or ""), said)


def _of_sqlite(exc: sqlite3.Error, said: str) -> MigratorError:
    # The extended codes have the basic one in their lowest byte (sqlite.org/rescode.html).
    code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Retryable(
            "the database is in use by another program",
            fix="end that program and run the same command again",
        )
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return Retryable(f"the database could not be written or read: {said}", fix=_AGAIN)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return Precondition(
            f"the database file cannot be opened as needed: {said}",
            fix="see to it that the file and its folder can be read and written",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Precondition(
            f"the database file is damaged or none of SQLite's: {said}",
            fix="give the right file, or a good copy of it from a backup",
        )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return Mismatch(f"the database refuses a row: {said}")
    return Mismatch(f"the database cannot do what is asked of it: {said}")


def _of_postgres(state: str, said: str) -> MigratorError:
    # https://www.postgresql.org/docs/current/errcodes-appendix.html
    if state in ("55P03", "40P01"):
        return Retryable(
            f"another session holds a lock in the database: {said}",
            fix="end the other sessions and run the same command again",
        )
    if not state or state[:2] in ("08", "57"):
        return Retryable(f"{UNREACHABLE}{said}", fix=_AGAIN)
    if state[:2] in ("40", "53", "58"):
        return Retryable(f"the database server could not do it now: {said}", fix=_AGAIN)
    if state == "42501":
        return Precondition(
            f"the database user lacks a right: {said}",
            fix="name the owner of the tables in the URL, or grant that right",
        )
    if state == "25006":
        return Precondition(
            f"the database server takes no writes: {said}", fix="name the primary server in the URL"
        )
    if state[:2] == "23":
        return Mismatch(f"the database refuses a row: {said}")
    return Mismatch(f"the database cannot do what is asked of it: {said}")


def _shown(exc: Any, secret: str | None) -> str:
    """The first line of what the database said."""
    message = getattr(getattr(exc, "diag", None), "message_primary", None) or str(exc)
    return without(next(iter(message.strip().splitlines()), type(exc).__name__), secret)


def without(message: str, secret: str | None) -> str:
    """The message with the password, in any form that a URL gives it, as ``***``."""
    for form in (secret, quote(secret or "", safe=""), quote_plus(secret or "")):
        if form:
            message = message.replace(form, "***")
    return message
