"""Makes small saves of the old layout with their SQLite database, for the demo.

usage: old_saves.py FOLDER

FOLDER/saves gets two users, three conversations (one a sub-agent's of another), their files, a
shared skill and a settings file; FOLDER/saves.db the rows that go with them. Needs the standard
library alone.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

SCHEMA = """
CREATE TABLE users (id INTEGER PRIMARY KEY, username VARCHAR NOT NULL, uid VARCHAR NOT NULL UNIQUE);
CREATE TABLE conversations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, thread_id VARCHAR(64) NOT NULL UNIQUE,
    uid VARCHAR(64) NOT NULL, agent_id VARCHAR(64) NOT NULL, title VARCHAR(255),
    status VARCHAR(20), is_pinned BOOLEAN NOT NULL, created_at TIMESTAMP, updated_at TIMESTAMP,
    extra_metadata JSON);
CREATE TABLE subagent_threads (
    id INTEGER PRIMARY KEY, parent_conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    child_conversation_id INTEGER NOT NULL UNIQUE REFERENCES conversations(id),
    child_thread_id VARCHAR(64) NOT NULL UNIQUE);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY, conversation_id INTEGER NOT NULL REFERENCES conversations(id),
    role VARCHAR(20) NOT NULL, content TEXT NOT NULL, extra_metadata JSON);
CREATE TABLE tool_calls (
    id INTEGER PRIMARY KEY, message_id INTEGER NOT NULL REFERENCES messages(id),
    tool_name VARCHAR(100) NOT NULL, tool_input JSON, tool_output TEXT);
CREATE TABLE skills (
    id INTEGER PRIMARY KEY, slug VARCHAR(128) NOT NULL UNIQUE, source_type VARCHAR(32) NOT NULL,
    dir_path VARCHAR(512) NOT NULL);
"""

USERS = ("alice", "小王@example.org")

FILES = {
    "threads/shared/alice/workspace/agents/MEMORY.md": "Likes short answers.\n",
    "threads/shared/alice/workspace/notes/ideas.md": "# Ideas\n",
    "threads/shared/小王@example.org/workspace/agents/USER.md": "小王\n",
    "threads/t-alice-1/user-data/uploads/季度 收入.csv": "季度,收入\n一,120\n二,150\n",
    "threads/t-alice-1/user-data/uploads/attachments/季度 收入.md": "| 季度 | 收入 |\n",
    "threads/t-alice-1/user-data/outputs/report.md": "# Revenue grew by a quarter\n",
    "threads/t-alice-sub/user-data/outputs/charts/bars.svg": "<svg/>\n",
    "threads/t-wang-1/user-data/outputs/-rf": "a file, not an option\n",
    "threads/t-wang-1/skills/csv-report/SKILL.md": "a copy of its own\n",
    "skills/csv-report/SKILL.md": "---\nname: csv-report\ndescription: Reports from CSV\n---\n",
    "skills/csv-report/scripts/run": "#!/bin/sh\necho csv-report\n",
    "config/base.toml": 'default_model = "m1"\nenable_content_guard = true\n',
}


def write_files(saves: Path) -> None:
    """Writes the files, readable and writable for everybody as the old platform did."""
    for name, text in FILES.items():
        path = saves / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o777 if text.startswith("#!") else 0o666)


def write_rows(file: Path) -> None:
    """Makes the database."""
    attachment = {
        "file_id": "f1",
        "file_name": "季度 收入.csv",
        "path": "/home/gem/user-data/uploads/attachments/季度 收入.md",
        "original_path": "/home/gem/user-data/uploads/季度 收入.csv",
        "host_path": "/srv/saves/threads/t-alice-1",
    }
    conversations = (
        (1, "t-alice-1", "alice", {"attachments": [attachment]}),
        (2, "t-alice-sub", "alice", None),
        (3, "t-wang-1", "小王@example.org", None),
    )
    with sqlite3.connect(file) as db:
        db.executescript(SCHEMA)
        db.executemany(
            "INSERT INTO users VALUES (?, ?, ?)", [(n, u, u) for n, u in enumerate(USERS)]
        )
        db.executemany(
            "INSERT INTO conversations VALUES (?, ?, ?, 'chat', ?, 'active', 0, NULL, NULL, ?)",
            [(n, t, u, t, json.dumps(m)) for n, t, u, m in conversations],
        )
        db.execute("INSERT INTO subagent_threads VALUES (1, 1, 2, 't-alice-sub')")
        db.execute("INSERT INTO messages VALUES (1, 1, 'assistant', 'Here it is.', NULL)")
        shown = json.dumps({"filepaths": ["/home/gem/user-data/outputs/report.md"]})
        db.execute("INSERT INTO tool_calls VALUES (1, 1, 'present_artifacts', ?, 'ok')", [shown])
        db.execute("INSERT INTO skills VALUES (1, 'csv-report', 'upload', 'skills/csv-report')")
    db.close()


def main(folder: Path) -> None:
    """Makes all of it in an existing folder."""
    write_files(folder / "saves")
    write_rows(folder / "saves.db")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
