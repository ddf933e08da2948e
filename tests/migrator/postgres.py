"""A PostgreSQL server of the tests' own, started from the installed programs.

It has its own data directory and a Unix socket there, no TCP port, and nothing in it outlives a
crash of the machine (fsync is off). It ends with the block it was started in, or with this process.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "max_connections": "40",
    "shared_buffers": "32MB",
}

_INITDB = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")

_HBA = """\
local all locked scram-sha-256
local all all trust
"""
"""The role `locked` has to give its password; nobody else has one."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    socket: str
    """The folder of its socket, which is also what `host` means in a URL."""
    data: Path
    _numbers: Iterator[int]

    def url(self, database: str, *, user: str = "postgres", driver: str = "postgresql") -> str:
        """SQLAlchemy's URL of a database on it."""
        return f"{driver}://{user}@/{database}?host={self.socket}"

    def connect(self, database: str = "postgres", user: str = "postgres") -> psycopg.Connection:
        """A connection in which every statement is a transaction of its own."""
        return psycopg.connect(host=self.socket, dbname=database, user=user, autocommit=True)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The name of a new, empty database that is dropped at the end, whoever uses it."""
        name = f"test_{next(self._numbers)}"
        with self.connect() as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        try:
            yield name
        finally:
            with self.connect() as admin:
                admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@contextmanager
def running() -> Iterator[Server]:
    """Starts a server, and ends and removes it at the end of the block."""
    installed = programs()
    owner = _owner()
    # Short: the path of a Unix socket has to fit into 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        if owner is not None:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        folder.chmod(0o711)
        data = folder / "data"
        _run([installed / "initdb", "--pgdata", data, *_INITDB], owner)
        (data / "pg_hba.conf").write_text(_HBA)
        server = _start(installed / "postgres", data, folder, owner)
        try:
            yield Server(str(folder), data, count())
        finally:
            # SIGQUIT is the immediate shutdown: what it leaves undone is removed anyway.
            server.send_signal(signal.SIGQUIT)
            server.wait(timeout=60)
    finally:
        shutil.rmtree(folder)


def programs() -> Path:
    """The folder of PostgreSQL's programs; where there are several, that of the newest."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    installed = list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not installed:
        raise FileNotFoundError("initdb: install the package postgresql")
    return max(installed, key=lambda program: int(program.parts[-3])).parent


def _owner() -> pwd.struct_passwd | None:
    """Whom the server runs as, since it refuses to run as root; None for this process's user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError("there is neither a user postgres nor a user nobody")


def _as_owner(owner: pwd.struct_passwd | None) -> dict[str, Any]:
    if owner is None:
        return {}
    return {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _run(command: list[str | Path], owner: pwd.struct_passwd | None) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, cwd="/", check=False, **_as_owner(owner)
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.stdout}{done.stderr}")


def _start(
    program: Path, data: Path, folder: Path, owner: pwd.struct_passwd | None
) -> subprocess.Popen[str]:
    """Starts the server and returns once it takes connections."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    command: list[str | Path] = [program, "-D", data, "-k", folder]
    for name, value in _SETTINGS.items():
        command += ["-c", f"{name}={value}"]
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        # After the change of user, which would clear it: the server ends if this process is killed.
        preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT, 0, 0, 0),
        **_as_owner(owner),
    )
    assert server.stderr is not None
    said = []
    # Closed then: what it says later is lost to it, which does not stop it (it ignores SIGPIPE).
    with server.stderr as lines:
        for line in lines:
            said.append(line)
            if "ready to accept connections" in line:
                return server
    server.wait()
    raise RuntimeError(f"{program}: {''.join(said)}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """The server that the tests share."""
    with running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: Server) -> Iterator[str]:
    """The URL of a new, empty database on it."""
    with postgres.database() as name:
        yield postgres.url(name)
