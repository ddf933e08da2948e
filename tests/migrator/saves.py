"""Old saves made by a test, with the answer a right migration gives worked out beside them.

The answer follows from what was written by rules that are this module's own: no code is shared with
what is tested. `tests.migrator.sample` has saves of several kinds ready.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from sqlalchemy import Connection

from tests.migrator import rows
from tests.migrator.rows import Rows
from tests.migrator.trees import Node, Tree, snapshot

Layout = Literal["yuxi", "thread-local", "deerflow"]

OWNER = (1000, 1000)
NOW = "2026-01-01 00:00:00"
MTIME = 1_700_000_000
"""Seconds: of the first file; each further one is a second newer."""

_KEPT = (
    "file_id",
    "file_name",
    "file_type",
    "file_size",
    "status",
    "uploaded_at",
    "path",
    "original_path",
    "request_id",
)
_HOME = "/home/gem/user-data"


def md5_uuid(text: str) -> str:
    """The raw MD5 of a text in the form of a UUID."""
    return str(uuid.UUID(hashlib.md5(text.encode()).hexdigest()))


def safe(uid: str) -> str:
    """The directory name of a user; no literal `uid-<hex>` is among the samples."""
    if uid.isascii() and all(char.isalnum() or char in "_-" for char in uid):
        return uid
    return "uid-" + hashlib.sha256(uid.encode()).hexdigest()


def workdir_of(uid: str, thread: str) -> str:
    """The workdir_path of an owner thread."""
    return f"projects/{md5_uuid(f'{uid}:{thread}')}"


def mapped(path: object, workdir: str) -> object:
    """Where an old virtual path points now."""
    if isinstance(path, str):
        for old, new in (
            ("workspace", _HOME),
            ("uploads", f"{_HOME}/{workdir}/uploads"),
            ("outputs", f"{_HOME}/{workdir}/outputs"),
        ):
            if path == f"{_HOME}/{old}" or path.startswith(f"{_HOME}/{old}/"):
                return new + path[len(f"{_HOME}/{old}") :]
    return path


@dataclass(frozen=True, slots=True)
class _Conversation:
    id: int
    uid: str
    parent: str | None


@dataclass
class Saves:
    """The saves of one test, in a folder of its own; `finish` when all is written."""

    folder: Path
    layout: Layout = "yuxi"
    url: str | None = None
    """The database; None: there is none."""
    in_place: bool = False
    """The new user-data root is the old `threads/`."""
    users: set[str] = field(default_factory=set)
    parts: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Directory of the saves → directory beneath `user_data` that it becomes (a part of)."""
    empty: list[bytes] = field(default_factory=list)
    """Directories beneath `user_data` that are there whatever the saves hold."""
    slugs: list[str] = field(default_factory=list)
    """The skills that have files."""
    rows: Rows = field(default_factory=Rows)
    owners: dict[str, str] = field(default_factory=dict)
    """Thread → uid, for the owners file."""
    tree: Tree = field(default_factory=dict)
    """What `user_data` holds afterwards, without what is not ours."""
    skill_tree: Tree = field(default_factory=dict)
    """The same of the skill store."""

    existing_source: bool = False
    """Somebody else has made the saves, in the folder of the same name."""

    def __post_init__(self) -> None:
        self.new = self.folder / "new"
        self._random = random.Random(31)
        self._files = 0
        self._stack = ExitStack()
        self._database: Connection | None = None
        self._conversations: dict[str, _Conversation] = {}
        self._calls = 0
        if self.existing_source:
            return
        self.source.mkdir(parents=True)
        if self.url is not None:
            self._database = self._stack.enter_context(rows.connection(self.url))
            rows.create(self._database)

    @property
    def source(self) -> Path:
        """The old saves."""
        return self.folder / "saves"

    @property
    def user_data(self) -> Path:
        """The root of the new tree."""
        return self.source / "threads" if self.in_place else self.new / "user-data"

    @property
    def skill_store(self) -> Path:
        """The root of the skills."""
        return self.new / "skill-store"

    @property
    def projections(self) -> Path:
        """The root of the users' projections."""
        return self.new / "skill-projections"

    @property
    def state(self) -> Path:
        """The folder of the journal."""
        return self.folder / "state"

    @property
    def owners_file(self) -> Path | None:
        """The CSV that says whose thread is whose, where the layout needs it."""
        return self.folder / "owners.csv" if self.layout != "yuxi" or self.url is None else None

    @property
    def arguments(self) -> list[str]:
        """The options of every verb."""
        options = [
            *("--source", str(self.source), "--user-data", str(self.user_data)),
            *("--skill-store", str(self.skill_store), "--state", str(self.state)),
            *("--skill-projections", str(self.projections)),
        ]
        if self.url is not None:
            options += ["--database", self.url]
        if self.owners_file is not None:
            options += ["--owners", str(self.owners_file)]
        return options

    def path(self, relative: str | bytes) -> bytes:
        """The host path of something in the saves, the directories above it made."""
        path = os.path.join(os.fsencode(self.source), os.fsencode(relative))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def file(
        self,
        relative: str | bytes,
        content: int | bytes = 100,
        *,
        mode: int = 0o666,
        xattrs: Mapping[str, bytes] | None = None,
        mtime: int | None = None,
    ) -> bytes:
        """Writes a file, of so many random bytes or of these; its host path."""
        path = self.path(relative)
        data = self._random.randbytes(content) if isinstance(content, int) else content
        with open(path, "wb") as file:
            file.write(data)
        for name, value in (xattrs or {}).items():
            os.setxattr(path, name, value)
        os.chmod(path, mode)
        self._date(path, mtime)
        return path

    def link(self, relative: str | bytes, text: str | bytes | Path) -> bytes:
        """Makes a symbolic link; its host path."""
        path = self.path(relative)
        os.symlink(os.fsencode(text), path)
        self._date(path)
        return path

    def directory(self, relative: str | bytes, mode: int = 0o777) -> bytes:
        """Makes a directory; its host path."""
        path = self.path(relative)
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)
        return path

    def _date(self, path: bytes, mtime: int | None = None) -> None:
        self._files += 1
        seconds = MTIME + self._files if mtime is None else mtime
        os.utime(path, ns=(seconds * 10**9 + 123456789,) * 2, follow_symlinks=False)

    def user(self, uid: str, *, workspace: bool = True) -> str:
        """A row for a user and, in layout A, their workspace; its path in the saves."""
        self.users.add(uid)
        if self._database is not None:
            rows.insert(self._database, "users", username=f"name of {uid}", uid=uid, role="user")
        old = f"threads/shared/{uid}/workspace"
        if workspace and self.layout == "yuxi":
            self.directory(old)
            self.parts.append((os.fsencode(old), f"shared/{safe(uid)}/workspace".encode()))
        return old

    def user_data_of(self, thread: str, uid: str) -> str:
        """Where the saves hold a thread's files."""
        if self.layout == "deerflow" and uid:
            return f"users/{uid}/threads/{thread}/user-data"
        return f"threads/{thread}/user-data"

    def thread(
        self,
        thread: str,
        uid: str,
        *,
        parent: str | None = None,
        names: Iterable[str] = ("uploads", "outputs"),
        metadata: object = None,
        inputs: Sequence[tuple[str, object]] = (),
        status: str = "active",
        migrated: bool = True,
        row: bool = True,
    ) -> str:
        """A conversation, its calls, and its part in a Workdir; where its files are to be written.

        `parent` is the thread whose sub-agent it is. One that is not `migrated` keeps its rows and
        its files where they are.
        """
        self.owners[thread] = uid
        root = thread
        if row:
            self._converse(thread, uid, parent, metadata, status)
            while (above := self._conversations[root].parent) is not None:
                root = above
        workdir = workdir_of(uid, root)
        project = md5_uuid(f"project:{uid}:{root}") if migrated else None
        where = self.user_data_of(thread, uid)
        target = f"shared/{safe(uid)}/workspace/{workdir}"
        if migrated:
            self.empty.append(target.encode())
            for name in names:
                # The workspace of a thread becomes the Workdir itself.
                into = target if name == "workspace" else f"{target}/{name}"
                self.parts.append((f"{where}/{name}".encode(), into.encode()))
        if row:
            self._expect(thread, uid, workdir, project, metadata, inputs)
        return where

    def _converse(
        self, thread: str, uid: str, parent: str | None, metadata: object, status: str
    ) -> None:
        number = len(self._conversations) + 1
        self._conversations[thread] = _Conversation(number, uid, parent)
        if self._database is None:
            return
        rows.insert(
            self._database,
            "conversations",
            id=number,
            thread_id=thread,
            uid=uid,
            agent_id="chat",
            title=thread,
            status=status,
            is_pinned=False,
            created_at=NOW,
            updated_at=NOW,
            extra_metadata=metadata,
        )
        rows.insert(
            self._database,
            "messages",
            id=number,
            conversation_id=number,
            content=f"see {_HOME}/outputs/x",
            created_at=NOW,
        )
        if parent is not None and parent in self._conversations:
            self.child(parent, thread)

    def child(self, parent: str, thread: str) -> None:
        """The row that makes one conversation the sub-agent of another."""
        above, below = self._conversations[parent], self._conversations[thread]
        if self._database is not None:
            rows.insert(
                self._database,
                "subagent_threads",
                uid=below.uid,
                parent_conversation_id=above.id,
                child_conversation_id=below.id,
                child_thread_id=thread,
                subagent_slug="sub",
            )

    def _expect(
        self,
        thread: str,
        uid: str,
        workdir: str,
        project: str | None,
        metadata: Any,
        inputs: Sequence[tuple[str, object]],
    ) -> None:
        self.rows.conversations[thread] = project
        after = metadata
        if project is not None:
            self.rows.projects[project] = {
                "uid": uid,
                "workdir_path": workdir,
                "selection_status": "implicit",
                "directory_mode": "managed",
            }
            after = _rewritten_metadata(metadata, workdir)
        self.rows.metadata[thread] = after
        for name, given in inputs:
            self._calls += 1
            if self._database is not None:
                rows.insert(
                    self._database,
                    "tool_calls",
                    id=self._calls,
                    message_id=self._conversations[thread].id,
                    tool_name=name,
                    tool_input=given,
                    tool_output="ok",
                    status="success",
                )
            rewritten = project is not None and name == "present_artifacts"
            self.rows.inputs[self._calls] = _rewritten_input(given, workdir) if rewritten else given

    def skill(
        self, slug: str, source_type: str = "upload", *, files: bool = True, row: bool = True
    ) -> None:
        """A skill with its row and files, or without one of them."""
        if files:
            self.file(
                f"skills/{slug}/SKILL.md", f"---\nname: {slug}\ndescription: d\n---\n".encode()
            )
            self.file(f"skills/{slug}/scripts/run.py", b"print()\n", mode=0o777)
            self.slugs.append(slug)
        if not row:
            return
        self.rows.skills[slug] = f"shared/{slug}"
        if self._database is not None:
            rows.insert(
                self._database,
                "skills",
                slug=slug,
                name=slug,
                source_type=source_type,
                dir_path=f"skills/{slug}",
                enabled=True,
            )

    def settings(self, text: str, known: Mapping[str, Any]) -> None:
        """The system settings, and those of them that are known."""
        self.file("config/base.toml", text.encode())
        self.rows.options = dict(known)

    def finish(self, owner: tuple[int, int] = (0, 0)) -> Self:
        """Dates all directories, works out the answer, and ends the writing."""
        self._stack.close()
        if self.owners_file is not None:
            lines = [f"{thread},{uid}" for thread, uid in self.owners.items() if uid]
            self.owners_file.write_text("\n".join(["thread_id,uid", *lines]) + "\n")
        before = snapshot(self.source)
        for number, path in enumerate(reversed(before)):
            place = os.path.join(os.fsencode(self.source), path)
            os.chown(place, *owner, follow_symlinks=False)
            if before[path].kind == "directory":
                seconds = MTIME + 10_000 + number
                os.utime(place, ns=(seconds * 10**9 + 987654321,) * 2)
        self.work_out()
        return self

    def work_out(self) -> None:
        """Works out the answer from what the saves hold now."""
        before = snapshot(self.source)
        self.tree = answer(before, self.parts, self.empty, in_place=self.in_place)
        self.skill_tree = answer(
            before,
            [(f"skills/{slug}".encode(), f"shared/{slug}".encode()) for slug in self.slugs],
            [],
        )


