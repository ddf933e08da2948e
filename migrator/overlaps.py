"""Where the new tree, or the migration's own folder, lies within the old saves."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import permutations
from typing import Final

from migrator.errors import Precondition
from migrator.layouts import yuxi
from migrator.layouts.base import Layout
from migrator.markers import MARKERS
from migrator.places import ROOTS, is_same, root_path
from migrator.request import Request
from migrator.units import Path, RootName
from vfs.beneath import Directory
from vfs.errors import LinkRefused, NotADirectory, NotFound
from vfs.printable import printable
from vfs.workspace import SHARED

_TAKEN: Final = (b"threads", b"users", b"skills")
"""Entries of the saves, of any layout, from which files are taken over."""


def is_in_place(source: Directory, roots: Mapping[RootName, Directory]) -> bool:
    """Whether the new user-data root is the old `threads`."""
    return _is_at(source, (yuxi.THREADS,), roots.get("user-data"))


def _is_at(source: Directory, path: Path, root: Directory | None) -> bool:
    """Whether a root is this very directory of the saves."""
    if root is None:
        return False
    try:
        with source.directory(path) as directory:
            return is_same(directory, root)
    except (LinkRefused, NotADirectory, NotFound):
        return False


def refuse_overlap(request: Request, layout: Layout, in_place: bool) -> None:
    """Raises Precondition for a root, or a state folder, in what is taken over."""
    if in_place and layout is not yuxi.LAYOUT:
        raise Precondition(
            f"the user-data root is the folder of threads, which the layout {layout.name} "
            "cannot have",
            fix="name another folder with --user-data",
        )
    places = {f"--{name}": root_path(request, name) for name in ROOTS}
    for one, other in permutations(places, 2):
        if beneath(places[one], places[other]) is not None:
            raise Precondition(
                f"{other} {printable(places[other])} is {one} {printable(places[one])}, or in it",
                fix="name a folder of its own for each root",
            )
    for option, place in {**places, "--state": request.state}.items():
        path = beneath(request.source, place)
        if path is not None and (not path or (len(path) > 1 and path[0] in _TAKEN)):
            raise Precondition(
                f"{printable(place)} is in what is taken over, or holds it",
                fix=f"name another folder with {option}",
            )


def beneath(top: bytes, place: bytes) -> Path | None:
    """The path of a host path beneath `top`, links followed; None if it is elsewhere."""
    above, below = (
        tuple(name for name in os.path.realpath(path).split(b"/") if name) for path in (top, place)
    )
    return below[len(above) :] if below[: len(above)] == above else None


def passed_by(
    request: Request, source: Directory, roots: Mapping[RootName, Directory], in_place: bool
) -> frozenset[Path]:
    """Entries of the saves that are no part of them: the new tree, and the migration's own."""
    passed = {beneath(request.source, request.state)}
    passed.update(beneath(request.source, root_path(request, name)) for name in ROOTS)
    if in_place:
        passed.discard((yuxi.THREADS,))
        passed.update((yuxi.THREADS, marker.name) for marker in MARKERS)
    if _is_at(source, (yuxi.SKILLS,), roots.get("skill-store")):
        passed.discard((yuxi.SKILLS,))
        passed.add((yuxi.SKILLS, SHARED))
        passed.update((yuxi.SKILLS, marker.name) for marker in MARKERS)
    return frozenset(path for path in passed if path)
