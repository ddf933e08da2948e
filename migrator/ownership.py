"""Everything given to one owner with the modes of the new tree; what was before is on record first.

- An entry is reached by its name in a directory that a descriptor pins. No link is followed: a link
  gets the owner itself. Whatever is swapped meanwhile, nothing outside of the tree is changed, save
  by another name of an inode that has one in the tree (in a migration by hard links every file has:
  so files with several names are changed like any others).
- FIFOs, sockets and devices get the owner alone. What else is mounted in the tree is left alone.
- Old owners and modes are on the disk before anything of their batch is changed. A process that is
  killed at any moment is made up for by the next `take`, and `migrator.restoring.restore` then
  gives back what was before the first.
- An entry that is as it should be is not touched: a second pass changes and records nothing.
- What cannot be changed (immutable files) is told and stops nothing else.
- Two things are not given back: the time of the last change of an inode, and file capabilities
  (capabilities(7)), which the kernel takes off whatever is given to somebody else.

Workers share one tree (`migrator.workers.spread`), and memory stays flat at any size of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import MappingProxyType

from migrator.chowning import Piece, Worker
from migrator.errors import retryable
from migrator.lines import Appender
from migrator.owned import Left, Owned
from migrator.restoring import Restored, restore
from migrator.units import Path
from migrator.workers import Share, spread
from vfs.beneath import Directory
from vfs.errors import VfsError
from vfs.workspace import OWNER

__all__ = ["Left", "Owned", "Restored", "Tree", "restore", "take"]


@dataclass(frozen=True, slots=True)
class Tree:
    """What is to be owned: one entry, and all that is beneath it if `recursive`."""

    root: str
    """The name of its root."""
    path: Path
    """Beneath the root; `()` is the root itself."""
    recursive: bool = True


def take(
    roots: Mapping[str, Directory],
    trees: Sequence[Tree],
    *,
    journal: Callable[[int], Appender],
    jobs: int,
    owner: tuple[int, int] = OWNER,
    apart: Mapping[str, frozenset[int]] = MappingProxyType({}),
    count: Callable[[int], None] = lambda entries: None,
    tick: Callable[[], None] | None = None,
) -> Owned:
    """Gives the trees to `owner`. A tree that is not there is no work.

    `journal(n)` opens the file of records of worker n, from 0 to jobs - 1, in that worker; it is
    called for those that get work, and the file is closed here. `apart`: by root, the inodes of
    files that are left alone. `count` is told of entries that are done, in the workers; `tick` is
    called now and then while this process waits. Raises Retryable when records cannot be written or
    a worker was killed, and what `journal` raises; the next call goes on.
    """
    pieces = [_piece(tree) for tree in trees]
    workers: dict[int, Worker] = {}

    def work(piece: Piece, share: Share[Piece]) -> Owned:
        worker = workers.get(share.number)
        if worker is None:
            worker = Worker(roots, journal(share.number), owner, apart, count)
            workers[share.number] = worker
        return worker.work(piece, share)

    whole = Owned()
    try:
        with closing(spread(work, pieces, jobs=jobs, tick=tick)) as results:
            for _, result in results:
                if isinstance(result, OSError | VfsError):
                    raise retryable(result, "change owners and modes") from result
                if isinstance(result, Exception):
                    raise result
                whole.add(result)
    finally:
        for worker in workers.values():
            worker.close()
    return whole


def _piece(tree: Tree) -> Piece:
    if tree.path:
        return Piece(tree.root, tree.path[:-1], tree.path[-1:], recursive=tree.recursive)
    return Piece(tree.root, (), None if tree.recursive else (), itself=True)
