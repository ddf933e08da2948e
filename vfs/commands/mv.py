"""`vfs mv`: another name for an entry."""

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


@verb(
    "mv",
    examples=(
        "vfs mv alice /draft.txt /projects/final.txt",
        "vfs mv alice /draft.txt /final.txt --no-clobber",
        "vfs mv alice /live /next --exchange      # both keep existing, each as the other",
    ),
)
@uid_argument
@path_argument("source")
@path_argument("target")
@workdir_option
@click.option("--no-clobber", is_flag=True, help="Refuse to replace anything.")
@click.option("--exchange", is_flag=True, help="Swap the two, in one step.")
@pass_settings
def command(
    settings: Settings,
    uid: str,
    source: tuple[bytes, ...],
    target: tuple[bytes, ...],
    workdir: str | None,
    no_clobber: bool,
    exchange: bool,
) -> None:
    """Rename SOURCE to exactly TARGET, in one step.

    A directory as TARGET is not moved into: name the entry in it. A file replaces a file, a
    directory an empty directory.
    """
    from vfs.walking import Entry

    if no_clobber and exchange:
        raise click.UsageError("--no-clobber and --exchange exclude each other.")
    with settings.open_scope(uid, workdir) as scope:
        scope.move(source, target, clobber=not no_clobber, exchange=exchange)
        status = scope.stat(target)
    if settings.json:
        output.emit(output.entry(Entry(target, status)))
