"""Times, columns and notes, in the cases that no test of a verb meets."""

from __future__ import annotations

import json

import pytest

from vfs.commands import output
from vfs.walking import Cut


@pytest.mark.parametrize(
    ("seconds", "nanoseconds", "text"),
    [
        (0, 0, "1970-01-01T00:00:00.000000000Z"),
        (-1, 999_999_999, "1969-12-31T23:59:59.999999999Z"),
        (-62_135_596_800, 1, "0001-01-01T00:00:00.000000001Z"),
        (253_402_300_799, 0, "9999-12-31T23:59:59.000000000Z"),
        (253_402_300_800, 0, None),
        (-62_135_596_801, 0, None),
        (2**63 - 1, 0, None),
        (-(2**63), 0, None),
    ],
)
def test_a_time_is_iso_8601_or_none(seconds: int, nanoseconds: int, text: str | None) -> None:
    assert output.time_text(seconds, nanoseconds) == text


def test_short_times_are_of_one_width() -> None:
    times = [output.short_time(seconds) for seconds in (0, 2**62, -62_135_596_800)]
    assert times == ["1970-01-01T00:00:00Z", "beyond all years    ", "0001-01-01T00:00:00Z"]
    assert {len(time) for time in times} == {20}


def test_columns_are_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    output.table([("a", "10", "x"), ("bcd", "7", "last is as it is ")], right=frozenset({1}))
    assert capsys.readouterr().out == "a    10  x\nbcd   7  last is as it is \n"
    output.table([("小王", "x"), ("e\u0301", "y")])
    assert capsys.readouterr().out == "小王  x\ne\u0301     y\n"
    output.table([])
    assert capsys.readouterr().out == ""


def test_every_kind_of_omission_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    output.note_cut(Cut())
    assert capsys.readouterr() == ("", "")
    output.note_cut(
        Cut(
            depth=1,
            directories=2,
            entries_per_directory=1,
            entries=1,
            hits=1,
            unreadable=1,
            mounts=2,
        )
    )
    assert capsys.readouterr() == (
        "",
        "vfs: not all is shown: 1 directory too deep, 2 directories more than the limit, "
        "1 directory with more entries than the limit, more entries than the limit, "
        "more results than the limit, 1 entry that cannot be read, "
        "2 entries with another mount on it; --unlimited shows it\n",
    )
    output.note_cut(Cut(unreadable=2))
    assert capsys.readouterr().err == ("vfs: not all is shown: 2 entries that cannot be read\n")


def test_json_is_utf8_on_one_line_whatever_is_in_it(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    output.emit(output.named("name", "报\n\u2028".encode() + b"\xff"))
    out = capfdbinary.readouterr().out
    assert out == '{"name": "报\\\\x0a\\\\u2028\\\\xff", "name_bytes": "5oqlCuKAqP8="}\n'.encode()
    assert json.loads(out)["name"] == r"报\x0a\u2028\xff"
