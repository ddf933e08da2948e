"""`vfs init`: the folders of a storage."""

from __future__ import annotations

from vfs.commands import output
from vfs.commands.base import Settings, pass_settings, verb


@verb(
    "init",
    examples=(
        "vfs --storage /srv/gemspace init",
        "GEMSPACE_STORAGE=/srv/gemspace vfs init",
    ),
)
@pass_settings
def command(settings: Settings) -> None:
    """Make the folders of a storage, where they are missing.

    As root they are given to 1000:1000. What is there already stays as it is.
    """
    from vfs.workspace import Storage

    with Storage.create(**settings.roots()) as storage:
        users = len(storage.users())
    if settings.json:
        output.emit({"users": users})
    else:
        output.say(f"the storage is ready, with {output.counted(users, 'user')}")
