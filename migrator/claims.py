"""Whose an old user directory is: its name is a raw uid, or the form that `vfs.naming` gives it.

A name can be both, since anybody could register the uid ``uid-<64 hex digits>`` and so share the
directory of the user whose hash that is. Such a directory belongs to the hashed user.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from vfs.errors import InvalidName
from vfs.naming import is_user_directory, safe_uid


class Claims:
    """The users that are known, by the names that a directory of theirs may have."""

    __slots__ = ("_raw", "_safe")

    def __init__(self, uids: Iterable[str]) -> None:
        """What is no uid claims nothing."""
        self._safe: dict[bytes, str] = {}
        self._raw: dict[bytes, str] = {}
        for uid in uids:
            with suppress(InvalidName):
                self._safe[safe_uid(uid).encode()] = uid
                self._raw[uid.encode()] = uid

    def owner(self, name: bytes) -> str | None:
        """The uid of the user whose directory this is; None if it is nobody's who is known."""
        return self._safe.get(name, self._raw.get(name))

    def rival(self, name: bytes) -> str | None:
        """The uid of a second user who used this directory as well: the name is their raw uid."""
        other = self._raw.get(name)
        return None if other == self.owner(name) else other


def own_name(name: bytes) -> bytes | None:
    """The directory of a user of whom nothing but the name of the old directory is known.

    A name in the hashed form stays; any other is taken for a uid. None if it can be neither.
    """
    if is_user_directory(name):
        return name
    try:
        return safe_uid(name.decode("utf-8")).encode()
    except (UnicodeDecodeError, InvalidName):
        return None
