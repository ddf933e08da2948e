"""Conversations and the directories of their threads, brought together: who gets which Workdir.

A conversation that a person began (the root) gets a project and a Workdir, files or not; those of
sub-agents below it work there too, and their files follow its own in the order of their ids. What
cannot be migrated keeps its rows and its files, is told of, and holds nothing else back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from migrator import ids
from migrator.database import Assignment, Conversation
from migrator.findings import Finding
from migrator.layouts.base import Survey, Thread, shown
from migrator.layouts.threads import directory_of
from migrator.owners import Owners
from migrator.placing import Draft, Holding, owned_threads, workdir
from vfs.errors import InvalidName
from vfs.naming import safe_uid
from vfs.printable import printable
from vfs.workspace import SHARED


class Conversations:
    """The conversations of a database and the threads of the saves, brought together."""

    def __init__(
        self,
        draft: Draft,
        survey: Survey,
        rows: Sequence[Conversation],
        users: set[str],
        holds: Holding,
    ) -> None:
        self._draft = draft
        self._users = users
        self._holds = holds
        self._rows = {row.id: row for row in sorted(rows, key=lambda row: row.id)}
        self._threads = {thread.id: thread for thread in survey.threads}
        self._projects: dict[str, str] = {}
        """Project → the thread of the root that has it."""
        self.threads = {row.thread_id: row.uid for row in rows}
        """Thread → uid, of every conversation."""

    @property
    def orphans(self) -> list[Thread]:
        """The threads without a conversation."""
        return [thread for key, thread in self._threads.items() if key not in self.threads]

    def place(self) -> None:
        """A unit for each root conversation that can have one, and the assignments to it."""
        answer = ids.roots(self._rows.values())
        self._draft.findings.extend(answer.findings)
        families: dict[int, list[Conversation]] = defaultdict(list)
        for key, row in self._rows.items():
            if key in answer.root:
                families[answer.root[key]].append(row)
            else:
                self._leave([row], "conversation_chain_cycle")
        for key in sorted(families):
            self._family(self._rows[key], families[key])

    def _family(self, root: Conversation, members: list[Conversation]) -> None:
        """A root conversation and the sub-agents' that work in its Workdir, the root first."""
        members.sort(key=lambda row: (row.id != root.id, row.id))
        threads = [
            self._threads[row.thread_id] for row in members if row.thread_id in self._threads
        ]
        why = self._held_back(root, threads)
        if why is not None:
            self._leave(members, why)
            return
        for row in members:
            self._warn_of_name(row, root)
        project = ids.project_id(root.uid, root.thread_id)
        self._projects[project] = root.thread_id
        path = ids.workdir_path(root.uid, root.thread_id)
        assignment = Assignment(project, root.uid, path)
        self._draft.assignments.update((row.id, assignment) for row in members)
        self._draft.units.append(workdir(root.uid, root.thread_id, threads))

    def _held_back(self, root: Conversation, threads: Sequence[Thread]) -> str | None:
        """The code of what keeps a family from being migrated, told of; None if nothing does."""
        project = ids.project_id(root.uid, root.thread_id)
        if root.uid not in self._users or _unusable(root.uid):
            self._draft.tell(
                "conversation_without_user",
                "warning",
                root.thread_id,
                f"no user has the uid {printable(root.uid)}: it is left, and its files",
                "add the user's row, or delete the conversation, then run again",
            )
            return "conversation_without_user"
        if self._holds(root.uid):
            return "workspace_out_of_reach"
        if not all(thread.readable for thread in threads):
            return "unreadable"
        if root.project_id not in (None, project):
            if any(thread.parts for thread in threads):
                self._draft.tell(
                    "conversation_has_project",
                    "warning",
                    root.thread_id,
                    f"it has another project already, {printable(root.project_id or '')}: "
                    "its old files are left",
                    "copy them into that project's Workdir by hand if they are needed",
                )
            return "conversation_has_project"
        if project in self._projects:
            self._draft.tell(
                "project_id_taken",
                "conflict",
                root.thread_id,
                f"its project would be that of {printable(self._projects[project])}: left",
                "give the thread another id in the database and in the saves, then run again",
            )
            return "project_id_taken"
        return None

    def _warn_of_name(self, row: Conversation, root: Conversation) -> None:
        name = directory_of(row.thread_id)
        if name is None or name == SHARED:
            path = ids.workdir_path(root.uid, root.thread_id)
            self._draft.tell(
                "thread_name_unusable",
                "warning",
                row.thread_id,
                "no directory of a thread can be called so: its Workdir gets no files of it",
                f"if it has files, put them into {path} of the user's workspace by hand",
            )

    def _leave(self, rows: Iterable[Conversation], code: str) -> None:
        threads = (self._threads.get(row.thread_id) for row in rows)
        # What could not be read was told of with its exact path.
        self._draft.leave((thread for thread in threads if thread and thread.readable), code)


def _unusable(uid: str) -> bool:
    try:
        safe_uid(uid)
    except InvalidName:
        return True
    return False


WITHOUT_ROW: Final = "thread_without_conversation"


def orphans(draft: Draft, threads: Sequence[Thread], owners: Owners, holds: Holding) -> None:
    """Threads without a conversation: a Workdir without a row for those whose owner is named."""
    owned = [thread for thread in threads if owners.of(thread.id) is not None]
    owned_threads(draft, owned, owners, holds)
    for thread in threads:
        if thread.is_directory and owners.of(thread.id) is None:
            draft.leave([thread], WITHOUT_ROW)
            draft.findings.append(
                Finding(
                    WITHOUT_ROW,
                    "warning",
                    shown(thread.source),
                    "no conversation has this thread: left",
                    "name its owner with --owners and run again if its files are needed",
                )
            )
