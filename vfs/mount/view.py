"""What a mount shows: real directories of the storage (`Export`) under made-up ones (`Branch`).

A view is a value: it opens nothing by itself. The operations ask a branch for its children each
time a name is looked up, so that a user or a projection that appears later is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vfs.beneath import Directory
from vfs.errors import VfsError
from vfs.namespace import AGENTS, SKILLS_NAME, USER_DATA_NAME
from vfs.naming import is_user_directory, safe_uid
from vfs.workspace import SHARED, WORKSPACE, Storage

RESERVED = frozenset({AGENTS.encode()})
"""Top-level names of a workspace that hold the agents' rules: filled freely, never taken away."""


@dataclass(frozen=True)
class Export:
    """A real directory and the rules that hold in it."""

    base: Directory
    """A pinned root of the storage."""
    path: tuple[bytes, ...] = ()
    """The shown directory, beneath `base`."""
    writable: bool = False
    visible: frozenset[bytes] | None = None
    """The names shown at its top; None: all."""
    reserved: frozenset[bytes] = frozenset()
    """Names at its top that can be made as directories, not removed, renamed or replaced."""

    def exists(self) -> bool:
        """Whether the directory is there now."""
        try:
            self.base.directory(self.path).close()
        except VfsError:
            return False
        return True


@dataclass(frozen=True)
class Branch:
    """A directory that is on no disk. `names` lists it, `child` finds one name or gives None."""

    names: Callable[[], Sequence[bytes]] = field(default=lambda: ())
    child: Callable[[bytes], Branch | Export | None] = field(default=lambda name: None)


View = Branch | Export

EMPTY = Branch()


def fixed(children: dict[bytes, Branch | Export]) -> Branch:
    """A branch whose children do not change; an export that is missing is shown empty."""

    def child(name: bytes) -> Branch | Export | None:
        found = children.get(name)
        if isinstance(found, Export) and not found.exists():
            return EMPTY
        return found

    return Branch(names=lambda: tuple(children), child=child)


def _user_data(storage: Storage, name: str, writable: bool) -> Export:
    path = (SHARED, name.encode(), WORKSPACE)
    return Export(storage.user_data, path, writable, reserved=RESERVED)


def _skills(storage: Storage, name: str, visible: frozenset[bytes] | None) -> Export:
    return Export(storage.skill_projections, (name.encode(),), visible=visible)


def home(
    storage: Storage, uid: str, *, writable: bool, visible: frozenset[bytes] | None = None
) -> Branch:
    """What `/home/gem` is for one user: `user-data/` and `skills/` (only the `visible` slugs)."""
    name = safe_uid(uid)
    return fixed(
        {
            USER_DATA_NAME: _user_data(storage, name, writable),
            SKILLS_NAME: _skills(storage, name, visible),
        }
    )


def workdir(storage: Storage, uid: str, path: tuple[bytes, ...], *, writable: bool) -> Export:
    """One Workdir as the root of the view."""
    whole = _user_data(storage, safe_uid(uid), writable)
    return Export(whole.base, (*whole.path, *path), writable)


def everyone(
    storage: Storage, *, writable: bool, visible: frozenset[bytes] | None = None
) -> Branch:
    """Every user by directory name, each with `user-data/` and `skills/`."""

    def child(name: bytes) -> Branch | None:
        if not is_user_directory(name):
            return None
        text = name.decode("ascii")
        export = _user_data(storage, text, writable)
        if not export.exists():
            return None
        return fixed({USER_DATA_NAME: export, SKILLS_NAME: _skills(storage, text, visible)})

    def names() -> list[bytes]:
        # Without those that have no workspace yet: a name that is listed must be found, too.
        users = storage.users()
        return [user.encode() for user in users if _user_data(storage, user, writable).exists()]

    return Branch(names=names, child=child)
