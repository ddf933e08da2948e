"""`vfs stat`: all about one entry."""

from __future__ import annotations

import stat

from vfs.commands import output
from vfs.commands.base import (
    Settings,
    pass_settings,
    path_argument,
    uid_argument,
    verb,
    workdir_option,
)


@verb("stat", examples=("vfs stat alice /notes.txt", "vfs stat alice /notes.txt --json | jq .etag"))
@uid_argument
@path_argument()
@workdir_option
@pass_settings
def command(settings: Settings, uid: str, path: tuple[bytes, ...], workdir: str | None) -> None:
    """Show everything about one entry, its ETag included.

    Of a link it shows the link itself, and the text in it.
    """
    from vfs.saving import etag
    from vfs.walking import Entry

    with settings.open_scope(uid, workdir) as scope:
        status = scope.stat(path)
        target = scope.read_link(path) if stat.S_ISLNK(status.mode) else None
    document = {
        **output.entry(Entry(path, status)),
        "changed": output.time_text(status.ctime, status.ctime_nsec),
        "allocated": status.allocated,
        "names": status.nlink,
        "etag": etag(status),
        **({} if target is None else output.named("target", target)),
    }
    if settings.json:
        output.emit(document)
        return
    for key, value in document.items():
        output.say(f"{key:<14}{value}")
