"""Scenarios on rights: modes, owners, groups, sticky and set-group-id directories, by tables."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import product

from tests.mount.posix_calls import IDENTITIES, NOW, OMIT, Step
from tests.mount.posix_run import Scenario

USERS = tuple(IDENTITIES)
UIDS = {name: identity[0] for name, identity in IDENTITIES.items()}
SHARED_GROUP = 2000


def classes() -> Iterator[Scenario]:
    """Each permission class alone, in all its modes, against all accesses of each caller."""
    for shift, bits, who in product((6, 3, 0), range(8), USERS):
        mode = bits << shift
        plants: tuple[Step, ...] = (
            ("root", "open", b"f", os.O_CREAT | os.O_WRONLY, 0o600, "f"),
            ("root", "write", "f", b"0123456789"),
            ("root", "mkdir", b"d", 0o700),
            ("root", "open", b"d/x", os.O_CREAT, 0o666),
            ("root", "chmod", b"d/x", 0o666),
            *(("root", "chown", path, UIDS["user"], SHARED_GROUP) for path in (b"f", b"d")),
            *(("root", "chmod", path, mode) for path in (b"f", b"d")),
        )
        yield (
            f"file of mode {mode:03o} used by {who}",
            plants,
            (
                *((who, "access", b"f", wanted) for wanted in range(8)),
                (who, "access", b"f", os.R_OK | os.W_OK, True),
                (who, "open", b"f", os.O_RDONLY),
                (who, "open", b"f", os.O_WRONLY),
                (who, "open", b"f", os.O_RDWR),
                (who, "open", b"f", os.O_RDONLY | os.O_TRUNC),
                (who, "truncate", b"f", 3),
                (who, "utimes_null", b"f"),
                (who, "setxattr", b"f", b"user.a", b"1"),
                (who, "getxattr", b"f", b"user.a"),
                (who, "chmod", b"f", 0o640),
            ),
        )
        yield (
            f"directory of mode {mode:03o} used by {who}",
            plants,
            (
                *((who, "access", b"d", wanted) for wanted in range(8)),
                (who, "stat", b"d/x"),
                (who, "open", b"d/x", os.O_RDWR),
                (who, "listdir", b"d"),
                (who, "chdir", b"d"),
                (who, "mkdir", b"d/sub", 0o755),
                (who, "open", b"d/new", os.O_CREAT | os.O_WRONLY, 0o644),
                (who, "link", b"d/x", b"d/y"),
                (who, "rename", b"d/x", b"d/z"),
                (who, "unlink", b"d/x"),
                (who, "rmdir", b"d/sub"),
            ),
        )


def sticky() -> Iterator[Scenario]:
    """Who may take away what from a directory, with and without the sticky bit."""
    for bit, folder_owner, owner, who, is_folder in product(
        (0, 0o1000), ("root", "user", "mate"), ("root", "user", "mate"), USERS, (False, True)
    ):
        entry: Step = (
            ("root", "mkdir", b"d/x", 0o777)
            if is_folder
            else ("root", "open", b"d/x", os.O_CREAT, 0o666)
        )
        plants: tuple[Step, ...] = (
            ("root", "mkdir", b"d", 0o777),
            ("root", "mkdir", b"free", 0o777),
            entry,
            ("root", "chown", b"d/x", UIDS[owner], UIDS[owner]),
            ("root", "open" if not is_folder else "mkdir", b"d/target",
             *((os.O_CREAT, 0o666) if not is_folder else (0o777,))),
            ("root", "chown", b"d/target", UIDS[owner], UIDS[owner]),
            ("root", "chown", b"d", UIDS[folder_owner], UIDS[folder_owner]),
            ("root", "chmod", b"d", 0o777 | bit),
        )  # fmt: skip
        label = f"{'folder' if is_folder else 'file'} of {owner} in {bit:o} of {folder_owner}"
        removal = "rmdir" if is_folder else "unlink"
        yield f"{label} removed by {who}", plants, ((who, removal, b"d/x"),)
        yield f"{label} renamed by {who}", plants, ((who, "rename", b"d/x", b"d/y"),)
        yield f"{label} taken out by {who}", plants, ((who, "rename", b"d/x", b"free/x"),)
        yield (
            f"{label} replaced by {who}",
            plants,
            (
                (who, "mkdir", b"free/own", 0o755)
                if is_folder
                else (who, "open", b"free/own", os.O_CREAT, 0o644),
                (who, "rename", b"free/own", b"d/target"),
            ),
        )
        yield (
            f"{label} exchanged by {who}",
            plants,
            ((who, "mkdir", b"free/own", 0o755), (who, "rename", b"free/own", b"d/x", 2)),
        )


MODES = (0, 0o644, 0o777, 0o1777, 0o2755, 0o2770, 0o4711, 0o6755, 0o7777, 0o170644)


def chmods() -> Iterator[Scenario]:
    """Modes set by each caller on files and directories of each owner and group."""
    groups = (UIDS["user"], SHARED_GROUP, UIDS["guest"])
    for mode, who, owner, gid, is_folder in product(
        MODES, USERS, ("root", "user"), groups, (False, True)
    ):
        yield (
            f"chmod {mode:o} by {who} on {'folder' if is_folder else 'file'} of {owner}:{gid}",
            (
                ("root", "mkdir", b"x", 0o755)
                if is_folder
                else ("root", "open", b"x", os.O_CREAT, 0o644),
                ("root", "chown", b"x", UIDS[owner], gid),
            ),
            (
                (who, "chmod", b"x", mode),
                ("root", "open", b"x", os.O_RDONLY, 0, "h"),
                (who, "fchmod", "h", mode ^ 0o111),
            ),
        )


def chowns() -> Iterator[Scenario]:
    """Owners and groups set by each caller; what that does to the mode's upper bits."""
    uids = (-1, 0, UIDS["user"], UIDS["mate"])
    gids = (-1, 0, UIDS["user"], SHARED_GROUP, UIDS["guest"])
    for uid, gid, who, owner in product(uids, gids, USERS, ("root", "user")):
        plants: tuple[Step, ...] = (
            ("root", "open", b"f", os.O_CREAT, 0o755),
            ("root", "mkdir", b"d", 0o755),
            ("root", "symlink", b"f", b"l"),
            *(("root", "lchown", path, UIDS[owner], UIDS["user"]) for path in (b"f", b"d", b"l")),
            ("root", "chmod", b"d", 0o2775),
        )
        yield (
            f"chown {uid}:{gid} by {who} on entries of {owner}",
            plants,
            (
                (who, "chown", b"f", uid, gid),
                (who, "chown", b"d", uid, gid),
                (who, "lchown", b"l", uid, gid),
                ("root", "open", b"f", os.O_RDONLY, 0, "h"),
                (who, "fchown", "h", uid, gid),
            ),
        )


