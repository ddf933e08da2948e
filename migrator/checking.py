"""`check`: every precondition of `run`, looked at without writing anything.

All that stands in the way is told at once, so that an operator mends it in one go. What is looked
at: root; the source and its layout; the roots of the new tree, or the folders in which they would
be made; the state folder and its journal; the database, its schema and what we may do in it; room
on the disk; and that everything is at rest (`migrator.downtime`), other migrators included.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TypeVar

from migrator import downtime, locks, planning
from migrator import journal as journals
from migrator.counting import Count
from migrator.database import Database, connect
from migrator.errors import MigratorError, Usage
from migrator.findings import Finding
from migrator.outcome import Outcome
from migrator.places import ROOTS, open_folder, open_source, parent_of, root_path
from migrator.request import Request
from migrator.session import check_same
from migrator.state import BUILT, PUBLISHED, State
from migrator.tables import size
from migrator.units import RootName
from vfs.beneath import Directory
from vfs.printable import printable

T = TypeVar("T")


def check(request: Request) -> Outcome:
    """The answer of `migrator check`."""
    look = Look(request)
    look.everything()
    blockers = look.blockers
    if blockers:
        return blocked("check", look.findings)
    return Outcome("check", "ready", "everything is ready for a run", "migrator run", look.findings)


def blocked(verb: str, findings: list[Finding]) -> Outcome:
    """The answer of a verb that does not begin, since something is in the way."""
    count = sum(finding.severity == "blocker" for finding in findings)
    what = "one thing" if count == 1 else f"{count} things"
    return Outcome(
        verb,
        "blocked",
        f"nothing was changed: {what} must be put right first",
        f"put right what is listed, then run `migrator {verb}` again",
        findings,
    )


class Look:
    """One look at the preconditions; what is found is collected in `findings`."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.findings: list[Finding] = []
        self.counted: Count | None = None
        """All that is to be transferred, if it had to be counted to see whether there is room."""

    @property
    def blockers(self) -> list[Finding]:
        """What keeps a run from beginning."""
        return [finding for finding in self.findings if finding.severity == "blocker"]

    def everything(self) -> None:
        """What `run` needs."""
        self._look(rest_only=False)

    def rest(self) -> None:
        """That everything is at rest, and root's rights: what `rollback` needs."""
        self._look(rest_only=True)

    def _look(self, *, rest_only: bool) -> None:
        request = self._request
        if os.geteuid() != 0:
            self._block("not_root", "this process is not root's", "run it as root")
        with ExitStack() as stack:

            def opened(name: str, opening: Callable[[], Directory | None]) -> Directory | None:
                directory = self._try(name, opening)
                return None if directory is None else stack.enter_context(directory)

            source = opened("source", lambda: open_source(request))
            roots: dict[RootName, Directory] = {}
            for name in ROOTS:
                path = root_path(request, name)
                root = opened(name, partial(open_folder, path, name))
                if root is not None:
                    roots[name] = root
                elif not self.blockers:
                    self._folder_for(path, name)
            state = opened("state", lambda: open_folder(request.state, "the state folder"))
            if state is None:
                self._folder_for(request.state, "the state folder")
            database = None
            if request.database is not None:
                url = request.database
                database = self._try("database", lambda: connect(url))
                if database is not None:
                    stack.enter_context(database)
            if source is None:
                return
            if state is not None:
                self._other_migrator(state, [source, *roots.values()])
            named = {"source": source, **{str(name): root for name, root in roots.items()}}
            self._rest(named, database)
            if rest_only:
                return
            for label, root in roots.items():
                self._writable(root, label)
            if database is not None:
                self._database(database)
            if not self.blockers:
                self._plan(source, roots, state, database)

    def _try(self, subject: str, action: Callable[[], T | None]) -> T | None:
        try:
            return action()
        except Usage:
            raise  # there is nothing to be put right but the command line
        except MigratorError as exc:
            self.findings.append(Finding(exc.kind, "blocker", subject, exc.message, exc.fix))
            return None

    def _block(self, code: str, message: str, fix: str | None, subject: str = "") -> None:
        self.findings.append(Finding(code, "blocker", subject, message, fix))

    def _folder_for(self, path: bytes, what: str) -> None:
        """That the folder in which a missing one would be made, or the one above, is there."""
        above, _ = parent_of(path)
        holder, _ = parent_of(above)
        if not os.path.isdir(above) and not os.path.isdir(holder):
            self._block(
                "folder_missing",
                f"the folder {printable(above)}, in which {what} would be made, is not there",
                "make it first",
                what,
            )

    def _writable(self, root: Directory, what: str) -> None:
        if os.fstatvfs(root.fd).f_flag & os.ST_RDONLY:
            self._block(
                "read_only", f"the {what} is on a read-only file system", "mount it writable", what
            )

    def _other_migrator(self, state: Directory, folders: list[Directory]) -> None:
        pid = locks.running(state)
        if pid is not None:
            self._block(
                "another_migrator",
                f"another migrator runs in this state folder: process {pid}",
                "wait until it has ended",
            )

    def _rest(self, named: Mapping[str, Directory], database: Database | None) -> None:
        word = downtime.token(os.environ, self._request.source)
        if word is not None:
            self.findings.append(word)
        self.findings += downtime.look(named, self._request.state, database, os.environ)

    def _database(self, database: Database) -> None:
        schema = database.inspect()
        if schema.state in ("unreleased", "unknown"):
            why = {
                "unreleased": "the database has a schema that no release had",
                "unknown": "the database has not the schema of these saves",
            }
            self._block(
                f"schema_{schema.state}",
                f"{why[schema.state]}: {', '.join(schema.names)}",
                "restore the backup of the release's own database"
                if schema.state == "unreleased"
                else "name the database of the old platform, at its last release before this",
                database.label,
            )
        for missing in database.rights():
            self._block("database_right", missing, "give this role the right", database.label)

    def _plan(
        self,
        source: Directory,
        roots: Mapping[RootName, Directory],
        state: Directory | None,
        database: Database | None,
    ) -> None:
        """That a plan can be made, and that there is room for it."""
        past = State() if state is None else journals.read(state)
        if not past.rolled_back:
            self._try("state", lambda: check_same(self._request, past, database))
        done = {key for key, unit in past.units.items() if unit.step in PUBLISHED}
        built = done | {key for key, unit in past.units.items() if unit.step in BUILT}
        plan = self._try(
            "source",
            lambda: planning.plan(self._request, source, database, roots, done=done),
        )
        if plan is None or all(method == "link" for method in plan.methods.values()):
            return  # links take next to nothing
        # What an interrupted run has staged has its room already.
        left = tuple(unit for unit in plan.units if unit.key not in built)
        measure = planning.measure(replace(plan, units=left), self._request, source)
        self.counted = measure.totals.all
        for space in measure.spaces:
            if not space.suffices:
                self._block(
                    "no_space",
                    f"{space.path} has {size(space.free)} free, {size(space.need)} are needed",
                    "make room, or put the new tree on the file system of the old saves",
                    space.path,
                )
