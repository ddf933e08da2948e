"""The two files that existing deployments look for, written last.

``<user-data>/.v072-runtime-identity`` says that everything belongs to 1000:1000, and
``<skill-store>/.legacy-migration-complete`` that the skills have been taken over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from migrator.ground import Ground
from migrator.journal import Journal
from migrator.units import RootName
from vfs.beneath import Directory
from vfs.errors import NotFound, VfsError
from vfs.saving import save
from vfs.workspace import OWNER


@dataclass(frozen=True, slots=True)
class Marker:
    """One of them."""

    root: RootName
    name: bytes
    content: bytes


MARKERS: Final = (
    Marker("user-data", b".v072-runtime-identity", b"%d:%d\n" % OWNER),
    Marker("skill-store", b".legacy-migration-complete", b"1\n"),
)


def write(roots: Mapping[RootName, Directory], ground: Ground, journal: Journal) -> None:
    """Writes those that are missing; each is whole and durable, or not there."""
    for marker in MARKERS:
        root = roots[marker.root]
        if is_written(root, marker):
            continue
        ground.touch(marker.root, ())
        journal.record("marker", root=marker.root, name=marker.name.decode())
        save(root, (marker.name,), marker.content, mode=0o600, owner=OWNER)


def missing(roots: Mapping[RootName, Directory]) -> Iterator[Marker]:
    """Those that are not there as they should be."""
    for marker in MARKERS:
        if not is_written(roots[marker.root], marker):
            yield marker


def remove(roots: Mapping[RootName, Directory], written: set[tuple[str, bytes]]) -> None:
    """Removes those that this migration wrote, if they are as it wrote them."""
    for marker in MARKERS:
        root = roots.get(marker.root)
        if root is None or (marker.root, marker.name) not in written:
            continue
        if is_written(root, marker):
            with suppress(NotFound):
                root.unlink((marker.name,))


def is_written(root: Directory, marker: Marker) -> bool:
    """Whether the marker is there with its content."""
    try:
        fd = root.open_file((marker.name,))
    except VfsError:
        return False
    try:
        return os.read(fd, len(marker.content) + 1) == marker.content
    finally:
        os.close(fd)
