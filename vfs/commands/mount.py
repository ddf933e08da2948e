"""`vfs mount`: a workspace shown at a directory, for ordinary tools."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

import click

from vfs.commands import output
from vfs.commands.base import Settings, pass_settings, verb
from vfs.mount.links import Links
from vfs.printable import printable
from vfs.verbs import HostPath

if TYPE_CHECKING:
    from vfs.mount.request import Mounted, MountRequest

MAX_CACHE = 86_400.0
"""A day: what is cached for longer is never looked at again."""


def _seconds(_ctx: click.Context, _param: click.Parameter, value: float) -> float:
    if not (math.isfinite(value) and 0 <= value <= MAX_CACHE):
        raise click.BadParameter(f"{value} is not between 0 and {MAX_CACHE:.0f}.")
    return value


@verb(
    "mount",
    examples=(
        "vfs mount alice /mnt/alice                        # user-data/ and skills/, read-only",
        "vfs mount alice /mnt/alice --writable",
        "vfs mount alice /mnt/report --workdir projects/0b0e3a52-7c1d-4c8e-9d5f-6a3b1f2e4d5c",
        "vfs mount alice /mnt/alice --skills pdf,csv-report",
        "vfs mount --all /mnt/everyone                     # <user>/{user-data,skills}",
        "vfs mount alice /mnt/alice --foreground           # for systemd; ends on SIGTERM, Ctrl-C",
        "vfs mounts; vfs umount /mnt/alice",
    ),
)
@click.argument("places", nargs=-1, required=True, metavar="[UID] MOUNTPOINT", type=HostPath())
@click.option("--all", "everyone", is_flag=True, help="Show every user; no UID then.")
@click.option("--workdir", metavar="WORKDIR", help="Show this Workdir alone, as the root.")
@click.option("--skills", metavar="A,B", help="Show these skills only; '' for none.")
@click.option(
    "--writable/--read-only",
    help="Allow writing to user-data. Skills, and the agents' rules, stay. [default: read-only]",
)
@click.option(
    "--owner",
    type=click.Choice(["self", "keep"]),
    default="self",
    show_default=True,
    help="Whose entries appear to be: the caller's, or those they are on the disk.",
)
@click.option("--allow-other", is_flag=True, help="Let other users in, as modes and owners allow.")
@click.option(
    "--links",
    type=click.Choice([kind.value for kind in Links]),
    default=Links.SHOW.value,
    show_default=True,
    help="List links and refuse to follow them; hide them; or follow those that provably stay "
    "inside.",
)
@click.option(
    "--cache",
    type=float,
    default=1.0,
    show_default=True,
    callback=_seconds,
    metavar="SECONDS",
    help="How long the kernel may answer without asking: changes made outside show after that. "
    "FUSE engine alone; the kernel's own shows them at once.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "kernel", "fuse"]),
    default="auto",
    show_default=True,
    help="auto takes the kernel's where it can serve what is asked.",
)
@click.option(
    "--transport",
    type=click.Choice(["auto", "device", "pyfuse3"]),
    default="auto",
    show_default=True,
    help="How the FUSE engine talks to the kernel: itself (root), or by libfuse.",
)
@click.option(
    "--low-latency",
    is_flag=True,
    help="Keep idle processors awake while the mount is busy: up to twice as fast on virtual "
    "machines, and takes power. Root's FUSE engine alone.",
)
@click.option("--foreground", is_flag=True, help="Stay until unmounted, and log to stderr.")
@click.option(
    "--log",
    metavar="FILE",
    type=HostPath(),
    help="Append the log to a file. [default: the system's log]",
)
@pass_settings
def command(
    settings: Settings,
    places: tuple[bytes, ...],
    everyone: bool,
    workdir: str | None,
    skills: str | None,
    writable: bool,
    owner: str,
    allow_other: bool,
    links: str,
    cache: float,
    engine: str,
    transport: str,
    low_latency: bool,
    foreground: bool,
    log: bytes | None,
) -> None:
    """Show a workspace at an empty directory: user-data/ and skills/.

    Links are listed and not followed, special files are listed and not opened. It returns when the
    mount is live, and says which engine serves it.
    """
    from vfs.mount import launch
    from vfs.mount.request import MountRequest

    if len(places) != (1 if everyone else 2):
        raise click.UsageError("Give --all and MOUNTPOINT, or UID and MOUNTPOINT.")
    if workdir is not None and (everyone or skills is not None):
        raise click.UsageError("--workdir goes with neither --all nor --skills.")
    uid = None if everyone else places[0].decode("utf-8", "surrogateescape")
    request = MountRequest(
        uid=uid,
        workdir=None if workdir is None else os.fsencode(workdir),
        skills=None if skills is None else tuple(slug for slug in skills.split(",") if slug),
        writable=writable,
        keep_owner=owner == "keep",
        allow_other=allow_other,
        links=Links(links),
        cache=cache,
        low_latency=low_latency,
        foreground=foreground,
        log=log,
        engine=None if engine == "auto" else "kernel" if engine == "kernel" else "fuse",
        transport=None if transport == "auto" else "device" if transport == "device" else "pyfuse3",
    )

    def report(mounted: Mounted) -> None:
        if settings.json:
            output.emit(_document(request, mounted))
        else:
            _say(request, mounted)

    with settings.open() as storage, settings.open_folder() as folder:
        launch.mount(storage, request, places[-1], folder=folder, report=report)


def _say(request: MountRequest, mounted: Mounted) -> None:
    shown = "all users" if request.uid is None else printable(request.uid)
    engine = "the kernel engine"
    if mounted.transport is not None:
        engine = f"the FUSE engine on {mounted.transport}"
    mode = "writable" if request.writable else "read-only"
    output.say(f"{shown} at {printable(mounted.point)}, {mode}, by {engine}")
    for reason in mounted.reasons.values():
        output.say(f"  passed over: {reason}")


def _document(request: MountRequest, mounted: Mounted) -> dict[str, object]:
    return {
        **output.named("point", mounted.point),
        "uid": request.uid,
        "engine": mounted.engine,
        "transport": mounted.transport,
        "writable": request.writable,
        "pid": mounted.pid,
        "passed_over": dict(mounted.reasons),
    }
