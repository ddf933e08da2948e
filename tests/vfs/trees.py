"""Trees for the tests of walks: made from a table, and read back as one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

Plan = dict[str, "Plan | bytes | str"]
"""Names with bytes (a file's), text (a link's) or a plan (a directory's)."""


def plant(top: Path, plan: Plan) -> None:
    """Makes the entries of a plan in an existing directory."""
    for name, content in plan.items():
        path = top / name
        if isinstance(content, dict):
            path.mkdir()
            plant(path, content)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.symlink_to(content)


def found(top: Path) -> Plan:
    """The plan that makes what is there; a special file is its type's letter."""
    plan: Plan = {}
    for path in sorted(top.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            plan[path.name] = os.readlink(path)
        elif stat.S_ISDIR(mode):
            plan[path.name] = found(path)
        elif stat.S_ISREG(mode):
            plan[path.name] = path.read_bytes()
        else:
            plan[path.name] = stat.filemode(mode)[0]
    return plan


def entries_of(plan: Plan, prefix: tuple[bytes, ...] = ()) -> list[tuple[bytes, ...]]:
    """The paths of a plan in the order of a walk."""
    paths = []
    for name in sorted(map(os.fsencode, plan)):
        paths.append((*prefix, name))
        below = plan[os.fsdecode(name)]
        if isinstance(below, dict):
            paths += entries_of(below, (*prefix, name))
    return paths
