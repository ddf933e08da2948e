"""What a tree holds, to the last attribute, as one value: equal trees are equal values.

Any depth and any names; two descriptors are open at a time. Made for the tests alone: it shares no
code with what they test.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}

BLOCK = 1 << 16
"""Bytes: how exactly the places of holes are told."""

_SHOWN = 30
"""Differences that a failing test shows."""


@dataclass(frozen=True, slots=True)
class Node:
    """One entry. In what a test expects, None stands for what does not matter."""

    kind: str
    mode: int | None = None
    """Permission bits."""
    owner: tuple[int, int] | None = None
    mtime_ns: int | None = None
    size: int | None = None
    """Of files alone."""
    digest: str | None = None
    """SHA-256 of a file's bytes, in hex."""
    text: bytes | None = None
    """Where a link points."""
    xattrs: tuple[tuple[str, bytes], ...] | None = None
    """Those of users, by name."""
    data: tuple[tuple[int, int], ...] | None = None
    """Where a file that has holes has data, in blocks of `BLOCK`: begin and end in bytes. Empty for
    one without holes of that size."""
    twin: bytes | None = None
    """The first path in the tree that is the same inode; b"" if it is alone."""


Tree = dict[bytes, Node]
"""Path beneath the top → entry; b"" is the top itself."""


def snapshot(top: Path | bytes, *, without: Callable[[bytes], bool] = lambda path: False) -> Tree:
    """Everything beneath a directory, itself included; what is `without` is left out whole."""
    found: Tree = {}
    inodes: dict[tuple[int, int], list[bytes]] = {}
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    path = b""
    found[path] = _node(os.fstat(fd), fd, None)
    # Names still to be looked at, of each directory on the way down to where `fd` is.
    waiting = [_names(fd)]
    try:
        while waiting:
            if not waiting[-1]:
                waiting.pop()
                if waiting:
                    fd = _swap(fd, b"..")
                    path = path.rpartition(b"/")[0]
                continue
            name = waiting[-1].pop()
            below = path + b"/" + name if path else name
            if without(below):
                continue
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            found[below] = _node(status, fd, name)
            if stat.S_ISDIR(status.st_mode):
                fd = _swap(fd, name)
                path = below
                waiting.append(_names(fd))
            elif status.st_nlink > 1:
                inodes.setdefault((status.st_dev, status.st_ino), []).append(below)
    finally:
        os.close(fd)
    for twins in inodes.values():
        if len(twins) > 1:
            for below in twins:
                found[below] = replace(found[below], twin=min(twins))
    return dict(sorted(found.items()))


def _names(fd: int) -> list[bytes]:
    return sorted(map(os.fsencode, os.listdir(fd)), reverse=True)


def _swap(fd: int, name: bytes) -> int:
    """The directory `name` in `fd`, which is closed."""
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
    finally:
        os.close(fd)


def _node(status: os.stat_result, dirfd: int, name: bytes | None) -> Node:
    kind = _KINDS[stat.S_IFMT(status.st_mode)]
    node = Node(
        kind,
        stat.S_IMODE(status.st_mode),
        (status.st_uid, status.st_gid),
        status.st_mtime_ns,
        xattrs=(),
        twin=b"",
    )
    if kind == "link" and name is not None:
        return replace(node, text=os.readlink(name, dir_fd=dirfd))
    if kind == "directory":
        # By way of /proc, so that one whose path is longer than a path may be is reached too.
        place = f"/proc/self/fd/{dirfd}".encode() + (b"" if name is None else b"/" + name)
        return replace(node, xattrs=_xattrs(place))
    if kind == "file" and name is not None:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=dirfd)
        try:
            return replace(
                node,
                size=status.st_size,
                digest=_digest(fd),
                xattrs=_xattrs(fd),
                data=_data(fd, status.st_size),
            )
        finally:
            os.close(fd)
    return node


def _digest(fd: int) -> str:
    digest = hashlib.sha256()
    while block := os.read(fd, 1 << 20):
        digest.update(block)
    return digest.hexdigest()


def digest(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    with open(path, "rb") as file:
        return _digest(file.fileno())


def _xattrs(fd: int | bytes) -> tuple[tuple[str, bytes], ...]:
    names = sorted(name for name in os.listxattr(fd) if name.startswith("user."))
    return tuple((name, os.getxattr(fd, name)) for name in names)


def _data(fd: int, size: int) -> tuple[tuple[int, int], ...]:
    segments: list[tuple[int, int]] = []
    end = 0
    while end < size:
        try:
            begin = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:  # ENXIO: nothing but a hole is left
            break
        end = os.lseek(fd, begin, os.SEEK_HOLE)
        begin, end = begin // BLOCK * BLOCK, min(-(-end // BLOCK) * BLOCK, size)
        if segments and segments[-1][1] >= begin:
            begin, _ = segments.pop()
        segments.append((begin, end))
    return () if segments == [(0, size)] else tuple(segments)


def like(found: Tree, expected: Mapping[bytes, Node]) -> Tree:
    """What was found, with None wherever the expected entry has it."""
    masked = {}
    for path, node in found.items():
        wanted = expected.get(path)
        if wanted is not None:
            blanks = {f.name: None for f in fields(Node) if getattr(wanted, f.name) is None}
            node = replace(node, **blanks)  # type: ignore[arg-type]
        masked[path] = node
    return masked


def differences(found: Mapping[bytes, Node], expected: Mapping[bytes, Node]) -> list[str]:
    """What differs, a line each, the first few; none if just what is expected is found."""
    lines = []
    for path in sorted(found.keys() | expected.keys()):
        is_found, wanted = found.get(path), expected.get(path)
        if wanted is None:
            assert is_found is not None
            lines.append(f"{path!r}: not expected: {is_found.kind}")
        elif is_found is None:
            lines.append(f"{path!r}: missing: {wanted.kind}")
        else:
            for f in fields(Node):
                have, want = getattr(is_found, f.name), getattr(wanted, f.name)
                if want is not None and have != want:
                    lines.append(f"{path!r}: {f.name} is {_shown(have)}, expected {_shown(want)}")
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"… and {len(lines) - _SHOWN} more"]
    return lines


def _shown(value: object) -> str:
    return f"{value:04o}" if isinstance(value, int) and value < 0o10000 else repr(value)[:120]
