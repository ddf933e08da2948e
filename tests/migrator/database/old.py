"""Rows for a database with the old schema, and the change that the migrator makes of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from migrator.database import Assignment, Change, connect
from migrator.ids import project_id, workdir_path
from tests.migrator import rows

UPLOADS = "/home/gem/user-data/uploads"
OUTPUTS = "/home/gem/user-data/outputs"

NOTHING = Change({})


def user(opened: rows.Connection, uid: str) -> None:
    """A user with this uid."""
    rows.insert(opened, "users", username=uid, uid=uid, role="user")


def conversation(
    opened: rows.Connection,
    number: int,
    thread: str,
    uid: str = "alice",
    *,
    metadata: Any = None,
    inputs: tuple[Any, ...] = (),
) -> None:
    """A conversation with this id, and tool calls that present artifacts with these inputs."""
    rows.insert(
        opened,
        "conversations",
        id=number,
        thread_id=thread,
        uid=uid,
        agent_id="chat",
        title=thread,
        status="active",
        is_pinned=False,
        created_at="2026-01-01 00:00:00",
        updated_at="2026-01-01 00:00:00",
        extra_metadata=metadata,
    )
    rows.insert(opened, "messages", id=number, conversation_id=number, content="hello")
    for position, given in enumerate(inputs):
        rows.insert(
            opened,
            "tool_calls",
            id=number * 10 + position,
            message_id=number,
            tool_name="present_artifacts",
            tool_input=given,
            tool_output="ok",
        )


def conversation_in(
    opened: rows.Connection, number: int, thread: str, project: str, uid: str = "alice"
) -> None:
    """A conversation as the new version writes it."""
    rows.insert(
        opened,
        "conversations",
        id=number,
        thread_id=thread,
        uid=uid,
        agent_id="chat",
        title=thread,
        is_pinned=False,
        project_id=project,
    )


def attachment(path: str, **more: Any) -> dict[str, Any]:
    """One entry of a conversation's attachments."""
    return {"file_id": "f", "path": path, **more}


def assignment(thread: str, uid: str = "alice") -> Assignment:
    """The project of a conversation that a person began."""
    return Assignment(project_id(uid, thread), uid, workdir_path(uid, thread))


def small(url: str) -> Change:
    """Fills the database with two conversations, a sub-agent's, two skills; the change of them."""
    with rows.connection(url) as opened:
        user(opened, "alice")
        user(opened, "bob")
        conversation(
            opened,
            1,
            "t1",
            metadata={
                "attachments": [attachment(f"{UPLOADS}/a.txt", host_path="/srv/a", size=1.10)],
                "kept": [1, 2.50, "ü"],
            },
            inputs=({"filepaths": [f"{OUTPUTS}/x", "/elsewhere"]}, {"filepaths": []}),
        )
        conversation(opened, 2, "t2", metadata={"attachments": []})
        conversation(opened, 3, "t3", "bob")
        rows.insert(
            opened,
            "subagent_threads",
            uid="alice",
            parent_conversation_id=1,
            child_conversation_id=2,
            child_thread_id="t2",
            subagent_slug="sub",
        )
        skill(opened, "pdf", "skills/pdf")
        skill(opened, "own", "/opt/own")
    return change()


def change() -> Change:
    """The change of what `small` fills in."""
    return Change(
        {1: assignment("t1"), 2: assignment("t1"), 3: assignment("t3", "bob")},
        ["pdf", "own"],
        {"default_model": "m1", "limit": 2.5},
    )


def skill(opened: rows.Connection, slug: str, path: str) -> None:
    """An uploaded skill that lies there."""
    rows.insert(
        opened,
        "skills",
        slug=slug,
        name=slug,
        source_type="upload",
        dir_path=path,
        enabled=True,
    )


def cut(url: str, change: Change) -> tuple[Any, list[dict[str, Any]]]:
    """Cuts over; the counts, and the records as they come back from a file."""
    recorded: list[dict[str, Any]] = []

    def record(entry: Mapping[str, Any]) -> None:
        recorded.append(json.loads(json.dumps(entry)))

    with connect(url) as database:
        counts = database.cut_over(change, record, lambda: None)
    return counts, recorded
