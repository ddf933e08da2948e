"""`plan`: what goes where, what is left and why, the room and the time it takes. Writes nothing.

`plan` reads directories and rows, so it takes milliseconds a thousand threads; `measure` counts
what is in them. `run` needs the first alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from migrator import counting, estimating, families, foreseeing, layouts, owners, placing, settings
from migrator.claims import Claims
from migrator.counting import Totals
from migrator.database import Change, Conversation, Database, SkillRow
from migrator.errors import Precondition, retryable
from migrator.estimating import Space
from migrator.findings import Finding
from migrator.layouts import yuxi
from migrator.layouts.base import Layout, Left, Survey
from migrator.markers import MARKERS
from migrator.places import ROOTS, is_same, open_folder, root_path
from migrator.placing import Draft
from migrator.request import Request
from migrator.settings import Settings
from migrator.units import Path, RootName, Unit
from vfs.beneath import Directory
from vfs.errors import VfsError
from vfs.printable import printable
from vfs.workspace import SHARED

ORDER: Final = ("workspace", "workdir", "skill")
"""Workspaces come first: Workdirs are published in them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that `run` has to know."""

    layout: str
    in_place: bool
    """Whether the new user-data root is the old `threads`."""
    units: tuple[Unit, ...]
    """Workspaces, then Workdirs, then skills."""
    kept: tuple[Path, ...]
    """Workspaces beneath the user-data root that are in their place already: they get their owners
    and modes, nothing else."""
    change: Change | None
    """What the database gets: of conversations only those that can be migrated. None without a
    database."""
    settings: Settings
    findings: tuple[Finding, ...]
    left: tuple[Left, ...]
    """What of the saves stays where it is."""
    methods: Mapping[RootName, str]
    """How files are expected to get into each root: ``link``, ``reflink``, ``copy``."""
    waiting: int = 0
    """Conversations that would have no project afterwards."""
    to_assign: int = 0
    """Conversations that have none yet and would get one."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What counting brought up."""

    totals: Totals
    spaces: tuple[Space, ...]
    """The room needed and free, an entry for each file system that is written to."""
    seconds: float
    """About how long a run takes."""
    findings: tuple[Finding, ...]
    """What could not be counted."""

    @property
    def need(self) -> int:
        """Bytes that a run takes on all file systems together."""
        return sum(space.need for space in self.spaces)

    @property
    def free(self) -> int:
        """Bytes that are free on them."""
        return sum(space.free for space in self.spaces)


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a database says."""

    conversations: list[Conversation]
    users: set[str]
    skills: list[SkillRow]
    option_keys: set[str]
    findings: list[Finding] = field(default_factory=list)


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
    layout = layouts.find(source, request.layout, has_database=database is not None)
    owned = owners.read(request.owners, request.owner)
    rows = None if database is None else _read(database)
    with _opened(request, roots) as pinned:
        try:
            in_place = _in_place(source, pinned)
            _refuse_overlap(request, layout, in_place)
            survey = layout.survey(source, _passed_by(request, source, pinned, in_place))
            draft = _drafted(survey, rows, owned, in_place)
            draft.units.sort(key=lambda unit: ORDER.index(unit.kind))
            draft.findings.extend(foreseeing.conflicts(draft.units, source, pinned, done))
        except VfsError as exc:
            raise retryable(exc, "look at the old saves") from None
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
            for name in ROOTS
        },
        waiting=0 if rows is None else _without(rows, lambda key: key not in draft.assignments),
        to_assign=0 if rows is None else _without(rows, lambda key: key in draft.assignments),
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
    findings = tuple(
        Finding(
            "unreadable",
            "conflict",
            unit.key,
            f"something of it cannot be read: {error.message}",
            error.fix,
        )
        for unit, error in totals.unreadable
    )
    spaces = estimating.spaces(request, totals, plan.methods)
    seconds = estimating.seconds(totals, plan.methods, request.jobs)
    return Measure(totals, tuple(spaces), seconds, findings)


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


def _in_place(source: Directory, roots: Mapping[RootName, Directory]) -> bool:
    return _is_at(source, (yuxi.THREADS,), roots.get("user-data"))


def _is_at(source: Directory, path: Path, root: Directory | None) -> bool:
    """Whether a root is this very directory of the saves."""
    if root is None:
        return False
    try:
        with source.directory(path) as directory:
            return is_same(directory, root)
    except VfsError:
        return False


def _refuse_overlap(request: Request, layout: Layout, in_place: bool) -> None:
    """Raises Precondition for a root that is a part of what is taken over."""
    if in_place and layout is not yuxi.LAYOUT:
        raise Precondition(
            f"the user-data root is the folder of threads, which the layout {layout.name} "
            "cannot have",
            fix="name another folder with --user-data",
        )
    for name in ROOTS:
        path = _beneath(request.source, root_path(request, name))
        inside = path is not None and len(path) > 1 and path[0] in (b"threads", b"users", b"skills")
        if inside or (path == () and name != "skill-projections"):
            raise Precondition(
                f"the root {name} {printable(root_path(request, name))} is in what is taken over",
                fix=f"name another folder with --{name}",
            )


def _beneath(top: bytes, place: bytes) -> Path | None:
    """The path of a place beneath `top`, by their text; None if it is elsewhere."""
    parts = [
        tuple(name for name in path.split(b"/") if name not in (b"", b".")) for path in (top, place)
    ]
    above, below = parts
    return below[len(above) :] if below[: len(above)] == above else None


def _passed_by(
    request: Request, source: Directory, roots: Mapping[RootName, Directory], in_place: bool
) -> frozenset[Path]:
    """Entries of the saves that are no part of them: the new tree, and the migration's own."""
    passed = {_beneath(request.source, request.state)}
    passed.update(_beneath(request.source, root_path(request, name)) for name in ROOTS)
    if in_place:
        passed.discard((yuxi.THREADS,))
        passed.update((yuxi.THREADS, marker.name) for marker in MARKERS)
    if _is_at(source, (yuxi.SKILLS,), roots.get("skill-store")):
        passed.discard((yuxi.SKILLS,))
        passed.add((yuxi.SKILLS, SHARED))
        passed.update((yuxi.SKILLS, marker.name) for marker in MARKERS)
    return frozenset(path for path in passed if path)


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
