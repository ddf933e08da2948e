"""Which modes the new tree has, and what a change of owner alone makes of a mode. Pure.

Directories have 0700; files 0700 if anybody could execute them, else 0600; nothing has a set-id or
sticky bit. Links have no mode that counts, and FIFOs, sockets and devices keep theirs.
"""

from __future__ import annotations

import stat
from typing import Final

SETID: Final = stat.S_ISUID | stat.S_ISGID
_BITS: Final = 0o7777


def wanted(mode: int) -> int:
    """The permission bits that an entry of this `st_mode` gets; those it has if they are kept."""
    if stat.S_ISDIR(mode):
        return 0o700
    if stat.S_ISREG(mode):
        return 0o700 if mode & 0o111 else 0o600
    return mode & _BITS


def bits(mode: int) -> int:
    """The permission bits of an `st_mode`, set-id and sticky ones among them."""
    return mode & _BITS


def is_special(mode: int) -> bool:
    """Whether it is a FIFO, a socket or a device."""
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def on_the_way(old: int) -> frozenset[int]:
    """The permission bits that may be met while an entry gets its mode, or gets it back.

    The old ones, the new ones, and between them what chown(2) leaves: it takes set-id bits off
    files.
    """
    was = bits(old)
    return frozenset((was, was & ~stat.S_ISUID, was & ~SETID, wanted(old)))
