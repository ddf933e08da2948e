"""What is known of the mounts that this project made: one small file for each, read back by others.

The kernel's table says what is mounted, but not whose workspace it shows, and a view made by the
kernel engine looks like any bind mount. A record adds that. It is never believed against the table:
it counts while a mount of its id, device, type, source and attributes is there, else it is removed.
A record written in another mount namespace is left alone and not shown.

Root keeps its records in /run/gemspace, anybody else in $XDG_RUNTIME_DIR/gemspace or, without one,
in gemspace-UID in the temporary folder. The folder is its owner's alone (0700): one that is a link,
another user's, or open to others is refused.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from vfs.errors import NotFound, PermissionDenied, from_oserror
from vfs.mount import table
from vfs.mount.table import Mount
from vfs.printable import printable

ROOT_FOLDER = "/run/gemspace"

_NAME = re.compile(r"(?P<namespace>\d+)-(?P<id>\d+)-(?P<written>\d+)\.json(?:\.new)?")
_UNFINISHED = ".new"
_RECORD_BYTES = 64 * 1024  # far more than one takes


@dataclass(frozen=True, slots=True)
class Record:
    """One mount of ours that is there now."""

    mount_id: int
    """As the kernel's table has it."""
    point: bytes
    """Where it is mounted, absolute."""
    engine: str
    """What serves it: ``fuse`` or ``kernel``."""
    pid: int | None
    """The process that said it serves it; None: the kernel. The number may be another's by now."""
    label: str
    """Whose workspace it shows: a uid, or what the command calls all of them."""
    options: Mapping[str, str]
    """What else the command was told, for people to read."""
    dead: bool
    """Whether its daemon has gone without unmounting it."""


def record(
    mount_id: int, *, engine: str, pid: int | None, label: str, options: Mapping[str, str]
) -> None:
    """Writes down a mount that has just been made, in place of an earlier record of that id.

    It must have its last attribute: a mount that is given another one later is no longer known.
    NotFound if no such mount is in the table; PermissionDenied if the folder is not the caller's
    alone.
    """
    mount = next((mount for mount in table.mounts() if mount.id == mount_id), None)
    if mount is None:
        raise NotFound("the mount is gone already", fix="see the system's log, and mount it again")
    content = asdict(_Content(engine, pid, label, dict(options), _identity(mount)))
    try:
        _make_folder()
        with _folder() as dirfd:
            earlier = [name for name, id_ in _names(dirfd) if id_ == mount_id]
            # A name that is never used again: whoever removes a stale record cannot hit a new one.
            name = f"{_namespace()}-{mount_id}-{time.time_ns()}.json"
            _write(dirfd, name, json.dumps(content).encode())
            for old in earlier:
                _remove(dirfd, old)
    except OSError as exc:
        raise from_oserror(exc, action="write down the mount") from exc


def entries() -> list[Record]:
    """The mounts of ours that are there, dead ones included, in the order of the kernel's table.

    Removes the records of mounts that are not there any more.
    """
    return [_record(mount, content) for mount, content in _live()]


def find(point: bytes) -> Record | None:
    """The record of the topmost mount at the absolute path `point`; None: that is none of ours."""
    top = table.at(point)
    if top is None:
        return None
    return next((_record(mount, content) for mount, content in _live() if mount.id == top.id), None)


def forget(mount_id: int) -> None:
    """Removes the record of a mount, if there is one."""
    with suppress(FileNotFoundError), _folder() as dirfd:
        for name, id_ in _names(dirfd):
            if id_ == mount_id:
                _remove(dirfd, name)


@dataclass(frozen=True, slots=True)
class _Content:
    engine: str
    pid: int | None
    label: str
    options: dict[str, str]
    identity: list[object]


def _live() -> list[tuple[Mount, _Content]]:
    found: dict[int, _Content] = {}
    mounts: list[Mount] = []
    with suppress(FileNotFoundError), _folder() as dirfd:
        # In this order: a mount is written down after it was made, so what is listed here and not
        # in the table is gone.
        names = _names(dirfd)
        mounts = table.mounts()
        by_id = {mount.id: mount for mount in mounts}
        for name, id_ in names:
            mount = by_id.get(id_)
            if name.endswith(_UNFINISHED):
                if mount is None:
                    _remove(dirfd, name)
                continue
            content = _read(dirfd, name)
            if mount is not None and content is not None and content.identity == _identity(mount):
                found[id_] = content
            else:
                _remove(dirfd, name)
    return [(mount, found[mount.id]) for mount in mounts if mount.id in found]


def _record(mount: Mount, content: _Content) -> Record:
    return Record(
        mount_id=mount.id,
        point=mount.point,
        engine=content.engine,
        pid=content.pid,
        label=content.label,
        options=content.options,
        dead=table.is_dead(mount.point),
    )


def _identity(mount: Mount) -> list[object]:
    """What stays the same while a mount lives and nobody remounts it.

    Neither its root nor its point: both follow when a directory above them is renamed.
    """
    return [mount.dev, mount.type, mount.source.decode("latin-1"), list(mount.options)]


def _namespace() -> int:
    return os.stat("/proc/self/ns/mnt").st_ino


def _names(dirfd: int) -> list[tuple[str, int]]:
    """This mount namespace's files and the mount ids they are about, oldest first."""
    matches = [match for name in os.listdir(dirfd) if (match := _NAME.fullmatch(name))]
    matches.sort(key=lambda match: int(match["written"]))
    here = _namespace()
    return [(match[0], int(match["id"])) for match in matches if int(match["namespace"]) == here]


def _read(dirfd: int, name: str) -> _Content | None:
    """The content of a record; None if it is gone or is not one."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dirfd)
        with open(fd, "rb") as file:
            return _Content(**json.loads(file.read(_RECORD_BYTES)))
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def _write(dirfd: int, name: str, content: bytes) -> None:
    unfinished = name + _UNFINISHED
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(unfinished, flags, 0o600, dir_fd=dirfd), "wb") as file:
        file.write(content)
    os.rename(unfinished, name, src_dir_fd=dirfd, dst_dir_fd=dirfd)


def _remove(dirfd: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=dirfd)


def _path() -> str:
    uid = os.geteuid()
    if uid == 0:
        return ROOT_FOLDER
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    # After `su` it is still the other user's.
    if os.path.isabs(session) and os.path.isdir(session) and os.stat(session).st_uid == uid:
        return os.path.join(session, "gemspace")
    return os.path.join(tempfile.gettempdir(), f"gemspace-{uid}")


def _make_folder() -> None:
    with suppress(FileExistsError):
        os.mkdir(_path(), 0o700)


@contextmanager
def _folder() -> Iterator[int]:
    """The folder of the records, open and known to be the caller's alone.

    FileNotFoundError: there is none. PermissionDenied: it is not to be trusted.
    """
    path = _path()
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise _untrusted(path) from exc
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise _untrusted(path)
        yield fd
    finally:
        os.close(fd)


def _untrusted(path: str) -> PermissionDenied:
    return PermissionDenied(
        f"the records of mounts in {printable(path)} are not yours alone",
        fix="remove that folder, or have its owner remove it, and try again",
    )
