"""Saves of DeerFlow: the threads of each user, and older threads that name no user.

::

    users/<user>/threads/<thread>/user-data/{workspace,uploads,outputs}/
    threads/<thread>/user-data/{workspace,uploads,outputs}/

The first kind is the user's whose directory it stands in. Whose the older ones are, the operator
tells; a thread that has both gets one Workdir, the newer file winning.
"""

from __future__ import annotations

from typing import Final

from migrator.layouts.base import Layout, Look, Survey, entries, kind_of
from migrator.layouts.threads import threads
from migrator.units import Path
from vfs.beneath import Directory

USERS: Final = b"users"
THREADS: Final = b"threads"


def recognises(source: Directory) -> bool:
    """Whether some user has threads."""
    if kind_of(source, (USERS,)) != "directory":
        return False
    found = (name for name, kind in entries(source, (USERS,)) if kind == "directory")
    return any(kind_of(source, (USERS, name, THREADS)) is not None for name in found)


def survey(source: Directory, passed_by: frozenset[Path]) -> Survey:
    """Looks at the saves; the older threads come first, so that the newer ones' files win a tie.

    Errors as of `migrator.layouts.yuxi.survey`.
    """
    found = Survey("deerflow")
    look = Look(source, found, passed_by)
    top = look.top()
    for name, _ in top:
        if name == THREADS:
            found.threads.extend(threads(look, (THREADS,)))
        elif name != USERS:
            look.leave("unknown_entry", "note", (name,), "it is no part of a thread: left alone")
    if any(name == USERS for name, _ in top):
        _users(look)
    return found


def _users(look: Look) -> None:
    for name, kind in look.holder((USERS,), "the folder of users"):
        here = (USERS, name)
        if kind != "directory":
            look.not_a_directory(here, kind, "user_not_a_directory", "a user's directory")
            continue
        try:
            uid = name.decode("utf-8")
        except UnicodeDecodeError:
            look.leave(
                "uid_unusable",
                "warning",
                here,
                "a user id must be UTF-8: this user's threads are left",
                "rename the directory to the user's id and run again",
            )
            continue
        for inner, _ in look.listed(here) or ():
            path = (*here, inner)
            if inner == THREADS:
                look.survey.threads.extend(threads(look, path, uid=uid))
            else:
                look.leave("unknown_entry", "note", path, "it is no part of a thread: left alone")


LAYOUT: Final = Layout("deerflow", "users/*/threads", recognises, survey)
