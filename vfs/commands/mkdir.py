"""`vfs mkdir`: a new directory."""

from __future__ import annotations

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


@verb("mkdir", examples=("vfs mkdir alice /projects", "vfs mkdir alice -p /reports/2026/q1"))
@uid_argument
@path_argument()
@workdir_option
@click.option(
    "-p", "--parents", is_flag=True, help="Make those above it too; one that is there is fine."
)
@pass_settings
def command(
    settings: Settings, uid: str, path: tuple[bytes, ...], workdir: str | None, parents: bool
) -> None:
    """Make a directory, of mode 0700."""
    from vfs.walking import Entry

    with settings.open_scope(uid, workdir, create=True) as scope:
        scope.make_directory(path, parents=parents)
        status = scope.stat(path)
    if settings.json:
        output.emit(output.entry(Entry(path, status)))
