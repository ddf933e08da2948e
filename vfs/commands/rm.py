"""`vfs rm`: removes entries."""

from __future__ import annotations

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
from vfs.errors import IsADirectory

if TYPE_CHECKING:
    from vfs.scope import Scope


@verb("rm", examples=("vfs rm alice /notes.txt", "vfs rm alice -r /projects/old"))
@uid_argument
@path_argument()
@workdir_option
@click.option("-r", "--recursive", is_flag=True, help="A directory, with all that is in it.")
@pass_settings
def command(
    settings: Settings, uid: str, path: tuple[bytes, ...], workdir: str | None, recursive: bool
) -> None:
    """Remove a file, a link as the link, or with -r a whole directory.

    Before a directory loses anything, what could not be removed is looked for: if there is any, it
    is named and all stays.
    """
    with settings.open_scope(uid, workdir) as scope:
        if recursive:
            scope.remove(path)
        else:
            _remove_one(scope, path)
    if settings.json:
        output.emit(output.named("removed", output.path_bytes(path)))


def _remove_one(scope: Scope, path: tuple[bytes, ...]) -> None:
    try:
        scope.unlink(path)
    except IsADirectory as exc:
        raise IsADirectory(
            f"cannot remove {output.path_text(path)}: it is a directory",
            fix="use -r to remove it with all that is in it",
            path=output.path_bytes(path),
        ) from exc
