"""`vfs mounts`: what `vfs mount` has mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vfs.commands import output
from vfs.commands.base import Settings, pass_settings, verb
from vfs.printable import printable

if TYPE_CHECKING:
    from vfs.mount.registry import Record

HEADER = ("USER", "ENGINE", "MODE", "PID", "STATE", "MOUNTPOINT")


@verb("mounts", examples=("vfs mounts", "vfs mounts --json | jq -r '.mounts[].point'"))
@pass_settings
def command(settings: Settings) -> None:
    """List the mounts of `vfs mount` that you made, dead ones too."""
    from vfs.mount import registry

    records = registry.entries()
    if settings.json:
        output.emit({"mounts": [_document(record) for record in records]})
    elif records:
        output.table([HEADER, *map(_row, records)])


def _row(record: Record) -> tuple[str, ...]:
    transport = record.options.get("transport")
    return (
        printable(record.label),
        record.engine if transport is None else f"{record.engine}/{transport}",
        record.options.get("mode", "?"),
        "-" if record.pid is None else str(record.pid),
        "dead" if record.dead else "alive",
        printable(record.point),
    )


def _document(record: Record) -> dict[str, object]:
    one_user = record.options.get("users") == "one"
    return {
        **output.named("point", record.point),
        "uid": record.label if one_user else None,
        "engine": record.engine,
        "transport": record.options.get("transport"),
        "writable": record.options.get("mode") == "rw",
        "pid": record.pid,
        "state": "dead" if record.dead else "alive",
    }
