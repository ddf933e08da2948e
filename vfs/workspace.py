"""What callers hold: a Storage, the Workspace of each user in it, and Workdirs within.

::

    <user-data>/shared/<safe_uid>/workspace/         one user's workspace
                                  ├── agents/        reserved
                                  └── projects/<uuid>/   a managed Workdir
    <skill-projections>/<safe_uid>/<slug>/           the skills that one user sees
    <skill-store>/shared/<slug>/                     their source

Promises: what is made has mode 0700 (directories) or 0600 (files) whatever the umask, and is given
to 1000:1000 when the process is root's, before it has its name; as anybody else it is the caller's.
No link is followed, a user's directory included. A Workdir chooses where paths start; it is no
border between the projects of one user.

Host paths are an operator's and come in only through `Storage.open` and `Storage.create`; no error
repeats them. Everything raises `vfs.errors.VfsError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final, Self

from vfs.beneath import Directory
from vfs.closing import Closing
from vfs.errors import AlreadyExists, InvalidPath, LinkRefused, NotADirectory, NotFound
from vfs.making import make_directories, make_directory
from vfs.namespace import AGENTS, WorkdirPath, workdir_path
from vfs.naming import is_user_directory, safe_uid
from vfs.printable import printable
from vfs.scope import Scope, ScopePath

__all__ = [
    "OWNER",
    "ROOTS",
    "SHARED",
    "WORKSPACE",
    "HostPath",
    "Scope",
    "ScopePath",
    "Storage",
    "Workdir",
    "Workspace",
    "owner_for_process",
]

OWNER: Final = (1000, 1000)
"""Uid and gid that everything in a storage belongs to: those of the user `gem` in a sandbox."""

SHARED: Final = b"shared"
"""The directory of `user-data` that holds the users, and of `skill-store` that holds the skills."""
WORKSPACE: Final = b"workspace"
"""The directory of a user that is their workspace."""

ROOTS: Final = ("user-data", "skill-projections", "skill-store")
"""The folders of a storage."""

HostPath = str | bytes | os.PathLike[str]


def owner_for_process() -> tuple[int, int] | None:
    """Whom this process gives what it makes to: `OWNER` as root; else nobody, it keeps it."""
    return OWNER if os.geteuid() == 0 else None


class Storage(Closing):
    """The three roots, pinned. A context manager."""

    __slots__ = ("owner", "skill_projections", "skill_store", "user_data")

    def __init__(
        self,
        user_data: Directory,
        skill_projections: Directory,
        skill_store: Directory,
        owner: tuple[int, int] | None,
    ) -> None:
        """Takes over the directories; use `open` or `create`."""
        self.user_data = user_data
        self.skill_projections = skill_projections
        self.skill_store = skill_store
        self.owner = owner
        """Uid and gid that what is made is given to; None: it stays the process's."""

    @classmethod
    def open(
        cls,
        storage: HostPath | None = None,
        *,
        user_data: HostPath | None = None,
        skill_projections: HostPath | None = None,
        skill_store: HostPath | None = None,
    ) -> Self:
        """Opens the storage in the folder `storage`; each root can be named apart.

        Raises NotFound for a root that is missing, LinkRefused for one that is a link; links on the
        way to them are the operator's business.
        """
        return cls._pinned(storage, (user_data, skill_projections, skill_store), _open_root)

    @classmethod
    def create(
        cls,
        storage: HostPath | None = None,
        *,
        user_data: HostPath | None = None,
        skill_projections: HostPath | None = None,
        skill_store: HostPath | None = None,
    ) -> Self:
        """The same, and makes what is missing; what is there stays as it is.

        The folder in which a root named on its own, or the storage, is to be made must exist. What
        can be told to be in the way is told before anything is made.
        """
        owner = owner_for_process()
        apart = (user_data, skill_projections, skill_store)
        _check_makeable(storage, apart)

        def made(path: bytes, label: str) -> Directory:
            return _make_root(path, label, owner)

        self = cls._pinned(storage, apart, made)
        try:
            for root in (self.user_data, self.skill_store):
                make_directories(root, (SHARED,), owner).close()
        except BaseException:
            self.close()
            raise
        return self

    @classmethod
    def _pinned(
        cls,
        storage: HostPath | None,
        apart: tuple[HostPath | None, ...],
        pin: Callable[[bytes, str], Directory],
    ) -> Self:
        with ExitStack() as stack:
            folder = None
            if storage is not None and None in apart:
                folder = stack.enter_context(pin(os.fsencode(storage), "the storage"))
            kept = stack.enter_context(ExitStack())
            roots: list[Directory] = []
            for name, given in zip(ROOTS, apart, strict=True):
                if given is not None:
                    path = os.fsencode(given)
                elif folder is not None:
                    # Through the descriptor, so that all roots are of one folder; the storage's own
                    # folder may have other file systems mounted in it.
                    path = f"/proc/self/fd/{folder.fd}/{name}".encode()
                else:
                    raise InvalidPath(
                        f"no folder is named for {name}",
                        fix="name the storage, or each of its folders",
                    )
                roots.append(kept.enter_context(pin(path, name)))
            kept.pop_all()
            user_data, skill_projections, skill_store = roots
            return cls(user_data, skill_projections, skill_store, owner_for_process())

    def close(self) -> None:
        """Releases the roots; what was opened through them stays open."""
        for root in (self.user_data, self.skill_projections, self.skill_store):
            root.close()

    def users(self) -> list[str]:
        """The names of the users' directories, sorted. From a hashed one no uid can be told."""
        with suppress(NotFound):
            fd = self.user_data.open_listing((SHARED,))
            try:
                with os.scandir(fd) as entries:
                    return sorted(
                        entry.name
                        for entry in entries
                        if is_user_directory(os.fsencode(entry.name))
                        and entry.is_dir(follow_symlinks=False)
                    )
            finally:
                os.close(fd)
        return []

    def add_user(self, uid: str) -> Workspace:
        """Makes the workspace of a new user, and the directory of the skills they see.

        Raises AlreadyExists when there is a workspace already. What an earlier, interrupted call
        made is completed.
        """
        name = safe_uid(uid).encode()
        make_directories(self.skill_projections, (name,), self.owner).close()
        with make_directories(self.user_data, (SHARED, name), self.owner) as user:
            try:
                make_directory(user, (WORKSPACE,), self.owner)
            except AlreadyExists:
                raise AlreadyExists(
                    f"the user {printable(uid)} exists already", fix="use the workspace as it is"
                ) from None
        return self.workspace(uid)

    def workspace(self, uid: str) -> Workspace:
        """The workspace of a user; NotFound when there is none."""
        name = safe_uid(uid)
        try:
            directory = self.user_data.directory((SHARED, name.encode(), WORKSPACE))
        except NotFound:
            raise NotFound(
                f"there is no user {printable(uid)}",
                fix=f"check the uid, or add the user: vfs user add {printable(uid)}",
            ) from None
        except (LinkRefused, NotADirectory) as exc:
            raise type(exc)(
                f"the workspace of {printable(uid)} is not a real directory",
                fix="put the directory itself in its place",
            ) from None
        return Workspace(uid, name, directory, self.owner)


