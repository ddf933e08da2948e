"""`vfs du`: how much room things take."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from vfs.commands import output
from vfs.commands.base import (
    Settings,
    pass_settings,
    path_argument,
    uid_argument,
    verb,
    workdir_option,
)
from vfs.errors import NotFound

if TYPE_CHECKING:
    from vfs.tree import Usage


@verb(
    "du",
    examples=("vfs du alice", "vfs du alice /projects -s", "vfs du alice --json | jq .allocated"),
)
@uid_argument
@path_argument(default="/")
@workdir_option
@click.option("-s", "--summarize", is_flag=True, help="Show the total alone.")
@pass_settings
def command(
    settings: Settings,
    uid: str,
    path: tuple[bytes, ...],
    workdir: str | None,
    summarize: bool,
) -> None:
    """Show how much of the disk each entry of a directory takes.

    In bytes, and last the total. All beneath is counted, whatever the depth and number; a file
    with several names once a line.
    """
    from vfs.walking import UNBOUNDED, Entry

    below: list[tuple[Entry, Usage]] = []
    with settings.open_scope(uid, workdir) as scope:
        if not summarize and Entry(path, scope.stat(path)).is_dir:
            for entry in scope.list(path, limits=UNBOUNDED).entries:
                with suppress(NotFound):  # it has gone meanwhile
                    below.append((entry, scope.usage(entry.path)))
        total = scope.usage(path)
    if settings.json:
        entries = [_document(entry.path, usage) for entry, usage in below]
        document = {**_document(path, total), "cut": output.cut(total.cut)}
        output.emit({**document, "entries": entries})
        return
    rows = [(str(usage.allocated), output.path_text(entry.path)) for entry, usage in below]
    output.table([*rows, (str(total.allocated), output.path_text(path))], right=frozenset({0}))
    output.note_cut(total.cut)


def _document(path: tuple[bytes, ...], usage: Usage) -> dict[str, object]:
    return {
        **output.named("path", output.path_bytes(path)),
        "allocated": usage.allocated,
        "size": usage.size,
        "files": usage.files,
        "directories": usage.directories,
        "links": usage.links,
        "special": usage.special,
    }
