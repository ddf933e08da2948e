"""Names made from what users and platforms bring: directories, sandboxes, skills.

What is promised:

- `safe_uid` and `sandbox_id` are injective, but for a collision of SHA-256: two users never share
  a directory, and two pairs of user and scope never share a sandbox, whoever chose them and why.
- They are total: every text that can be written as UTF-8 and is not empty has a name. Nothing is
  stripped, folded or normalised first, since that would map two users on one name.
- They are stable: the same text has the same name on every machine and in every version.

Plain below means the ASCII letters, digits, ``_`` and ``-``, matched to the very end: Python's
``\\w`` takes every alphabet and its ``$`` stops before a final newline.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from vfs.errors import InvalidName
from vfs.printable import printable

NAME_MAX: Final = 255
"""The longest file name in bytes, on Linux (limits.h) and its common filesystems."""

SLUG_MAX: Final = 128
"""The longest skill slug in bytes.

The Agent Skills format allows 64 characters; twice that takes older stores too, and leaves half of
`NAME_MAX` to what a temporary or retired copy beside the skill adds to its name.
"""

SANDBOX_ID_BITS: Final = 130
"""How many bits of SHA-256 a sandbox id carries: 26 letters of base32.

Some pair among a million million of sandboxes collides with a probability of 2**-51.
"""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_HASHED: Final = re.compile(r"uid-[0-9a-f]{64}")
_SLUG: Final = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

_SHOWN_MAX: Final = 80
"""Characters of a refused name that a message repeats."""


def safe_uid(uid: str) -> str:
    """Return the directory name of a user: at most 255 characters, all of them plain.

    A plain uid is its own name; any other becomes ``uid-`` and the 64 lower-case hex digits of the
    SHA-256 of its UTF-8. A plain uid that has this very form is hashed as well, so that nobody gets
    another's directory by registering its name; so is one longer than `NAME_MAX`.

    Raises `InvalidName` for an empty uid and for text that cannot be written as UTF-8.
    """
    exact = _utf8(uid, "user id")
    if len(exact) <= NAME_MAX and _PLAIN.fullmatch(uid) and not _HASHED.fullmatch(uid):
        return uid
    return f"uid-{hashlib.sha256(exact).hexdigest()}"


def is_user_directory(name: bytes) -> bool:
    """Whether `safe_uid` makes this name of some uid."""
    try:
        text = name.decode("ascii")
    except UnicodeDecodeError:
        return False
    return _HASHED.fullmatch(text) is not None or (text != "" and safe_uid(text) == text)


def sandbox_id(uid: str, runtime_scope_id: str) -> str:
    """Return the default id of a user's sandbox in a runtime scope: ``s`` and 26 of ``a-z2-7``.

    The Workdir has no part in it: one sandbox serves all of them. 27 characters that begin with a
    letter fit wherever the id is used, a prefix included: the strictest is the name of a Kubernetes
    Service (a DNS label of RFC 1035, at most 63 characters).

    Each text is hashed behind its length, so no pair of texts reads as another pair.

    Raises `InvalidName` where `safe_uid` would, for either text.
    """
    digest = hashlib.sha256(b"gemspace sandbox id")
    for exact in (_utf8(uid, "user id"), _utf8(runtime_scope_id, "runtime scope id")):
        digest.update(len(exact).to_bytes(8, "big"))
        digest.update(exact)
    letters = base64.b32encode(digest.digest()).decode("ascii").lower()
    return f"s{letters[: SANDBOX_ID_BITS // 5]}"


def skill_slug(text: str) -> str:
    """Return `text` if it is a skill slug: ``[a-z0-9]+(-[a-z0-9]+)*``, at most `SLUG_MAX` long.

    Raises `InvalidName` otherwise; nothing is made into a slug that is not one.
    """
    if len(text) <= SLUG_MAX and _SLUG.fullmatch(text):
        return text
    raise InvalidName(
        f"not a skill slug: {_shown(text)}",
        fix=f"use words of a-z and 0-9 joined by single hyphens, at most {SLUG_MAX} characters",
    )


def _utf8(text: str, what: str) -> bytes:
    if not text:
        raise InvalidName(f"the {what} is empty", fix=f"give a {what}")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidName(
            f"the {what} cannot be written as UTF-8: {_shown(text)}",
            fix="give it as valid Unicode text",
        ) from None


def _shown(text: str) -> str:
    if not text:
        return "(empty)"
    return printable(text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…")
