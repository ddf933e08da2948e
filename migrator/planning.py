"""`plan`: what goes where, what is left and why, the room and the time it takes. Writes nothing.

`plan` reads directories and rows, so it takes milliseconds a thousand threads; `measure` counts
what is in them. `run` needs the first alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from migrator import (
    counting,
    estimating,
    families,
    foreseeing,
    journal,
    layouts,
    overlaps,
    owners,
    placing,
    plans,
    settings,
)
from migrator.claims import Claims
from migrator.database import Change, Conversation, Database, SkillRow, connect
from migrator.errors import Precondition, Usage, retryable
from migrator.findings import Finding
from migrator.layouts.base import Survey
from migrator.outcome import Outcome
from migrator.places import ROOTS, open_folder, open_source, root_path
from migrator.placing import Draft
from migrator.plans import Measure, Plan
from migrator.request import Request
from migrator.session import check_same
from migrator.settings import Settings
from migrator.state import PUBLISHED, State
from migrator.units import RootName
from vfs.beneath import Directory
from vfs.errors import VfsError

__all__ = ["Measure", "Plan", "measure", "plan", "plan_verb"]

ORDER: Final = ("workspace", "workdir", "skill")
"""Workspaces come first: Workdirs are published in them."""

FILLED: Final[tuple[RootName, ...]] = ("user-data", "skill-store")
"""The roots that get files."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a database says."""

    conversations: list[Conversation]
    users: set[str]
    skills: list[SkillRow]
    option_keys: set[str]
    migrated: bool
    """Whether the schema is the new one, all of it."""


def plan_verb(request: Request, *, with_units: bool = False) -> Outcome:
    """The answer of `migrator plan`; `with_units` lists every unit in its details.

    Errors as of `plan`; Precondition also for a source or a database that cannot be reached.
    """
    with ExitStack() as stack:
        source = stack.enter_context(open_source(request))
        database = None
        if request.database is not None:
            database = stack.enter_context(connect(request.database))
        state = _state(request)
        if state.finalized:
            return plans.nothing_left(state)
        check_same(request, state, database)
        done = {key for key, unit in state.units.items() if unit.step in PUBLISHED}
        made = plan(request, source, database, done=done)
        return plans.answer(made, measure(made, request, source), state, with_units=with_units)


def _state(request: Request) -> State:
    """What the journal tells; nothing if there is none, or what it tells of was rolled back."""
    folder = open_folder(request.state, "the state folder")
    if folder is None:
        return State()
    with folder:
        state = journal.read(folder)
    return State() if state.rolled_back else state


def plan(
    request: Request,
    source: Directory,
    database: Database | None = None,
    roots: Mapping[RootName, Directory] | None = None,
    *,
    done: Collection[str] = (),
) -> Plan:
    """What goes where.

    `roots` are those that are there; None: they are opened here. `done` are the keys of units that
    have their place by an earlier run. Raises Usage, Precondition (no layout, a schema that is not
    known, roots in each other) and Retryable (what everything hangs on cannot be read).
    """
    try:
        with _opened(request, roots) as pinned:
            return _planned(request, source, database, pinned, done)
    except VfsError as exc:
        raise retryable(exc, "look at the old saves") from None


def _planned(
    request: Request,
    source: Directory,
    database: Database | None,
    roots: Mapping[RootName, Directory],
    done: Collection[str],
) -> Plan:
    layout = layouts.find(source, request.layout, has_database=database is not None)
    in_place = overlaps.is_in_place(source, roots)
    overlaps.refuse_overlap(request, layout, in_place)
    owned = owners.read(request.owners, request.owner)
    rows = None if database is None else _read(database)
    survey = layout.survey(source, overlaps.passed_by(request, source, roots, in_place))
    if (
        layout.has_database
        and rows is None
        and survey.threads
        and not (request.owners or request.owner)
    ):
        raise Usage(
            f"saves of the layout {layout.name} come with a database, and none is named",
            fix="name it with --database, or say whose threads they are with --owners or --owner",
        )
    draft = _drafted(survey, rows, owned, in_place)
    draft.units.sort(key=lambda unit: ORDER.index(unit.kind))
    draft.findings.extend(foreseeing.conflicts(draft.units, source, roots, done))
    found = _settings(draft, survey, source, rows)
    return Plan(
        layout=layout.name,
        in_place=in_place,
        units=tuple(draft.units),
        kept=tuple(draft.kept),
        change=None if rows is None else Change(draft.assignments, draft.skills, found.known),
        settings=found,
        findings=(*survey.findings, *draft.findings),
        left=(*survey.left, *draft.left),
        methods={
            name: estimating.method(source, root_path(request, name), request.transfer)
            for name in FILLED
        },
        waiting=0 if rows is None else _without(rows, lambda key: key not in draft.assignments),
        to_assign=0 if rows is None else _without(rows, lambda key: key in draft.assignments),
        schema_old=rows is not None and not rows.migrated,
    )


