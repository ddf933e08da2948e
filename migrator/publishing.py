"""Units get their names: one rename each, never over anything.

That a unit is being published is on the disk before it is renamed; what was interrupted is read
back from where the unit is. What stands at a target already decides what happens:

- nothing, or an empty directory (it is recorded and goes): published;
- a directory that holds all that the unit holds, byte for byte: adopted, the staged one is dropped;
- anything else: a conflict; the target stays as it is and the unit's sources stay where they are.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from migrator import comparing, removing
from migrator.findings import Finding
from migrator.ground import Ground, Place
from migrator.journal import Journal
from migrator.units import Path, RootName, Unit
from vfs import dirfd, linux
from vfs.beneath import Directory
from vfs.errors import LinkRefused, NotADirectory, NotFound, VfsError, from_oserror
from vfs.printable import printable
from vfs.resolving import O_LIST, resolver

Step = Literal["published", "adopted", "conflict"]

Records = Callable[[Unit], Iterator[dict[str, Any]]]
"""Reads a unit's manifest."""

_BATCH = 512
"""Units between two syncs of the journal: a sync takes about a millisecond."""


def publish(
    units: Sequence[Unit],
    roots: Mapping[RootName, Directory],
    ground: Ground,
    journal: Journal,
    records: Records,
) -> list[Finding]:
    """Publishes staged units, and says which could not be. Raises Retryable, OSError, VfsError."""
    findings = []
    holders: dict[str, Place] = {unit.key: (unit.root, unit.target[:-1]) for unit in units}
    failed = ground.prepare(holders.values())
    for unit in units:
        journal.record("unit", key=unit.key, step="publishing", sync=False)
    journal.sync()
    for number, unit in enumerate(units, 1):
        why = failed.get(holders[unit.key])
        if why is not None:
            removing.unstage(unit, roots[unit.root])
            step, reason = "conflict", why.message
        else:
            step, reason = _publish(unit, roots[unit.root], ground, records)
        journal.record("unit", key=unit.key, step=step, reason=reason, sync=False)
        if step == "conflict":
            findings.append(conflict(unit, reason))
        if number % _BATCH == 0:
            journal.sync()
    journal.sync()
    return findings


def in_the_way(unit: Unit, root: Directory) -> str | None:
    """Why a unit cannot get its name, as far as that shows before it is staged; None if it may.

    So that a run that finds the conflicts of an earlier one changes nothing.
    """
    try:
        if stat.S_ISDIR(root.stat(unit.target).mode):
            return None
    except NotFound:
        return None
    except (NotADirectory, LinkRefused):
        pass
    return "something that is no directory stands where one belongs"


def conflict(unit: Unit, reason: str) -> Finding:
    """What is reported of a unit whose target is taken."""
    shown = printable(b"/".join((unit.root.encode(), *unit.target)))
    return Finding(
        "target_taken",
        "conflict",
        shown,
        f"it was not taken over: {reason}",
        "move away what stands there, then run again",
    )


def _publish(unit: Unit, root: Directory, ground: Ground, records: Records) -> tuple[Step, str]:
    try:
        with root.parent(unit.target) as (holder, name):
            if _renamed(unit, root, holder, name):
                return "published", ""
            status = linux.statx(holder.fd, name)
            if not stat.S_ISDIR(status.mode):
                removing.unstage(unit, root)
                return "conflict", "something that is no directory stands there"
            if _is_empty(holder, name):
                ground.touch(unit.root, unit.target)
                os.rmdir(name, dir_fd=holder.fd)
                if _renamed(unit, root, holder, name):
                    return "published", ""
            elif comparing.same_as(unit, root, records(unit)):
                removing.unstage(unit, root)
                return "adopted", ""
            removing.unstage(unit, root)
            return "conflict", "a directory with other contents stands there"
    except OSError as exc:
        raise from_oserror(exc, path=b"/".join(unit.target), action="publish") from None


def _renamed(unit: Unit, root: Directory, holder: Directory, name: bytes) -> bool:
    """Whether the unit has its name now, by this rename or an earlier, interrupted one."""
    with root.parent(unit.staging) as (staging, staged):
        try:
            linux.renameat2(staging.fd, staged, holder.fd, name, linux.RENAME_NOREPLACE)
        except FileExistsError:
            return False
        except OSError as exc:
            if exc.errno not in dirfd.NO_SUCH_RENAME:
                raise
            # NFS knows no flags. The staging folder is ours alone, and services are stopped.
            if _exists(holder, name):
                return False
            os.rename(staged, name, src_dir_fd=staging.fd, dst_dir_fd=holder.fd)
    return True


def _exists(holder: Directory, name: bytes) -> bool:
    try:
        linux.statx(holder.fd, name)
    except FileNotFoundError:
        return False
    return True


def _is_empty(holder: Directory, name: bytes) -> bool:
    fd = resolver().open(holder.fd, holder.mnt_id, (name,), O_LIST)
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is None
    finally:
        os.close(fd)


def was_renamed(unit: Unit, root: Directory, inode: int) -> bool:
    """Whether an interrupted publication had done its rename: the target is what was staged."""
    return _inode(root, unit.staging) != inode and _inode(root, unit.target) == inode


def _inode(root: Directory, path: Path) -> int | None:
    try:
        return root.stat(path).ino
    except VfsError as exc:
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None
        raise


def is_staged(unit: Unit, root: Directory, inode: int) -> bool:
    """Whether the directory that was staged is still where it was."""
    return _inode(root, unit.staging) == inode
