"""An open directory listing: read from the kernel as it is asked for, resumable at any offset."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from vfs.mount.nodes import Node

Item = tuple[bytes, int, int]
"""Name, inode number (0 where there is none), type bits of the mode."""

_DOTS: tuple[Item, ...] = ((b".", 0, stat.S_IFDIR), (b"..", 0, stat.S_IFDIR))

_BATCH = 128
"""Names read at once: about what one reply of the kernel's usual size holds with attributes."""

_KEPT = 16384
"""Names kept for a reader that steps back: more than one reply holds (1 MiB of 64-byte entries)."""


class Listing:
    """The names of one directory. Offset 0 is the start; offset n comes after the nth name.

    A reader that steps back further than the names kept, or to the start, reads the directory anew.
    """

    def __init__(
        self, fd: int, node: Node | None, *, visible: frozenset[bytes] | None, links: bool
    ) -> None:
        """Takes over `fd`, a readable directory descriptor."""
        self.fd = fd
        self.node = node
        """The directory; None for a branch."""
        self._visible = visible
        self._links = links
        self._names: Sequence[bytes] = ()
        self._source: Iterator[Item] = iter(())
        self._kept: list[Item] = []
        self._kept_from = 0

    @classmethod
    def of_branch(cls, names: Sequence[bytes]) -> Listing:
        """The listing of a directory that is on no disk."""
        listing = cls(-1, None, visible=None, links=True)
        listing._names = names
        return listing

    def batch(self, offset: int) -> list[Item]:
        """Some names after `offset`, at least one unless it is the end."""
        end = self._kept_from + len(self._kept)
        if offset == 0 or offset < self._kept_from:
            self._source = self._scan()
            self._kept = []
            self._kept_from = end = 0
        if offset < end:
            return self._kept[offset - self._kept_from :]
        if offset > end:
            self._kept = []
            self._kept_from = end + sum(1 for _ in islice(self._source, offset - end))
        elif len(self._kept) > _KEPT:
            del self._kept[: -_KEPT // 2]
            self._kept_from = end - len(self._kept)
        batch = list(islice(self._source, _BATCH))
        self._kept += batch
        return batch

    def _scan(self) -> Iterator[Item]:
        if self.fd < 0:
            return chain(_DOTS, ((name, 0, stat.S_IFDIR) for name in self._names))
        os.lseek(self.fd, 0, os.SEEK_SET)
        return chain(_DOTS, self._entries())

    def _entries(self) -> Iterator[Item]:
        with os.scandir(self.fd) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                if self._visible is not None and name not in self._visible:
                    continue
                if entry.is_file(follow_symlinks=False):
                    kind = stat.S_IFREG
                elif entry.is_dir(follow_symlinks=False):
                    kind = stat.S_IFDIR
                elif entry.is_symlink():
                    if not self._links:
                        continue
                    kind = stat.S_IFLNK
                else:
                    kind = stat.S_IFSOCK
                yield name, entry.inode(), kind

    def close(self) -> None:
        """Closes the directory."""
        self._source = iter(())
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
