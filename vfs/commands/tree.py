"""`vfs tree`: a directory and all that is beneath it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

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
from vfs.printable import printable

if TYPE_CHECKING:
    from vfs.walking import Entry, Limits

_MARKS = {"directory": "/", "link": "@", "fifo": "|", "socket": "="}
"""As `ls -F` has them."""


@verb("tree", examples=("vfs tree alice", "vfs tree alice /projects --unlimited"))
@uid_argument
@path_argument(default="/")
@workdir_option
@limit_options(
    "Show at most N entries. [default: 10000, 500 of them in one directory, 600 directories, and "
    "15 levels]",
    "entries",
    "entries_per_directory",
    "directories",
)
@pass_settings
def command(
    settings: Settings, uid: str, path: tuple[bytes, ...], workdir: str | None, limits: Limits
) -> None:
    """Show what is beneath a directory, indented by depth.

    Behind a name / marks a directory, @ a link, | a FIFO, = a socket.
    """
    from vfs.walking import Cut

    cut = Cut()
    with settings.open_scope(uid, workdir) as scope:
        entries = scope.walk(path, limits=limits, cut=cut)
        if settings.json:
            output.emit(
                {
                    **output.named("path", output.path_bytes(path)),
                    "entries": [output.entry(entry) for entry in entries],
                    "cut": output.cut(cut),
                }
            )
            return
        first = next(entries, None)  # before the heading: the path may be none
        output.say(output.path_text(path))
        for entry in chain([] if first is None else [first], entries):
            output.say(_line(entry, len(path)))
    output.note_cut(cut)


def _line(entry: Entry, start: int) -> str:
    indent = "  " * (len(entry.path) - start)
    return f"{indent}{printable(entry.name)}{_MARKS.get(entry.kind, '')}"
