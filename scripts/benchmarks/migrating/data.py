"""The saves that a run works on: made once, in a folder of its own, and never removed meanwhile.

Each run of a contender on small files has a new directory to write into, which stays as well: to
free many inodes slows ext4 down (see `migrating.disk`).
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20

TOKEN = "bench"
"""That the services are down: to the environment and into a file, as the migrator wants it."""

_DIRECTORIES = 10
"""In each thread, half of them among its uploads and half among its outputs."""
_FILES = 100
"""In each directory, of 100 bytes to 8 KiB."""
_THREADS_PER_USER = 10

LARGE_FILES = 16


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much data there is."""

    threads: int
    """With 1 000 small files each."""
    large_mib: int
    """In 16 files."""

    @property
    def small_files(self) -> int:
        """All of them."""
        return self.threads * _DIRECTORIES * _FILES


FULL = Sizes(threads=100, large_mib=4096)
QUICK = Sizes(threads=10, large_mib=416)
SCALE = Sizes(threads=1000, large_mib=0)

_SCHEMA = """
CREATE TABLE users (id INTEGER PRIMARY KEY, uid VARCHAR NOT NULL UNIQUE);
CREATE TABLE conversations (id INTEGER PRIMARY KEY, thread_id VARCHAR(64) NOT NULL UNIQUE,
  uid VARCHAR(64) NOT NULL, agent_id VARCHAR(64) NOT NULL, title VARCHAR(255), status VARCHAR(20),
  is_pinned BOOLEAN NOT NULL, created_at TIMESTAMP, updated_at TIMESTAMP, extra_metadata JSON);
CREATE TABLE messages (id INTEGER PRIMARY KEY,
  conversation_id INTEGER NOT NULL REFERENCES conversations(id), content TEXT NOT NULL,
  extra_metadata JSON);
CREATE TABLE tool_calls (id INTEGER PRIMARY KEY,
  message_id INTEGER NOT NULL REFERENCES messages(id), tool_name VARCHAR(100) NOT NULL,
  tool_input JSON, tool_output TEXT);
CREATE TABLE skills (id INTEGER PRIMARY KEY, slug VARCHAR(128) NOT NULL UNIQUE,
  name VARCHAR(128) NOT NULL, source_type VARCHAR(32) NOT NULL, dir_path VARCHAR(512) NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Data:
    """Saves and the database that knows them."""

    name: str
    """For a line of the table."""
    folder: Path

    @property
    def saves(self) -> Path:
        """The old saves; what contenders copy is `threads` in them."""
        return self.folder / "saves"

    @property
    def database(self) -> Path:
        """As it was before any migration; to be copied."""
        return self.folder / "legacy.db"


def make_small(folder: Path, sizes: Sizes) -> Data:
    """Many small files, in many directories of many threads of several users."""
    data = _make(folder, f"{sizes.small_files} files of 0.1 to 8 KiB", sizes.threads)
    content = os.urandom(2 * 8192)
    for number in range(sizes.threads):
        for directory in range(_DIRECTORIES):
            kind = "uploads" if directory % 2 else "outputs"
            place = _user_data(data, number) / kind / f"part {directory}"
            place.mkdir(parents=True)
            fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
            for file in range(_FILES):
                at = number * 1009 + directory * 331 + file * 83
                size = 100 + at % (8192 - 99)
                _write(f"file {file:03d}.txt", fd, content[at % 8192 :][:size])
            os.close(fd)
    return data


def make_large(folder: Path, mib: int) -> Data:
    """Few large files."""
    data = _make(folder, f"{mib} MiB in {LARGE_FILES} files", LARGE_FILES)
    for number in range(LARGE_FILES):
        place = _user_data(data, number) / "outputs"
        place.mkdir(parents=True)
        with open(place / "large.bin", "wb") as file:
            block = os.urandom(MIB)
            for count in range(mib // LARGE_FILES):
                file.write(count.to_bytes(8, "big") + block[8:])
    return data


def _user_data(data: Data, number: int) -> Path:
    return data.saves / "threads" / _thread(number) / "user-data"


def _thread(number: int) -> str:
    return f"thread-{number:05d}"


def _write(name: str, dirfd: int, content: bytes) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=dirfd)
    os.write(fd, content)
    os.close(fd)


def _make(folder: Path, name: str, threads: int) -> Data:
    """Everything but the threads' files."""
    data = Data(name, folder)
    for above in ("threads/shared", "config", "skills"):
        (data.saves / above).mkdir(parents=True)
    (data.saves / "config/base.toml").write_text('default_model = "m1"\n')
    (data.saves / ".storage-migration-quiesced").write_text(TOKEN)
    with closing(sqlite3.connect(data.database)) as database:
        database.executescript(_SCHEMA)
        for number in range(threads):
            uid = f"user{number // _THREADS_PER_USER}"
            if number % _THREADS_PER_USER == 0:
                (data.saves / "threads/shared" / uid / "workspace/agents").mkdir(parents=True)
                database.execute("INSERT INTO users (uid) VALUES (?)", (uid,))
            database.execute(
                "INSERT INTO conversations (thread_id, uid, agent_id, is_pinned, status,"
                " created_at, updated_at, extra_metadata)"
                " VALUES (?, ?, 'chat', 0, 'active', '2026-01-01', '2026-01-01', ?)",
                (_thread(number), uid, '{"attachments": []}'),
            )
        database.commit()
    return data
