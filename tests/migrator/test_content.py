"""Bytes: copied exactly, holes kept, hashed on the way."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator import content
from migrator.content import BLOCK, CHUNK, Content


@contextmanager
def opened(*paths: Path) -> Iterator[list[int]]:
    fds = [os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for path in paths]
    try:
        yield fds
    finally:
        for fd in fds:
            os.close(fd)


def copied(source: Path, target: Path) -> tuple[str, int]:
    """The digest of a copy that is made, and the bytes that were counted."""
    counted = 0

    def count(size: int) -> None:
        nonlocal counted
        counted += size

    with opened(source, target) as (one, other):
        return Content().copy(one, other, os.fstat(one), count), counted


def holes(path: Path) -> list[tuple[int, int]]:
    with opened(path) as (fd,):
        return list(content.extents(fd, os.fstat(fd).st_size))


SIZES = [0, 1, 4096, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 3 * CHUNK + 7]


@pytest.mark.parametrize("size", SIZES)
def test_a_copy_has_the_bytes_and_their_sha_256(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "a").write_bytes(data)
    expected = hashlib.sha256(data).hexdigest()
    assert copied(tmp_path / "a", tmp_path / "b") == (expected, size)
    assert (tmp_path / "b").read_bytes() == data
    with opened(tmp_path / "b") as (fd,):
        assert Content().digest(fd, size, lambda _: None, sparse=False) == expected


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 3), st.booleans()), max_size=6),
    st.integers(0, 4 * 4096),
)
def test_holes_stay_where_they_are_and_zeros_that_are_written_are_no_holes(
    tmp_path: Path, data: list[tuple[int, int, bool]], tail: int
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).unlink(missing_ok=True)
    with open(tmp_path / "a", "wb") as file:
        for start, length, zeros in data:
            file.seek(start * 4096)
            file.write(bytes(length * 4096) if zeros else os.urandom(length * 4096))
        file.truncate(64 * 4096 + tail)
    copied(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    assert holes(tmp_path / "b") == holes(tmp_path / "a")


def test_the_digest_of_a_file_with_holes_is_that_of_its_bytes_wherever_the_holes_are(
    tmp_path: Path,
) -> None:
    size = 10 * BLOCK + 100
    with open(tmp_path / "a", "wb") as file:
        file.truncate(size)
        file.seek(3 * BLOCK + 5)
        file.write(b"data")
        file.seek(3 * BLOCK + BLOCK // 2)
        file.write(b"more")
        file.seek(10 * BLOCK + 50)
        file.write(b"tail")
    (tmp_path / "dense").write_bytes((tmp_path / "a").read_bytes())
    half = BLOCK // 2
    blocks = {
        3: bytes(5) + b"data" + bytes(half - 9) + b"more" + bytes(half - 4),
        10: bytes(50) + b"tail" + bytes(46),
    }
    expected = hashlib.sha256()
    for number, block in blocks.items():
        expected.update((number * BLOCK).to_bytes(8, "little") + block)
    expected.update(size.to_bytes(8, "little"))
    digest, counted = copied(tmp_path / "a", tmp_path / "b")
    assert digest == content.SPARSE + expected.hexdigest()
    assert counted < size
    with opened(tmp_path / "dense") as (fd,):
        assert Content().digest(fd, size, lambda _: None, sparse=True) == digest


def test_a_file_that_is_all_hole_costs_nothing_however_large(tmp_path: Path) -> None:
    with open(tmp_path / "a", "wb") as file:
        file.truncate(8 << 40)
    digest, counted = copied(tmp_path / "a", tmp_path / "b")
    assert digest.startswith(content.SPARSE)
    assert counted == 0
    assert os.stat(tmp_path / "b").st_size == 8 << 40


def test_a_file_that_became_shorter_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"short")
    with opened(tmp_path / "a") as (fd,):
        for size in (100, CHUNK + 1):
            digest = Content().digest(fd, size, lambda _: None, sparse=False)
            assert digest == hashlib.sha256(b"short").hexdigest()


def test_attributes_of_users_are_copied_and_others_are_not(tmp_path: Path) -> None:
    with opened(tmp_path / "a", tmp_path / "b", tmp_path / "c") as (a, b, c):
        os.setxattr(a, "user.one", b"1")
        os.setxattr(a, "user.two", b"\0\xff")
        os.setxattr(a, "trusted.other", b"x")
        digest, whole = content.copy_xattrs(a, b)
        assert whole
        assert sorted(os.listxattr(b)) == ["user.one", "user.two"]
        assert os.getxattr(b, "user.two") == b"\0\xff"
        assert digest == content.xattrs_digest(a) == content.xattrs_digest(b)
        assert content.copy_xattrs(c, b) == (None, True)
        os.setxattr(b, "user.two", b"other")
        assert content.xattrs_digest(b) != digest
