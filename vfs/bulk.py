"""Many entries of one directory looked at or changed: system calls without an object for each.

`vfs.linux` makes one call at a time and its answer an object, which is what a walk's entry costs
most. Here a column of names goes in and columns of numbers come out, so that the loop runs in C and
the time is the kernel's. Nothing follows a link; names are single components, without NUL.

The calls keep the interpreter's lock: they are for processes that do one thing at a time.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, islice, repeat

from vfs import linux
from vfs.resolving import O_LOOK

LOOKED_AT_ONCE = 1024
"""Entries whose statuses are held at once, 256 bytes each: more would not be faster."""

_libc = ctypes.PyDLL(None)
# Without argtypes, as in vfs.linux: each argument is passed as what it is.
_statx = _libc["statx"]
_statx.restype = ctypes.c_int
_fchownat = _libc["fchownat"]
_fchownat.restype = ctypes.c_int
_syscall = _libc["syscall"]
_syscall.restype = ctypes.c_int

_WANTED = linux.STATX_BASIC_STATS | linux.STATX_MNT_ID

# struct statx in words of 4, 2 and 8 bytes: where a member is, and how many make one struct.
_IN_4, _IN_2, _IN_8 = 64, 128, 32
_MASK, _UID, _GID = 0, 5, 6
_MODE = 14
_INO, _MNT_ID = 4, 18


@dataclass(frozen=True, slots=True)
class Columns:
    """What was seen of some entries: one list for each fact, all in the same order."""

    names: list[bytes]
    modes: list[int]
    """Types and permission bits, as st_mode has them."""
    uids: list[int]
    gids: list[int]
    inos: list[int]
    elsewhere: list[bytes]
    """Names, no columns, on which something else is mounted."""
    errors: list[tuple[bytes, OSError]]
    """Names that could not be looked at, and why; they have no columns."""


class Looker:
    """Looks at entries, in a buffer of its own."""

    __slots__ = ("_eight", "_four", "_slots", "_two")

    def __init__(self) -> None:
        buffer = bytearray(256 * LOOKED_AT_ONCE)
        kind = ctypes.c_char * 256
        self._slots = [kind.from_buffer(buffer, 256 * n) for n in range(LOOKED_AT_ONCE)]
        whole = memoryview(buffer)
        self._two, self._four, self._eight = whole.cast("H"), whole.cast("I"), whole.cast("Q")

    def look(self, dirfd: int, mnt_id: int, names: Iterable[bytes]) -> Columns:
        """What is to be seen of entries of `dirfd`, a directory on the mount `mnt_id`."""
        seen = Columns([], [], [], [], [], [], [])
        rest = iter(names)
        while some := list(islice(rest, LOOKED_AT_ONCE)):
            self._look(dirfd, mnt_id, some, seen)
        return seen

    def _look(self, dirfd: int, mnt_id: int, names: list[bytes], seen: Columns) -> None:
        flags = repeat(linux.AT_SYMLINK_NOFOLLOW)
        answers = list(map(_statx, repeat(dirfd), names, flags, repeat(_WANTED), self._slots))
        count = len(names)
        four, two, eight = count * _IN_4, count * _IN_2, count * _IN_8
        columns: list[list[int]] = [
            self._two[_MODE:two:_IN_2].tolist(),
            self._four[_UID:four:_IN_4].tolist(),
            self._four[_GID:four:_IN_4].tolist(),
            self._eight[_INO:eight:_IN_8].tolist(),
        ]
        mounts = self._eight[_MNT_ID:eight:_IN_8].tolist()
        if any(answers) or mounts.count(mnt_id) != count:
            masks = self._four[_MASK:four:_IN_4].tolist()
            good = []
            for name, answer, mask, mount in zip(names, answers, masks, mounts, strict=True):
                here = True
                if answer:
                    here = False
                    seen.errors.append((name, _why(dirfd, name)))
                elif mount != mnt_id and mask & linux.STATX_MNT_ID:
                    here = False
                    seen.elsewhere.append(name)
                good.append(here)
            names = list(compress(names, good))
            columns = [list(compress(column, good)) for column in columns]
        seen.names.extend(names)
        for whole, column in zip(
            (seen.modes, seen.uids, seen.gids, seen.inos), columns, strict=True
        ):
            whole.extend(column)


def _why(dirfd: int, name: bytes) -> OSError:
    """Why an entry cannot be looked at."""
    try:
        linux.statx(dirfd, name)
    except OSError as exc:
        return exc
    # It can be by now. Whoever asked is told of a change, and nothing of an entry half seen.
    return OSError(errno.ESTALE, os.strerror(errno.ESTALE), name)


def change_owners(
    dirfd: int, names: Sequence[bytes], uids: Sequence[int], gids: Sequence[int]
) -> dict[bytes, OSError]:
    """Sets the owner of each entry, a link's own. The names of those that refused, and why.

    The kernel takes set-id bits off files whose owner is set, even to what it was.
    """
    flags = repeat(linux.AT_SYMLINK_NOFOLLOW)
    answers = list(map(_fchownat, repeat(dirfd), names, uids, gids, flags))

    def change(number: int) -> None:
        uid, gid = uids[number], gids[number]
        os.chown(names[number], uid, gid, dir_fd=dirfd, follow_symlinks=False)

    return _again(change, names, answers)


def change_modes(dirfd: int, names: Sequence[bytes], modes: Sequence[int]) -> dict[bytes, OSError]:
    """Sets the mode of each entry, a link's refused. The names of those that refused, and why."""
    if not has_fchmodat2():
        return _again(lambda n: _change_held(dirfd, names[n], modes[n]), names, [-1] * len(names))
    number, flags = repeat(linux.SYS_FCHMODAT2), repeat(linux.AT_SYMLINK_NOFOLLOW)
    answers = list(map(_syscall, number, repeat(dirfd), names, modes, flags))
    return _again(lambda n: linux.fchmodat2(dirfd, names[n], modes[n]), names, answers)


def _again(
    call: Callable[[int], None], names: Sequence[bytes], answers: list[int]
) -> dict[bytes, OSError]:
    """Makes the calls again that failed, one by one: who refuses still, and why."""
    errors = {}
    if any(answers):
        for number in compress(range(len(answers)), answers):
            try:
                call(number)
            except OSError as exc:
                errors[names[number]] = exc
    return errors


@functools.cache
def has_fchmodat2() -> bool:
    """Whether fchmodat2 is there: the kernel has it (Linux 6.6), no seccomp filter refuses it."""
    try:
        linux.fchmodat2(-1, b"x", 0)
    except OSError as exc:
        # EPERM and ENOSYS are how filters answer for calls that they do not know.
        return exc.errno == errno.EBADF
    return False


def _change_held(dirfd: int, name: bytes, mode: int) -> None:
    """The same without fchmodat2: the entry is held, so that no link can take its place."""
    fd = os.open(name, O_LOOK, dir_fd=dirfd)
    try:
        # Kernels without fchmodat2 set the mode of a link on some file systems.
        if stat.S_ISLNK(linux.fstatx(fd).mode):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), name)
        os.chmod(f"/proc/self/fd/{fd}", mode)
    finally:
        os.close(fd)
