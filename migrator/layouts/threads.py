"""The directories of threads, which every layout has: what of each becomes part of a Workdir.

::

    <thread>/user-data/uploads, outputs, large_tool_results    the Workdir's, under the same names
    <thread>/user-data/workspace                               the Workdir's top, unless it is empty
    <thread>/skills                                            copies of skills: left, one note
    anything else                                              left, a warning each
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from migrator.findings import Finding
from migrator.layouts.base import Left, Look, Thread, shown
from migrator.units import Part, Path

USER_DATA: Final = b"user-data"
SKILLS: Final = b"skills"

PARTS: Final[dict[bytes, Path]] = {
    b"uploads": (b"uploads",),
    b"outputs": (b"outputs",),
    b"large_tool_results": (b"large_tool_results",),
    b"workspace": (),
}
"""What is taken over of `USER_DATA`, in this order, and where in the Workdir it goes. An empty
``workspace`` is only what a sandbox had the user's workspace mounted on."""

THREAD_MAX: Final = 255
"""The longest name of a directory in bytes, on Linux (limits.h) and its common file systems."""


def directory_of(thread: str) -> bytes | None:
    """The name that a thread's directory has; None if no directory can have its id as a name."""
    try:
        name = thread.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    if not name or name in (b".", b"..") or b"/" in name or b"\0" in name:
        return None
    return name if len(name) <= THREAD_MAX else None


def threads(
    look: Look, path: Path, *, uid: str | None = None, reserved: frozenset[bytes] = frozenset()
) -> Iterator[Thread]:
    """The threads whose directories stand in `path`; `reserved` names are no threads.

    Errors as of `Look.holder`.
    """
    copies = 0
    for name, kind in look.holder(path, "the folder of threads"):
        if name in reserved:
            continue
        here = (*path, name)
        if kind != "directory":
            look.not_a_directory(here, kind, "thread_not_a_directory", "a thread's directory")
            yield Thread(os.fsdecode(name), here, uid=uid, is_directory=False)
            continue
        thread, has_copies = _thread(look, here, uid)
        copies += has_copies
        yield thread
    if copies:
        look.survey.findings.append(
            Finding(
                "thread_skills_left",
                "note",
                shown(path),
                f"{copies} of its threads have copies of skills of their own: left alone",
            )
        )


def _thread(look: Look, path: Path, uid: str | None) -> tuple[Thread, bool]:
    """One thread, and whether it has copies of skills."""
    parts: list[Part] = []
    readable = True
    copies = False
    found = look.listed(path)
    for name, kind in found or ():
        here = (*path, name)
        if name == SKILLS:
            look.survey.left.append(Left(here, "thread_skills_left"))
            copies = True
        elif name != USER_DATA:
            look.leave("unknown_entry", "warning", here, "it is nothing that threads had: left")
        elif kind != "directory":
            look.not_a_directory(here, kind, "part_not_a_directory", "a thread's files")
        else:
            more = _parts(look, here)
            readable = more is not None
            parts = more or []
    thread = Thread(
        os.fsdecode(path[-1]),
        path,
        tuple(parts),
        uid,
        readable=readable and found is not None,
    )
    return thread, copies


def _parts(look: Look, path: Path) -> list[Part] | None:
    """What can be taken over of a `USER_DATA` directory; None if something cannot be read."""
    found = look.listed(path)
    if found is None:
        return None
    kinds = dict(found)
    parts = []
    for name, target in PARTS.items():
        kind = kinds.pop(name, None)
        here = (*path, name)
        if kind is None:
            continue
        if kind != "directory":
            look.not_a_directory(here, kind, "part_not_a_directory", "a folder of the thread")
            continue
        inside = look.listed(here) if not target else None
        if target or inside:
            parts.append(Part(here, target))
        elif inside is None:
            return None
    for name in kinds:
        look.leave(
            "unknown_entry", "warning", (*path, name), "it is nothing that threads had: left"
        )
    return parts
