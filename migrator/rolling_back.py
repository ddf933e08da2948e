"""`rollback`: until `finalize`, everything becomes what it was before the run.

The steps go backwards: markers away, owners and modes back, database back, published units removed
by their manifests, made directories removed, the directories around as they were. Only what the
journal tells of, and what is as it was left, is removed; what was put there since stays, and is
reported. Each step is recorded, and each may be interrupted and done again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from migrator import checking, markers, removing, restoring
from migrator.errors import Precondition, Retryable
from migrator.findings import Finding
from migrator.ground import HOST
from migrator.journal import ROWS
from migrator.lines import records
from migrator.outcome import Outcome
from migrator.places import open_folder, parent_of, root_path
from migrator.progress import Progress
from migrator.request import Request
from migrator.session import Session, opened, sync
from migrator.state import Touched
from migrator.units import STAGING, Path
from vfs.beneath import Directory
from vfs.errors import NotEmpty, NotFound
from vfs.printable import printable


def rollback(request: Request, progress: Progress) -> Outcome:
    """The answer of `migrator rollback`. Raises MigratorError for what ends it early."""
    look = checking.Look(request)
    look.rest()
    if look.blockers:
        return checking.blocked("rollback", look.findings)
    with opened(request) as session:
        progress.save_in(session.state)
        state = session.journal.state
        if state.rolled_back or not state.begun:
            return Outcome("rollback", state.word, "there is nothing to roll back")
        if state.finalizing:
            raise Precondition(
                "the old files are removed, or about to be: there is no way back",
                fix="restore a backup" if state.finalized else "finish it: migrator finalize",
            )
        return _Rollback(session, progress).go()


_WORKSPACE: Final = 3
"""The names in the path of a workspace: ``shared/<user>/workspace``."""


class _Rollback:
    """One rollback, from the step that the journal says the last one came to."""

    def __init__(self, session: Session, progress: Progress) -> None:
        self._session = session
        self._progress = progress
        self._findings: list[Finding] = []

    def go(self) -> Outcome:
        """Every step in its order."""
        session = self._session
        if not session.journal.state.rolling_back:
            session.journal.record("rollback", step="begun")
        steps: dict[str, Callable[[], None]] = {
            "markers": self._markers,
            "ownership": self._ownership,
            "database": self._database,
            "units": self._units,
            "directories": self._directories,
        }
        for name, step in steps.items():
            if name not in session.journal.state.rollback:
                step()
                session.journal.record("rollback", step=name)
        for root in session.roots.values():
            sync(root)
        session.journal.record("rollback", step="done")
        summary = "everything is as it was before the run"
        if self._findings:
            summary += ", but for what is listed"
        return Outcome("rollback", session.journal.state.word, summary, findings=self._findings)

    def _markers(self) -> None:
        markers.remove(self._session.roots, set(self._session.journal.state.markers))

    def _ownership(self) -> None:
        session = self._session
        files = [name.encode() for name in session.journal.state.ownership_files]
        self._progress.phase("owners back")
        roots = {str(name): root for name, root in session.roots.items()}
        restored = restoring.restore(
            roots, session.state, files, count=lambda entries: self._progress.count(entries, 0)
        )
        if restored.failed:
            raise Retryable(
                f"{restored.failed} owners or modes could not be given back, such as that of"
                f" {printable(b'/'.join(restored.left[0].path))}: {restored.left[0].message}",
                fix="put that right, then: migrator rollback",
            )
        if restored.changed:
            self._tell(
                "owner_changed_since",
                "entries",
                f"{restored.changed} entries have other owners or modes by now: left so",
            )

    def _database(self) -> None:
        session = self._session
        if session.database is None or session.journal.state.cut_over is None:
            return
        counts = session.database.roll_back(records(session.state, ROWS))
        if counts.kept:
            self._tell(
                "row_changed_since",
                session.database.label,
                f"{counts.kept} rows were added or changed since: left as they are",
            )

    def _units(self) -> None:
        session = self._session
        units = session.recorded_units()
        known = session.journal.state.units
        self._progress.phase("remove")
        session.ground.sweep()
        inside = self._made_in_workspaces()
        # Workdirs before the workspaces that hold them.
        for unit in sorted(units.values(), key=lambda unit: -len(unit.target)):
            root = session.roots.get(unit.root)
            if root is None:
                continue
            step = known[unit.key].step
            for path in inside.get((unit.root, unit.target), ()):
                with suppress(NotFound, NotEmpty):
                    root.remove_directory(path)
            if step in ("published", "publishing"):
                removed = removing.remove_target(
                    unit, root, session.source, session.records(unit), count=self._progress.count
                )
                for path in removed.kept:
                    self._tell(
                        "changed_since",
                        printable(b"/".join((unit.root.encode(), *unit.target, *path))),
                        "it was put there or changed since the run: left as it is",
                    )
            removing.unstage(unit, root)
        # That of a unit which was not recorded yet as well.
        for name, path in session.journal.state.made:
            root = self._root(name)
            if root is not None and path[-1:] == (STAGING,):
                removing.sweep(root, path)

    def _made_in_workspaces(self) -> dict[tuple[str, Path], list[Path]]:
        """The directories that were made in published workspaces, by these; the inner first."""
        found: dict[tuple[str, Path], list[Path]] = {}
        for name, path in reversed(self._session.journal.state.made):
            found.setdefault((name, path[:_WORKSPACE]), []).append(path)
        return found

    def _directories(self) -> None:
        state = self._session.journal.state
        for name, path in reversed(state.made):
            try:
                self._remove_made(name, path)
            except NotFound:
                continue
            except NotEmpty:
                where = path if name == HOST else (name.encode(), *path)
                self._tell(
                    "directory_in_use",
                    printable(b"/".join(where)),
                    "it holds something that was put there since: left as it is",
                )
        # The inner first: to give one its times back changes nothing around it, to make one does.
        for (name, path), was in sorted(state.touched.items(), key=lambda item: -len(item[0][1])):
            with suppress(NotFound):
                self._restore_touched(name, path, was)

    def _remove_made(self, name: str, path: Path) -> None:
        if name == HOST:
            _remove_folder(path[0])
        elif path:
            root = self._root(name)
            if root is not None:
                root.remove_directory(path)
        else:
            _remove_folder(root_path(self._session.request, name))

    def _restore_touched(self, name: str, path: Path, was: Touched) -> None:
        if name == HOST:
            folder = open_folder(path[0], "the folder")
            if folder is not None:
                with folder:
                    _restore(folder, (), was)
            return
        root = self._root(name)
        if root is not None:
            _restore(root, path, was)

    def _root(self, name: str) -> Directory | None:
        return {str(known): root for known, root in self._session.roots.items()}.get(name)

    def _tell(self, code: str, subject: str, message: str) -> None:
        self._findings.append(Finding(code, "warning", subject, message))


def _restore(root: Directory, path: Path, was: Touched) -> None:
    """Gives a directory its owner, mode and times back; makes it again if it was removed."""
    try:
        root.stat(path)
    except NotFound:
        root.make_directory(path)
    root.change_owner(path, was.uid, was.gid)
    root.change_mode(path, was.mode)
    root.change_times(path, was.atime_ns, was.mtime_ns)


def _remove_folder(path: bytes) -> None:
    """Removes a folder of the host that is empty."""
    above, name = parent_of(path)
    holder = open_folder(above, "the folder")
    if holder is not None:
        with holder:
            holder.remove_directory((name,))
