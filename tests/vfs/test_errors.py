"""The vocabulary is whole: every kind has its numbers, and every door can report it."""

from __future__ import annotations

import errno
import inspect
import os
import pickle
import re
from pathlib import Path

import pytest

from vfs import errors
from vfs.errors import (
    AlreadyExists,
    Busy,
    Changed,
    InvalidName,
    InvalidPath,
    IsADirectory,
    LinkRefused,
    NoSpace,
    NotADirectory,
    NotEmpty,
    NotFound,
    PermissionDenied,
    ReadOnly,
    SpecialFileRefused,
    StorageFailure,
    TooLarge,
    Unavailable,
    VfsError,
    from_oserror,
)

# The promise to programs that compare these numbers: a change here is a breaking change.
TABLE = {
    NotFound: ("not_found", errno.ENOENT, 404, 3),
    AlreadyExists: ("already_exists", errno.EEXIST, 409, 4),
    IsADirectory: ("is_a_directory", errno.EISDIR, 400, 5),
    NotADirectory: ("not_a_directory", errno.ENOTDIR, 404, 6),
    InvalidPath: ("invalid_path", errno.EINVAL, 403, 7),
    LinkRefused: ("link_refused", errno.ELOOP, 403, 8),
    SpecialFileRefused: ("special_file", errno.ENXIO, 403, 9),
    PermissionDenied: ("permission", errno.EACCES, 403, 10),
    ReadOnly: ("read_only", errno.EROFS, 403, 11),
    TooLarge: ("too_large", errno.EFBIG, 413, 12),
    NoSpace: ("no_space", errno.ENOSPC, 507, 13),
    Changed: ("changed", errno.ESTALE, 412, 14),
    Busy: ("busy", errno.EBUSY, 423, 15),
    NotEmpty: ("not_empty", errno.ENOTEMPTY, 409, 16),
    Unavailable: ("unavailable", errno.ENODEV, 503, 17),
    StorageFailure: ("io", errno.EIO, 500, 18),
    InvalidName: ("invalid_name", errno.EINVAL, 400, 19),
}


def numbers(kind: type[VfsError]) -> tuple[str, int, int, int]:
    return (kind.kind, kind.errno, kind.http_status, kind.exit_status)


def public_kinds() -> set[type[VfsError]]:
    classes = {value for _, value in inspect.getmembers(errors, inspect.isclass)}
    return {value for value in classes if issubclass(value, VfsError)} - {VfsError}


def test_every_kind_has_the_promised_numbers_and_there_is_no_other_kind() -> None:
    assert {kind: numbers(kind) for kind in public_kinds()} == TABLE


def test_the_documented_table_is_the_real_one() -> None:
    assert errors.__doc__ is not None
    rows = re.findall(r"^`(\w+)` +(\w+) +(E\w+) +(\d+) +(\d+)  ", errors.__doc__, re.MULTILINE)
    assert {
        getattr(errors, name): (kind, getattr(errno, code), int(status), int(exit_status))
        for name, kind, code, status, exit_status in rows
    } == TABLE
    assert len(rows) == len(TABLE)


def test_the_handbook_has_the_same_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "names.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (E\w+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert [
        (kind, getattr(errno, code), int(status), int(exit_status))
        for kind, code, status, exit_status in rows
    ] == list(TABLE.values())


def test_a_kind_and_an_exit_status_name_one_error_each() -> None:
    assert len({row[0] for row in TABLE.values()}) == len(TABLE)
    exits = {row[3] for row in TABLE.values()}
    assert len(exits) == len(TABLE)
    # 0 success, 1 findings, 2 usage; 126 and above belong to the shell.
    assert all(2 < status < 126 for status in exits)


def test_only_a_path_and_a_name_share_an_errno() -> None:
    # The mount never takes a uid or slug, so EINVAL stays unambiguous there.
    codes = [row[1] for kind, row in TABLE.items() if kind is not InvalidName]
    assert len(set(codes)) == len(codes)


def test_text_is_the_message_then_the_fix() -> None:
    assert str(NotFound("no such user: abc", fix="vfs user add abc")) == (
        "no such user: abc; vfs user add abc"
    )
    assert str(Busy("the mount is in use")) == "the mount is in use"


