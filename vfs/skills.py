"""Skills: the store that an operator keeps, and what each user is shown of it.

A skill is a folder of files with a slug for a name; `SKILL.md` in it says what it is for. The store
holds `shared/<slug>/`; `project` copies from it what a user may see (`vfs.projecting`). In the
store too a skill is whole or not there: it is copied under a hidden name, forced to the disk, and
then named; one that replaces another does so in one step.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from vfs import tree
from vfs.beneath import Directory, open_regular, translated
from vfs.errors import AlreadyExists, LinkRefused, NotADirectory, NotFound, VfsError, from_oserror
from vfs.locking import lock
from vfs.naming import skill_slug
from vfs.projecting import Difference, Projection, project, slugs_in, store_of, verify
from vfs.resolving import O_LIST, resolver
from vfs.saving import random_token, temporary_name
from vfs.skilltrees import copy_whole, drop, put_in_place, sweep
from vfs.workspace import HostPath, Storage

__all__ = [
    "Difference",
    "Projection",
    "Skill",
    "SkillStore",
    "description",
    "project",
    "verify",
]

WAIT: Final = 30.0
"""Seconds to wait for another change of the store."""

_HEAD_MAX: Final = 64 * 1024
"""Bytes of a SKILL.md in which its front matter must end."""

_DESCRIPTION_MAX: Final = 1024
"""Characters of a description; the Agent Skills format allows no more."""


_BLOCK: Final = re.compile(r"[|>][-+0-9]*")
"""The beginning of a YAML block scalar."""
_COMMENT: Final = re.compile(r"(^|\s)#.*")
_ESCAPE: Final = re.compile(r"\\([\"\\/])")


@dataclass(frozen=True, slots=True)
class Skill:
    """One skill of the store."""

    slug: str
    description: str | None
    """What its SKILL.md says it is for, on one line; None if it does not."""
    files: int
    size: int
    """Bytes of all files."""


class SkillStore:
    """The shared skills of a storage, which must stay open."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def list(self) -> list[Skill]:
        """The skills, by slug. What is no folder or has no slug for a name is left out."""
        found = []
        with store_of(self._storage) as store:
            for slug in slugs_in(store):
                with suppress(LinkRefused, NotADirectory, NotFound):
                    found.append(_skill(store, slug))
        return found

    def add(
        self, host_directory: HostPath, slug: str | None = None, *, replace: bool = False
    ) -> Skill:
        """Copies a folder of the host into the store, whole or not at all.

        `slug` is the folder's name unless given. Raises InvalidName, AlreadyExists when there is
        such a skill (unless it is to be replaced), LinkRefused or SpecialFileRefused for what is in
        the folder; the way to the folder is the operator's, and may lead through links.
        """
        path = os.fsencode(host_directory)
        slug = skill_slug(_name_of(path) if slug is None else slug)
        name, hidden = slug.encode(), temporary_name(random_token())
        with _source(path) as source, self._turn() as store:
            exists = slug in slugs_in(store)
            if exists and not replace:
                raise AlreadyExists(
                    f"there is a skill {slug} already", fix="replace it, or choose another slug"
                )
            copy_whole(source, (), slug, store, hidden, self._storage.owner)
            try:
                _sync(store, hidden)
                if exists:
                    put_in_place(store, hidden, name)
                else:
                    store.rename((hidden,), (name,))
                store.sync()
            finally:
                # What did not become the skill, or what it has replaced.
                drop(store, hidden)
            return _skill(store, slug)

    def remove(self, slug: str) -> None:
        """Removes a skill; users lose it at their next refresh. NotFound if there is none."""
        name, hidden = skill_slug(slug).encode(), temporary_name(random_token())
        with self._turn() as store:
            try:
                store.rename((name,), (hidden,))
            except NotFound:
                raise NotFound(
                    f"there is no skill {slug}", fix="see which there are: vfs skills list"
                ) from None
            store.sync()
            drop(store, hidden)

    @contextmanager
    def _turn(self) -> Iterator[Directory]:
        """The directory of the skills, while nobody else changes it."""
        with store_of(self._storage) as store:
            fd = store.open_listing()
            try:
                try:
                    lock(fd, wait=WAIT)
                except OSError as exc:
                    raise from_oserror(exc, action="change the skill store") from None
                sweep(store)
                yield store
            finally:
                os.close(fd)


def description(text: str) -> str | None:
    """The description in the front matter of a SKILL.md, on one line; None if there is none.

    Front matter is YAML between two lines of ``---`` at the beginning. Of YAML only what this field
    is written in is understood: plain, quoted, and block scalars.
    """
    lines = iter(text.splitlines())
    if next(lines, "").rstrip() != "---":
        return None
    value: list[str] | None = None
    for line in lines:
        if line.rstrip() == "---":
            break
        if value is not None and (not line.strip() or line[0] in " \t"):
            value.append(line)
        elif value is not None:
            break
        elif line.startswith("description:"):
            value = [line.removeprefix("description:")]
    else:
        return None
    if value is None:
        return None
    shown = " ".join(_scalar(value).split())
    return shown[:_DESCRIPTION_MAX] or None


def _scalar(lines: list[str]) -> str:
    head = lines[0].strip()
    if _BLOCK.fullmatch(head):
        return "\n".join(lines[1:])
    whole = " ".join(line.strip() for line in [head, *lines[1:]]).strip()
    if len(whole) >= 2 and whole[0] == whole[-1] and whole[0] in "'\"":
        inner = whole[1:-1]
        return inner.replace("''", "'") if whole[0] == "'" else _ESCAPE.sub(r"\1", inner)
    return _COMMENT.sub("", whole)


def _name_of(path: bytes) -> str:
    return os.fsdecode(os.path.basename(os.path.abspath(path)))


@contextmanager
def _source(path: bytes) -> Iterator[Directory]:
    try:
        # The way to it is the operator's, links included.
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError) as exc:
        number = exc.errno if isinstance(exc, OSError) else errno.EINVAL
        raise from_oserror(OSError(number, ""), action="open the folder of the skill") from None
    with Directory(fd) as source:
        yield source


def _skill(store: Directory, slug: str) -> Skill:
    path = (slug.encode(),)
    with store.directory(path) as folder:
        usage = tree.usage(folder)
        try:
            with open(folder.open_file((b"SKILL.md",)), "rb", buffering=0) as file:
                head = file.read(_HEAD_MAX).decode("utf-8", "replace")
        except VfsError:
            head = ""
    return Skill(slug, description(head), usage.files, usage.size)


def _sync(store: Directory, name: bytes) -> None:
    """Forces a tree to the disk."""
    for here, entry in tree.visit(store, (name,)):
        with translated("sync", entry.path):
            if entry.is_dir:
                fd = resolver().open(here.fd, here.mnt_id, (entry.name,), O_LIST)
            else:
                fd = open_regular(here.fd, here.mnt_id, (entry.name,), os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
    with store.directory((name,)) as top:
        top.sync()
