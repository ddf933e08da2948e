"""What an operator asks of a mount, and what came of it: plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from vfs.mount.links import Links

Engine = Literal["kernel", "fuse"]
Transport = Literal["device", "pyfuse3"]

EVERYONE = "(all users)"
"""What stands for the uid where every user is shown."""


@dataclass(frozen=True, slots=True)
class MountRequest:
    """What to show, and how."""

    uid: str | None
    """Whose workspace; None: every user's, by directory name."""
    workdir: bytes | None = None
    """The Workdir that is the root, relative to the workspace; None: the whole namespace."""
    skills: tuple[str, ...] | None = None
    """The slugs that are visible; None: all of the projection's."""
    writable: bool = False
    keep_owner: bool = False
    """Whether entries show the owner they have on the disk, instead of the caller."""
    allow_other: bool = False
    links: Links = Links.SHOW
    cache: float = 1.0
    """Seconds for which the kernel may answer without asking; FUSE alone."""
    low_latency: bool = False
    """Whether processors are kept awake while the mount is busy; the device transport alone."""
    foreground: bool = False
    log: bytes | None = None
    """The file that the process of the mount logs to."""
    engine: Engine | None = None
    transport: Transport | None = None


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mount that is live."""

    point: bytes
    """Absolute."""
    engine: Engine
    transport: Transport | None
    """None for the kernel engine."""
    pid: int | None
    """The process that serves it; None for the kernel engine."""
    reasons: Mapping[str, str]
    """Engine or transport that was preferred → why it could not serve."""


def label(request: MountRequest) -> str:
    """What `vfs mounts` calls the user or users."""
    return EVERYONE if request.uid is None else request.uid


def options(request: MountRequest, transport: Transport | None) -> dict[str, str]:
    """The rest of what is written down for `vfs mounts`."""
    options = {
        "users": "all" if request.uid is None else "one",
        "mode": "rw" if request.writable else "ro",
        "links": request.links.value,
        "owner": "keep" if request.keep_owner else "self",
    }
    if transport is not None:
        options["transport"] = transport
    if request.workdir is not None:
        options["workdir"] = request.workdir.decode("utf-8", "surrogateescape")
    if request.skills is not None:
        options["skills"] = ",".join(request.skills)
    return options
