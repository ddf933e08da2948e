"""The layouts of old saves, a module each, and which of them the saves have."""

from __future__ import annotations

from typing import Final

from migrator.errors import Precondition, Usage
from migrator.layouts import deerflow, thread_local, yuxi
from migrator.layouts.base import Layout
from vfs.beneath import Directory
from vfs.printable import printable

LAYOUTS: Final = (deerflow.LAYOUT, yuxi.LAYOUT, thread_local.LAYOUT)
"""In the order in which they are looked for: what shows the signs of two is the former."""


def find(source: Directory, name: str | None, *, has_database: bool) -> Layout:
    """The layout called `name`, or the one that the saves show.

    `has_database` is whether a database was named: only Yuxi's saves have one, and they may be
    otherwise empty. Usage for a name that is none and for a database that the layout does not have;
    Precondition if the saves show no layout, or both users' threads and users' workspaces.
    """
    layout = _named(name) if name is not None else _shown(source, has_database)
    if has_database and not layout.has_database:
        raise Usage(
            f"saves of the layout {layout.name} have no database",
            fix="leave --database out and say whose threads they are with --owners or --owner",
        )
    return layout


def _named(name: str) -> Layout:
    for layout in LAYOUTS:
        if layout.name == name:
            return layout
    names = ", ".join(layout.name for layout in LAYOUTS)
    raise Usage(f"no layout is called {printable(name)}", fix=f"use one of {names}")


def _shown(source: Directory, has_database: bool) -> Layout:
    for layout in LAYOUTS:
        if layout.recognises(source) or (
            has_database and layout.has_database and yuxi.is_bare(source)
        ):
            if layout is deerflow.LAYOUT and yuxi.has_users(source):
                raise Precondition(
                    f"the source holds both {deerflow.LAYOUT.signs} and threads/shared",
                    fix=f"say which it is: --layout {deerflow.LAYOUT.name} or {yuxi.LAYOUT.name}",
                )
            return layout
    looked_for = "; ".join(f"{layout.signs} ({layout.name})" for layout in LAYOUTS)
    raise Precondition(
        f"the source holds no old saves; looked for {looked_for}",
        fix="name the folder that holds them with --source, or insist with --layout",
    )
