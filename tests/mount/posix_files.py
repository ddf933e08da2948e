"""Scenarios on open files: reading, writing, sizes, holes, mappings, attributes, by tables."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from itertools import product

from tests.mount.posix_calls import Step
from tests.mount.posix_run import Scenario

PAGE = mmap.PAGESIZE

_MADE: Step = ("root", "open", b"f", os.O_CREAT | os.O_RDWR, 0o644, "h")
_TEN: tuple[Step, ...] = (_MADE, ("root", "write", "h", b"0123456789"))
_PLANT: tuple[Step, ...] = (
    ("root", "open", b"f", os.O_CREAT | os.O_WRONLY, 0o644, "f"),
    ("root", "write", "f", b"0123456789"),
)

SIZES = (0, 1, 9, 10, 11, PAGE - 1, PAGE, PAGE + 1, 1 << 20, 1 << 32, (1 << 44) - PAGE - 1,
         (1 << 44) - 1, 1 << 44, 1 << 60, (1 << 63) - 1, -1, -(1 << 63))  # fmt: skip
"""ext4's files of 4 KiB blocks end before 16 TiB; -1 and below are no sizes."""


def sizes() -> Iterator[Scenario]:
    """Truncation to every size: by path, by descriptors of every access, and by opening."""
    for size in SIZES:
        yield (
            f"truncate to {size}",
            _PLANT,
            (("root", "truncate", b"f", size), ("root", "open", b"f", os.O_RDWR, 0, "h"),
             ("root", "pread", "h", 20, 0), ("root", "ftruncate", "h", 5),
             ("root", "ftruncate", "h", 10), ("root", "pread", "h", 20, 0)),
        )  # fmt: skip
        for access in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND):
            yield (
                f"ftruncate to {size} of a file opened {access}",
                _PLANT,
                (("root", "open", b"f", access, 0, "h"), ("root", "ftruncate", "h", size),
                 ("root", "fstat", "h")),
            )  # fmt: skip
        yield (
            f"truncate to {size} under a limit of 5",
            _PLANT,
            (("root", "limit_size", 5), ("root", "truncate", b"f", size),
             ("root", "open", b"f", os.O_RDWR, 0, "h"), ("root", "pwrite", "h", b"abc", 4),
             ("root", "pwrite", "h", b"abc", 5), ("root", "pwrite", "h", b"abc", 0)),
        )  # fmt: skip
    for access, who in product((os.O_RDONLY, os.O_WRONLY, os.O_RDWR), ("root", "user")):
        yield (
            f"a descriptor of access {access} is used by {who}",
            _PLANT,
            (("root", "open", b"f", access, 0, "h"), (who, "read", "h", 5),
             (who, "write", "h", b"ab"),
             (who, "pread", "h", 5, 2), (who, "pwrite", "h", b"", 2), (who, "fsync", "h"),
             (who, "ftruncate", "h", 3), (who, "fchmod", "h", 0o600), (who, "fstat", "h")),
        )  # fmt: skip
    for count in (0, 1, 3):
        yield (
            f"opening with O_TRUNC after {count} writes",
            (),
            (_MADE, *[("root", "write", "h", b"data")] * count,
             ("root", "open", b"f", os.O_WRONLY | os.O_TRUNC), ("root", "write", "h", b"more"),
             ("root", "pread", "h", 100, 0)),
        )  # fmt: skip


OFFSETS = (0, 1, 9, 10, 11, PAGE - 1, PAGE, 3 * PAGE + 17, (1 << 20) - 1, (1 << 20) + 1, -1,
           (1 << 44) - PAGE - 2, (1 << 44) - 1, (1 << 63) - 1, (1 << 63) - 3)  # fmt: skip


