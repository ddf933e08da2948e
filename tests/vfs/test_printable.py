"""Nothing that a name holds reaches the terminal raw, and nothing that it holds is lost."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vfs.printable import one_line, printable, reference

NAMES = st.one_of(
    st.binary(),
    st.text().map(str.encode),
    st.text(alphabet="\\xuU05cbdfe9aA\x1b\n").map(str.encode),
)


def read_back(shown: str) -> bytes:
    """Undo `printable` by its documented rules alone."""

    def one(match: re.Match[str]) -> bytes:
        if match["byte"]:
            return bytes([int(match["byte"], 16)])
        return chr(int(match["wide"] or match["wider"], 16)).encode()

    escape = re.compile(
        r"\\x(?P<byte>[0-9A-Fa-f]{2})|\\u(?P<wide>[0-9A-Fa-f]{4})|\\U(?P<wider>[0-9A-Fa-f]{8})"
    )
    out, at = b"", 0
    for match in escape.finditer(shown):
        out += shown[at : match.start()].encode() + one(match)
        at = match.end()
    return out + shown[at:].encode()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"", ""),
        (b"plain name.txt ", "plain name.txt "),
        ("中文 é e\u0301 👍".encode(), "中文 é e\u0301 👍"),
        (b"-rf", "-rf"),
        (b"a\nb\tc\x1b[31m\x7f\x00", r"a\x0ab\x09c\x1b[31m\x7f\x00"),
        (b"\xff\xfe", r"\xff\xfe"),
        ("\u009b31m".encode(), r"\u009b31m"),  # the one-character CSI, a different name from
        (b"\x9b31m", r"\x9b31m"),  # the lone byte
        ("a\u202egpj.exe".encode(), r"a\u202egpj.exe"),
        ("\u200b\u2066\u2028\ufeff".encode(), r"\u200b\u2066\u2028\ufeff"),
        ("\U000e0041\U0010ffff".encode(), r"\U000e0041\U0010ffff"),
        ("\xa0\u3000".encode(), r"\u00a0\u3000"),
        (b"C:\\temp\\", "C:\\temp\\"),
        (b"\\\\host", "\\\\host"),
        (b"\\x1b", r"\x5cx1b"),
        (b"\\xAB \\u00e9 \\U0001F600", r"\x5cxAB \x5cu00e9 \x5cU0001F600"),
        (b"\\x1 \\u12 \\xg0", "\\x1 \\u12 \\xg0"),
        (b"\\\x1b", r"\\x1b"),
        (b"\xed\xa0\x80", r"\xed\xa0\x80"),  # a surrogate is no UTF-8
    ],
)
def test_form_of_nasty_names(name: bytes, shown: str) -> None:
    assert printable(name) == shown
    assert read_back(shown) == name


@given(NAMES)
@example(b"\\\x1b")
@example(b"\\x\x1b")
@example(b"\\\\x1b")
def test_form_can_be_read_back(name: bytes) -> None:
    shown = printable(name)
    assert shown.isprintable()
    assert read_back(shown) == name


@given(NAMES)
def test_text_with_surrogate_escapes_is_the_same_name(name: bytes) -> None:
    assert printable(name.decode("utf-8", "surrogateescape")) == printable(name)
    assert reference(name.decode("utf-8", "surrogateescape")) == reference(name)


@given(NAMES)
def test_reference_is_exact_and_given_just_where_the_form_is_not_the_name(name: bytes) -> None:
    given_reference = reference(name)
    if given_reference is None:
        assert printable(name).encode() == name
    else:
        assert printable(name).encode() != name
        assert base64.urlsafe_b64decode(given_reference) == name


def test_surrogate_escapes_that_spell_a_character_are_that_character() -> None:
    assert printable("\udcc3\udca9") == printable("é") == "é"


def test_surrogate_that_stands_for_no_byte_is_shown_and_has_no_reference() -> None:
    assert printable("a\ud800\udcff") == r"a\ud800\xff"
    assert reference("a\ud800\udcff") is None


@given(st.text())
def test_one_line_is_printable_and_changes_nothing_the_second_time(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert one_line(line) == line


@given(NAMES)
def test_one_line_leaves_shown_names_alone(name: bytes) -> None:
    assert one_line(printable(name)) == printable(name)
