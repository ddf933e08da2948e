"""What units left in the old saves, by their manifests: special files, links, names taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

from migrator import manifest
from migrator.findings import Finding
from migrator.manifest import Left
from migrator.session import Session
from vfs.printable import printable

SHOWN: Final = 200
"""Entries of each kind that are told one by one; the rest are counted."""

_MESSAGES: Final = {
    "special_file": "a FIFO, socket or device: left",
    "source_is_a_link": "a symbolic link has the place of a directory: left, not followed",
    "source_is_no_directory": "it is no directory: left",
    "name_taken_by_newer_file": "a newer file of another thread has its name: left",
    "name_taken_by_directory": "a directory of another thread has its name: left",
    "too_large": "the new file system cannot hold a file of its size: left",
    "attributes_not_kept": "the copy lacks some extended attributes: the original stays",
}
"""By the codes of `migrator.manifest.Left`; docs/migrator.md lists them."""


def findings(session: Session) -> list[Finding]:
    """What is left by all units, of this run and of earlier ones."""
    told = Counter[str]()
    found = []
    for left in _left(session):
        told[left.code] += 1
        if told[left.code] <= SHOWN:
            found.append(
                Finding(
                    left.code,
                    "warning",
                    printable(b"/".join(left.source)),
                    _MESSAGES.get(left.code, "left"),
                    "it stays in the saves, `finalize` does not remove it",
                )
            )
    for code, count in told.items():
        if count > SHOWN:
            found.append(Finding(code, "warning", "more", f"{count - SHOWN} more of these"))
    return found


def _left(session: Session) -> Iterator[Left]:
    units = session.recorded_units()
    for key, known in session.journal.state.units.items():
        if not known.fields.get("left"):
            continue
        records = manifest.read(session.records(units[key]))
        some = (record for record in records if isinstance(record, Left))
        yield from islice(some, known.fields["left"])
