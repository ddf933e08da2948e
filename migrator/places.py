"""The folders of a migration, pinned: the old saves, the three roots of the new tree, the state.

What is missing is told apart from what is wrong: `plan` and `check` go on without a root that `run`
would make. Host paths come from the operator; links on the way to a folder are theirs, the folder
itself must be no link. Everything beneath is reached through descriptors alone.
"""

from __future__ import annotations

import os
from typing import Final

from migrator.errors import Precondition, retryable
from migrator.request import Request
from migrator.units import RootName
from vfs.beneath import Directory
from vfs.errors import LinkRefused, NotADirectory, NotFound, VfsError
from vfs.making import make_directory
from vfs.printable import printable
from vfs.workspace import OWNER

ROOTS: Final[tuple[RootName, ...]] = ("user-data", "skill-store", "skill-projections")


def root_path(request: Request, name: str) -> bytes:
    """The host path that was given for a root."""
    paths = {
        "user-data": request.user_data,
        "skill-store": request.skill_store,
        "skill-projections": request.skill_projections,
    }
    return paths[name]


def open_folder(path: bytes, what: str) -> Directory | None:
    """The folder, pinned; None if it is missing. Precondition if it is something else."""
    try:
        return Directory.open(path)
    except NotFound:
        return None
    except LinkRefused:
        raise Precondition(
            f"{what} {printable(path)} is a symbolic link", fix="name the real directory"
        ) from None
    except NotADirectory:
        raise Precondition(
            f"{what} {printable(path)} is not a directory", fix="name a directory"
        ) from None
    except VfsError as exc:
        raise Precondition(
            f"{what} {printable(path)} cannot be opened: {exc.message}", fix=exc.fix
        ) from None


def open_source(request: Request) -> Directory:
    """The old saves. Precondition if they are missing."""
    found = open_folder(request.source, "the source")
    if found is None:
        raise Precondition(
            f"the source {printable(request.source)} is not there",
            fix="name the folder of the old saves with --source",
        )
    return found


def parent_of(path: bytes) -> tuple[bytes, bytes]:
    """The host path of the folder that holds `path`, and the name in it."""
    above, name = os.path.split(path.rstrip(b"/") or b"/")
    return above or b".", name


def is_same(one: Directory, other: Directory) -> bool:
    """Whether two pinned directories are one."""
    return one.stat().identity == other.stat().identity


def make_folder(path: bytes, what: str, owner: tuple[int, int] | None = OWNER) -> Directory:
    """The folder, made with mode 0700 if it is missing, and the one above it likewise."""
    found = open_folder(path, what)
    if found is not None:
        return found
    above, name = parent_of(path)
    holder = open_folder(above, "the folder")
    if holder is None:
        grand, _ = parent_of(above)
        if os.path.isdir(grand):
            holder = make_folder(above, "the folder", owner)
        else:
            raise Precondition(
                f"the folder {printable(above)}, in which {what} should be made, is not there",
                fix="make it first",
            )
    with holder:
        try:
            if owner is None:
                holder.make_directory((name,))
            else:
                make_directory(holder, (name,), owner)
        except VfsError as exc:
            raise retryable(exc, f"make {what} {printable(path)}") from None
    found = open_folder(path, what)
    if found is None:
        raise Precondition(f"{what} {printable(path)} vanished", fix="run the command again")
    return found
