"""`vfs umount`: takes a mount of `vfs mount` away."""

from __future__ import annotations

import click

from vfs.commands import output
from vfs.commands.base import Settings, pass_settings, verb
from vfs.verbs import HostPath


@verb(
    "umount",
    examples=(
        "vfs umount /mnt/alice",
        "vfs umount --lazy /mnt/alice     # out of sight at once, gone when nobody uses it",
    ),
)
@click.argument("mountpoint", type=HostPath())
@click.option("--lazy", is_flag=True, help="Take it out of sight even while it is in use.")
@pass_settings
def command(settings: Settings, mountpoint: bytes, lazy: bool) -> None:
    """Take away a mount of `vfs mount`, a dead one too.

    Mounts of other programs are refused.
    """
    from vfs.mount.unmounting import release

    released = release(mountpoint, lazy=lazy)
    if settings.json:
        output.emit({**output.named("point", released.point), "dead": released.dead})
