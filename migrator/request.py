"""What a verb was asked for: the places, the database, and how to go about it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Literal

Transfer = Literal["auto", "link", "reflink", "copy"]


@dataclass(frozen=True, slots=True)
class Request:
    """One command line, checked for form only. Paths are host paths, exact and absolute."""

    source: bytes
    """The old saves."""
    user_data: bytes
    skill_store: bytes
    skill_projections: bytes
    """The roots of the new tree, as `vfs.workspace.Storage` takes them; they may be missing."""
    state: bytes
    """The folder of the journal."""
    database: str | None = None
    """SQLAlchemy's URL; None for layouts without a database."""
    layout: str | None = None
    """The name of the layout that is insisted on; None: found by looking."""
    owners: bytes | None = None
    """The file that says whose thread is whose."""
    owner: str | None = None
    """The uid that every thread belongs to."""
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes that work at the same time."""
    transfer: Transfer = "auto"
