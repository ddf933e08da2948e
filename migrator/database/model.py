"""What the database holds, and what is to become of it, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["legacy", "migrated", "partly", "unreleased", "unknown"]
"""legacy: as before the migration. migrated: all of the new schema. partly: the new schema but for
what needs every conversation to have its project. unreleased: an in-between schema that no release
had. unknown: none of these."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Which schema a database has."""

    state: State
    names: tuple[str, ...] = ()
    """What is missing or in the way, a phrase each (``table messages is missing``); empty unless
    the state is unreleased or unknown."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row of `conversations`."""

    id: int
    thread_id: str
    uid: str
    parent_id: int | None
    """The id of the conversation whose sub-agent this is; None for one that a person began."""
    project_id: str | None
    """None before the migration, and for what it left out."""


@dataclass(frozen=True, slots=True)
class SkillRow:
    """One row of `skills`."""

    slug: str
    source_type: str
    """``builtin``, ``upload`` or ``remote``."""
    dir_path: str
    """``skills/<slug>`` before the migration, ``shared/<slug>`` after it."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The project of one conversation."""

    project_id: str
    uid: str
    """The user of the project, who has to be that of the conversation."""
    workdir_path: str
    """``projects/<uuid>``."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a cut-over writes. Whatever of it is there already is left alone."""

    assignments: Mapping[int, Assignment]
    """By the id of the conversation; conversations that are not named keep no project."""
    skills: Sequence[str] = ()
    """The slugs of the skills whose files were moved."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the system: those that the database has not yet are added."""


@dataclass(slots=True)
class Counts:
    """What a cut-over or a roll back did, in rows."""

    projects: int = 0
    """Projects added, or removed again."""
    conversations: int = 0
    """Conversations that got a project, or lost it again."""
    metadata: int = 0
    """Those among them whose `extra_metadata` was rewritten, or given back."""
    tool_calls: int = 0
    """Tool calls whose input was rewritten, or given back."""
    skills: int = 0
    """Skills whose `dir_path` was rewritten, or given back."""
    options: int = 0
    """Settings added; in a roll back 1 if they were taken back."""
    without_project: int = 0
    """Conversations that have no project afterwards."""
    unfit: dict[str, int] = field(default_factory=dict)
    """JSON that is no object and so was left as it is, by column and kind:
    ``conversations.extra_metadata null``; the kinds are null, scalar, list, string (JSON encoded
    twice) and malformed."""
    kept: int = 0
    """Roll back only: rows that others added, or changed since, and that stay as they are."""

    def leave(self, column: str, kind: str) -> None:
        """Counts one text that is no object."""
        name = f"{column} {kind}"
        self.unfit[name] = self.unfit.get(name, 0) + 1

    def to_json(self) -> dict[str, Any]:
        """The fields by their names."""
        return asdict(self)
