"""Saves of Yuxi v0.7.1: users' workspaces, threads, shared skills, settings; rows in a database.

::

    config/base.toml                                 system settings that differ from the default
    skills/<slug>/                                   shared and built-in skills
    threads/shared/<user>/workspace/                 a user's workspace
    threads/<thread>/user-data/{uploads,outputs}/    a thread's files
    skill_import_drafts, uploads, agents, knowledge_base_data, logs    left alone

The new user-data root may be this same ``threads``: then the workspaces are in their place already.
"""

from __future__ import annotations

from typing import Final

from migrator.errors import Precondition
from migrator.layouts.base import Layout, Look, Survey, entries, kind_of
from migrator.layouts.threads import threads
from migrator.units import STAGING, Path
from vfs.beneath import Directory
from vfs.errors import InvalidName
from vfs.naming import skill_slug
from vfs.workspace import SHARED, WORKSPACE

THREADS: Final = b"threads"
SKILLS: Final = b"skills"
CONFIG: Final = b"config"
SETTINGS: Final = b"base.toml"

NOT_OURS: Final = frozenset(
    (b"uploads", b"agents", b"knowledge_base_data", b"logs", b"skill_import_drafts")
)
"""What other parts of the platform keep in the saves, and go on using there."""

QUIESCED: Final = b".storage-migration-quiesced"
"""The file that proves downtime; it is nobody's data."""


def recognises(source: Directory) -> bool:
    """Whether there are users' workspaces, shared skills or settings."""
    others = ((SKILLS,), (CONFIG, SETTINGS))
    return has_users(source) or any(kind_of(source, path) is not None for path in others)


def is_bare(source: Directory) -> bool:
    """Whether nothing but what Yuxi keeps in its saves is there: those of a new installation."""
    known = {THREADS, SKILLS, CONFIG, *NOT_OURS}
    return all(name in known or name.startswith(b".") for name, _ in entries(source, ()))


def has_users(source: Directory) -> bool:
    """Whether there is a folder of users' workspaces."""
    return kind_of(source, (THREADS, SHARED)) is not None


def survey(source: Directory, passed_by: frozenset[Path]) -> Survey:
    """Looks at the saves. Precondition for ``threads`` that is no directory; VfsError if the
    saves, their threads or their users cannot be listed."""
    found = Survey("yuxi")
    look = Look(source, found, {*passed_by, (QUIESCED,)})
    for name, kind in look.top():
        if name == THREADS:
            found.threads.extend(threads(look, (THREADS,), reserved=frozenset((SHARED,))))
            _workspaces(look)
        elif name == SKILLS:
            _skills(look)
        elif name == CONFIG and kind == "directory":
            _config(look)
        elif name in NOT_OURS:
            look.leave("not_migrated", "note", (name,), "the platform keeps using it: left alone")
        else:
            look.leave("unknown_entry", "note", (name,), "it is no part of this layout: left alone")
    return found


def _workspaces(look: Look) -> None:
    shared = (THREADS, SHARED)
    try:
        users = look.holder(shared, "the folder of users")
    except Precondition as exc:
        look.leave("users_not_a_directory", "conflict", shared, exc.message, exc.fix)
        look.survey.all_in_doubt = True
        return
    for name, kind in users:
        here = (*shared, name)
        if kind != "directory":
            look.not_a_directory(here, kind, "user_not_a_directory", "a user's directory")
            look.survey.in_doubt.add(name)
        elif not _workspace(look, here):
            look.survey.in_doubt.add(name)


def _workspace(look: Look, path: Path) -> bool:
    """Notes the workspace in a user's directory; false if it may have one that is out of reach."""
    found = look.listed(path)
    for name, kind in found or ():
        here = (*path, name)
        if name == STAGING:
            continue
        if name != WORKSPACE:
            look.leave("unknown_entry", "warning", here, "it is no workspace: left")
        elif kind == "directory":
            look.survey.workspaces[path[-1]] = here
        else:
            look.not_a_directory(here, kind, "workspace_not_a_directory", "a workspace")
            return False
    return found is not None


def _skills(look: Look) -> None:
    if not look.enters((SKILLS,), "skill_not_a_directory", "the folder of skills"):
        return
    for name, kind in look.listed((SKILLS,)) or ():
        here = (SKILLS, name)
        if kind != "directory":
            look.not_a_directory(here, kind, "skill_not_a_directory", "a skill")
            continue
        try:
            slug = skill_slug(name.decode("utf-8", "surrogateescape"))
        except InvalidName as exc:
            fix = f"{exc.fix}; then run again"
            look.leave(
                "skill_name_invalid", "warning", here, "no skill can be called so: left", fix
            )
        else:
            look.survey.skills[slug] = here


def _config(look: Look) -> None:
    for name, _ in look.listed((CONFIG,)) or ():
        path = (CONFIG, name)
        if name == SETTINGS:
            look.survey.settings = path
        else:
            look.leave("unknown_entry", "note", path, "it is no part of this layout: left alone")


LAYOUT: Final = Layout(
    "yuxi",
    "threads/shared, skills or config/base.toml",
    recognises,
    survey,
    has_database=True,
)