def setgid_directories() -> Iterator[Scenario]:
    """What is made in a set-group-id directory takes its group; a directory takes the bit too."""
    for who, gid, mode in product(
        ("user", "mate", "guest"), (SHARED_GROUP, UIDS["guest"], 0), (0o644, 0o2755, 0o1777, 0o777)
    ):
        yield (
            f"made {mode:o} by {who} in a set-group-id directory of {gid}",
            (
                ("root", "mkdir", b"d", 0o777),
                ("root", "chown", b"d", 0, gid),
                ("root", "chmod", b"d", 0o2777),
            ),
            (
                (who, "mkdir", b"d/sub", mode),
                (who, "mkdir", b"d/sub/sub", mode),
                (who, "open", b"d/f", os.O_CREAT | os.O_RDWR, mode, "h"),
                (who, "mknod", b"d/n", stat.S_IFREG | mode),
                (who, "fchmod", "h", 0o2775),
                (who, "chmod", b"d/sub", 0o2775),
                (who, "rename", b"d/sub", b"d/moved"),
            ),
        )
    yield (
        "made by root in a set-group-id directory",
        (("root", "mkdir", b"d", 0o755), ("root", "chown", b"d", 0, SHARED_GROUP),
         ("root", "chmod", b"d", 0o2755)),
        (("root", "mkdir", b"d/sub", 0o750), ("root", "mkdir", b"d/sub/sub", 0o750),
         ("root", "open", b"d/sub/f", os.O_CREAT, 0o644)),
    )  # fmt: skip


