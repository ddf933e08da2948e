"""`vfs ls`: what is in a directory."""

from __future__ import annotations

import stat
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
    from vfs.walking import Limits


@verb(
    "ls",
    examples=(
        "vfs ls alice",
        "vfs ls alice /projects",
        "vfs ls alice --workdir projects/0b0e3a52-7c1d-4c8e-9d5f-6a3b1f2e4d5c /outputs",
        "vfs ls alice /big --limit 5000",
    ),
)
@uid_argument
@path_argument(default="/")
@workdir_option
@limit_options("Show at most N entries. [default: 500]", "entries_per_directory", "entries")
@pass_settings
def command(
    settings: Settings, uid: str, path: tuple[bytes, ...], workdir: str | None, limits: Limits
) -> None:
    """List a directory, or show one entry.

    Each line has the mode, the owner, the size in bytes, the time in UTC and the name. Directories
    come first. Links are listed as links.
    """
    from vfs.walking import Cut, Entry

    with settings.open_scope(uid, workdir) as scope:
        status = scope.stat(path)
        if stat.S_ISDIR(status.mode):
            listing = scope.list(path, limits=limits)
            entries, cut = listing.entries, listing.cut
        else:
            entries, cut = [Entry(path, status)], Cut()
    if settings.json:
        output.emit(
            {
                **output.named("path", output.path_bytes(path)),
                "entries": [output.entry(entry) for entry in entries],
                "cut": output.cut(cut),
            }
        )
        return
    output.columns(entries, [printable(entry.name) for entry in entries])
    output.note_cut(cut)
