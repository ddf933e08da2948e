"""A link is said to stay inside only if it does, whatever else is in the tree."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfs.linktext import is_contained


@pytest.mark.parametrize(
    ("text", "depth", "expected"),
    [
        (b"a", 0, True),
        (b"a/b", 0, True),
        (b".", 0, True),
        (b"./a", 0, True),
        (b"a//b/", 0, True),
        (b"..", 1, True),
        (b"../a", 1, True),
        (b"./../a", 1, True),
        (b"../../a", 2, True),
        (b"..", 0, False),
        (b"../a", 0, False),
        (b"../../a", 1, False),
        (b"./.././../a", 1, False),
        (b"a/..", 5, False),
        (b"a/../b", 5, False),
        (b"../a/../b", 5, False),
        (b"/", 5, False),
        (b"/home/gem/user-data/a", 5, False),
        (b"//a", 5, False),
        (b"...", 0, True),
        (b"a..", 0, True),
    ],
)
def test_whether_a_link_stays_inside_is_told_by_its_text(
    text: bytes, depth: int, expected: bool
) -> None:
    assert is_contained(text, depth) is expected


PARTS = st.lists(st.sampled_from(["..", ".", "", "a", "b"]), min_size=1, max_size=6)


@given(parts=PARTS, depth=st.integers(0, 3))
def test_a_link_that_is_said_to_stay_does_stay(parts: list[str], depth: int) -> None:
    text = "/".join(parts)
    if is_contained(text.encode(), depth):
        inside = os.path.join("/tree", *["d"] * depth)
        reached = os.path.normpath(os.path.join(inside, text))
        assert reached == "/tree" or reached.startswith("/tree/")
