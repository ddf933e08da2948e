"""What is wrong in a storage, by kind and with what mends it. Nothing is changed.

=============  =====================================================================================
kind           a finding is
=============  =====================================================================================
`owner`        an entry that is not 1000:1000's, where the storage is; else one that is not of the
               user who owns `user-data`
`mode`         group or others may write; a set-id bit; an owner who may not read a file, or not
               list, enter and fill a directory. A file that is read-only is none: git makes them
`links`        how many symbolic links a workspace holds. Nothing follows them, so this is no fault
               (`Finding.harmless`)
`link`         a link that may lead out of the workspace, by its text alone: absolute, more `..`
               than it is deep, or `..` after a name; any link in the store or a projection
`special`      a FIFO, socket or device
`collision`    names in one directory that are one where case or Unicode composition is not told
               apart; a second directory for one user id
`stray`        an entry where the layout has none
`incomplete`   a directory of the layout that is missing
`skill`        a skill of the store that cannot be shown to users
`projection`   a projected skill whose content differs from the store's
`leftover`     what a killed process left under a temporary name
`mount`        a place on which something else is mounted; it was not looked at
`unreadable`   a place that could not be looked at
=============  =====================================================================================

Findings come one by one as they are met. Memory grows with the widest directory and with the number
of users and skills, not with the number of files.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Final

from vfs.beneath import Directory
from vfs.errors import InvalidName, LinkRefused, NotFound, SpecialFileRefused, VfsError
from vfs.inspection import (
    Finding,
    Kind,
    Owner,
    Place,
    inspect_entry,
    inspect_tree,
    leftover,
)
from vfs.linux import Status
from vfs.namespace import SKILLS, USER_DATA
from vfs.naming import is_user_directory, safe_uid
from vfs.printable import printable
from vfs.projecting import Comparison, is_slug, slugs_in, store_of, turn
from vfs.saving import is_temporary
from vfs.skilltrees import snapshot
from vfs.walking import Parts
from vfs.workspace import OWNER, ROOTS, SHARED, WORKSPACE, Storage

__all__ = ["Finding", "Kind", "check"]

_NOT_THE_LAYOUTS: Final = frozenset(
    (b"lost+found", b".v072-runtime-identity", b".legacy-migration-complete")
)
"""What may stand in a root besides: what mkfs puts into the root of a file system, and the markers
that a migration leaves."""

_USER_DATA, _PROJECTIONS, _STORE = (Place(name.encode()) for name in ROOTS)

_INIT: Final = "make it: vfs init"
_ASIDE: Final = "move what is needed of it elsewhere, then remove it"
_REFRESH: Final = "bring the user's skills up to date: vfs skills project"

_Level = Iterator[Finding | tuple[bytes, Status]]
"""The entries of one directory of the layout, and what is wrong with those that have none."""


def check(storage: Storage) -> Iterator[Finding]:
    """Everything that is wrong in a storage. What cannot be looked at is a finding, no error."""
    status = storage.user_data.stat()
    owner: Owner = OWNER if (status.uid, status.gid) == OWNER else (status.uid, None)
    for root, place in (
        (storage.user_data, _USER_DATA),
        (storage.skill_projections, _PROJECTIONS),
        (storage.skill_store, _STORE),
    ):
        yield from inspect_entry(place, (), root.stat(), owner)
    yield from _check_users(storage, owner)
    yield from _check_store(storage, owner)
    yield from _check_projections(storage, owner)


def _check_users(storage: Storage, owner: Owner) -> Iterator[Finding]:
    root = storage.user_data
    for shared in _only(root, (), _USER_DATA, SHARED, _INIT):
        if isinstance(shared, Finding):
            yield shared
            continue
        yield from inspect_entry(_USER_DATA, (SHARED,), shared, owner)
        for user in _level(root, (SHARED,), _USER_DATA):
            if isinstance(user, Finding):
                yield user
            elif is_user_directory(user[0]) and stat.S_ISDIR(user[1].mode):
                yield from inspect_entry(_USER_DATA, (SHARED, user[0]), user[1], owner)
                yield from _check_user(root, user[0], owner)
            else:
                yield _no_user(root, *user)


def _check_user(root: Directory, name: bytes, owner: Owner) -> Iterator[Finding]:
    path = (SHARED, name)
    for item in _only(root, path, _USER_DATA, WORKSPACE, "add the user again: vfs user add"):
        if isinstance(item, Finding):
            yield item
        else:
            place = Place(USER_DATA.encode(), name.decode())
            yield from inspect_entry(place, (), item, owner)
            yield from inspect_tree(root, (*path, WORKSPACE), place, owner, links=True)


def _no_user(root: Directory, name: bytes, status: Status) -> Finding:
    """The finding about an entry that is no user's directory."""
    path = (SHARED, name)
    if not stat.S_ISDIR(status.mode):
        return _USER_DATA.finding("stray", path, "it is not a directory", _ASIDE)
    try:
        uid = name.decode()
        right = safe_uid(uid)
        root.stat((SHARED, right.encode()))
    except (UnicodeDecodeError, InvalidName):
        return _USER_DATA.finding("stray", path, "no user id has this directory", _ASIDE)
    except VfsError:
        return _USER_DATA.finding(
            "stray",
            path,
            f"nobody is found here: the directory of the user id {printable(uid)} is {right}",
            f"rename it to {right}, or remove it",
        )
    return _USER_DATA.finding(
        "collision",
        path,
        f"the user id {printable(uid)} has the directory {right} as well, which is the one used",
        f"move what is needed of it into {right}, then remove it",
    )