class Workspace(Closing):
    """One user's workspace, pinned. A context manager."""

    __slots__ = ("directory", "name", "owner", "uid")

    def __init__(
        self, uid: str, name: str, directory: Directory, owner: tuple[int, int] | None
    ) -> None:
        """Takes over `directory`; use `Storage.workspace`."""
        self.uid = uid
        self.name = name
        """The user's directory name: `safe_uid(uid)`."""
        self.directory = directory
        self.owner = owner
        """See `Storage.owner`."""

    def close(self) -> None:
        """Releases the directory; what was opened through it stays open."""
        self.directory.close()

    def workdir(self, text: str | bytes, *, create: bool = True) -> Workdir:
        """The Workdir at a path relative to the workspace, as `namespace.workdir_path` has it.

        A managed one is made if it is missing and `create` is set; a linked one never is. Raises
        InvalidPath for what is no Workdir path, NotFound, NotADirectory and LinkRefused.
        """
        path = workdir_path(text)
        try:
            if create and path.kind == "managed":
                directory = make_directories(self.directory, path.parts, self.owner)
            else:
                directory = self.directory.directory(path.parts)
        except NotFound:
            raise NotFound(
                f"there is no Workdir {printable(path.text)}",
                fix="make the directory first, or use projects/<uuid>"
                if path.kind == "linked"
                else "it is made when it is first written to",
                path=path.text,
            ) from None
        return Workdir(path, directory, self.owner)

    def scope(self, workdir: str | bytes | None = None) -> Scope:
        """The view from a Workdir on, made if it is a managed one; from the workspace on if None.

        In the latter the top-level directory `agents` cannot be removed, renamed or replaced.
        """
        if workdir is None:
            return Scope(self.directory.directory(), self.owner, frozenset((AGENTS.encode(),)))
        with self.workdir(workdir) as directory:
            return directory.scope()


