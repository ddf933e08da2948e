"""One file, saved whole and durable, or not at all.

What `save` promises, whatever happens meanwhile (a full disk, SIGKILL at any point, other writers):

- under its name a reader finds the old content or the new one, whole; never a mixture, never
  nothing where something was;
- when it returns, content, mode, owner and name have reached the disk; when it raises before the
  new content is in place, nothing has changed;
- what is replaced keeps its permission bits (set-id bits and the sticky bit are never kept) and, as
  far as this process may give files away, its owner and group;
- only a regular file is replaced: a link, a special file or a directory is refused. A link put
  there at the last moment is replaced as the link; nothing ever goes through it;
- with `clobber=False` the name must be free, and the kernel judges that in the same step in which
  the name is given (linkat, RENAME_NOREPLACE);
- with `if_match` what is replaced must have the ETag given, and no update is lost among writers who
  all give one: they take turns (a lock on the directory). What others write meanwhile is not
  replaced either: the ETag is judged by what the exchange (RENAME_EXCHANGE) took out, which is put
  back if it is something else. For that moment alone readers see the new content.

The old and the new content need room at once. What has no part in a file's content and mode, such
as extended attributes and further hard links, stays with the old file.

Where the file system can, the content is written to a file without a name (O_TMPFILE), which a
killed writer cannot leave behind: it has a temporary name only for an instant, when something is
replaced. Elsewhere the temporary name is there from the beginning. `is_temporary` tells such names,
and `vfs.check` reports those that were left.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress

from vfs import linux
from vfs.beneath import FILE_MODE, Directory, Path, translated
from vfs.dirfd import NO_SUCH_RENAME, create_regular, exchange, refuse_type
from vfs.errors import Busy, Changed
from vfs.linux import Status
from vfs.locking import lock
from vfs.printable import printable
from vfs.resolving import O_LIST, O_LOOK, resolver, split_path

_PREFIX = b".gemspace-"
"""How the names begin of what is not finished, or not gone yet."""

PERMISSIONS = 0o777
"""The mode bits that a saved file may have."""

ANY = "*"
"""The `if_match` of any regular file that is there, as in RFC 9110, section 13.1.1."""

Content = bytes | bytearray | memoryview | Iterable[bytes]

TURN = 10.0
"""Seconds that a save with a precondition waits for the others; each takes milliseconds."""

_TEMPORARY = re.compile(re.escape(_PREFIX) + rb"[0-9a-f]{32}")

_TRIES = 100
"""Bound of the tries at a free temporary name, and at undoing an exchange among other writers."""

_NO_NAMELESS = frozenset((errno.EOPNOTSUPP, errno.EISDIR))
"""How a file system, or a kernel before 3.11, answers O_TMPFILE when it has no such thing."""


def random_token() -> str:
    """32 hex digits that nobody can guess: the end of a temporary name."""
    return secrets.token_hex(16)


def temporary_name(token: str) -> bytes:
    """The temporary name with this token: 42 bytes, whatever the final name."""
    return _PREFIX + token.encode("ascii")


def is_temporary(name: bytes) -> bool:
    """Whether `name` has the form of a temporary name."""
    return _TEMPORARY.fullmatch(name) is not None


def etag(status: Status) -> str:
    """The entity tag of a file: equal as long as the file and its content are the same.

    Made of the inode number, the size in bytes and the time of the last change of content, in hex;
    renames, mode and owner do not affect it. HTTP puts quotes around it.

    A save makes a new inode. What writes in place without changing the size is told by the time
    alone, as is a new file of the same size that got the inode number of a deleted one: within one
    tick of the kernel's clock (up to 10 ms before Linux 6.13) the tag may stay as it was.
    """
    return f"{status.ino:x}-{status.size:x}-{status.mtime_ns:x}"


def save(
    directory: Directory,
    path: Path,
    chunks: Content,
    *,
    mode: int | None = None,
    owner: tuple[int, int] | None = None,
    clobber: bool = True,
    if_match: str | None = None,
    token: Callable[[], str] = random_token,
    fsync: Callable[[int], None] = os.fsync,
) -> Status:
    """Saves `chunks` as the content of the file `path` beneath `directory`; its status then.

    `mode`: permission bits; None keeps those of what is replaced, and means 0600 for a new file.
    `owner`: uid and gid of a new file; None for the process's own.
    `clobber`: whether an existing file may be replaced; else AlreadyExists.
    `if_match`: the ETag that the existing file must have, or `ANY`; else, and when there is none,
    Changed. Busy when a lock on the directory was held for `TURN` seconds. The condition that there
    be no file yet is `clobber=False`.
    `token` gives the random part of temporary names, `fsync` makes a descriptor durable.

    Errors of `chunks` itself pass through, and nothing has changed. When making the directory
    durable fails, the error is raised with the new content in place.
    """
    if if_match is not None and not clobber:
        raise ValueError("a file that must be new has no ETag")
    parts = split_path(path)
    with directory.parent(parts) as (parent, name):
        failing = translated("save", parts)
        with failing:
            _judge(_target(parent, name), parts, clobber=clobber, if_match=if_match)
            draft = _Draft(parent, token)
        try:
            for chunk in _chunks(chunks):
                with failing:
                    draft.write(chunk)
            with failing:
                # As it is now: writing may have taken long.
                replaced = _target(parent, name)
                _judge(replaced, parts, clobber=clobber, if_match=if_match)
                draft.give_attributes(replaced, mode, owner)
                fsync(draft.fd)
                listing = os.open(b".", O_LIST, dir_fd=parent.fd)
                try:
                    if if_match is not None:
                        lock(listing, wait=TURN)
                        draft.exchange(name, if_match, parts)
                    elif replaced is None:
                        draft.publish(name, clobber=clobber)
                    else:
                        draft.replace(name)
                    fsync(listing)
                finally:
                    os.close(listing)
                return linux.fstatx(draft.fd)
        finally:
            draft.close()


def _chunks(content: Content) -> Iterable[bytes | bytearray | memoryview]:
    if isinstance(content, bytes | bytearray | memoryview):
        return (content,)
    return content


def _target(parent: Directory, name: bytes) -> Status | None:
    """The regular file that is there, or None; OSError for what else is there."""
    try:
        held = resolver().open(parent.fd, parent.mnt_id, (name,), O_LOOK)
    except FileNotFoundError:
        return None
    try:
        status = linux.fstatx(held)
    finally:
        os.close(held)
    refuse_type(status.mode, name)
    return status


def _judge(
    status: Status | None, parts: tuple[bytes, ...], *, clobber: bool, if_match: str | None
) -> None:
    """Raises what a look can tell already; the last word is the kernel's."""
    if status is not None and not clobber:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    if if_match is not None and (status is None or not _matches(status, if_match)):
        raise _changed(parts)


