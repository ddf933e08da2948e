"""`run`: transfer, verify, publish, cut over, own, mark; each part resumable, in this order.

===========  ====================================================================================
part         does
===========  ====================================================================================
`stage`      builds every unit hidden, in parallel
`verify`     proves each staged unit against its manifest, in parallel
`publish`    gives each its name, by one rename
`database`   cuts the database over in one transaction, and reads it back
`ownership`  gives everything to 1000:1000, in parallel
`markers`    writes the files that existing deployments look for; not while there are conflicts
===========  ====================================================================================

Every step is in the journal before it counts. A run that was interrupted is gone on with by the
next one; a run after a complete one does what has become possible since, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from migrator import checking, markers, owning, planning, publishing, remains, removing, transfer
from migrator.counting import Count
from migrator.cutover import Cutover
from migrator.errors import MigratorError, Precondition, retryable
from migrator.ground import Place
from migrator.lines import Appender
from migrator.outcome import Outcome
from migrator.ownership import Owned
from migrator.plans import Plan, is_pending
from migrator.progress import Progress
from migrator.request import Request
from migrator.session import (
    Session,
    begin,
    check_mismatch,
    manifest_name,
    opened,
    prepare_roots,
    sync,
)
from migrator.state import BUILT, PUBLISHED
from migrator.transfer import Difference, Method, Staged
from migrator.units import STAGING, RootName, Unit
from migrator.workers import map_parallel
from vfs.beneath import Directory
from vfs.errors import VfsError
from vfs.making import make_directories
from vfs.workspace import OWNER

_BATCH = 256
"""Units that are made durable at once: a sync of a file system takes milliseconds."""


def run(request: Request, progress: Progress) -> Outcome:
    """The answer of `migrator run`. Raises MigratorError for what ends it early."""
    look = checking.Look(request)
    look.everything()
    if look.blockers:
        return checking.blocked("run", look.findings)
    with opened(request, fresh=True) as session:
        if session.journal.state.finalized:
            return Outcome("run", session.journal.state.word, _FINALIZED)
        progress.save_in(session.state)
        _refuse_half_undone(session)
        known = session.journal.state.units
        done = {key for key, unit in known.items() if unit.step in PUBLISHED}
        plan = planning.plan(request, session.source, session.database, session.roots, done=done)
        return _Run(session, plan, progress, look.counted).go()


def _refuse_half_undone(session: Session) -> None:
    state = session.journal.state
    for begun, verb in ((state.rolling_back, "rollback"), (state.finalizing, "finalize")):
        if begun:
            raise Precondition(
                f"a {verb} was begun here and is not at its end", fix=f"finish it: migrator {verb}"
            )


class _Run:
    """One run, from where the journal says that the last one came to."""

    def __init__(
        self, session: Session, plan: Plan, progress: Progress, expected: Count | None
    ) -> None:
        self._session = session
        self._journal = session.journal
        self._plan = plan
        self._progress = progress
        # What is foreseen to be in the way is decided, and told, when it is published.
        self._findings = [found for found in plan.findings if found.code != "target_taken"]
        self._jobs = session.request.jobs
        self._expected = expected
        """All that is to be transferred, where it was counted: links are not worth it."""
        self._owned = Owned()
        self._conversations = 0

    def go(self) -> Outcome:
        """Every part in its order."""
        session = self._session
        before = session.journal.state.word
        begin(session, layout=self._plan.layout, method=session.request.transfer)
        prepare_roots(session)
        if before not in ("nothing", "done"):
            session.ground.sweep()
        self._settle()
        todo = self._todo()
        if before == "done" and not todo and not is_pending(self._plan, session.journal.state):
            self._findings += remains.findings(session)
            return self._outcome(idle=True)
        with self._part("stage"):
            self._stage(todo)
        with self._part("verify"):
            self._verify()
        with self._part("publish"):
            self._publish()
        with self._part("database"):
            self._conversations = Cutover(session, self._plan).make()
        with self._part("ownership"):
            self._owned = owning.own(session, self._progress)
            self._findings += owning.findings(self._owned)
        self._findings += remains.findings(session)
        if not any(finding.severity == "conflict" for finding in self._findings):
            with self._part("markers"):
                markers.write(session.roots, session.ground, session.journal)
        return self._outcome(idle=False)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        self._journal.record("phase", name=name, state="begun")
        yield
        self._journal.record("phase", name=name, state="done")

    def _root(self, unit: Unit) -> Directory:
        return self._session.roots[unit.root]

    def _settle(self) -> None:
        """Finds out where the units are that an interrupted run was about to rename."""
        units = self._session.recorded_units()
        for key, known in self._journal.state.units.items():
            if known.step != "publishing":
                continue
            unit, fields = units[key], dict(known.fields)
            if publishing.was_renamed(unit, self._root(unit), fields["ino"]):
                self._journal.record("unit", key=key, step="published", sync=False)
            elif publishing.is_staged(unit, self._root(unit), fields["ino"]):
                self._journal.record("unit", key=key, step="staged", **fields, sync=False)
            else:
                self._journal.record("unit", key=key, step="failed", sync=False)
        self._journal.sync()

    def _todo(self) -> list[Unit]:
        """The units of the plan that have yet to be staged."""
        known, todo = self._journal.state.units, []
        for unit in self._plan.units:
            before = known.get(unit.key)
            step = None if before is None else before.step
            same = before is not None and before.fields.get("unit") == unit.to_json()
            if step in PUBLISHED:
                if not same:
                    self._findings.append(publishing.conflict(unit, _TOO_LATE))
            elif not same or step not in ("staged", "verified"):
                todo.append(unit)
        return todo

    def _stage(self, todo: Sequence[Unit]) -> None:
        session = self._session
        able = []
        for unit in todo:
            why = publishing.in_the_way(unit, self._root(unit))
            if why is None:
                able.append(unit)
            else:
                self._conflict(unit, why)
        places: dict[str, Place] = {unit.key: (unit.root, (*unit.holder, STAGING)) for unit in able}
        impossible = session.ground.prepare(places.values())
        for unit in able:
            if places[unit.key] in impossible:
                self._conflict(unit, impossible[places[unit.key]].message)
        able = [unit for unit in able if places[unit.key] not in impossible]
        if not able:
            return
        # What was built before is swept, and its manifest written anew.
        for unit in able:
            known = self._journal.state.units.get(unit.key)
            if known is not None and known.step in BUILT:
                self._journal.record("unit", key=unit.key, step="failed", sync=False)
        self._journal.sync()
        methods = self._methods(able)
        by_key = {unit.key: unit for unit in able}

        def stage(key: str) -> Staged:
            unit = by_key[key]
            with Appender.create(session.units, manifest_name(unit)) as manifest:
                staged = transfer.stage(
                    unit,
                    session.source,
                    session.roots[unit.root],
                    methods[unit.root],
                    manifest,
                    owner=OWNER,
                    count=self._progress.count,
                )
                # On the disk with the files that it tells of, before the unit counts as staged.
                manifest.write()
                return staged

        expected = self._expected
        self._progress.phase(
            "transfer",
            files=None if expected is None else expected.files,
            bytes=None if expected is None else expected.bytes,
        )
        failures: list[Exception] = []
        pending: list[tuple[Unit, Staged]] = []
        for key, result in map_parallel(
            stage, list(by_key), jobs=self._jobs, tick=self._progress.tick
        ):
            if isinstance(result, Exception):
                failures.append(result)
            else:
                pending.append((by_key[key], result))
            if len(pending) == _BATCH:
                self._record_staged(pending, methods)
        self._record_staged(pending, methods)
        raise_first(failures, "transfer")

    def _methods(self, units: Sequence[Unit]) -> dict[RootName, Method]:
        """How files get beneath each root that is needed, found by trying where one is staged."""
        methods: dict[RootName, Method] = {}
        for unit in units:
            if unit.root not in methods:
                # It was swept if an earlier run has come so far.
                place = (*unit.holder, STAGING)
                with make_directories(self._session.roots[unit.root], place, OWNER) as staging:
                    methods[unit.root] = transfer.choose(
                        self._session.source, staging, self._session.request.transfer
                    )
        return methods

    def _record_staged(
        self, pending: list[tuple[Unit, Staged]], methods: dict[RootName, Method]
    ) -> None:
        """Makes what was staged durable, then has it count; empties the list."""
        roots = {unit.root for unit, _ in pending}
        for directory in (self._session.units, *(self._session.roots[name] for name in roots)):
            sync(directory)
        for unit, staged in pending:
            self._journal.record(
                "unit",
                key=unit.key,
                step="staged",
                unit=unit.to_json(),
                method=methods[unit.root],
                manifest=self._session.units.stat((manifest_name(unit),)).size,
                ino=self._root(unit).stat(unit.staging).ino,
                **staged.to_json(),
                sync=False,
            )
        self._journal.sync()
        pending.clear()

    def _verify(self) -> None:
        """Proves what is staged and was not proved yet; what fails is staged again next time."""
        session = self._session
        units = {
            key: unit
            for key, unit in session.recorded_units().items()
            if session.journal.state.units[key].step == "staged"
        }

        def verify(key: str) -> list[Difference]:
            unit = units[key]
            return transfer.verify(
                unit,
                unit.staging,
                session.roots[unit.root],
                session.records(unit),
                source=session.source,
                count=self._progress.count,
            )

        files, size = session.totals(units)
        self._progress.phase("verify", files=files, bytes=size)
        failures: list[Exception] = []
        differences: list[Difference] = []
        for key, result in map_parallel(
            verify, list(units), jobs=self._jobs, tick=self._progress.tick
        ):
            if isinstance(result, Exception):
                failures.append(result)
                continue
            differences += result
            step = "failed" if result else "verified"
            self._journal.record("unit", key=key, step=step, sync=False)
        self._journal.sync()
        raise_first(failures, "verify")
        check_mismatch(list(map(str, differences)), "what was transferred is not what was read")

    def _publish(self) -> None:
        session = self._session
        units = [
            unit
            for key, unit in session.recorded_units().items()
            if session.journal.state.units[key].step == "verified"
        ]
        # A workspace before the Workdirs that are published in it.
        for kind in ("workspace", "skill", "workdir"):
            some = [unit for unit in units if unit.kind == kind]
            self._findings += publishing.publish(
                some, session.roots, session.ground, session.journal, session.records
            )
        # Those of an interrupted run as well.
        staged = session.recorded_units().values()
        for name, path in {(unit.root, (*unit.holder, STAGING)) for unit in staged}:
            removing.sweep(session.roots[name], path)
        for root in session.roots.values():
            sync(root)

    def _conflict(self, unit: Unit, reason: str) -> None:
        self._journal.record(
            "unit", key=unit.key, step="conflict", unit=unit.to_json(), reason=reason
        )
        self._findings.append(publishing.conflict(unit, reason))

    def _outcome(self, *, idle: bool) -> Outcome:
        state = self._journal.state
        units = state.units.values()
        there = [unit for unit in units if unit.step in PUBLISHED]
        numbers: dict[str, int | float] = {
            "units": len(there),
            "adopted": sum(unit.step == "adopted" for unit in units),
            "conflicts": sum(unit.step == "conflict" for unit in units),
            **{
                name: sum(unit.fields.get(name, 0) for unit in there)
                for name in ("files", "directories", "bytes", "same", "left")
            },
            "owners": self._owned.changed,
            "conversations": self._conversations,
        }
        if idle:
            summary, then = "nothing to do: everything was done by an earlier run", _AFTER
        elif state.done:
            summary, then = f"done: {len(there)} units are in their places", _AFTER
        else:
            summary = f"{len(there)} units are in their places, but not all could be"
            then = "put right what is listed as a conflict, then: migrator run"
        return Outcome("run", state.word, summary, then, self._findings, numbers)


_AFTER = "start the services and look; then `migrator finalize` removes the old files, or `migrator rollback` gives everything back"  # noqa: E501
_FINALIZED = "nothing to do: the migration is done, and the old files are removed"

_TOO_LATE = "it was taken over already, and since then the saves have got more for it"


def raise_first(failures: Sequence[Exception], doing: str) -> None:
    """Raises what several units failed with, as one error."""
    if not failures:
        return
    first = failures[0]
    if isinstance(first, MigratorError):
        raise first
    if isinstance(first, OSError | VfsError):
        raise retryable(first, doing) from first
    raise first