class Workdir(Closing):
    """A directory in a workspace from which an agent's paths start, pinned. A context manager."""

    __slots__ = ("directory", "owner", "path")

    def __init__(
        self, path: WorkdirPath, directory: Directory, owner: tuple[int, int] | None
    ) -> None:
        """Takes over `directory`; use `Workspace.workdir`."""
        self.path = path
        self.directory = directory
        self.owner = owner
        """See `Storage.owner`."""

    def close(self) -> None:
        """Releases the directory; what was opened through it stays open."""
        self.directory.close()

    def scope(self) -> Scope:
        """The view from this Workdir on."""
        return Scope(self.directory.directory(), self.owner)


def _open_root(path: bytes, label: str) -> Directory:
    try:
        return Directory.open(path)
    except NotFound:
        raise NotFound(
            f"{label} is not there", fix="make it with `vfs init`, or name another folder"
        ) from None
    except LinkRefused:
        raise LinkRefused(f"{label} is a symbolic link", fix="name the real directory") from None
    except NotADirectory:
        raise NotADirectory(f"{label} is not a directory", fix="name a directory") from None


def _check_makeable(storage: HostPath | None, apart: tuple[HostPath | None, ...]) -> None:
    """Raises what opening or making the roots would, as far as a look can tell."""
    places = dict(zip(ROOTS, apart, strict=True))
    wanted = [(os.fsencode(given), name) for name, given in places.items() if given is not None]
    if storage is not None and None in apart:
        folder = os.fsencode(storage)
        wanted.append((folder, "the storage"))
        if os.path.isdir(folder):
            inside = [name for name, given in places.items() if given is None]
            wanted += [(os.path.join(folder, name.encode()), name) for name in inside]
    for path, label in wanted:
        try:
            _open_root(path, label).close()
        except NotFound:
            _folder_of(path, label)[0].close()


def _make_root(path: bytes, label: str, owner: tuple[int, int] | None) -> Directory:
    with suppress(NotFound):
        return _open_root(path, label)
    folder, name = _folder_of(path, label)
    with folder, suppress(AlreadyExists):
        make_directory(folder, (name,), owner)
    return _open_root(path, label)


def _folder_of(path: bytes, label: str) -> tuple[Directory, bytes]:
    """The folder that a root is to be made in, and the root's name there."""
    while path.endswith((b"/", b"/.")):
        path = path[:-1]
    above, slash, name = path.rpartition(b"/")
    try:
        # Links on the way are the operator's business.
        fd = os.open(above + slash or b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise NotFound(
            f"the folder in which {label} should be made is not there", fix="make it first"
        ) from None
    return Directory(fd), name