def _matches(status: Status, if_match: str) -> bool:
    return stat.S_ISREG(status.mode) and if_match in (ANY, etag(status))


def _changed(parts: tuple[bytes, ...]) -> Changed:
    path = b"/".join(parts)
    return Changed(
        f"cannot save {printable(path)}: it is not the file that was read before",
        fix="read it again, then save",
        path=path,
    )


class _Draft:
    """The new content: a file without a name where possible, else one with a temporary name.

    Its methods raise OSError, unless they say otherwise.
    """

    __slots__ = ("_name", "_parent", "_token", "fd")

    def __init__(self, parent: Directory, token: Callable[[], str]) -> None:
        self._parent = parent
        self._token = token
        self._name: bytes | None = None
        """The temporary name, from before it is given until it is gone."""
        self.fd = -1
        try:
            flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
            self.fd = os.open(b".", flags, FILE_MODE, dir_fd=parent.fd)
        except OSError as exc:
            if exc.errno not in _NO_NAMELESS:
                raise
            self._take_name(self._create)

    def close(self) -> None:
        """Releases the content; a temporary name goes too, if it is this content's."""
        try:
            if self._name is not None:
                with suppress(OSError):
                    if self._is_temporary(self.fd):
                        self._unlink()
        finally:
            os.close(self.fd)

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """Appends all of `chunk`."""
        rest = memoryview(chunk).cast("B")
        while rest:
            rest = rest[os.write(self.fd, rest) :]

    def give_attributes(
        self, replaced: Status | None, mode: int | None, owner: tuple[int, int] | None
    ) -> None:
        """Gives owner, group and mode: those of what is replaced, or those of a new file."""
        if replaced is None:
            if owner is not None:
                os.fchown(self.fd, *owner)
            os.fchmod(self.fd, (FILE_MODE if mode is None else mode) & PERMISSIONS)
            return
        if mode is None:
            mode = replaced.mode
        for uid, gid in ((replaced.uid, -1), (-1, replaced.gid)):
            # Only root may give files away; anybody may try to give what is theirs already.
            with suppress(PermissionError):
                os.fchown(self.fd, uid, gid)
        if linux.fstatx(self.fd).gid != replaced.gid:
            # What one group may do is no right of another.
            mode &= ~stat.S_IRWXG
        os.fchmod(self.fd, mode & PERMISSIONS)

    def publish(self, name: bytes, *, clobber: bool) -> None:
        """Gives the content its name, which was free a moment ago."""
        try:
            if self._name is None:
                self._link(name)
            else:
                self._rename_to_free(name)
        except FileExistsError:
            if not clobber:
                raise
            self.replace(name)

    def replace(self, name: bytes) -> None:
        """Gives the content its name, whatever file has it."""
        temporary = self._temporary()
        os.rename(temporary, name, src_dir_fd=self._parent.fd, dst_dir_fd=self._parent.fd)
        self._name = None

    def exchange(self, name: bytes, if_match: str, parts: tuple[bytes, ...]) -> None:
        """Gives the content its name in exchange for a file with the ETag `if_match`.

        Raises Changed for any other, and for none; Busy if other writers were too quick to give
        back what it took out, which then stays under the temporary name.
        """
        replaced = _target(self._parent, name)
        if replaced is None or not _matches(replaced, if_match):
            raise _changed(parts)
        temporary = self._temporary()
        try:
            exchange(self._parent.fd, temporary, name)
        except FileNotFoundError:
            raise _changed(parts) from None
        if _matches(linux.statx(self._parent.fd, temporary), if_match):
            self._unlink()
            return
        with ExitStack() as stack:
            placed = self.fd
            for _ in range(_TRIES):
                # What an exchange takes out should be what the one before put in: then nobody came
                # between, and it may go. Else it is newer than what was just put back, and goes
                # back itself. Each is held meanwhile, so that no other file gets its inode number.
                taken = os.open(temporary, O_LOOK, dir_fd=self._parent.fd)
                stack.callback(os.close, taken)
                try:
                    exchange(self._parent.fd, temporary, name)
                except FileNotFoundError:
                    # Somebody removed it. What it had replaced is kept rather than lost.
                    with suppress(FileExistsError):
                        self._rename_to_free(name)
                        raise _changed(parts) from None
                    continue
                if self._is_temporary(placed):
                    self._unlink()
                    raise _changed(parts)
                placed = taken
        kept = b"/".join((*parts[:-1], temporary))
        self._name = None
        raise Busy(
            f"cannot save {printable(b'/'.join(parts))}: it kept changing meanwhile",
            fix=f"compare it with {printable(kept)}, which another writer's content may be in",
            path=b"/".join(parts),
        )

    def _temporary(self) -> bytes:
        """The temporary name, given now if there was none."""
        return self._take_name(self._link) if self._name is None else self._name

    def _take_name(self, make: Callable[[bytes], None]) -> bytes:
        for _ in range(_TRIES):
            self._name = temporary_name(self._token())
            try:
                make(self._name)
            except FileExistsError:
                continue
            return self._name
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def _create(self, name: bytes) -> None:
        self.fd = create_regular(self._parent.fd, name, FILE_MODE)

    def _link(self, name: bytes) -> None:
        # To follow the descriptor's entry in /proc takes no capability; AT_EMPTY_PATH would take
        # CAP_DAC_READ_SEARCH (linkat(2)).
        source = f"/proc/self/fd/{self.fd}"
        os.link(source, name, dst_dir_fd=self._parent.fd, follow_symlinks=True)

    def _rename_to_free(self, name: bytes) -> None:
        assert self._name is not None
        fd = self._parent.fd
        try:
            linux.renameat2(fd, self._name, fd, name, linux.RENAME_NOREPLACE)
        except OSError as exc:
            if exc.errno not in NO_SUCH_RENAME:
                raise
            # NFS knows no flags; but nowhere does a link replace anything.
            os.link(self._name, name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
            self._unlink()
        self._name = None

    def _unlink(self) -> None:
        assert self._name is not None
        os.unlink(self._name, dir_fd=self._parent.fd)
        self._name = None

    def _is_temporary(self, fd: int) -> bool:
        """Whether the temporary name is that of the file that `fd` holds."""
        assert self._name is not None
        named = linux.statx(self._parent.fd, self._name)
        return named.identity == linux.fstatx(fd).identity