def reads_and_writes() -> Iterator[Scenario]:
    """Data at odd offsets and of odd lengths, over ends, pages and requests."""
    for offset, length in product(OFFSETS, (0, 1, 3, PAGE, PAGE + 1, (1 << 17) + 3)):
        data = bytes(range(1, 252)) * (length // 251 + 1)
        yield (
            f"{length} bytes at {offset}",
            _PLANT,
            (("root", "open", b"f", os.O_RDWR, 0, "h"),
             ("root", "pwrite", "h", data[:length], offset),
             ("root", "pread", "h", length + 7, max(offset - 3, 0)),
             ("root", "pread", "h", 20, 0), ("root", "fstat", "h")),
        )  # fmt: skip
    for append, offset in product((0, os.O_APPEND), (0, 5, 100)):
        yield (
            f"two descriptors, flags {append:o}, at {offset}",
            (),
            (*_TEN, ("root", "open", b"f", os.O_RDWR | append, 0, "a"),
             ("root", "pwrite", "a", b"abc", offset), ("root", "write", "a", b"def"),
             ("root", "write", "h", b"ghi"), ("root", "lseek", "a", 0, os.SEEK_CUR),
             ("root", "lseek", "h", 0, os.SEEK_END), ("root", "pread", "h", 200, 0),
             ("root", "set_flags", "h", os.O_APPEND), ("root", "pwrite", "h", b"jkl", 1),
             ("root", "pwritev", "a", (b"m", b"", b"no"), 2), ("root", "pread", "a", 200, 0)),
        )  # fmt: skip
    yield (
        "a file without read right, written by its maker and read by nobody",
        (),
        (("root", "open", b"f", os.O_CREAT | os.O_RDWR, 0, "h"), ("root", "write", "h", b"abc"),
         ("root", "pread", "h", 3, 0), ("user", "open", b"f", os.O_RDONLY),
         ("user", "pread", "h", 3, 0)),
    )  # fmt: skip
    for kind in (b"d", b"p"):
        yield (
            f"reading what is no file: {kind.decode()}",
            (("root", "mkdir", b"d", 0o755), ("root", "mkfifo", b"p", 0o644)),
            (("root", "open", kind, os.O_RDONLY | os.O_NONBLOCK, 0, "h"), ("root", "read", "h", 1),
             ("root", "write", "h", b"x"), ("root", "ftruncate", "h", 0),
             ("root", "lseek", "h", 0, os.SEEK_SET), ("root", "fsync", "h")),
        )  # fmt: skip


KEEP, PUNCH, COLLAPSE, ZERO, INSERT, UNSHARE = 1, 2, 8, 16, 32, 64


def allocation() -> Iterator[Scenario]:
    """Space reserved, punched and zeroed, and the seeks that find it."""
    ranges = ((0, 0), (0, 5), (5, 10), (0, -1), (-1, 5), (0, PAGE), (PAGE, PAGE), (100, 3 * PAGE),
              (4 * PAGE, PAGE), (1 << 44, 5), ((1 << 63) - 1, 1), (3, (1 << 63) - 1))  # fmt: skip
    modes = (0, KEEP, PUNCH | KEEP, PUNCH, ZERO, ZERO | KEEP, COLLAPSE, INSERT, UNSHARE, 1 << 20)
    four_pages: tuple[Step, ...] = (_MADE, ("root", "write", "h", b"x" * (4 * PAGE)))
    for mode, (offset, length) in product(modes, ranges):
        yield (
            f"fallocate {mode} of {length} at {offset}",
            (),
            (*four_pages, ("root", "fallocate", "h", mode, offset, length),
             ("root", "fsync", "h"), ("root", "data_map", "h"), ("root", "fstat", "h"),
             ("root", "pread", "h", 5 * PAGE, 0)),
        )  # fmt: skip
    for (offset, length), access in product(ranges, (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)):
        yield (
            f"posix_fallocate of {length} at {offset} opened {access}",
            _PLANT,
            (("root", "open", b"f", access, 0, "h"),
             ("root", "posix_fallocate", "h", offset, length), ("root", "fstat", "h")),
        )  # fmt: skip
    for whence, offset in product(
        (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END, os.SEEK_DATA, os.SEEK_HOLE, 5, 99),
        (0, 1, PAGE, 2 * PAGE, 4 * PAGE, 1 << 20, (1 << 20) + 5, (1 << 20) + 6, -1, -(1 << 40),
         (1 << 63) - 1),
    ):  # fmt: skip
        yield (
            f"seek {whence} to {offset} in a file with holes",
            (),
            (_MADE, ("root", "pwrite", "h", b"a", PAGE + 5),
             ("root", "pwrite", "h", b"b" * 5, 1 << 20),
             ("root", "fsync", "h"), ("root", "lseek", "h", 3, os.SEEK_SET),
             ("root", "lseek", "h", offset, whence), ("root", "lseek", "h", 0, os.SEEK_CUR),
             ("root", "data_map", "h")),
        )  # fmt: skip


def copies() -> Iterator[Scenario]:
    """Ranges copied between files and within one."""
    source: tuple[Step, ...] = (
        ("root", "open", b"s", os.O_CREAT | os.O_RDWR, 0o644, "s"),
        ("root", "write", "s", bytes(range(256)) * 64),
    )
    for length, source_offset, offset in product(
        (0, 1, 100, PAGE, 20_000), (0, 1, PAGE, 16_384, 20_000), (0, 3, PAGE, 1 << 20)
    ):
        yield (
            f"copy {length} from {source_offset} to {offset}",
            (),
            (*source, *_TEN,
             ("root", "copy_file_range", "s", "h", length, source_offset, offset),
             ("root", "pread", "h", 1 << 15, max(offset - 5, 0)),
             ("root", "sendfile", "s", "h", source_offset, length), ("root", "fstat", "h"),
             ("root", "pread", "h", 1 << 15, 0)),
        )  # fmt: skip
    for source_access, access in product((os.O_RDONLY, os.O_WRONLY, os.O_RDWR), repeat=2):
        yield (
            f"copy from a file opened {source_access} to one opened {access}",
            (*_PLANT, ("root", "open", b"g", os.O_CREAT, 0o644)),
            (("root", "open", b"f", source_access, 0, "s"), ("root", "open", b"g", access, 0, "h"),
             ("root", "copy_file_range", "s", "h", 5, 0, 2)),
        )  # fmt: skip
    for source_offset, offset in ((0, 4), (4, 0), (0, 20)):
        yield (
            f"copy within a file from {source_offset} to {offset}",
            (),
            (*_TEN, ("root", "copy_file_range", "h", "h", 8, source_offset, offset),
             ("root", "pread", "h", 100, 0)),
        )  # fmt: skip
    yield (
        "copy to a file that only appends, and from a directory",
        (*_PLANT, ("root", "mkdir", b"d", 0o755)),
        (("root", "open", b"f", os.O_RDWR | os.O_APPEND, 0, "a"),
         ("root", "open", b"f", os.O_RDONLY, 0, "s"), ("root", "open", b"d", os.O_RDONLY, 0, "d"),
         ("root", "copy_file_range", "s", "a", 3, 0, 0),
         ("root", "copy_file_range", "d", "a", 3, 0, 0)),
    )  # fmt: skip


def mappings() -> Iterator[Scenario]:
    """Shared mappings and descriptors see each other's bytes."""
    for offset, length in product((0, 5, PAGE - 2, PAGE), (1, 4, PAGE)):
        yield (
            f"a mapping changes {length} at {offset}",
            (),
            (_MADE, ("root", "ftruncate", "h", 3 * PAGE), ("root", "pwrite", "h", b"old", offset),
             ("root", "map_write", "h", 3 * PAGE, offset, b"N" * length),
             ("root", "pread", "h", length + 2, max(offset - 1, 0)),
             ("root", "pwrite", "h", b"after", offset), ("root", "map_read", "h", 3 * PAGE),
             ("root", "fsync", "h"), ("root", "ftruncate", "h", PAGE),
             ("root", "map_read", "h", PAGE)),
        )  # fmt: skip
    for access in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        yield (
            f"a mapping of a file opened {access}",
            _PLANT,
            (("root", "open", b"f", access, 0, "h"), ("root", "map_read", "h", 10),
             ("root", "map_write", "h", 10, 2, b"x"),
             ("root", "map_read", "h", 10, mmap.PROT_READ | mmap.PROT_EXEC)),
        )  # fmt: skip


def unlinked() -> Iterator[Scenario]:
    """A file without a name goes on as long as it is open."""
    uses: dict[str, tuple[Step, ...]] = {
        "fstat": (),
        "write": (("root", "write", "h", b"more"), ("root", "pread", "h", 100, 0)),
        "ftruncate": (("root", "ftruncate", "h", 3),),
        "fchmod": (("root", "fchmod", "h", 0o600),),
        "fchown": (("root", "fchown", "h", 65534, 2000),),
        "futimens": (("root", "futimens", "h", 5, 7),),
        "fallocate": (("root", "posix_fallocate", "h", 0, 2 * PAGE),),
        "fsync": (("root", "fsync", "h"),),
        "reopen": (("root", "reopen", "h", os.O_RDWR, "again"), ("root", "write", "again", b"AB")),
        "reopen to empty": (("root", "reopen", "h", os.O_WRONLY | os.O_TRUNC),),
        "link": (("root", "link_handle", "h", b"back"),),
        "map": (("root", "map_write", "h", 10, 3, b"xyz"), ("root", "map_read", "h", 10)),
        "make again": (("root", "open", b"f", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, "new"),
                       ("root", "write", "new", b"other"), ("root", "pread", "h", 100, 0)),
    }  # fmt: skip
    ways: dict[str, tuple[Step, ...]] = {
        "unlinked": (("root", "unlink", b"f"),),
        "replaced": (("root", "open", b"g", os.O_CREAT, 0o644), ("root", "rename", b"g", b"f")),
        "renamed": (("root", "mkdir", b"d", 0o755), ("root", "rename", b"f", b"d/moved")),
        "exchanged": (("root", "open", b"g", os.O_CREAT, 0o644), ("root", "rename", b"g", b"f", 2)),
        "linked and unlinked": (("root", "link", b"f", b"g"), ("root", "unlink", b"f")),
    }
    for (way, going), (use, steps) in product(ways.items(), uses.items()):
        yield (
            f"{way} while open: {use}",
            (),
            (*_TEN, *going, *steps, ("root", "fstat", "h"), ("root", "pread", "h", 100, 0),
             ("root", "close", "h")),
        )  # fmt: skip
        yield (
            f"{way} while open for reading: {use}",
            _PLANT,
            (("root", "open", b"f", os.O_RDONLY, 0, "h"), *going, *steps, ("root", "fstat", "h"),
             ("root", "pread", "h", 100, 0)),
        )  # fmt: skip


def locks() -> Iterator[Scenario]:
    """Whole-file locks of two descriptors."""
    shared, exclusive, free = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN
    for first, second in product((shared, exclusive, free), repeat=2):
        yield (
            f"flock {first} then {second}",
            _PLANT,
            (("root", "open", b"f", os.O_RDONLY, 0, "a"), ("root", "open", b"f", os.O_RDWR, 0, "b"),
             ("root", "flock", "a", first | fcntl.LOCK_NB),
             ("root", "flock", "b", second | fcntl.LOCK_NB), ("root", "close", "a"),
             ("root", "flock", "b", exclusive | fcntl.LOCK_NB)),
        )  # fmt: skip


def attributes() -> Iterator[Scenario]:
    """Extended attributes: name spaces, sizes, flags."""
    plants: tuple[Step, ...] = (
        *_PLANT, ("root", "mkdir", b"d", 0o755), ("root", "symlink", b"f", b"l"),
        ("root", "mkfifo", b"p", 0o666), ("root", "chmod", b"f", 0o644),
    )  # fmt: skip
    names = (b"user.a", b"user." + b"n" * 250, b"user." + b"n" * 251, b"user.", b"user", b"", b"a",
             b"nothing.a", b"trusted.a", b"system.a", b"user.\xff")  # fmt: skip
    for path, name, who in product((b"f", b"d", b"l", b"p"), names, ("root", "user")):
        yield (
            f"attribute {ascii(name)[1:20]} of {path.decode()} by {who}",
            plants,
            ((who, "getxattr", path, name), (who, "setxattr", path, name, b"value"),
             (who, "getxattr", path, name), (who, "listxattr", path),
             (who, "removexattr", path, name), (who, "removexattr", path, name)),
        )  # fmt: skip
    for size in (0, 1, 100, 3000, 65536, 65537):
        yield (
            f"attribute of {size} bytes",
            plants,
            (("root", "setxattr", b"f", b"user.a", b"v" * size),
             *(("root", "getxattr", b"f", b"user.a", room) for room in (0, 1, size, size + 1)),
             ("root", "listxattr", b"f")),
        )  # fmt: skip
    for first, second in product((0, os.XATTR_CREATE, os.XATTR_REPLACE, 8), repeat=2):
        yield (
            f"attribute set with flags {first} then {second}",
            plants,
            (("root", "setxattr", b"f", b"user.a", b"1", first),
             ("root", "setxattr", b"f", b"user.a", b"2", second),
             ("root", "getxattr", b"f", b"user.a")),
        )  # fmt: skip