def setid_files() -> Iterator[Scenario]:
    """Set-user-id and set-group-id files that were there before: each way to change them."""
    changes: dict[str, tuple[Step, ...]] = {
        "write": (("*", "open", b"f", os.O_WRONLY, 0, "h"), ("*", "write", "h", b"new")),
        "truncate": (("*", "truncate", b"f", 1),),
        "ftruncate": (("*", "open", b"f", os.O_RDWR, 0, "h"), ("*", "ftruncate", "h", 1)),
        "O_TRUNC": (("*", "open", b"f", os.O_WRONLY | os.O_TRUNC),),
        "chown": (("*", "chown", b"f", -1, UIDS["user"]),),
        "chown to nothing": (("*", "chown", b"f", -1, -1),),
        "chmod": (("*", "chmod", b"f", 0o755),),
        "times": (("*", "utimes_null", b"f"),),
        "link": (("*", "link", b"f", b"g"),),
        "rename": (("*", "rename", b"f", b"g"),),
    }
    for (name, steps), mode, who in product(
        changes.items(), (0o4777, 0o2777, 0o6777, 0o2767, 0o6711), ("root", "user", "mate")
    ):
        if name == "chown to nothing" and who == "mate":
            continue  # refused for it would take the bits away; the mount does so on its own
        yield (
            f"set-id file {mode:o}: {name} by {who}",
            (
                ("root", "open", b"f", os.O_CREAT | os.O_WRONLY, 0o600, "f"),
                ("root", "write", "f", b"#!/bin/sh\n"),
                ("root", "chown", b"f", UIDS["user"], UIDS["user"]),
                ("root", "chmod", b"f", mode),
                ("root", "chmod", b".", 0o777),
            ),
            tuple((who, *step[1:]) for step in steps),
        )


TIMES = (NOW, OMIT, 0, 1, 1_234_567_890_123_456_789, -1_500_000_000,
         (1 << 33) * 10**9 + 999_999_999, (5, 1_000_000_000), (5, -1))  # fmt: skip


def times() -> Iterator[Scenario]:
    """Times set by each caller: owner, writer, or neither; on a file, a directory and others."""
    for atime, mtime in product(TIMES, TIMES):
        yield (
            f"times {atime} {mtime}",
            (("root", "open", b"f", os.O_CREAT, 0o644), ("root", "mkdir", b"d", 0o755),
             ("root", "symlink", b"f", b"l"), ("root", "mkfifo", b"p", 0o644)),
            (
                ("root", "utimensat", b"f", atime, mtime),
                ("root", "utimensat", b"d", atime, mtime),
                ("root", "utimensat", b"l", atime, mtime, False),
                ("root", "utimensat", b"p", atime, mtime),
                ("root", "lstat", b"f"), ("root", "lstat", b"l"),
                ("root", "open", b"f", os.O_RDONLY, 0, "h"),
                ("root", "futimens", "h", mtime, atime),
            ),
        )  # fmt: skip
    spoken = (NOW, OMIT, 7_000_000_000)
    for atime, mtime, who, owner, mode in product(
        spoken, spoken, USERS, ("root", "user"), (0o600, 0o666)
    ):
        yield (
            f"times {atime} {mtime} of {owner}'s {mode:o} file by {who}",
            (
                ("root", "open", b"f", os.O_CREAT, mode),
                ("root", "chown", b"f", UIDS[owner], UIDS[owner]),
                ("root", "chmod", b"f", mode),
            ),
            ((who, "utimensat", b"f", atime, mtime), (who, "utimes_null", b"f")),
        )