def _rewritten_metadata(metadata: Any, workdir: str) -> Any:
    if not isinstance(metadata, dict) or not isinstance(metadata.get("attachments"), list):
        return metadata
    attachments = []
    for entry in metadata["attachments"]:
        if isinstance(entry, dict):
            entry = {
                name: mapped(entry[name], workdir)
                if name in ("path", "original_path")
                else entry[name]
                for name in _KEPT
                if name in entry
            }
        attachments.append(entry)
    return {**metadata, "attachments": attachments}


def _rewritten_input(given: Any, workdir: str) -> Any:
    if not isinstance(given, dict) or not isinstance(given.get("filepaths"), list):
        return given
    return {**given, "filepaths": [mapped(path, workdir) for path in given["filepaths"]]}


def answer(
    before: Tree,
    parts: Sequence[tuple[bytes, bytes]],
    empty: Sequence[bytes],
    *,
    in_place: bool = False,
) -> Tree:
    """What parts of old saves make of a new root, the directories above them included.

    `in_place`: the root is the old `threads`.
    """
    made: Tree = {path: _directory(None) for path in empty}
    for old, new in parts:
        for path, node in _beneath(before, old, new):
            if in_place and old == b"threads/" + new:
                # It stays where it is, so a copy is no twin of it.
                node = replace(node, twin=None)
            taken, there = _taken(node), made.get(path)
            if taken is None:
                continue
            if there is None or _wins(taken, there):
                made[path] = taken
            elif taken.kind == "directory" and there.kind == "directory":
                made[path] = _directory(max(taken.mtime_ns or 0, there.mtime_ns or 0))
    for path in list(made):
        above = path.rpartition(b"/")[0]
        while above not in made or made[above].kind != "directory":
            made[above] = _directory(None)
            above = above.rpartition(b"/")[0]
    made |= _twins(made)
    # What stands at the top of a workspace is the user's and the migrator's.
    return {
        path: replace(node, mtime_ns=None) if path.endswith((b"/workspace", b"/projects")) else node
        for path, node in sorted(made.items())
    }


