"""How files can be transferred: linked, their blocks shared, or copied; found by trying."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

from migrator.content import FICLONE, NO_CLONE
from migrator.errors import Precondition, retryable
from migrator.manifest import Method
from migrator.removing import sweep
from migrator.request import Transfer
from vfs.beneath import Directory
from vfs.errors import VfsError
from vfs.saving import random_token, temporary_name


def choose(source: Directory, root: Directory, wanted: Transfer) -> Method:
    """How files of `source` get beneath `root`: as wanted, or the first of link, reflink and copy.

    Found by trying, in a hidden directory of `root` that is gone again afterwards. Raises
    Precondition when what is wanted cannot be, Retryable when the trial cannot be made.
    """
    if wanted == "copy":
        return "copy"
    try:
        can = {"link": False, "reflink": False}
        # A link needs one mount (linkat(2)), shared blocks one file system (ioctl_ficlone(2)).
        if os.fstat(source.fd).st_dev == os.fstat(root.fd).st_dev:
            can = _try(root)
            can["link"] &= source.mnt_id == root.mnt_id
    except (OSError, VfsError) as exc:
        raise retryable(exc, "try how files can be transferred") from exc
    if wanted in ("auto", "link") and can["link"]:
        return "link"
    if wanted in ("auto", "reflink") and can["reflink"]:
        return "reflink"
    if wanted == "auto":
        return "copy"
    raise Precondition(
        f"--transfer {wanted} cannot be: {_NEEDS[wanted]}", fix="use --transfer auto"
    )


_NEEDS: Final = {
    "link": "source and target are not on one mount of a file system that has hard links",
    "reflink": "source and target are not on one file system that shares blocks between files",
}


def _try(root: Directory) -> dict[str, bool]:
    """Whether files beneath `root` can be linked, and share blocks."""
    hidden = temporary_name(random_token())
    root.make_directory(hidden)
    try:
        with root.directory(hidden) as trial:
            one, other = trial.create_file(b"one"), trial.create_file(b"other")
            try:
                os.write(one, bytes(4096))
                return {"link": _can_link(trial.fd), "reflink": _can_clone(one, other)}
            finally:
                os.close(one)
                os.close(other)
    finally:
        sweep(root, (hidden,))


def _can_link(dirfd: int) -> bool:
    try:
        os.link("one", "linked", src_dir_fd=dirfd, dst_dir_fd=dirfd, follow_symlinks=False)
    except OSError as exc:
        if exc.errno in _NO_LINKS:
            return False
        raise
    return True


def _can_clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError as exc:
        if exc.errno in NO_CLONE:
            return False
        raise
    return True


_NO_LINKS: Final = frozenset((errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK))
"""What link(2) answers on file systems that have no hard links."""
