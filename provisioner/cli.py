"""Placeholder of the `provisioner` command: says that this part is not built yet."""

from __future__ import annotations

import sys


def main() -> int:
    """Return exit status 2, that of a command used wrongly, after one line on stderr."""
    print("provisioner: this part is not built yet in this version of gemspace", file=sys.stderr)
    return 2