def _check_store(storage: Storage, owner: Owner) -> Iterator[Finding]:
    root = storage.skill_store
    for shared in _only(root, (), _STORE, SHARED, _INIT):
        if isinstance(shared, Finding):
            yield shared
            continue
        yield from inspect_entry(_STORE, (SHARED,), shared, owner)
        for skill in _level(root, (SHARED,), _STORE):
            if isinstance(skill, Finding):
                yield skill
                continue
            name, status = skill
            path = (SHARED, name)
            if not is_slug(name) or not stat.S_ISDIR(status.mode):
                yield _STORE.finding("stray", path, "it is not a skill", _ASIDE)
                continue
            yield from inspect_entry(_STORE, path, status, owner)
            place = Place(b"/".join((_STORE.prefix, *path)))
            yield from inspect_tree(root, path, place, owner, links=False)
            try:
                snapshot(root, path, name.decode())
            except (LinkRefused, SpecialFileRefused):
                pass  # each is a finding already
            except VfsError as exc:
                yield _STORE.finding(
                    "skill", path, f"it cannot be shown: {exc.message}", exc.fix or ""
                )


def _check_projections(storage: Storage, owner: Owner) -> Iterator[Finding]:
    root = storage.skill_projections
    with ExitStack() as stack:
        comparison, known = None, frozenset[str]()
        # A store that cannot be opened was found by now.
        with suppress(VfsError):
            store = stack.enter_context(store_of(storage))
            comparison, known = Comparison(store), frozenset(slugs_in(store))
        for item in _level(root, (), _PROJECTIONS):
            if isinstance(item, Finding):
                yield item
                continue
            name, status = item
            if not stat.S_ISDIR(status.mode) or not _is_user(storage, name):
                why = "no user has it" if stat.S_ISDIR(status.mode) else "it is not a directory"
                yield _PROJECTIONS.finding("stray", (name,), why, "remove it")
                continue
            place = Place(SKILLS.encode(), name.decode())
            yield from inspect_entry(place, (), status, owner)
            slugs = []
            for skill in _level(root, (name,), place, 1):
                if isinstance(skill, Finding):
                    yield skill
                    continue
                slug, status = skill
                if not is_slug(slug) or not stat.S_ISDIR(status.mode):
                    yield place.finding("stray", (slug,), "it is not a skill", "remove it")
                elif comparison is not None and slug.decode() not in known:
                    yield place.finding("stray", (slug,), "the store has no such skill", _REFRESH)
                else:
                    slugs.append(slug.decode())
                    yield from inspect_entry(place, (slug,), status, owner)
                    below = Place(place.prefix + b"/" + slug, place.user)
                    yield from inspect_tree(root, (name, slug), below, owner, links=False)
            if comparison is not None and slugs:
                yield from _differences(storage, name, slugs, comparison, place)


def _is_user(storage: Storage, name: bytes) -> bool:
    try:
        status = storage.user_data.stat((SHARED, name))
    except VfsError:
        return False
    return is_user_directory(name) and stat.S_ISDIR(status.mode)


def _differences(
    storage: Storage, name: bytes, slugs: list[str], comparison: Comparison, place: Place
) -> Iterator[Finding]:
    """The skills of one user that are not what they are in the store."""
    try:
        with (
            turn(storage, name, shared=True),
            storage.skill_projections.directory((name,)) as shown,
        ):
            found = [comparison.difference(shown, slug) for slug in slugs]
    except VfsError as exc:
        yield place.failure((), exc)
        return
    for difference in found:
        # Why a skill cannot be shown is found in the store.
        if difference is not None and difference.kind == "different":
            yield place.finding(
                "projection", (difference.slug.encode(),), difference.detail, _REFRESH
            )


def _only(
    root: Directory, path: Parts, place: Place, expected: bytes, fix: str
) -> Iterator[Finding | Status]:
    """The status of the one directory that belongs into another, and what else is found there."""
    whole = (*path, expected)
    for item in _level(root, path, place):
        if isinstance(item, Finding):
            yield item
        elif item[0] != expected:
            yield place.finding("stray", (*path, item[0]), "nothing belongs here", _ASIDE)
        elif stat.S_ISDIR(item[1].mode):
            yield item[1]
        else:
            yield place.finding("incomplete", whole, "it is not a directory", _ASIDE)
    try:
        root.stat(whole)
    except NotFound:
        yield place.finding("incomplete", whole, "it is not there", fix)
    except VfsError:
        pass  # found by the level


def _level(root: Directory, path: Parts, place: Place, base: int = 0) -> _Level:
    try:
        names = sorted(root.names(path))
    except NotFound:
        return
    except VfsError as exc:
        yield place.failure(path[base:], exc)
        return
    for name in names:
        parts = (*path, name)
        if is_temporary(name):
            yield leftover(place, parts[base:])
        elif path or name not in _NOT_THE_LAYOUTS:
            try:
                yield name, root.stat(parts)
            except NotFound:
                continue
            except VfsError as exc:
                yield place.failure(parts[base:], exc)
