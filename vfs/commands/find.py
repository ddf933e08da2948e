"""`vfs find`: entries by name and type."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from vfs.commands import output
from vfs.commands.base import (
    Settings,
    limit_options,
    pass_settings,
    path_argument,
    uid_argument,
    verb,
    workdir_option,
)

if TYPE_CHECKING:
    from vfs.walking import Kind, Limits

TYPES: dict[str, Kind] = {"f": "file", "d": "directory", "l": "link"}


@verb(
    "find",
    examples=(
        "vfs find alice --name report             # report anywhere in the name, in any case",
        "vfs find alice /projects --name '*.csv' --type f",
        "vfs find alice --type l --null | xargs -0 -r -n1 vfs rm alice",
    ),
)
@uid_argument
@path_argument(default="/")
@workdir_option
@click.option(
    "--name",
    metavar="PATTERN",
    help="A pattern of * ? [...] for the whole name; without these, text somewhere in it. Upper "
    "and lower case are the same.",
)
@click.option("--type", "kind", type=click.Choice([*TYPES]), help="A file, directory or link.")
@click.option("--null", is_flag=True, help="Print exact bytes, a NUL behind each path.")
@limit_options("Find at most N. [default: 100, in the nearest 10000 entries]", "hits")
@pass_settings
def command(
    settings: Settings,
    uid: str,
    path: tuple[bytes, ...],
    workdir: str | None,
    name: str | None,
    kind: str | None,
    null: bool,
    limits: Limits,
) -> None:
    """Find entries beneath a directory, and print their paths."""
    if null and settings.json:
        raise click.UsageError("--null and --json exclude each other.")
    with settings.open_scope(uid, workdir) as scope:
        hits = scope.search(path, pattern=name, kind=TYPES.get(kind or ""), limits=limits)
    if settings.json:
        output.emit(
            {
                **output.named("path", output.path_bytes(path)),
                "entries": [output.entry(entry) for entry in hits.entries],
                "cut": output.cut(hits.cut),
            }
        )
        return
    for entry in hits.entries:
        if null:
            sys.stdout.buffer.write(output.path_bytes(entry.path) + b"\0")
        else:
            output.say(output.path_text(entry.path))
    output.note_cut(hits.cut)