def test_text_is_one_line_that_a_terminal_cannot_be_moved_by() -> None:
    error = InvalidPath("bad \x1b[2J\n\x00 \u202e\udcff", fix="use\r\x07 another \x9b name")
    assert str(error) == ("bad \\x1b[2J\\x0a\\x00 \\u202e\\xff; use\\x0d\\x07 another \\u009b name")


def test_json_carries_kind_message_fix_and_path() -> None:
    assert LinkRefused("it is a link", fix="name the file", path="/a b/中.txt").to_json() == {
        "error": "link_refused",
        "message": "it is a link",
        "fix": "name the file",
        "path": "/a b/中.txt",
    }
    assert NoSpace("the disk is full").to_json() == {
        "error": "no_space",
        "message": "the disk is full",
        "fix": None,
        "path": None,
    }


@pytest.mark.parametrize("path", [b"/a\xff", "/a\udcff"])
def test_json_carries_the_exact_bytes_of_a_path_that_it_cannot_show(path: str | bytes) -> None:
    assert NotFound("gone", path=path).to_json() == {
        "error": "not_found",
        "message": "gone",
        "fix": None,
        "path": "/a\\xff",
        "path_bytes": "L2H_",
    }


def test_an_error_survives_pickling_whole() -> None:
    error = Changed("it changed", fix="read it again", path=b"/x")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.to_json()) == (Changed, str(error), error.to_json())


OF_ERRNO = {
    errno.ENOENT: NotFound,
    errno.EEXIST: AlreadyExists,
    errno.EISDIR: IsADirectory,
    errno.ENOTDIR: NotADirectory,
    errno.EINVAL: InvalidPath,
    errno.EILSEQ: InvalidPath,
    errno.ENAMETOOLONG: InvalidPath,
    errno.EXDEV: InvalidPath,
    errno.ELOOP: LinkRefused,
    errno.ENXIO: SpecialFileRefused,
    errno.EACCES: PermissionDenied,
    errno.EPERM: PermissionDenied,
    errno.EROFS: ReadOnly,
    errno.EFBIG: TooLarge,
    errno.EOVERFLOW: TooLarge,
    errno.ENOSPC: NoSpace,
    errno.EDQUOT: NoSpace,
    errno.EMLINK: NoSpace,
    errno.ESTALE: Changed,
    errno.EBUSY: Busy,
    errno.ETXTBSY: Busy,
    errno.EAGAIN: Busy,
    errno.EDEADLK: Busy,
    errno.ENOTEMPTY: NotEmpty,
    errno.ENODEV: Unavailable,
    errno.ENOSYS: Unavailable,
    errno.EOPNOTSUPP: Unavailable,
    errno.ENOTCONN: Unavailable,
}


@pytest.mark.parametrize(
    "number", sorted(errno.errorcode), ids=lambda number: errno.errorcode[number]
)
def test_every_errno_becomes_one_kind(number: int) -> None:
    error = from_oserror(OSError(number, os.strerror(number)), path="/x", action="read")
    assert type(error) is OF_ERRNO.get(number, StorageFailure)
    assert str(error).startswith("cannot read /x: ")
    assert error.path == "/x"


def test_a_kinds_own_errno_comes_back_as_that_kind() -> None:
    for kind in public_kinds() - {InvalidName}:
        assert type(from_oserror(OSError(kind.errno, ""), action="read")) is kind


def test_an_errno_without_a_kind_is_named() -> None:
    assert str(from_oserror(OSError(errno.EPROTO, "x"), action="list")) == (
        "cannot list: the system answered EPROTO; see the system's log"
    )
    assert str(from_oserror(OSError("no number"), action="list")) == (
        "cannot list: the system answered an unknown error; see the system's log"
    )


def test_host_paths_stay_inside() -> None:
    cause = FileNotFoundError(errno.ENOENT, "No such file", "/host/one", None, "/host/two")
    error = from_oserror(cause, path=b"/x\n", action="rename")
    assert error.to_json() == {
        "error": "not_found",
        "message": "cannot rename /x\\x0a: no such file or directory",
        "fix": "check the spelling, upper and lower case included",
        "path": "/x\\x0a",
        "path_bytes": "L3gK",
    }
