"""The error vocabulary: each kind has one errno, one HTTP status and one exit status.

======================  ===============  ==========  ====  ====  ===================================
class                   kind             errno       HTTP  exit  meaning
======================  ===============  ==========  ====  ====  ===================================
`NotFound`              not_found        ENOENT      404   3     no entry has that name
`AlreadyExists`         already_exists   EEXIST      409   4     an entry has that name already
`IsADirectory`          is_a_directory   EISDIR      400   5     a file was asked for
`NotADirectory`         not_a_directory  ENOTDIR     404   6     a directory was asked for
`InvalidPath`           invalid_path     EINVAL      403   7     no path, or outside the workspace
`LinkRefused`           link_refused     ELOOP       403   8     a symbolic link is on the path
`SpecialFileRefused`    special_file     ENXIO       403   9     a FIFO, socket or device
`PermissionDenied`      permission       EACCES      403   10    the system refuses it
`ReadOnly`              read_only        EROFS       403   11    this view cannot be written
`TooLarge`              too_large        EFBIG       413   12    over a limit
`NoSpace`               no_space         ENOSPC      507   13    the disk or the quota is full
`Changed`               changed          ESTALE      412   14    not what was read before (ETag)
`Busy`                  busy             EBUSY       423   15    in use; later it may work
`NotEmpty`              not_empty        ENOTEMPTY   409   16    a directory still has entries
`Unavailable`           unavailable      ENODEV      503   17    the system lacks a part (FUSE)
`StorageFailure`        io               EIO         500   18    the storage or the machine failed
`InvalidName`           invalid_name     EINVAL      400   19    no uid, scope id or skill slug
======================  ===============  ==========  ====  ====  ===================================

Exit status 0 is success, 1 is "findings" of a check, 2 is wrong usage of a command. 404 for a path
through a file, as for a missing one: a path that leads nowhere tells no more than that.

A message names what the caller named (a virtual path, a scope path, a uid), never a host path.
"""

from __future__ import annotations

import errno
from typing import ClassVar, NamedTuple

from vfs.printable import one_line, printable, reference


class VfsError(Exception):
    """Base of every error that a door reports; only its subclasses are raised.

    `str()` is one line, ``message; fix``, that is safe on a terminal. Names inside a message go
    through `vfs.printable.printable` first, so that they stay exact.
    """

    kind: ClassVar[str]
    """The code that programs compare: snake_case, never changed."""
    errno: ClassVar[int]
    """The answer of the mount."""
    http_status: ClassVar[int]
    """The answer of the HTTP services."""
    exit_status: ClassVar[int]
    """The exit status of the commands."""

    message: str
    """What went wrong, one line without a full stop."""
    fix: str | None
    """What to do next, one line, in the imperative; None where nothing can be advised."""
    path: str | bytes | None
    """The exact virtual or scope path concerned; None where there is none."""

    def __init__(
        self, message: str, *, fix: str | None = None, path: str | bytes | None = None
    ) -> None:
        super().__init__(message)
        self.message = one_line(message)
        self.fix = None if fix is None else one_line(fix)
        self.path = path

    def __str__(self) -> str:
        return self.message if self.fix is None else f"{self.message}; {self.fix}"

    def to_json(self) -> dict[str, str | None]:
        """Return ``{"error": kind, "message": …, "fix": …|None, "path": printable|None}``.

        A path that the printable form has to escape comes with ``"path_bytes"``, the base64url of
        its bytes.
        """
        answer = {
            "error": self.kind,
            "message": self.message,
            "fix": self.fix,
            "path": None if self.path is None else printable(self.path),
        }
        exact = None if self.path is None else reference(self.path)
        if exact is not None:
            answer["path_bytes"] = exact
        return answer


class NotFound(VfsError):
    """No entry has that name."""

    kind = "not_found"
    errno = errno.ENOENT
    http_status = 404
    exit_status = 3


class AlreadyExists(VfsError):
    """An entry has that name, and may not be replaced."""

    kind = "already_exists"
    errno = errno.EEXIST
    http_status = 409
    exit_status = 4


class IsADirectory(VfsError):
    """A file was asked for, a directory is there."""

    kind = "is_a_directory"
    errno = errno.EISDIR
    http_status = 400
    exit_status = 5


class NotADirectory(VfsError):
    """A directory was asked for (or stands in the path), something else is there."""

    kind = "not_a_directory"
    errno = errno.ENOTDIR
    http_status = 404
    exit_status = 6


class InvalidPath(VfsError):
    """Not a path of this namespace, or one that would leave the workspace."""

    kind = "invalid_path"
    errno = errno.EINVAL
    http_status = 403
    exit_status = 7


class LinkRefused(VfsError):
    """A symbolic link stands on the path; links are never followed."""

    kind = "link_refused"
    errno = errno.ELOOP
    http_status = 403
    exit_status = 8


class SpecialFileRefused(VfsError):
    """A FIFO, socket or device; they are listed and never opened."""

    kind = "special_file"
    errno = errno.ENXIO
    http_status = 403
    exit_status = 9


class PermissionDenied(VfsError):
    """The system refuses it to this process."""

    kind = "permission"
    errno = errno.EACCES
    http_status = 403
    exit_status = 10


class ReadOnly(VfsError):
    """This view, or the filesystem below it, cannot be written."""

    kind = "read_only"
    errno = errno.EROFS
    http_status = 403
    exit_status = 11


class TooLarge(VfsError):
    """Over a limit of size, count or depth."""

    kind = "too_large"
    errno = errno.EFBIG
    http_status = 413
    exit_status = 12


class NoSpace(VfsError):
    """The disk or the quota is full."""

    kind = "no_space"
    errno = errno.ENOSPC
    http_status = 507
    exit_status = 13


