"""That the files beside the journal are all there: how large each was is in the journal itself.

They are only ever appended to, and each of their lines is checked when it is read; so what is there
and not shorter than recorded is whole. Without a journal there must be none of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from migrator.errors import Mismatch
from migrator.journal import UNITS, Journal
from migrator.lines import text
from migrator.state import State
from vfs.beneath import Directory
from vfs.errors import NotFound
from vfs.printable import printable

CHANGES: Final = b"change.jsonl"
"""The file that holds what was written to the database: a record for each conversation, skill and
setting."""

_RECORDS: Final = re.compile(rb"(?:rows|change|ownership-[0-9]+)\.jsonl")


def record(journal: Journal, state: Directory, names: Iterable[bytes]) -> None:
    """Records how large these files are by now, if they are there; not synced yet."""
    sizes = {}
    for name in names:
        try:
            sizes[text(name)] = state.stat((name,)).size
        except NotFound:
            continue
    journal.record("files", sizes=sizes, sync=False)


def check(known: State, state: Directory) -> None:
    """Raises Mismatch if a file is missing or cut, manifests included. Nothing is changed."""
    for name, size in known.files.items():
        _check_file(state, (name.encode("utf-8", "surrogateescape"),), size)
    for key, unit in known.units.items():
        length: int | None = unit.fields.get("manifest")
        if length is not None and unit.step not in ("failed", "conflict"):
            _check_file(state, (UNITS, f"{key}.jsonl".encode()), length)


def check_unbegun(state: Directory) -> None:
    """Raises Mismatch if there are records of a migration, though the journal tells of none."""
    names = [name for name in state.names() if _RECORDS.fullmatch(name)]
    with suppress(NotFound):
        names += state.names((UNITS,))
    if names:
        raise Mismatch(
            f"the state folder has no journal, but records of a migration: {printable(names[0])}",
            fix="give back the state folder as the migrator left it, from a backup",
        )


def _check_file(state: Directory, path: tuple[bytes, ...], size: int) -> None:
    try:
        found = state.stat(path).size
    except NotFound:
        found = -1
    if found < size:
        what = "is missing from" if found < 0 else "was cut in"
        raise Mismatch(
            f"{printable(b'/'.join(path))} {what} the state folder",
            fix="give back the state folder as the migrator left it, from a backup",
        )
