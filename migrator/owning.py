"""Which trees belong to 1000:1000 after a migration, and the pass over them.

All of the new tree: the roots, every user's directory, the skills and the projections. In a
user-data root that is the old `threads` at the same time, the threads' directories and what else is
no part of the new tree stay as they are.
"""

from __future__ import annotations

from migrator import ownership, wholeness
from migrator.elsewhere import named_elsewhere
from migrator.findings import Finding
from migrator.lines import Appender
from migrator.ownership import Owned, Tree
from migrator.progress import Progress
from migrator.session import Session
from vfs.beneath import Directory
from vfs.errors import NotFound
from vfs.naming import is_user_directory
from vfs.printable import printable
from vfs.workspace import SHARED, WORKSPACE


def own(session: Session, progress: Progress) -> Owned:
    """Gives the new tree its owner and modes; what it changes is recorded before."""
    journal = session.journal
    past = len(journal.state.ownership_files)
    names = [f"ownership-{past + number}.jsonl" for number in range(session.request.jobs)]
    for name in names:
        journal.record("ownership", step="begun", file=name, sync=False)
    journal.sync()
    progress.phase("owners")

    def appender(worker: int) -> Appender:
        return Appender.open(session.state, names[worker].encode())

    owned = ownership.take(
        {str(name): root for name, root in session.roots.items()},
        trees(session.roots["user-data"], session.roots["skill-projections"]),
        journal=appender,
        jobs=session.request.jobs,
        apart={"user-data": _elsewhere(session)},
        count=lambda entries: progress.count(entries, 0),
        tick=progress.tick,
    )
    wholeness.record(journal, session.state, (name.encode() for name in names))
    journal.record("ownership", step="done", file=None)
    return owned


def _elsewhere(session: Session) -> frozenset[int]:
    """Files of workspaces that were there before, which are not theirs alone."""
    known = session.journal.state.units
    published = {
        unit.target
        for key, unit in session.recorded_units().items()
        if unit.root == "user-data" and known[key].step == "published"
    }
    user_data = session.roots["user-data"]
    tops = [(SHARED, user, WORKSPACE) for user in _users(user_data)]
    return named_elsewhere(user_data, tops, published)


def _users(user_data: Directory) -> list[bytes]:
    try:
        return sorted(filter(is_user_directory, user_data.names((SHARED,))))
    except NotFound:
        return []


def trees(user_data: Directory, projections: Directory) -> list[Tree]:
    """What the pass goes over."""
    return [
        Tree("user-data", (), recursive=False),
        Tree("user-data", (SHARED,), recursive=False),
        *(Tree("user-data", (SHARED, user)) for user in _users(user_data)),
        Tree("skill-store", (), recursive=False),
        Tree("skill-store", (SHARED,)),
        Tree("skill-projections", (), recursive=False),
        *(
            Tree("skill-projections", (user,))
            for user in sorted(filter(is_user_directory, projections.names()))
        ),
    ]


def findings(owned: Owned) -> list[Finding]:
    """What the pass could not change, as an operator is told."""
    found = []
    for left in owned.left:
        subject = printable(b"/".join((left.root.encode(), *left.path)))
        if left.why == "failed":
            found.append(
                Finding(
                    "owner_not_set",
                    "conflict",
                    subject,
                    f"its owner or mode could not be set: {left.message}",
                    "put that right, then run again",
                )
            )
        elif left.why == "elsewhere":
            found.append(
                Finding(
                    "named_elsewhere",
                    "warning",
                    subject,
                    "the file has another name outside of the workspaces: left with its owner",
                    "copy it in its place if the user should have it, then run again",
                )
            )
        elif left.why == "mount":
            found.append(
                Finding(
                    "mount_left",
                    "warning",
                    subject,
                    "something else is mounted there: left alone with all that is in it",
                    "unmount it, then run again",
                )
            )
    hidden = owned.failed + owned.mounts + owned.elsewhere - len(found)
    if hidden > 0:
        found.append(
            Finding("owner_not_set", "conflict", "more", f"{hidden} more entries could not be set")
        )
    return found
