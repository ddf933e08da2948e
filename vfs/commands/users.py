"""`vfs users`: who has a workspace."""

from __future__ import annotations

from vfs.commands import output
from vfs.commands.base import Settings, pass_settings, verb


@verb("users", examples=("vfs users", "vfs users --json | jq -r '.users[].directory'"))
@pass_settings
def command(settings: Settings) -> None:
    """List the users, by the names of their directories.

    A uid of letters, digits, _ and - is its own directory name. Any other is shown as uid- and a
    digest, from which the uid cannot be told.
    """
    with settings.open() as storage:
        users = storage.users()
    if settings.json:
        output.emit({"users": [{"directory": name} for name in users]})
    else:
        for name in users:
            output.say(name)
