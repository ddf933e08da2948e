"""`vfs user add`: a workspace for a new user."""

from __future__ import annotations

import click

from vfs.commands import output
from vfs.commands.base import Settings, json_option, pass_settings, verb
from vfs.printable import printable


@click.group("user", no_args_is_help=False)
@json_option
def command() -> None:
    """Add users."""


@verb("add", examples=("vfs user add alice", "vfs user add alice@example.org"))
@click.argument("uid")
@pass_settings
def add(settings: Settings, uid: str) -> None:
    """Make the workspace of a new user, and the folder of their skills."""
    with settings.open() as storage, storage.add_user(uid) as workspace:
        directory = workspace.name
    if settings.json:
        output.emit({"uid": uid, "directory": directory})
    else:
        output.say(f"{printable(uid)} has a workspace, in the directory {directory}")


command.add_command(add)