class Changed(VfsError):
    """The entry is not what it was when the caller read it (ETag, identity)."""

    kind = "changed"
    errno = errno.ESTALE
    http_status = 412
    exit_status = 14


class Busy(VfsError):
    """In use now; the same call may work later."""

    kind = "busy"
    errno = errno.EBUSY
    http_status = 423
    exit_status = 15


class NotEmpty(VfsError):
    """A directory still has entries."""

    kind = "not_empty"
    errno = errno.ENOTEMPTY
    http_status = 409
    exit_status = 16


class Unavailable(VfsError):
    """The system lacks a part that this needs: FUSE, a kernel call, a filesystem's feature."""

    kind = "unavailable"
    errno = errno.ENODEV
    http_status = 503
    exit_status = 17


class StorageFailure(VfsError):
    """The storage or the machine failed: an I/O error, no memory, no descriptor left."""

    kind = "io"
    errno = errno.EIO
    http_status = 500
    exit_status = 18


class InvalidName(VfsError):
    """Not a user id, runtime scope id or skill slug."""

    kind = "invalid_name"
    errno = errno.EINVAL
    http_status = 400
    exit_status = 19


class _Cause(NamedTuple):
    error: type[VfsError]
    reason: str
    fix: str | None


_MISSING = "check the spelling, upper and lower case included"
_LINK = "name the file itself, not a link to it"
_RIGHTS = "run as the owner of the storage, or as root"
_SPACE = "delete something, or ask for a larger quota"
_RETRY = "try again when it is no longer in use"
_SUPPORT = "see the documentation for what the system must provide"
_LATER = "close other files or programs, or raise the limit, and try again"

_CAUSES: dict[int, _Cause] = {
    errno.ENOENT: _Cause(NotFound, "no such file or directory", _MISSING),
    errno.EEXIST: _Cause(AlreadyExists, "it exists already", "choose another name"),
    errno.EISDIR: _Cause(IsADirectory, "it is a directory", "name a file"),
    errno.ENOTDIR: _Cause(NotADirectory, "a part of the path is not a directory", _MISSING),
    errno.EINVAL: _Cause(InvalidPath, "the path is not valid", _MISSING),
    errno.EILSEQ: _Cause(InvalidPath, "the filesystem does not take such a name", "choose another"),
    errno.ENAMETOOLONG: _Cause(
        InvalidPath, "the name is too long", "use at most 255 bytes for each part"
    ),
    errno.EXDEV: _Cause(
        InvalidPath, "another filesystem is mounted there", "unmount it, or name another place"
    ),
    errno.ELOOP: _Cause(LinkRefused, "a symbolic link stands on the path", _LINK),
    errno.ENXIO: _Cause(SpecialFileRefused, "it is a FIFO, socket or device", "name a file"),
    errno.EACCES: _Cause(PermissionDenied, "permission denied", _RIGHTS),
    errno.EPERM: _Cause(PermissionDenied, "not permitted", _RIGHTS),
    errno.EROFS: _Cause(ReadOnly, "it is read-only", "write somewhere else"),
    errno.EFBIG: _Cause(TooLarge, "it is too large", None),
    errno.EOVERFLOW: _Cause(TooLarge, "it is too large", None),
    errno.ENOSPC: _Cause(NoSpace, "no space is left", _SPACE),
    errno.EDQUOT: _Cause(NoSpace, "the quota is used up", _SPACE),
    errno.EMLINK: _Cause(NoSpace, "the filesystem takes no more links there", _SPACE),
    errno.ESTALE: _Cause(Changed, "it was changed meanwhile", "read it again"),
    errno.EBUSY: _Cause(Busy, "it is in use", _RETRY),
    errno.ETXTBSY: _Cause(Busy, "the program is running", _RETRY),
    errno.EAGAIN: _Cause(Busy, "it kept changing meanwhile", _RETRY),
    errno.EDEADLK: _Cause(Busy, "a lock is held elsewhere", _RETRY),
    errno.ENOTEMPTY: _Cause(NotEmpty, "the directory is not empty", "remove its entries first"),
    errno.ENODEV: _Cause(Unavailable, "the system lacks support for it", _SUPPORT),
    errno.ENOSYS: _Cause(Unavailable, "the system lacks support for it", _SUPPORT),
    errno.EOPNOTSUPP: _Cause(Unavailable, "the filesystem lacks support for it", _SUPPORT),
    errno.ENOTCONN: _Cause(
        Unavailable, "the mount there is dead", "unmount it, then mount it again"
    ),
    errno.EMFILE: _Cause(StorageFailure, "too many files are open in this process", _LATER),
    errno.ENFILE: _Cause(StorageFailure, "too many files are open on this machine", _LATER),
    errno.ENOMEM: _Cause(StorageFailure, "the machine is out of memory", _LATER),
    errno.EIO: _Cause(StorageFailure, "the storage failed", "check the disk and the system's log"),
}


def from_oserror(exc: OSError, *, path: str | bytes | None = None, action: str) -> VfsError:
    """Return the error of `exc`'s kind, to be raised ``from exc``.

    `action` is what was tried, as a verb: ``read``, ``make the directory``. `path` is the virtual
    or scope path that the caller named; the host paths and the text inside `exc` are not used. An
    errno without a kind of its own becomes `StorageFailure`.
    """
    number = exc.errno or 0
    cause = _CAUSES.get(number)
    if cause is None:
        name = errno.errorcode.get(number, "an unknown error")
        cause = _Cause(StorageFailure, f"the system answered {name}", "see the system's log")
    tried = action if path is None else f"{action} {printable(path)}"
    return cause.error(f"cannot {tried}: {cause.reason}", fix=cause.fix, path=path)
