"""What is transferred as one: a workspace, a Workdir or a skill, staged hidden, published whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from migrator.lines import path_exact, path_text

Path = tuple[bytes, ...]
"""Exact names beneath a root; `()` is the root itself."""

Kind = Literal["workspace", "workdir", "skill"]
RootName = Literal["user-data", "skill-store", "skill-projections"]

STAGING: Final = b".gemspace-migration"
"""The directory of a user, or of the skill store's `shared`, in which units are staged. It is
beside the user's workspace, so no user ever sees what is not finished."""


@dataclass(frozen=True, slots=True)
class Part:
    """One tree of the old saves that becomes a part of a unit."""

    source: Path
    """Beneath the saves."""
    target: Path
    """Beneath the top of the unit; `()` if it is the top."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One directory of the new tree and what it is made of."""

    key: str
    """Its stable name, safe as a file's: ``workdir-<uuid>``, ``workspace-<safe uid>``,
    ``skill-<slug>``."""
    kind: Kind
    root: RootName
    target: Path
    """Where it is published, beneath the root."""
    parts: tuple[Part, ...]
    """Possibly none: the directory is made empty. Of two parts that give one path the newer file
    wins, at equal times that of the later part."""
    uid: str | None = None
    """The user it belongs to; None for a skill."""
    threads: tuple[str, ...] = ()
    """The threads whose files it takes, the owner thread first."""

    @property
    def holder(self) -> Path:
        """The directory beneath the root in which it is staged under `STAGING`."""
        return self.target[:1] if self.kind == "skill" else self.target[:2]

    @property
    def staging(self) -> Path:
        """Where it is built, beneath the same root and on the same file system."""
        return (*self.holder, STAGING, self.key.encode())

    def to_json(self) -> dict[str, object]:
        """All of it, for the journal; `from_json` reads it back."""
        return {
            "key": self.key,
            "kind": self.kind,
            "root": self.root,
            "target": path_text(self.target),
            "parts": [[path_text(part.source), path_text(part.target)] for part in self.parts],
            "uid": self.uid,
            "threads": list(self.threads),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Unit:
        """The unit that `to_json` wrote."""
        return cls(
            key=document["key"],
            kind=document["kind"],
            root=document["root"],
            target=path_exact(document["target"]),
            parts=tuple(Part(path_exact(a), path_exact(b)) for a, b in document["parts"]),
            uid=document["uid"],
            threads=tuple(document["threads"]),
        )