def _twins(made: Tree) -> Tree:
    """The files that were twins before, with the twins that they have now."""
    groups: dict[bytes, dict[bytes, list[bytes]]] = {}
    for path, node in made.items():
        if node.twin:
            user = b"/".join(path.split(b"/")[:2])
            groups.setdefault(node.twin, {}).setdefault(user, []).append(path)
    changed: Tree = {}
    for users in groups.values():
        for twins in users.values():
            # Whether a group of several users' files stays one depends on how it is transferred.
            twin = None if len(users) > 1 else min(twins) if len(twins) > 1 else b""
            changed |= {path: replace(made[path], twin=twin) for path in twins}
    return changed


def _beneath(before: Tree, old: bytes, new: bytes) -> Iterable[tuple[bytes, Node]]:
    if before.get(old) is None or before[old].kind != "directory":
        return
    for path, node in before.items():
        if path == old or path.startswith(old + b"/"):
            yield new + path[len(old) :], node


def _taken(node: Node) -> Node | None:
    if node.kind == "directory":
        return replace(node, mode=0o700, owner=OWNER)
    if node.kind == "link":
        return replace(node, mode=None, owner=OWNER, twin=None)
    if node.kind == "file":
        assert node.mode is not None
        return replace(node, mode=0o700 if node.mode & 0o111 else 0o600, owner=OWNER)
    return None


def _wins(node: Node, there: Node) -> bool:
    """Whether a later part's entry replaces an earlier one's."""
    if node.kind == "directory" or there.kind == "directory":
        return node.kind == "directory" and there.kind != "directory"
    return (node.mtime_ns or 0) >= (there.mtime_ns or 0)


def _directory(mtime_ns: int | None) -> Node:
    return Node("directory", 0o700, OWNER, mtime_ns, xattrs=())


def as_json(value: object) -> str:
    """For a failing test."""
    return json.dumps(value, indent=1, ensure_ascii=False, default=repr)
