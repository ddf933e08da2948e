"""What the verbs work with: folders pinned, locks held, journal open, database connected.

`opened` is for the verbs that write: it makes what is missing, under locks that keep a second
migrator out, and refuses a journal of another migration. All of it is released at the end.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from migrator import journal as journals
from migrator import wholeness
from migrator.database import Database, connect
from migrator.errors import Mismatch, Precondition
from migrator.ground import Ground
from migrator.journal import Journal
from migrator.lines import records
from migrator.locks import Locks
from migrator.places import ROOTS, make_folder, open_folder, open_source, root_path
from migrator.request import Request
from migrator.state import State
from migrator.units import RootName, Unit
from vfs import linux
from vfs.beneath import Directory
from vfs.errors import NotFound
from vfs.printable import printable


@dataclass(slots=True)
class Session:
    """One verb at work."""

    request: Request
    source: Directory
    roots: dict[RootName, Directory]
    """The roots of the new tree; after `prepare_roots` all three."""
    state: Directory
    """The state folder."""
    units: Directory
    """The folder of the manifests in it."""
    journal: Journal
    ground: Ground
    database: Database | None

    def records(self, unit: Unit) -> Iterator[dict[str, Any]]:
        """The manifest of a unit."""
        return records(self.units, manifest_name(unit))

    def totals(self, keys: Iterable[str]) -> tuple[int, int | None]:
        """How many files these units have, and bytes that are read to prove them; None: no byte."""
        units = [self.journal.state.units[key].fields for key in keys]
        size = sum(unit.get("bytes", 0) for unit in units if unit.get("method") != "link")
        return sum(unit.get("files", 0) for unit in units), size or None

    def recorded_units(self) -> dict[str, Unit]:
        """The units that the journal tells of, by key."""
        return {
            key: Unit.from_json(unit.fields["unit"])
            for key, unit in self.journal.state.units.items()
            if "unit" in unit.fields
        }


def manifest_name(unit: Unit) -> bytes:
    """The name of a unit's manifest in the folder of the manifests."""
    return f"{unit.key}.jsonl".encode()


def places(request: Request) -> dict[str, bytes]:
    """The host paths that a migration is about, for its journal."""
    return {"source": request.source, **{name: root_path(request, name) for name in ROOTS}}


@contextmanager
def opened(request: Request, *, fresh: bool = False) -> Iterator[Session]:
    """The session of a verb that writes.

    `fresh` makes what is missing, and lets a migration begin where an earlier one was rolled
    back. Without it there must be a migration in the state folder.
    """
    with ExitStack() as stack:
        source = stack.enter_context(open_source(request))
        if fresh:
            state = make_folder(request.state, "the state folder", owner=None)
        else:
            state = existing_state(request)
        stack.enter_context(state)
        roots: dict[RootName, Directory] = {}
        for name in ROOTS:
            root = open_folder(root_path(request, name), name)
            if root is not None:
                roots[name] = stack.enter_context(root)
        stack.enter_context(Locks.take(state, [source, *roots.values()]))
        past = journals.read(state)
        if fresh and past.rolled_back:
            journals.set_aside(state)
        if not past.begun:
            wholeness.check_unbegun(state)
        elif not past.rolled_back:
            wholeness.check(past, state)
        units = stack.enter_context(_units_folder(state))
        journal = stack.enter_context(Journal.open(state))
        database = None
        if request.database is not None:
            database = stack.enter_context(connect(request.database))
        check_same(request, journal.state, database)
        yield Session(
            request, source, roots, state, units, journal, Ground(journal, roots), database
        )


def existing_state(request: Request) -> Directory:
    """The state folder of a migration. Precondition if there is none."""
    state = open_folder(request.state, "the state folder")
    if state is None or journals.JOURNAL not in state.names():
        if state is not None:
            state.close()
        raise Precondition(
            f"there is no migration in {printable(request.state)}",
            fix="name its state folder with --state, or begin with: migrator plan",
        )
    return state


def _units_folder(state: Directory) -> Directory:
    try:
        return state.directory((journals.UNITS,))
    except NotFound:
        return state.make_directories((journals.UNITS,))


def check_same(request: Request, state: State, database: Database | None) -> None:
    """Refuses a request that is not about the migration of which the journal tells.

    Precondition, naming what is another one.
    """
    facts = state.facts
    if facts is None:
        return
    wanted = places(request)
    other = [name for name in wanted if facts.places.get(name) != wanted[name]]
    if other:
        was = printable(facts.places.get(other[0], b"?"))
        raise Precondition(
            f"the state folder {printable(request.state)} is of another migration:"
            f" its {other[0]} is {was}",
            fix="name the same folders as then, or another state folder",
        )
    label = None if database is None else database.label
    if label != facts.database:
        was = "has none" if facts.database is None else f"is {facts.database}"
        raise Precondition(
            f"the migration in {printable(request.state)} has another database: it {was}",
            fix="name the database as then, with the same role, or another state folder",
        )


def begin(session: Session, *, layout: str, method: str) -> None:
    """Records what is to be done, unless it was begun already."""
    if session.journal.state.begun:
        return
    database = None if session.database is None else session.database.label
    session.journal.begin(
        run=secrets.token_hex(8),
        time=time.time(),
        layout=layout,
        method=method,
        database=database,
        places=places(session.request),
    )


def prepare_roots(session: Session) -> None:
    """Has the three roots there, recorded as made, or as they are before anything is changed."""
    for name in ROOTS:
        if name in session.roots:
            session.ground.touch(name, ())
        else:
            path = root_path(session.request, name)
            session.ground.prepare_root(name, path)
            session.roots[name] = make_folder(path, f"the root {name}")


def check_mismatch(differences: list[str], what: str) -> None:
    """Raises Mismatch when there are differences, naming the first."""
    if differences:
        more = f", and {len(differences) - 1} more" if len(differences) > 1 else ""
        raise Mismatch(
            f"{what}: {differences[0]}{more}",
            fix="nothing was removed; find out what changed it, then run the same command again",
            details=differences,
        )


def sync(directory: Directory) -> None:
    """Has all that was changed on the directory's file system reach the disk. OSError."""
    fd = directory.open_listing()
    try:
        linux.syncfs(fd)
    finally:
        os.close(fd)
