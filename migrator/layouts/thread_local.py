"""Saves of the first design: every thread has its own workspace, uploads and outputs, and no more.

::

    threads/<thread>/user-data/{workspace,outputs,uploads,large_tool_results}/

Whose thread is whose stands nowhere in them; the operator tells.
"""

from __future__ import annotations

from typing import Final

from migrator.layouts.base import Layout, Look, Survey, entries, kind_of
from migrator.layouts.threads import USER_DATA, threads
from migrator.units import Path
from vfs.beneath import Directory

THREADS: Final = b"threads"


def recognises(source: Directory) -> bool:
    """Whether there is a thread with files."""
    if kind_of(source, (THREADS,)) != "directory":
        return False
    found = (name for name, kind in entries(source, (THREADS,)) if kind == "directory")
    return any(kind_of(source, (THREADS, name, USER_DATA)) is not None for name in found)


def survey(source: Directory, passed_by: frozenset[Path]) -> Survey:
    """Looks at the saves. Errors as of `migrator.layouts.yuxi.survey`."""
    found = Survey("thread-local")
    look = Look(source, found, passed_by)
    for name, _ in look.top():
        if name == THREADS:
            found.threads.extend(threads(look, (THREADS,)))
        else:
            look.leave("unknown_entry", "note", (name,), "it is no part of this layout: left alone")
    return found


LAYOUT: Final = Layout("thread-local", "threads/*/user-data", recognises, survey)
