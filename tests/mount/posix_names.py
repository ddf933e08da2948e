"""Scenarios on names: opening, making, removing, renaming and linking, by tables.

Each function yields scenarios for `posix_calls`; what they should do is nowhere said: the file
system beneath the mount says it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import product

from tests.mount.posix_calls import Step
from tests.mount.posix_run import Scenario

NAME_MAX = 255
PATH_MAX = 4096

ZOO: tuple[Step, ...] = (
    ("root", "open", b"file", os.O_CREAT, 0o644),
    ("root", "truncate", b"file", 10),
    ("root", "mkdir", b"empty", 0o755),
    ("root", "mkdir", b"full", 0o755),
    ("root", "open", b"full/x", os.O_CREAT, 0o644),
    ("root", "mkdir", b"private", 0o700),
    ("root", "open", b"private/x", os.O_CREAT, 0o644),
    ("root", "mkdir", b"listed", 0o744),
    ("root", "open", b"listed/x", os.O_CREAT, 0o644),
    ("root", "mkdir", b"open", 0o777),
    ("root", "open", b"open/x", os.O_CREAT, 0o666),
    ("root", "mkfifo", b"fifo", 0o666),
    ("root", "mknod", b"socket", stat.S_IFSOCK | 0o666),
    ("root", "mknod", b"null", stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    ("root", "mknod", b"disk", stat.S_IFBLK | 0o600, os.makedev(7, 250)),
    ("root", "symlink", b"file", b"to-file"),
    ("root", "symlink", b"full", b"to-full"),
    ("root", "symlink", b"nowhere", b"dangling"),
    ("root", "symlink", b"loop", b"loop"),
)
"""One entry of each kind; `listed` can be read but not entered by others."""

_NEEDED_BY = {b"to-file": b"file", b"to-full": b"full"}


def zoo(*paths: bytes) -> tuple[Step, ...]:
    """The plants of ZOO that the paths touch, by the names that they begin with."""
    names = {name for path in paths for name in path.split(b"/")[:2000]}
    names |= {_NEEDED_BY[name] for name in names & _NEEDED_BY.keys()}
    return tuple(
        plant for plant in ZOO if plant[3 if plant[1] == "symlink" else 2].split(b"/")[0] in names
    )


OPERANDS = (
    b"file", b"empty", b"full", b"private", b"open", b"fifo", b"socket", b"null", b"disk",
    b"to-file", b"to-full", b"dangling", b"loop", b"missing",
)  # fmt: skip

PATHS = (
    *OPERANDS,
    b"", b".", b"..", b"./file", b"empty/.", b"empty/..", b"full/..", b"empty/", b"missing/",
    b"file/", b"file/.", b"file/..", b"file/x", b"fifo/x", b"null/", b"socket/.",
    b"missing/x", b"full/missing/x", b"full/missing", b"full/x", b"full/x/y", b"full//x",
    b"to-full/x", b"to-full/", b"to-full/missing", b"to-file/x", b"dangling/x", b"loop/x",
    b"private/x", b"private/missing", b"listed/x", b"listed/missing", b"listed", b"open/x",
    b"open/missing",
    b"n" * NAME_MAX, b"n" * (NAME_MAX + 1), b"full/" + b"n" * (NAME_MAX + 1) + b"/x",
    b"./" * ((PATH_MAX - 5) // 2) + b"file", b"./" * ((PATH_MAX - 4) // 2) + b"file",
    b"new\nline", b"\xff\xfe", b"-rf", b"back\\slash", b" two  spaces ",
)  # fmt: skip
"""Operands, and paths that end early, go through something that is no directory, or are long."""

_NONBLOCK = os.O_NONBLOCK

ON_ONE_PATH: dict[str, tuple[object, ...]] = {
    "open": (os.O_RDONLY | _NONBLOCK,),
    "mkdir": (0o755,),
    "rmdir": (),
    "unlink": (),
    "mknod": (stat.S_IFREG | 0o644,),
    "mkfifo": (0o644,),
    "bind": (),
    "chmod": (0o640,),
    "chown": (65534, 65534),
    "lchown": (65534, -1),
    "truncate": (5,),
    "utimensat": (1_000_000_000, 1_100_000_000),
    "access": (os.R_OK | os.W_OK,),
    "stat": (),
    "lstat": (),
    "readlink": (),
    "statvfs": (),
    "chdir": (),
    "listdir": (),
    "listxattr": (),
    "setxattr": (b"user.note", b"value"),
    "getxattr": (b"user.note",),
    "removexattr": (b"user.note",),
    "connect": (),
}
"""Call to the arguments that follow its path."""


def on_paths() -> Iterator[Scenario]:
    """Every call that takes one path, on every path, as root and as somebody else."""
    for (call, more), path, who in product(ON_ONE_PATH.items(), PATHS, ("root", "user")):
        if call in ("bind", "connect") and len(path) > 100:
            continue  # sun_path holds 108 bytes
        yield f"{call} {_short(path)} as {who}", zoo(path), ((who, call, path, *more),)
    for path, who in product(PATHS, ("root", "user")):
        name = _short(path)
        yield (
            f"create {name} as {who}",
            zoo(path),
            ((who, "open", path, os.O_CREAT | os.O_WRONLY | _NONBLOCK, 0o644),),
        )
        yield f"symlink {name} as {who}", zoo(path), ((who, "symlink", b"file", path),)
        yield f"link to {name} as {who}", zoo(path, b"file"), ((who, "link", b"file", path),)
        yield f"link of {name} as {who}", zoo(path, b"open"), ((who, "link", path, b"open/new"),)
        yield f"rename to {name} as {who}", zoo(path, b"file"), ((who, "rename", b"file", path),)
        yield (
            f"rename of {name} as {who}",
            zoo(path, b"open"),
            ((who, "rename", path, b"open/new"),),
        )
        yield (
            f"rename directory to {name} as {who}",
            zoo(path, b"empty"),
            ((who, "rename", b"empty", path),),
        )
        yield (
            f"times of {name} itself as {who}",
            zoo(path),
            ((who, "utimensat", path, 1_000_000_000, 1_100_000_000, False),),
        )


def _short(path: bytes) -> str:
    text = ascii(path)[1:]
    return text if len(text) < 40 else f"{text[:20]}…{text[-10:]} ({len(path)} bytes)"


OPEN_FLAGS = {
    "CREAT": os.O_CREAT,
    "EXCL": os.O_EXCL,
    "TRUNC": os.O_TRUNC,
    "APPEND": os.O_APPEND,
    "DIRECTORY": os.O_DIRECTORY,
    "NOFOLLOW": os.O_NOFOLLOW,
}
ACCESS = {"RDONLY": os.O_RDONLY, "WRONLY": os.O_WRONLY, "RDWR": os.O_RDWR}


def open_flags() -> Iterator[Scenario]:
    """Every combination of flags on every kind of entry."""
    targets = (*OPERANDS, b"full/missing", b"missing/x", b"file/x", b"to-full/x", b"to-full/new")
    for target in targets:
        for access, chosen in product(ACCESS, product((False, True), repeat=len(OPEN_FLAGS))):
            names = [name for name, is_set in zip(OPEN_FLAGS, chosen, strict=True) if is_set]
            flags = ACCESS[access] | os.O_NONBLOCK
            for name in names:
                flags |= OPEN_FLAGS[name]
            label = "|".join((access, *names))
            yield (
                f"open {target.decode()} {label}",
                zoo(target),
                (("root", "open", target, flags, 0o640),),
            )
    for target, extra in product(targets, (0, os.O_DIRECTORY, os.O_NOFOLLOW)):
        flags = os.O_PATH | extra
        yield (
            f"open {target.decode()} PATH {extra:o}",
            zoo(target),
            (("root", "open", target, flags),),
        )
    for target, access, exclusive in product(
        (b"open", b"file", b"missing", b"private"), (os.O_WRONLY, os.O_RDWR, os.O_RDONLY), (0, 1)
    ):
        flags = os.O_TMPFILE | access | (os.O_EXCL if exclusive else 0)
        yield (
            f"open {target.decode()} TMPFILE {flags:o}",
            zoo(target, b"open"),
            (
                ("user", "open", target, flags, 0o600, "h"),
                ("user", "write", "h", b"x"),
                ("user", "fstat", "h"),
                ("root", "link_handle", "h", b"open/linked"),
            ),
        )
    for access, append in product((os.O_WRONLY, os.O_RDWR), (0, os.O_APPEND)):
        yield (
            f"open synchronous {access} {append}",
            zoo(b"file"),
            (("root", "open", b"file", access | append | os.O_SYNC | os.O_NOATIME, 0, "h"),
             ("root", "write", "h", b"ab")),
        )  # fmt: skip


MODES = (0o000, 0o111, 0o400, 0o600, 0o644, 0o666, 0o700, 0o755, 0o777, 0o1777, 0o2755, 0o4755,
         0o6777, 0o7777)  # fmt: skip
UMASKS = (0, 0o022, 0o027, 0o077, 0o777)


def made_modes() -> Iterator[Scenario]:
    """Modes and owners of what is made, under every umask."""
    for mode, umask, who in product(MODES, UMASKS, ("root", "user")):
        yield (
            f"made with {mode:o} umask {umask:o} as {who}",
            zoo(b"open"),
            (
                (who, "umask", umask),
                (who, "mkdir", b"open/made", mode),
                (who, "open", b"open/opened", os.O_CREAT | os.O_RDWR, mode, "h"),
                (who, "write", "h", b"new"),
                (who, "mknod", b"open/node", stat.S_IFREG | mode),
                (who, "open", b"open/opened", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o777),
            ),
        )


KINDS: dict[str, tuple[Step, ...]] = {
    "missing": (),
    "file": (("root", "open", b"{}", os.O_CREAT, 0o644),),
    "empty": (("root", "mkdir", b"{}", 0o755),),
    "full": (("root", "mkdir", b"{}", 0o755), ("root", "open", b"{}/x", os.O_CREAT, 0o644)),
    "fifo": (("root", "mkfifo", b"{}", 0o644),),
    "socket": (("root", "mknod", b"{}", stat.S_IFSOCK | 0o644),),
    "device": (("root", "mknod", b"{}", stat.S_IFCHR | 0o644, os.makedev(1, 3)),),
    "link": (("root", "symlink", b"elsewhere", b"{}"),),
    "link to directory": (("root", "mkdir", b"{}-t", 0o755), ("root", "symlink", b"{}-t", b"{}")),
}


def kind(name: str, path: bytes) -> tuple[Step, ...]:
    """The plants that make an entry of a kind of KINDS at `path`."""
    return tuple(
        tuple(word.replace(b"{}", path) if isinstance(word, bytes) else word for word in plant)
        for plant in KINDS[name]
    )


NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4


def renames() -> Iterator[Scenario]:
    """Every kind of entry renamed over every kind, with every flag, in place and across."""
    folder: Step = ("root", "mkdir", b"other", 0o755)
    flags = (0, NOREPLACE, EXCHANGE, NOREPLACE | EXCHANGE, WHITEOUT, 8)
    for source, target, flag, across in product(KINDS, KINDS, flags, (False, True)):
        if flag > EXCHANGE and (source, target) not in (("file", "file"), ("file", "missing")):
            continue
        new = b"other/b" if across else b"b"
        yield (
            f"rename {source} over {target} flags {flag}{' across' if across else ''}",
            (folder, *kind(source, b"a"), *kind(target, new)),
            (
                ("root", "rename", b"a", new, flag),
                ("root", "lstat", b"a"),
                ("root", "lstat", new),
                ("root", "unlink", new),
            ),
        )
    yield from _renames_of_trees()


def _renames_of_trees() -> Iterator[Scenario]:
    tree: tuple[Step, ...] = (
        ("root", "mkdir", b"a", 0o755),
        ("root", "mkdir", b"a/b", 0o755),
        ("root", "mkdir", b"a/b/c", 0o755),
        ("root", "open", b"a/b/c/f", os.O_CREAT, 0o644),
        ("root", "mkdir", b"z", 0o755),
        ("root", "link", b"a/b/c/f", b"g"),
    )
    names = (b"a", b"a/b", b"a/b/c", b"a/b/c/f", b"g", b"z", b"a/new", b"a/b/c/new", b"z/new")
    for old, new, flag in product(names, names, (0, NOREPLACE, EXCHANGE)):
        yield (
            f"rename {old.decode()} to {new.decode()} flags {flag}",
            tree,
            (("root", "rename", old, new, flag), ("root", "stat", b"a/b/c/f")),
        )
    yield (
        "a directory moved while it is open and the current one",
        tree,
        (
            ("root", "open", b"a/b", os.O_RDONLY | os.O_DIRECTORY, 0, "d"),
            ("root", "chdir", b"a/b/c"),
            ("root", "rename", b"../../../a/b", b"../../../z/b"),
            ("root", "stat", b"f"),
            ("root", "open", b"made", os.O_CREAT | os.O_WRONLY, 0o644),
            ("root", "make_at", "d", b"beside"),
            ("root", "flistdir", "d"),
            ("root", "stat", b".."),
            ("root", "listdir", b"../.."),
            ("root", "rename", b"f", b"../../../z/f"),
        ),
    )


def links() -> Iterator[Scenario]:
    """Hard links: counts, identity, and what becomes of one name when another goes."""
    plants: tuple[Step, ...] = (("root", "mkdir", b"d", 0o755),)
    made: Step = ("root", "open", b"a", os.O_CREAT | os.O_RDWR, 0o644, "h")
    for first, second, changed in product((b"a", b"b", b"d/c"), repeat=3):
        if first == second:
            continue
        yield (
            f"three links, {first.decode()} then {second.decode()} go, {changed.decode()} changes",
            plants,
            (
                made,
                ("root", "write", "h", b"shared"),
                ("root", "link", b"a", b"b"),
                ("root", "link", b"b", b"d/c"),
                ("root", "chmod", changed, 0o600),
                ("root", "truncate", changed, 3),
                ("root", "unlink", first),
                ("root", "stat", second),
                ("root", "fstat", "h"),
                ("root", "rename", second, b"moved"),
                ("root", "utimensat", b"moved", 5, 7),
                ("root", "unlink", b"moved"),
                ("root", "fstat", "h"),
                ("root", "unlink", b"moved"),
            ),
        )
    for flag in (0, NOREPLACE, EXCHANGE):
        yield (
            f"rename between links of one file flags {flag}",
            plants,
            (made, ("root", "link", b"a", b"b"), ("root", "rename", b"a", b"b", flag),
             ("root", "stat", b"b"), ("root", "unlink", b"a"), ("root", "stat", b"b")),
        )  # fmt: skip
    for name, who, mode in product(KINDS, ("root", "user"), (0o755, 0o777)):
        yield (
            f"link of {name} as {who} into {mode:o}",
            (
                *kind(name, b"x"),
                ("root", "mkdir", b"into", 0o755),
                ("root", "chmod", b"into", mode),
            ),
            ((who, "link", b"x", b"into/y"), ("root", "lstat", b"x")),
        )
    for mode, who in product((0o600, 0o644, 0o664, 0o666, 0o4777, 0o2777), ("user", "mate")):
        yield (
            f"link of somebody's {mode:o} file as {who}",
            (("root", "mkdir", b"into", 0o777), ("user", "open", b"into/x", os.O_CREAT, 0o600),
             ("root", "chmod", b"into/x", mode)),
            ((who, "link", b"into/x", b"into/y"),),
        )  # fmt: skip
    yield (
        "a file without a name is linked by its descriptor only while it has one",
        (),
        (made, ("root", "link_handle", "h", b"b"), ("root", "unlink", b"a"),
         ("root", "link_handle", "h", b"c"), ("root", "unlink", b"b"),
         ("root", "link_handle", "h", b"e")),
    )  # fmt: skip


def directories() -> Iterator[Scenario]:
    """Counts of directories, removed directories that are in use, and listings."""
    yield (
        "nlink of directories",
        (),
        (
            ("root", "mkdir", b"a", 0o755), ("root", "mkdir", b"a/b", 0o755),
            ("root", "mkdir", b"a/c", 0o755), ("root", "open", b"a/f", os.O_CREAT, 0o644),
            ("root", "rmdir", b"a"), ("root", "rmdir", b"a/b"), ("root", "rename", b"a/c", b"c"),
            ("root", "rename", b"c", b"a/c"), ("root", "unlink", b"a/c"), ("root", "rmdir", b"a/f"),
            ("root", "unlink", b"a/f"), ("root", "rmdir", b"a/c"), ("root", "rmdir", b"a"),
        ),
    )  # fmt: skip
    yield (
        "a removed directory that is open",
        (),
        (
            ("root", "mkdir", b"a", 0o755),
            ("root", "open", b"a", os.O_RDONLY | os.O_DIRECTORY, 0, "d"),
            ("root", "chdir", b"a"),
            ("root", "rmdir", b"../a"),
            ("root", "fstat", "d"),
            ("root", "make_at", "d", b"x"),
            ("root", "mkdir", b"x", 0o755),
            ("root", "flistdir", "d"),
            ("root", "stat", b"."),
            ("root", "stat", b".."),
            ("root", "fchmod", "d", 0o700),
            ("root", "listdir", b"."),
        ),
    )
    for count in (1, 30, 300):
        steps: list[Step] = [
            ("root", "open", b"d/%0100d" % n, os.O_CREAT, 0o644) for n in range(count)
        ]
        yield (
            f"a listing of {count}",
            (("root", "mkdir", b"d", 0o755), *steps, ("root", "symlink", b"x", b"d/l"),
             ("root", "mkdir", b"d/d", 0o755), ("root", "mkfifo", b"d/p", 0o644)),
            (("root", "listdir", b"d"), ("root", "unlink", b"d/p"), ("root", "listdir", b"d"),
             ("root", "open", b"d/new", os.O_CREAT, 0o644), ("root", "listdir", b"d")),
        )  # fmt: skip
    for who, mode in product(("user", "mate", "guest"), range(8)):
        yield (
            f"directory of mode {mode} to others as {who}",
            (("root", "mkdir", b"d", 0o777), ("user", "open", b"d/x", os.O_CREAT, 0o666),
             ("root", "chmod", b"d", 0o770 | mode)),
            ((who, "listdir", b"d"), (who, "stat", b"d/x"), (who, "stat", b"d/missing"),
             (who, "open", b"d/x", os.O_RDWR), (who, "open", b"d/new", os.O_CREAT, 0o644),
             (who, "mkdir", b"d/sub", 0o755), (who, "chdir", b"d"), (who, "rename", b"d/x", b"d/y"),
             (who, "unlink", b"d/x")),
        )  # fmt: skip
