"""What becomes of each thing that a survey found: which unit takes it, or why it is left.

Pure: a survey, rows and owners in, units and findings out. Whatever cannot be taken over holds
nothing else back.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from migrator import ids
from migrator.claims import Claims, own_name
from migrator.database import Assignment, SkillRow
from migrator.findings import Finding, Severity
from migrator.layouts.base import Left, Survey, Thread, shown
from migrator.owners import Owners
from migrator.units import Part, Path, Unit
from vfs.errors import InvalidName
from vfs.namespace import PROJECTS
from vfs.naming import is_user_directory, safe_uid, skill_slug
from vfs.printable import printable
from vfs.workspace import SHARED, WORKSPACE


@dataclass(slots=True)
class Draft:
    """A plan in the making."""

    units: list[Unit] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    """Workspaces, beneath the user-data root, that are in their place already."""
    assignments: dict[int, Assignment] = field(default_factory=dict)
    skills: list[str] = field(default_factory=list)
    """Slugs whose row is to be rewritten."""
    findings: list[Finding] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    def tell(
        self,
        code: str,
        severity: Severity,
        subject: str | bytes,
        message: str,
        fix: str | None = None,
    ) -> None:
        """Adds a finding; `subject` is exact, its printable form is made here."""
        self.findings.append(Finding(code, severity, printable(subject), message, fix))

    def leave(self, threads: Iterable[Thread], code: str) -> None:
        """Leaves the directories of threads that were not told of yet."""
        self.left.extend(Left(thread.source, code) for thread in threads if thread.is_directory)


class Holding:
    """Who must wait: users whose old workspace may be there but cannot be taken over now.

    A Workdir of theirs would be published in a new workspace, and the old one then find its place
    taken.
    """

    def __init__(self, draft: Draft, survey: Survey, claims: Claims) -> None:
        self._draft = draft
        self._all = survey.all_in_doubt
        self._in_doubt = {claims.owner(name) for name in survey.in_doubt}
        self._held: Counter[str] = Counter()

    def __call__(self, uid: str) -> bool:
        """Whether what this user gets must wait; counted."""
        if not self._all and uid not in self._in_doubt:
            return False
        self._held[uid] += 1
        return True

    def tell(self) -> None:
        """Tells of each user who waits."""
        for uid, number in sorted(self._held.items()):
            self._draft.tell(
                "workspace_out_of_reach",
                "conflict",
                uid,
                f"the user's old workspace cannot be taken over, so {number} Workdirs wait for it",
                "put the directory itself in its place, then run again",
            )


def workspaces(
    draft: Draft, survey: Survey, claims: Claims, *, in_place: bool, users: bool
) -> None:
    """The old workspaces. `users`: whether it is known who the users are."""
    sources: dict[bytes, list[bytes]] = defaultdict(list)
    for name in survey.workspaces:
        target = _workspace_of(draft, survey, claims, name, users)
        if target is not None:
            sources[target].append(name)
    for target, names in sources.items():
        path = (SHARED, target, WORKSPACE)
        if in_place and target in names:
            draft.kept.append(path)
            names.remove(target)
        if names:
            # Of two, the one that has the right name was used last.
            names.sort(key=lambda name: (name == target, name))
            parts = tuple(Part(survey.workspaces[name], ()) for name in names)
            uid = claims.owner(names[-1]) or _plain_uid(target)
            key = f"workspace-{target.decode()}"
            draft.units.append(Unit(key, "workspace", "user-data", path, parts, uid))


def _workspace_of(
    draft: Draft, survey: Survey, claims: Claims, name: bytes, users: bool
) -> bytes | None:
    """The name of the directory that takes the workspace in the old directory `name`."""
    path = survey.workspaces[name]
    uid = claims.owner(name)
    if uid is not None:
        rival = claims.rival(name)
        if rival is not None:
            draft.tell(
                "directory_shared_by_two",
                "warning",
                rival,
                f"this user worked in {shown(path)}, which belongs to {printable(uid)}",
                "move what is this user's into their own workspace by hand",
            )
        return safe_uid(uid).encode()
    if not users:
        target = own_name(name)
    else:
        target = name if is_user_directory(name) else None
        if target is not None:
            draft.findings.append(
                Finding(
                    "workspace_of_nobody",
                    "warning",
                    shown(path),
                    "no user has this workspace: taken over under its own name",
                    "remove it afterwards if nobody needs it",
                )
            )
    if target is None:
        draft.left.append(Left(path, "workspace_name_unusable"))
        draft.findings.append(
            Finding(
                "workspace_name_unusable",
                "warning",
                shown(path),
                "no user has this workspace, and no user's directory can be called so: left",
                "rename the directory to its user's id and run again",
            )
        )
    return target


def _plain_uid(directory: bytes) -> str | None:
    """The uid that a user's directory is called after; None if it is a hash."""
    text = directory.decode()
    return text if safe_uid(text) == text else None