def measure(
    plan: Plan,
    request: Request,
    source: Directory,
    *,
    tick: Callable[[], None] | None = None,
) -> Measure:
    """Counts the files of a plan, and from that the room and the time."""
    totals = counting.count(plan.units, source, jobs=request.jobs, tick=tick)
    findings = [
        Finding(
            "unreadable",
            "conflict",
            unit.key,
            f"something of it cannot be read: {error.message}",
            error.fix,
        )
        for unit, error in totals.unreadable
    ]
    findings += [
        Finding(
            "special_file_left",
            "warning",
            unit.key,
            f"FIFOs, sockets and devices in it, which are left: {special}",
        )
        for unit, special in totals.special
    ]
    spaces = estimating.spaces(request, totals, plan.methods)
    seconds = estimating.seconds(totals, plan.methods, request.jobs)
    return Measure(totals, tuple(spaces), seconds, tuple(findings))


def _without(rows: _Rows, chosen: Callable[[int], bool]) -> int:
    """How many conversations without a project are chosen."""
    return sum(row.project_id is None and chosen(row.id) for row in rows.conversations)


def _read(database: Database) -> _Rows:
    schema = database.inspect()
    if schema.state in ("unreleased", "unknown"):
        raise Precondition(
            f"the database has a schema that is {schema.state}: {'; '.join(schema.names)}",
            fix="name the database that belongs to these saves, as its last release left it",
        )
    return _Rows(
        list(database.conversations()),
        database.users(),
        list(database.skills()),
        database.option_keys(),
        schema.state == "migrated",
    )


@contextmanager
def _opened(
    request: Request, roots: Mapping[RootName, Directory] | None
) -> Iterator[Mapping[RootName, Directory]]:
    """The roots that are there."""
    if roots is not None:
        yield roots
        return
    with ExitStack() as stack:
        found: dict[RootName, Directory] = {}
        for name in ROOTS:
            root = open_folder(root_path(request, name), f"the root {name}")
            if root is not None:
                found[name] = stack.enter_context(root)
        yield found


def _drafted(survey: Survey, rows: _Rows | None, owned: owners.Owners, in_place: bool) -> Draft:
    draft = Draft()
    named = {*owned.by_thread.values(), *filter(None, (owned.everybody,))}
    if rows is not None:
        named.update(rows.users, (row.uid for row in rows.conversations))
    claims = Claims(named)
    holds = placing.Holding(draft, survey, claims)
    placing.workspaces(draft, survey, claims, in_place=in_place, users=rows is not None)
    if rows is None:
        placing.owned_threads(draft, survey.threads, owned, holds)
        threads = {thread.id: thread.uid for thread in survey.threads}
    else:
        together = families.Conversations(draft, survey, rows.conversations, rows.users, holds)
        together.place()
        families.orphans(draft, together.orphans, owned, holds)
        threads = {**{thread.id: None for thread in survey.threads}, **together.threads}
    placing.unused_owners(draft, owned, threads)
    placing.skills(draft, survey, None if rows is None else rows.skills)
    holds.tell()
    return draft


def _settings(draft: Draft, survey: Survey, source: Directory, rows: _Rows | None) -> Settings:
    if survey.settings is None:
        return Settings()
    found = settings.read(source, survey.settings, () if rows is None else rows.option_keys)
    draft.findings.extend(found.findings)
    if rows is None and found.known:
        draft.tell(
            "settings_without_database",
            "warning",
            b"/".join(survey.settings),
            "without a database no setting is taken over: they are kept in the report alone",
            "name the database with --database, or set them by hand",
        )
    return found
