"""What is mounted where: this process's mount table, read from /proc/self/mountinfo.

Paths are exact bytes. Nothing here touches a mounted filesystem, so a FUSE daemon that hangs holds
nothing up; `is_dead` alone asks one, in a thread that it does not wait for longer than it says.
"""

from __future__ import annotations

import errno
import re
import threading
from dataclasses import dataclass

from vfs import linux

PROBE_SECONDS = 1.0
"""How long `is_dead` waits: a dead mount answers at once, without a round trip to anybody."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of proc_pid_mountinfo(5)."""

    id: int
    """As statx reports it. The kernel gives the lowest free number: it may come again."""
    parent: int
    """The id of the mount that this one stands on."""
    dev: str
    """``major:minor`` of the filesystem."""
    root: bytes
    """The directory of the filesystem that is shown."""
    point: bytes
    """The mountpoint, absolute."""
    options: tuple[str, ...]
    """Attributes of this mount: ``ro``, ``nosuid``, ``nosymfollow`` …"""
    propagation: tuple[str, ...]
    """``shared:N``, ``master:N`` …; () for a private mount."""
    type: str
    """The filesystem's type, a FUSE one with its subtype: ``fuse.gemspace``."""
    source: bytes
    """What is mounted: a device, or a name that whoever mounted it chose."""
    super_options: tuple[str, ...]
    """Options of the filesystem, whichever mount shows it."""


def parse(text: bytes) -> list[Mount]:
    """The mounts of a mountinfo file, in its order."""
    return [_parse_line(line) for line in text.split(b"\n") if line]


def mounts() -> list[Mount]:
    """Every mount that this process can see."""
    with open("/proc/self/mountinfo", "rb") as file:
        return parse(file.read())


def at(point: bytes) -> Mount | None:
    """The mount that a lookup of the absolute path `point` ends on the root of; None if it is none.

    Of several mounts at one point it is the topmost, and one that another mount hides is not seen.
    `point` is written as the table has it: no link, no `.` or `..`, no slash at the end.
    """
    return topmost(mounts(), point)


def topmost(table: list[Mount], point: bytes) -> Mount | None:
    """`at`, in a table that was read before."""
    if not point.startswith(b"/"):
        raise ValueError("a mountpoint is an absolute path")
    known = {mount.id for mount in table}
    # Beneath 0: what stands on a mount out of sight, as the root does (or on itself: rootfs).
    standing: dict[tuple[int, bytes], Mount] = {}
    for mount in table:
        out_of_sight = mount.parent == mount.id or mount.parent not in known
        standing[0 if out_of_sight else mount.parent, mount.point] = mount
    current, found = 0, None
    for prefix in _prefixes(point):
        found = None
        while (current, prefix) in standing:
            found = standing[current, prefix]
            current = found.id
    return found


def beneath(point: bytes) -> list[Mount]:
    """Every mount beneath `point`, not the one at it, in the table's order; hidden ones too."""
    prefix = point.rstrip(b"/") + b"/"
    return [mount for mount in mounts() if mount.point.startswith(prefix) and mount.point != b"/"]


def is_dead(point: bytes) -> bool:
    """Whether the mount at `point` is FUSE and its daemon has gone without unmounting it.

    The kernel answers ENOTCONN there ("transport endpoint is not connected"). A daemon that is
    alive and slow, or hangs, is not dead: after PROBE_SECONDS the answer is False.
    """
    mount = at(point)
    if mount is None or mount.type.partition(".")[0] not in ("fuse", "fuseblk"):
        return False
    answers: list[int | None] = []

    def probe() -> None:
        try:
            # Forced: the kernel might answer from the attributes it has cached.
            linux.statx(
                linux.AT_FDCWD, point, linux.AT_SYMLINK_NOFOLLOW | linux.AT_STATX_FORCE_SYNC
            )
        except OSError as exc:
            answers.append(exc.errno)

    # A request to a hanging daemon cannot be taken back. A daemon thread keeps no process alive.
    thread = threading.Thread(target=probe, name="mount-probe", daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    return answers == [errno.ENOTCONN]


_ESCAPE = re.compile(rb"\\([0-7]{3})")


def _unescape(field: bytes) -> bytes:
    # The kernel writes space, tab, newline, backslash and in sources '#' as three octal digits.
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), field)


def _words(field: bytes) -> tuple[str, ...]:
    return tuple(_text(word) for word in field.split(b","))


def _text(field: bytes) -> str:
    return _unescape(field).decode("utf-8", "surrogateescape")


def _parse_line(line: bytes) -> Mount:
    # Only single spaces part the fields: an empty source leaves two of them side by side.
    left, _, right = line.partition(b" - ")
    id_, parent, dev, root, point, options, *propagation = left.split(b" ")
    type_, source, super_options = right.split(b" ")
    return Mount(
        id=int(id_),
        parent=int(parent),
        dev=dev.decode(),
        root=_unescape(root),
        point=_unescape(point),
        options=_words(options),
        propagation=tuple(word.decode() for word in propagation),
        type=_text(type_),
        source=_unescape(source),
        super_options=_words(super_options),
    )


def _prefixes(point: bytes) -> list[bytes]:
    parts = point.split(b"/")[1:]
    ends = range(1, len(parts) + 1) if parts != [b""] else range(0)
    return [b"/", *(b"/" + b"/".join(parts[:end]) for end in ends)]
