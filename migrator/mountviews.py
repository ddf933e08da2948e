"""Where mount namespaces show a few directory trees: the same file system under other paths.

A container sees other paths than the host does. But mountinfo says of every mount which directory
of which file system it shows, so a path of one namespace can be told as one beneath a tree that was
pinned in another. Paths are exact bytes; the root directory is ``b""`` everywhere here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass

from vfs.beneath import Directory
from vfs.mount.table import Mount


@dataclass(frozen=True, slots=True)
class Tree:
    """A directory tree, by its file system."""

    name: str
    device: str
    """``major:minor`` of its file system."""
    path: bytes
    """Of its top, in that file system."""
    mount: int
    """The id of the mount that it was pinned on."""


@dataclass(frozen=True, slots=True)
class Window:
    """Where a mount shows a tree or a part of it."""

    prefix: bytes
    """The path there."""
    tree: Tree
    base: bytes
    """What is at `prefix`, beneath the tree."""
    mount: Mount
    is_part: bool
    """Whether the mount shows nothing but the tree or a part of it."""


class View:
    """The mounts of one mount namespace, and where they show the trees."""

    def __init__(self, mounts: Iterable[Mount], root: bytes) -> None:
        """`root`: the root directory of the process whose mountinfo it is."""
        self.mounts = {mount.id: mount for mount in mounts}
        self.root = root
        self.windows: list[Window] = []
        self.prefixes: tuple[bytes, ...] = ()

    def look_for(self, trees: Iterable[Tree]) -> None:
        """Finds the windows on the trees."""
        for mount in self.mounts.values():
            point, shown = self.root + bare(mount.point), bare(mount.root)
            for tree in trees:
                if mount.dev != tree.device:
                    continue
                if (base := below(shown, tree.path)) is not None:
                    self.windows.append(Window(point, tree, base, mount, is_part=True))
                elif (inner := below(tree.path, shown)) is not None:
                    prefix = point + b"/" + inner
                    self.windows.append(Window(prefix, tree, b"", mount, is_part=False))
        self.prefixes = tuple({window.prefix + b"/" for window in self.windows})

    def at(self, text: bytes) -> list[tuple[Window, bytes]]:
        """The windows that a path lies in by its text, and its path beneath their trees."""
        if not (text + b"/").startswith(self.prefixes):
            return []
        return [
            (window, join(window.base, inner))
            for window in self.windows
            if (inner := below(text, window.prefix)) is not None
        ]

    def top(self) -> tuple[str, bytes] | None:
        """The file system and the directory of it that are the namespace's root."""
        tops = [(mount.dev, mount.root) for mount in self.mounts.values() if mount.point == b"/"]
        return tops[-1] if tops else None

    def parts(self) -> list[Window]:
        """The windows that show nothing but the trees or parts of them."""
        return [window for window in self.windows if window.is_part]


def below(path: bytes, top: bytes) -> bytes | None:
    """`path` relative to the directory `top`, ``b""`` for that itself; None if it is not in it."""
    if path == top:
        return b""
    return path[len(top) + 1 :] if path.startswith(top + b"/") else None


def bare(path: bytes) -> bytes:
    """An absolute path as it is written here: without a slash at its end."""
    return path.rstrip(b"/")


def join(base: bytes, inner: bytes) -> bytes:
    """The relative path `inner` beneath the relative path `base`; each may be ``b""``."""
    return base + b"/" + inner if base and inner else base or inner


def locate(name: str, root: Directory, own: View, proc: str) -> Tree:
    """The tree whose top is pinned. `own`: the mounts of this process, as `proc` shows them.

    Raises OSError (ENOENT) where they lack the mount that it is on, as in a chroot they may.
    """
    text = bare(os.readlink(os.fsencode(f"{proc}/self/fd/{root.fd}")))
    mount = own.mounts.get(root.mnt_id)
    inner = None if mount is None else below(text, own.root + bare(mount.point))
    if mount is None or inner is None:
        raise OSError(errno.ENOENT, "the mount of a tree is not in /proc/self/mountinfo")
    return Tree(name, mount.dev, bare(mount.root) + (b"/" + inner if inner else b""), mount.id)
