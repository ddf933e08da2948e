"""What only SQLite has: a table made anew with all that belongs to it, one file, its locks."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import URL

from migrator.database import Change, Schema, connect
from migrator.errors import Mismatch, Precondition, Retryable
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.database.exact import everything

ODD = """CREATE TABLE conversations ( -- a comment, with a comma and a (
  "id" INTEGER /* the key */ PRIMARY KEY AUTOINCREMENT,
  [thread_id] VARCHAR(64) NOT NULL UNIQUE
  , `uid` VARCHAR(64) NOT NULL,
  agent_id VARCHAR(64) NOT NULL DEFAULT 'a, (b', title VARCHAR(255) CHECK (title <> 'x,''y'),
  status VARCHAR(20), is_pinned BOOLEAN NOT NULL,
  created_at TIMESTAMP, updated_at TIMESTAMP,
  "constraint" TEXT, upper_title TEXT GENERATED ALWAYS AS (upper(title)) VIRTUAL,
  extra_metadata JSON, unknown DECIMAL(10, 2) -- the last one, project_id
  , CONSTRAINT ck CHECK (status IN ('active', 'archived', 'deleted')), UNIQUE (uid, thread_id)
  /* the end */
)"""

BELONGINGS = (
    "CREATE INDEX ix_conversations_uid ON conversations (uid) WHERE status = 'active'",
    'CREATE INDEX "odd name" ON conversations (lower(title), "constraint" DESC)',
    "CREATE TABLE log (text TEXT)",
    "CREATE TRIGGER noted AFTER INSERT ON conversations WHEN NEW.title = ':x'"
    " BEGIN INSERT INTO log VALUES (NEW.thread_id || '%s'); END",
    "CREATE TRIGGER of_messages AFTER DELETE ON messages"
    " BEGIN UPDATE conversations SET title = 'shorter' WHERE id = OLD.conversation_id; END",
    "CREATE VIEW active AS SELECT id, title FROM conversations WHERE status = 'active'",
    "CREATE TABLE pins (conversation INTEGER REFERENCES conversations (id) ON DELETE CASCADE)",
)


def url_of(file: Path) -> str:
    """SQLAlchemy's URL of the file."""
    return URL.create("sqlite", database=str(file)).render_as_string()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An empty database."""
    path = tmp_path / "a b#%20ü.db"
    path.touch()
    return path


@pytest.fixture
def odd(file: Path) -> str:
    """The URL of a database with the old schema in another style, and more in it."""
    with rows.connection(url_of(file)) as opened:
        rows.create(opened)
        opened.exec_driver_sql("DROP TABLE conversations")
        for statement in (ODD, *BELONGINGS):
            opened.exec_driver_sql(statement)
    return url_of(file)


def test_all_that_belongs_to_the_table_is_kept(odd: str) -> None:
    change = samples.small(odd)
    with rows.connection(odd) as opened:
        run = opened.exec_driver_sql
        run("UPDATE conversations SET unknown = 1.50, \"constraint\" = 'c' WHERE id = 1")
        run("UPDATE sqlite_sequence SET seq = 500 WHERE name = 'conversations'")
        run("INSERT INTO pins VALUES (1)")
    before = everything(odd)

    _, recorded = samples.cut(odd, change)

    after = everything(odd)
    new = ODD.replace(
        "unknown DECIMAL(10, 2)", "unknown DECIMAL(10, 2), project_id VARCHAR(64) NOT NULL"
    ).replace(
        "UNIQUE (uid, thread_id)",
        "UNIQUE (uid, thread_id), CONSTRAINT fk_conversations_project_id_projects"
        " FOREIGN KEY (project_id, uid) REFERENCES projects (id, uid)",
    )
    changed = {line for line in before["schema"] if line not in after["schema"]}
    assert changed == {repr(("table", "conversations", "conversations", ODD))}
    assert repr(("table", "conversations", "conversations", new)) in after["schema"]
    assert [
        line for line in before["sqlite_sequence"] if line not in after["sqlite_sequence"]
    ] == []
    assert [before[name] for name in ("log", "pins", "messages")] == [
        after[name] for name in ("log", "pins", "messages")
    ]
    with rows.connection(odd) as opened:
        run = opened.exec_driver_sql
        run("PRAGMA foreign_keys = ON")
        assert run('SELECT unknown, "constraint", upper_title FROM conversations').first() == (
            1.5,
            "c",
            "T1",
        )
        samples.conversation_in(opened, 501, ":x", change.assignments[1].project_id)
        assert run("SELECT text FROM log").all() == [(":x%s",)]
    with connect(odd) as database:
        assert database.differences(change, recorded) == []


def test_a_roll_back_gives_the_statement_as_it_was_written(odd: str) -> None:
    change = samples.small(odd)
    before = everything(odd)
    _, first = samples.cut(odd, Change({3: change.assignments[3]}))
    _, second = samples.cut(odd, change)

    with connect(odd) as database:
        database.roll_back([*first, *second])

    assert everything(odd) == before


def test_a_column_that_somebody_added_since_survives_the_roll_back(odd: str) -> None:
    change = samples.small(odd)
    _, recorded = samples.cut(odd, change)
    with rows.connection(odd) as opened:
        opened.exec_driver_sql("ALTER TABLE conversations ADD COLUMN newer TEXT DEFAULT 'n'")

    with connect(odd) as database:
        database.roll_back(recorded)
        assert database.inspect() == Schema("legacy")

    # There SQLite itself puts it.
    wanted = ODD.replace(", CONSTRAINT ck", ", newer TEXT DEFAULT 'n', CONSTRAINT ck")
    with rows.connection(odd) as opened:
        sql = opened.exec_driver_sql("SELECT sql FROM sqlite_master WHERE name = 'conversations'")
        assert sql.scalar() == wanted
        newer = opened.exec_driver_sql("SELECT DISTINCT newer FROM conversations")
        assert newer.all() == [("n",)]


def test_orphans_that_were_there_before_do_not_matter(odd: str) -> None:
    change = samples.small(odd)
    with rows.connection(odd) as opened:
        opened.exec_driver_sql("INSERT INTO pins VALUES (999)")
        rows.insert(opened, "messages", id=77, conversation_id=888, content="lost")
    _, recorded = samples.cut(odd, change)
    with connect(odd) as database:
        assert database.differences(change) == []
        database.roll_back(recorded)


def test_a_conversation_whose_user_is_missing_is_refused(odd: str) -> None:
    change = samples.small(odd)
    with rows.connection(odd) as opened:
        opened.exec_driver_sql("DELETE FROM users WHERE uid = 'bob'")
    before = everything(odd)
    with pytest.raises(Mismatch, match="1 rows of projects would refer to rows of users"):
        samples.cut(odd, change)
    assert everything(odd) == before


def test_text_that_is_no_utf_8_and_blobs_are_left_as_they_are(odd: str) -> None:
    with rows.connection(odd) as opened:
        samples.user(opened, "alice")
        samples.conversation(opened, 1, "t1")
        samples.conversation(opened, 2, "t2")
        run = opened.exec_driver_sql
        bad = "CAST(x'7b2261223a22ff227d' AS TEXT)"
        run(f"UPDATE conversations SET extra_metadata = {bad} WHERE id = 1")
        run("UPDATE conversations SET extra_metadata = x'7b7d' WHERE id = 2")

    counts, _ = samples.cut(
        odd, Change({number: samples.assignment(f"t{number}") for number in (1, 2)})
    )

    assert counts.unfit == {"conversations.extra_metadata malformed": 2}
    with rows.connection(odd) as opened:
        found = opened.exec_driver_sql(
            "SELECT typeof(extra_metadata), hex(extra_metadata) FROM conversations ORDER BY id"
        )
        assert [tuple(row) for row in found] == [
            ("text", "7B2261223A22FF227D"),
            ("blob", "7B7D"),
        ]


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_another_program_in_the_middle_of_writing_is_told(odd: str, file: Path, mode: str) -> None:
    change = samples.small(odd)
    with rows.connection(odd) as opened:
        assert opened.exec_driver_sql(f"PRAGMA journal_mode = {mode}").scalar() == mode
    with connect(odd) as database:
        assert database.other_sessions() == []
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            assert database.other_sessions() == ["the database is in use by another program"]
            assert len(list(database.conversations())) == 3
        finally:
            other.close()
        assert database.other_sessions() == []
        assert database.cut_over(change, lambda _: None, lambda: None).conversations == 3
        assert database.differences(change) == []


def test_a_cut_over_waits_for_nobody_for_ever(
    odd: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.database.engine.LOCK_TIMEOUT", 0.01)
    change = samples.small(odd)
    with connect(odd) as database:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(Retryable, match="in use by another program"):
                database.cut_over(change, lambda _: None, lambda: None)
        finally:
            other.close()


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_reading_and_looking_leave_the_file_and_its_folder_as_they_are(
    odd: str, file: Path, mode: str
) -> None:
    change = samples.small(odd)
    with rows.connection(odd) as opened:
        opened.exec_driver_sql(f"PRAGMA journal_mode = {mode}")
    before = (file.read_bytes(), file.stat().st_mtime_ns, sorted(os.listdir(file.parent)))
    with connect(odd) as database:
        database.inspect()
        list(database.conversations())
        database.other_sessions()
        assert database.rights() == []
        database.differences(change)
    assert before == (file.read_bytes(), file.stat().st_mtime_ns, sorted(os.listdir(file.parent)))


def test_what_a_killed_writer_left_is_rolled_back_and_read(odd: str, file: Path) -> None:
    samples.small(odd)
    before = everything(odd)
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("PRAGMA cache_size = 1")
    other.execute("BEGIN")
    other.execute("UPDATE conversations SET title = hex(randomblob(40000))")
    # A copy is what the file and its journal would be after a crash.
    for name in (file.name, f"{file.name}-journal"):
        (file.parent / f"crashed{name}").write_bytes((file.parent / name).read_bytes())
    other.close()
    crashed = url_of(file.with_name(f"crashed{file.name}"))
    assert file.with_name(f"crashed{file.name}").read_bytes() != file.read_bytes()

    with connect(crashed) as database:
        assert [one.id for one in database.conversations()] == [1, 2, 3]

    assert everything(crashed) == before


def test_any_name_that_a_file_can_have(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/back\\slash \xff\n.db"
    sqlite3.connect(os.fsdecode(path)).close()
    with open(path, "wb"):
        pass
    with connect(f"sqlite:///{os.fsdecode(path)}") as database:
        assert database.file == path
        assert database.inspect().state == "unknown"
        assert database.label.isprintable()
        assert database.rights() == []
        assert database.other_sessions() == []


def test_a_damaged_file_is_told(file: Path) -> None:
    file.write_bytes(b"this is no database of SQLite's, whatever its name says" * 100)
    with pytest.raises(Precondition, match="damaged or none of SQLite's"):
        connect(url_of(file))


def test_a_file_that_is_damaged_inside_is_not_committed_to(odd: str, file: Path) -> None:
    change = samples.small(odd)
    with rows.connection(odd) as opened:
        opened.exec_driver_sql("CREATE TABLE filler (a TEXT)")
        opened.exec_driver_sql("CREATE INDEX filled ON filler (a)")
        opened.exec_driver_sql("INSERT INTO filler VALUES ('needle in the index')")
    data = file.read_bytes()
    assert data.count(b"needle") == 2
    last = data.rindex(b"needle")
    file.write_bytes(data[:last] + b"noodle" + data[last + 6 :])
    damaged = file.read_bytes()

    with pytest.raises(Mismatch, match="the database file is damaged"):
        samples.cut(odd, change)

    assert file.read_bytes() == damaged
