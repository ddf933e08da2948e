"""Where a symbolic link leads, as far as its text alone can tell: nothing is opened or resolved."""

from __future__ import annotations


def is_contained(text: bytes, depth: int) -> bool:
    """Whether a link's text provably leads to something beneath a root, or to the root.

    `depth` counts the directories from the root to the one that holds the link, that one included.
    The text must be relative, begin with at most `depth` times `..`, and hold no `..` after a name:
    such a name might itself be a link that leads somewhere of another depth.
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
