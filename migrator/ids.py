"""The ids that the migration gives: always the same for the same user and thread.

- A Workdir is ``projects/<UUID>`` of the MD5 over ``<uid>:<thread>``, a project the UUID of the MD5
  over ``project:<uid>:<thread>``: the raw digest, no version bits set. Existing deployments name
  them so; nothing here is a secret or a proof.
- The thread is that of the root conversation: `roots` follows a sub-agent's conversation up to the
  one that a person began.
- The colon may stand in a uid and in a thread id, so two different pairs can give one project id.
  That is for the caller to find: project ids are unique in the database.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from migrator.findings import Finding
from vfs.namespace import PROJECTS
from vfs.printable import printable


class Linked(Protocol):
    """What is asked of a conversation here; `migrator.database` has the whole of it."""

    @property
    def id(self) -> int: ...
    @property
    def thread_id(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def parent_id(self) -> int | None: ...


@dataclass(slots=True)
class Roots:
    """Which conversation each one belongs to."""

    root: dict[int, int] = field(default_factory=dict)
    """Conversation id → the id of its root, its own for a root. What is in a cycle, or below one,
    is missing."""
    findings: list[Finding] = field(default_factory=list)


def md5_uuid(text: str) -> str:
    """The MD5 of `text` in UTF-8 (bytes behind surrogate escapes are exact), written as a UUID."""
    exact = text.encode("utf-8", "surrogateescape")
    return str(uuid.UUID(bytes=hashlib.md5(exact, usedforsecurity=False).digest()))


def workdir_id(owner_uid: str, owner_thread: str) -> str:
    """The UUID of the Workdir of a root conversation's thread."""
    return md5_uuid(f"{owner_uid}:{owner_thread}")


def workdir_path(owner_uid: str, owner_thread: str) -> str:
    """The path of that Workdir in the user's workspace: ``projects/<uuid>``."""
    return f"{PROJECTS}/{workdir_id(owner_uid, owner_thread)}"


def project_id(uid: str, owner_thread: str) -> str:
    """The id of the project of a root conversation's thread."""
    return md5_uuid(f"project:{uid}:{owner_thread}")


def roots(conversations: Iterable[Linked]) -> Roots:
    """The root of each conversation, by its chain of parents.

    A parent that is gone or another user's is not followed (a warning): the conversation is then a
    root itself. Conversations whose chain never ends are a conflict each.
    """
    known = {conversation.id: conversation for conversation in conversations}
    answer = Roots()
    parent = {key: _parent(known, conversation, answer) for key, conversation in known.items()}
    endless: set[int] = set()
    for start in known:
        chain: dict[int, None] = {}
        here = start
        while True:
            if here in answer.root:
                root: int | None = answer.root[here]
                break
            if here in endless or here in chain:
                root = None
                break
            chain[here] = None
            above = parent[here]
            if above is None:
                root = here
                break
            here = above
        if root is None:
            endless.update(chain)
        else:
            answer.root.update(dict.fromkeys(chain, root))
    for key in known:
        if key in endless:
            answer.findings.append(
                Finding(
                    "conversation_chain_cycle",
                    "conflict",
                    printable(known[key].thread_id),
                    f"the sub-agent conversations above conversation {key} lead in a circle",
                    "mend its row in subagent_threads and run again",
                )
            )
    return answer


def _parent(known: dict[int, Linked], conversation: Linked, answer: Roots) -> int | None:
    """The parent to follow; None for a root."""
    parent_id = conversation.parent_id
    if parent_id is None:
        return None
    parent = known.get(parent_id)
    if parent is not None and parent.uid == conversation.uid:
        return parent_id
    why = "is gone" if parent is None else "belongs to another user"
    answer.findings.append(
        Finding(
            "parent_not_followed",
            "warning",
            printable(conversation.thread_id),
            f"its parent conversation {parent_id} {why}, so it gets a Workdir of its own",
        )
    )
    return None
