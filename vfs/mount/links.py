"""What a mount does with symbolic links: pure decisions on a link's text."""

from __future__ import annotations

from enum import StrEnum


class Links(StrEnum):
    """`--links`: how the mount treats symbolic links."""

    SHOW = "show"
    """Listed as links; reading or following them is refused."""
    HIDE = "hide"
    """Not listed and not found; their names stay taken."""
    CONTAINED = "contained"
    """A link that provably stays inside works; every other is as in SHOW."""


def is_contained(text: bytes, depth: int) -> bool:
    """Whether a link's text provably leads to something beneath the root.

    `depth` counts the directories from the root to the one that holds the link. The text must be
    relative, begin with at most `depth` times `..`, and hold no `..` after a name: such a name
    might itself be a link that leads somewhere of another depth.
    """
    if not text or text.startswith(b"/"):
        return False
    climbs = 0
    named = False
    for part in text.split(b"/"):
        if part in (b"", b"."):
            continue
        if part == b"..":
            climbs += 1
            if named or climbs > depth:
                return False
        else:
            named = True
    return True