def workdir(uid: str, thread: str, threads: Sequence[Thread]) -> Unit:
    """The unit of the Workdir of an owner thread, with the files of these threads, in order."""
    name = ids.workdir_id(uid, thread)
    return Unit(
        key=f"workdir-{name}",
        kind="workdir",
        root="user-data",
        target=(SHARED, safe_uid(uid).encode(), WORKSPACE, PROJECTS.encode(), name.encode()),
        parts=tuple(part for found in threads for part in found.parts),
        uid=uid,
        threads=tuple(dict.fromkeys((thread, *(found.id for found in threads)))),
    )


def owned_threads(draft: Draft, threads: Iterable[Thread], owners: Owners, holds: Holding) -> None:
    """Threads without a row: a Workdir each for those whose owner is known; the rest is left."""
    groups: dict[tuple[str, str], list[Thread]] = defaultdict(list)
    for thread in threads:
        uid = thread.uid if thread.uid is not None else owners.of(thread.id)
        if not thread.is_directory:
            continue
        if uid is None:
            draft.leave([thread], "thread_without_owner")
            draft.findings.append(
                Finding(
                    "thread_without_owner",
                    "warning",
                    shown(thread.source),
                    "nobody said whose thread it is: left",
                    "name its owner in the owners file and run again",
                )
            )
        else:
            groups[uid, thread.id].append(thread)
    for (uid, thread_id), found in groups.items():
        if holds(uid):
            draft.leave(found, "workspace_out_of_reach")
        elif all(thread.readable for thread in found):
            draft.units.append(workdir(uid, thread_id, found))


def unused_owners(draft: Draft, owners: Owners, known: Mapping[str, str | None]) -> None:
    """Warns of threads in the owners file that are not there, or are known to be another's.

    `known`: each thread there is, with the uid that it belongs to whatever the file says.
    """
    for thread, uid in owners.by_thread.items():
        if thread not in known:
            draft.tell(
                "owner_of_no_thread",
                "warning",
                thread,
                "the owners file names it, but there is no such thread",
                "check the spelling, upper and lower case included",
            )
        elif known[thread] not in (None, uid):
            draft.tell(
                "owner_not_heeded",
                "warning",
                thread,
                f"it belongs to {printable(known[thread] or '')}, "
                f"though the owners file says {printable(uid)}",
            )


def skills(draft: Draft, survey: Survey, rows: Sequence[SkillRow] | None) -> None:
    """The shared skills, and their rows where there is a database."""
    for slug, source in survey.skills.items():
        target = (SHARED, slug.encode())
        draft.units.append(
            Unit(f"skill-{slug}", "skill", "skill-store", target, (Part(source, ()),))
        )
    if rows is None:
        return
    for row in rows:
        _skill_row(draft, survey, row)
    for slug in survey.skills.keys() - {row.slug for row in rows}:
        draft.tell("skill_without_row", "note", slug, "the database has no row for this skill")


def _skill_row(draft: Draft, survey: Survey, row: SkillRow) -> None:
    if row.dir_path == f"{SHARED.decode()}/{row.slug}":
        return
    if row.dir_path != f"skills/{row.slug}" or not _is_slug(row.slug):
        draft.tell(
            "skill_row_unusual",
            "warning",
            row.slug,
            f"its row says {printable(row.dir_path)}, which no skill of this layout has: left",
            "import the skill again in the new version",
        )
        return
    draft.skills.append(row.slug)
    if row.slug not in survey.skills:
        draft.tell(
            "skill_without_files",
            "warning",
            row.slug,
            "the database has a row for this skill, but its directory is not there",
            "import the skill again in the new version, or remove it there",
        )


def _is_slug(text: str) -> bool:
    try:
        skill_slug(text)
    except InvalidName:
        return False
    return True
