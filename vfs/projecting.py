"""What one user sees of the skills: real files, copied from the store, and brought up to date.

What a refresh promises:

- under its slug a skill is there whole: a changed one is built beside it under a hidden name and
  put in its place in one step (RENAME_EXCHANGE); the old one is removed after;
- a skill that is unchanged is not touched, by a quick look (`skilltrees.snapshot`); `by_content`
  compares the bytes too;
- a skill that cannot be shown is refused by name and keeps the last projection that could be, and
  the other skills are brought up to date all the same;
- what the store no longer holds, or was not asked for, goes;
- one refresh runs at a time for a user, others wait; what a killed one left is removed by the next.

The lock is on the user's directory in `user-data`, not on the projection: that one is shown to
agents, who could lock it and keep their skills from ever being changed.

Copies are not forced to the disk: the store holds the truth, and what a power failure takes from a
copy changes its size, so the next refresh makes it again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from vfs import tree
from vfs.beneath import Directory
from vfs.errors import (
    Busy,
    InvalidName,
    NoSpace,
    NotFound,
    ReadOnly,
    StorageFailure,
    Unavailable,
    VfsError,
    from_oserror,
)
from vfs.locking import lock
from vfs.making import make_directories
from vfs.naming import skill_slug
from vfs.saving import random_token, temporary_name
from vfs.skilltrees import copy_whole, drop, put_in_place, snapshot, sweep
from vfs.workspace import SHARED, Storage

WAIT: Final = 30.0
"""Seconds to wait for another refresh of the same user: many times what copying takes."""

_NOBODYS = (NoSpace, StorageFailure, ReadOnly, Unavailable)
"""Errors that no skill is to blame for: they end the refresh."""

_NOT_IN_STORE: Final = "it is not in the store"


@dataclass(frozen=True, slots=True)
class Projection:
    """What a refresh did. All slugs are sorted."""

    added: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    """Slug → why it cannot be shown, with the path in the skill where there is one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One skill whose projection is not what it should be."""

    slug: str
    kind: Literal["missing", "different", "extra", "refused"]
    """Not there; other content; there, but not in the store or not asked for; cannot be shown."""
    detail: str
    """One line."""


def project(
    storage: Storage, uid: str, slugs: Iterable[str] | None = None, *, by_content: bool = False
) -> Projection:
    """Makes the skills that a user sees those of `slugs`, or all of the store (None).

    Raises NotFound for an unknown user, InvalidName for what is no slug, Busy when another refresh
    takes longer than `WAIT` seconds, and what no single skill is to blame for; the skills that were
    done by then stay done.
    """
    wanted = _checked(slugs)
    name = _directory_of(storage, uid)
    with (
        turn(storage, name, shared=False),
        store_of(storage) as store,
        make_directories(storage.skill_projections, (name,), storage.owner) as target,
    ):
        return _Refresh(store, target, storage.owner, by_content).run(wanted)


def verify(storage: Storage, uid: str, slugs: Iterable[str] | None = None) -> list[Difference]:
    """How what a user sees differs from what `project` would make of the same `slugs`.

    Every byte is compared, and nothing is changed. Raises as `project` does.
    """
    wanted = _checked(slugs)
    name = _directory_of(storage, uid)
    with turn(storage, name, shared=True), store_of(storage) as store, ExitStack() as stack:
        target = None
        with suppress(NotFound):
            target = stack.enter_context(storage.skill_projections.directory((name,)))
        shown = set() if target is None else set(slugs_in(target))
        known = set(slugs_in(store))
        comparison = Comparison(store)
        found = []
        for slug in known if wanted is None else wanted:
            if slug not in known:
                found.append(Difference(slug, "refused", _NOT_IN_STORE))
            elif target is None or slug not in shown:
                error = comparison.refusal(slug)
                if error is None:
                    found.append(Difference(slug, "missing", "it is not projected"))
                else:
                    found.append(Difference(slug, "refused", _reason(slug, error)))
            else:
                difference = comparison.difference(target, slug)
                if difference is not None:
                    found.append(difference)
        for slug in shown.difference(known if wanted is None else wanted):
            reason = "it was not asked for" if slug in known else _NOT_IN_STORE
            found.append(Difference(slug, "extra", reason))
        return sorted(found, key=lambda difference: difference.slug)


class Comparison:
    """Compares skills with the store's by content; the store's own files are read once each."""

    def __init__(self, store: Directory) -> None:
        self._store = store
        self._digests: dict[str, bytes | VfsError] = {}

    def refusal(self, slug: str) -> VfsError | None:
        """Why a skill of the store cannot be shown; None if it can."""
        found = self._of_store(slug)
        return None if isinstance(found, bytes) else found

    def difference(self, target: Directory, slug: str) -> Difference | None:
        """How the projection of a skill differs from its source, if it does."""
        source = self._of_store(slug)
        if isinstance(source, VfsError):
            return Difference(slug, "refused", _reason(slug, source))
        try:
            if tree.digest(target, (slug.encode(),)) == source:
                return None
        except VfsError as exc:
            return Difference(slug, "different", exc.message)
        return Difference(slug, "different", "its content differs from the store's")

    def _of_store(self, slug: str) -> bytes | VfsError:
        if slug not in self._digests:
            path = (slug.encode(),)
            try:
                snapshot(self._store, path, slug)
                self._digests[slug] = tree.digest(self._store, path)
            except VfsError as exc:
                self._digests[slug] = exc
        return self._digests[slug]


def slugs_in(directory: Directory) -> list[str]:
    """The names in a directory that are slugs, sorted."""
    return sorted(name.decode() for name in directory.names() if is_slug(name))


def is_slug(name: bytes) -> bool:
    """Whether a name is a skill slug."""
    try:
        skill_slug(name.decode("ascii"))
    except (UnicodeDecodeError, InvalidName):
        return False
    return True


def store_of(storage: Storage) -> Directory:
    """The directory of the shared skills, pinned."""
    try:
        return storage.skill_store.directory((SHARED,))
    except NotFound:
        # Not taken for a store without skills: every projection would go.
        raise NotFound("skill-store has no folder shared", fix="make it with `vfs init`") from None


def _checked(slugs: Iterable[str] | None) -> frozenset[str] | None:
    return None if slugs is None else frozenset(skill_slug(slug) for slug in slugs)


@contextmanager
def turn(storage: Storage, name: bytes, *, shared: bool) -> Iterator[None]:
    """Keeps other refreshes of the user with the directory `name` away; Busy after `WAIT`."""
    fd = storage.user_data.open_listing((SHARED, name))
    try:
        try:
            lock(fd, wait=WAIT, shared=shared)
        except OSError as exc:
            if exc.errno != errno.EBUSY:
                raise from_oserror(exc, action="lock the skills") from None
            raise Busy("the user's skills are being refreshed", fix="try again later") from None
        yield
    finally:
        os.close(fd)


def _directory_of(storage: Storage, uid: str) -> bytes:
    """The directory name of a user who exists."""
    with storage.workspace(uid) as workspace:
        return workspace.name.encode()


class _Refresh:
    """One refresh, in its turn."""

    def __init__(
        self,
        store: Directory,
        target: Directory,
        owner: tuple[int, int] | None,
        by_content: bool,
    ) -> None:
        self._store = store
        self._target = target
        self._owner = owner
        self._by_content = by_content

    def run(self, wanted: frozenset[str] | None) -> Projection:
        known = set(slugs_in(self._store))
        sweep(self._target)
        present = set(slugs_in(self._target))
        done: dict[str, list[str]] = {"added": [], "updated": [], "removed": [], "unchanged": []}
        refused: dict[str, str] = {}
        for slug in sorted(known if wanted is None else known & wanted):
            try:
                if slug in present and self._is_current(slug):
                    done["unchanged"].append(slug)
                    continue
                retired = self._bring(slug, slug in present)
            except NotFound:
                # Removed from the store meanwhile.
                known.remove(slug)
            except _NOBODYS:
                raise
            except VfsError as exc:
                refused[slug] = _reason(slug, exc)
            else:
                done["added" if retired is None else "updated"].append(slug)
                if retired is not None:
                    drop(self._target, retired)
        if wanted is not None:
            refused.update(dict.fromkeys(sorted(wanted.difference(known)), _NOT_IN_STORE))
            known &= wanted
        for slug in sorted(present - known):
            self._remove(slug)
            done["removed"].append(slug)
        return Projection(**{name: tuple(slugs) for name, slugs in done.items()}, refused=refused)

    def _is_current(self, slug: str) -> bool:
        path = (slug.encode(),)
        try:
            source = snapshot(self._store, path, slug)
        except NotFound:
            # Replaced meanwhile, or removed: the copy tells.
            return False
        try:
            if snapshot(self._target, path, slug) != source:
                return False
            if not self._by_content:
                return True
            return tree.digest(self._target, path) == tree.digest(self._store, path)
        except VfsError:
            # What cannot be read is not what should be there.
            return False

    def _bring(self, slug: str, replaces: bool) -> bytes | None:
        """Puts the skill as it is now in its place; the name under which the old one waits."""
        hidden = temporary_name(random_token())
        copy_whole(self._store, (slug.encode(),), slug, self._target, hidden, self._owner)
        try:
            if not replaces:
                self._target.rename((hidden,), (slug.encode(),))
                return None
            put_in_place(self._target, hidden, slug.encode())
        except BaseException:
            drop(self._target, hidden)
            raise
        return hidden

    def _remove(self, slug: str) -> None:
        # Gone at once for those who look, however long the files take.
        hidden = temporary_name(random_token())
        self._target.rename((slug.encode(),), (hidden,))
        drop(self._target, hidden)


def _reason(slug: str, exc: VfsError) -> str:
    return exc.message.removeprefix(f"{slug}: ")
