"""The database's part of a run: what is recorded before it, the one transaction, the read back.

Old rows and what is to be written are in the state folder, durably, before the transaction
commits. A cut-over that was interrupted is simply made again: what it had committed is found in
place, and not rewritten.
"""

from __future__ import annotations

from dataclasses import replace

from migrator import wholeness
from migrator.database import Assignment, Change
from migrator.journal import ROWS
from migrator.lines import Appender, records
from migrator.plans import Plan
from migrator.session import Session, check_mismatch
from migrator.state import PUBLISHED
from migrator.wholeness import CHANGES
from vfs.beneath import Directory
from vfs.errors import NotFound
from vfs.namespace import PROJECTS


class Cutover:
    """The cut-over of one run."""

    def __init__(self, session: Session, plan: Plan) -> None:
        self._session = session
        self._database = session.database
        self._planned = plan.change

    def make(self) -> int:
        """Makes it, for all that is in its place by now, and reads it back: conversations changed.

        Raises MigratorError.
        """
        if self._database is None or self._planned is None:
            return 0
        session = self._session
        change = within_reach(self._planned, session)
        # Before the first commit nothing that was recorded has come true.
        take = Appender.create if session.journal.state.cut_over is None else Appender.open
        with take(session.state, ROWS) as rows, take(session.state, CHANGES) as changes:
            write_change(change, changes)
            changes.sync()

            def gate() -> None:
                rows.sync()
                session.journal.record("cut_over", step="recorded", sync=False)
                wholeness.record(session.journal, session.state, (ROWS, CHANGES))
                session.journal.sync()

            counts = self._database.cut_over(change, rows.append, gate)
        differing = self._database.differences(change, records(session.state, ROWS))
        check_mismatch(differing, "the database is not what was written")
        session.journal.record("cut_over", step="committed", counts=counts.to_json())
        return counts.conversations


def within_reach(change: Change, session: Session) -> Change:
    """The part of a change whose Workdirs and skills are in their places."""
    units = session.journal.state.units
    there = {key for key, unit in units.items() if unit.step in PUBLISHED}
    not_there = {key for key, unit in units.items() if unit.step not in PUBLISHED}
    return replace(
        change,
        assignments={
            number: assignment
            for number, assignment in change.assignments.items()
            if unit_key(assignment) in there
        },
        skills=[slug for slug in change.skills if f"skill-{slug}" not in not_there],
    )


def unit_key(assignment: Assignment) -> str:
    """The key of the unit that is the Workdir of an assignment."""
    return f"workdir-{assignment.workdir_path.removeprefix(f'{PROJECTS}/')}"


def write_change(change: Change, appender: Appender) -> None:
    """Records a change, to be read by `read_change`."""
    for number, assignment in change.assignments.items():
        appender.append(
            {
                "kind": "conversation",
                "id": number,
                "project": assignment.project_id,
                "uid": assignment.uid,
                "workdir": assignment.workdir_path,
            }
        )
    for slug in change.skills:
        appender.append({"kind": "skill", "slug": slug})
    for key, value in change.options.items():
        appender.append({"kind": "option", "key": key, "value": value})


def read_change(state: Directory) -> Change:
    """All that was written to the database; empty if nothing was recorded."""
    assignments: dict[int, Assignment] = {}
    skills: dict[str, None] = {}
    options: dict[str, object] = {}
    try:
        for record in records(state, CHANGES):
            if record["kind"] == "conversation":
                assignments[record["id"]] = Assignment(
                    record["project"], record["uid"], record["workdir"]
                )
            elif record["kind"] == "skill":
                skills[record["slug"]] = None
            else:
                options[record["key"]] = record["value"]
    except NotFound:
        pass
    return Change(assignments, list(skills), options)
