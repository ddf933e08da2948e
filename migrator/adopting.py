"""What was adopted, proved: a target that had been there already and held all that the unit held.

Its files are others than those that the manifest tells of, so that inodes and times say nothing
about them: they are compared by what is in them, with the digests, or with the saves themselves as
long as these are there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Any

from migrator import manifest
from migrator.comparing import Count, Difference, Proof
from migrator.content import SPARSE, open_regular, text_digest
from migrator.cursor import ABSENT
from migrator.manifest import Entries
from migrator.merging import same_content
from migrator.units import Unit
from vfs.beneath import Directory
from vfs.errors import VfsError


def verify(
    unit: Unit,
    root: Directory,
    records: Iterable[dict[str, Any]],
    *,
    source: Directory | None,
    count: Count,
) -> list[Difference]:
    """What of an adopted unit is not in its target as the manifest and the saves tell.

    Without `source`, of what was linked only types and sizes are compared. Raises as
    `migrator.comparing.verify`.
    """
    with _Proof(unit, unit.target, root, source, count) as proof:
        proof.go(manifest.read(records))
        return proof.differences()


class _Proof(Proof):
    """The proof of a unit that was adopted."""

    def _prove_linked(self, record: Entries, directory: Directory) -> None:
        self._prove(record, None, directory)

    def _prove_copied(self, record: Entries, digests: list[str], directory: Directory) -> None:
        self._prove(record, digests, directory)

    def _prove(self, record: Entries, digests: list[str] | None, directory: Directory) -> None:
        saves = None if digests is not None else self._saves(record)
        for index, (name, size, attributes) in enumerate(
            zip(record.names, record.size, record.attributes, strict=True)
        ):
            self._name = name
            try:
                status = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
            except FileNotFoundError:
                self._differ((*record.path, name), "missing")
                continue
            if stat.S_IFMT(status.st_mode) != stat.S_IFMT(attributes[0]):
                code = "type"
            elif status.st_size != size:
                code = "size"
            elif digests is not None:
                same = self._digest(directory, name, status, digests[index]) == digests[index]
                code = "" if same else "content"
            elif saves is not None:
                code = self._compare_with(saves, directory, name, status.st_mode)
            else:
                code = ""
            if code:
                self._differ((*record.path, name), code)
        self._name = b""
        self._count(len(record.names), sum(record.size))

    def _saves(self, record: Entries) -> Directory | None:
        """The directory of the saves that the entries are from, if it is there."""
        if self._sources is None:
            return None
        part = self._unit.parts[record.part]
        try:
            return self._sources.go(record.part, record.path[len(part.target) :])
        except (OSError, VfsError) as exc:
            if exc.errno in ABSENT:
                return None
            raise

    def _compare_with(self, saves: Directory, directory: Directory, name: bytes, mode: int) -> str:
        try:
            status = os.stat(name, dir_fd=saves.fd, follow_symlinks=False)
        except FileNotFoundError:
            return "source_changed"
        same = same_content(directory, name, mode, saves, name, status.st_mode)
        return "" if same else "content"

    def _digest(
        self, directory: Directory, name: bytes, status: os.stat_result, recorded: str
    ) -> str:
        if stat.S_ISLNK(status.st_mode):
            return text_digest(os.readlink(name, dir_fd=directory.fd))
        fd, status = open_regular(directory, name)
        try:
            sparse = recorded.startswith(SPARSE)
            return self._content.digest(fd, status.st_size, lambda _: None, sparse=sparse)
        finally:
            os.close(fd)
