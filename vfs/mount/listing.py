"""An open directory listing: read from the kernel as it is asked for, resumable at any offset."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice

from vfs.mount.nodes import Node

_DOTS = (b".", b"..")
_WINDOW = 16384
"""Names kept for a reader that steps back; more than one reply holds (1 MiB of 64-byte entries)."""

Item = tuple[bytes, int, int]
"""Name, inode number, type bits of the mode (0 where the file system does not tell)."""


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
        self._names: Sequence[bytes] | None = None
        self._source: Iterator[Item] | None = None
        self._kept: list[Item] = []
        self._kept_from = 0

    @classmethod
    def of_branch(cls, names: Sequence[bytes]) -> Listing:
        """The listing of a directory that is on no disk."""
        listing = cls(-1, None, visible=None, links=True)
        listing._names = names
        return listing

    def _scan(self) -> Iterator[Item]:
        for name in _DOTS:
            yield name, 0, stat.S_IFDIR
        if self._names is not None:
            for name in self._names:
                yield name, 0, stat.S_IFDIR
            return
        os.lseek(self.fd, 0, os.SEEK_SET)
        with os.scandir(self.fd) as entries:
            for entry in entries:
                is_link = entry.is_symlink()
                if is_link and not self._links:
                    continue
                name = os.fsencode(entry.name)
                if self._visible is not None and name not in self._visible:
                    continue
                if is_link:
                    kind = stat.S_IFLNK
                elif entry.is_dir(follow_symlinks=False):
                    kind = stat.S_IFDIR
                elif entry.is_file(follow_symlinks=False):
                    kind = stat.S_IFREG
                else:
                    kind = stat.S_IFSOCK
                yield name, entry.inode(), kind

    def items(self, offset: int) -> Iterator[tuple[int, Item]]:
        """The names after `offset`, each with the offset that comes after it."""
        end = self._kept_from + len(self._kept)
        if self._source is None or offset < self._kept_from or offset == 0:
            self._source = self._scan()
            self._kept = []
            self._kept_from = end = 0
        if offset > end:
            skipped = sum(1 for _ in islice(self._source, offset - end))
            self._kept = []
            self._kept_from = end + skipped
            if self._kept_from < offset:
                return
        else:
            again = self._kept[offset - self._kept_from :]
            self._kept = again
            self._kept_from = offset
            for position, item in enumerate(list(again), offset + 1):
                yield position, item
        for item in self._source:
            self._kept.append(item)
            if len(self._kept) > _WINDOW:
                del self._kept[: _WINDOW // 2]
                self._kept_from += _WINDOW // 2
            yield self._kept_from + len(self._kept), item

    def close(self) -> None:
        """Closes the directory."""
        if isinstance(self._source, Iterator):
            self._source = None
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
