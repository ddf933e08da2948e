"""What a mount may do with symbolic links."""

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
