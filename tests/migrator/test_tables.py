"""What people read: tables, and what becomes of them elsewhere than on a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest

from migrator.findings import Finding
from migrator.outcome import Outcome
from migrator.tables import duration, number, show, size


class Screen(io.StringIO):
    """What passes for a terminal."""

    def isatty(self) -> bool:
        return True


def shown(outcome: Outcome, stream: io.StringIO | None = None) -> str:
    page = io.StringIO() if stream is None else stream
    show(outcome, page)
    return page.getvalue()


def of(**fields: Any) -> Outcome:
    return Outcome("plan", "planned", "what it is about", **fields)


def findings(count: int, **fields: Any) -> list[Finding]:
    given = {"code": "orphan", "severity": "warning", "message": "it has no row", **fields}
    return [Finding(subject=f"t{index}", **given) for index in range(count)]


def test_an_answer_begins_with_what_it_is_about_and_ends_with_what_to_do() -> None:
    outcome = of(
        next="migrator run",
        numbers={"files": 1_234_567, "bytes": 3 << 30, "rate": 1.5, "seconds": 200},
        details={
            "layout": "yuxi",
            "database": None,
            "pending": True,
            "units": {"published": 1200, "conflict": 1},
            "left": [{"path": "config", "why": "not ours"}, {"path": "logs", "bytes": 2048}],
            "passed_over": ["reflink", "link"],
            "nothing_here": [],
        },
        findings=[Finding("orphan", "warning", "t1", "it has no row", "name its owner")],
    )
    assert (
        shown(outcome)
        == """\
what it is about

  layout    yuxi
  database  -
  pending   yes

  files     1 234 567
  bytes       3.0 GiB
  rate            1.5
  seconds  3 min 20 s

units
  published  1 200
  conflict   1

left
  PATH    WHY         BYTES
  config  not ours        -
  logs    -         2.0 KiB

passed over
  reflink
  link

warning: orphan
  t1  it has no row
  -> name its owner

next: migrator run
"""
    )


def test_what_matters_most_comes_first_and_kinds_stay_together() -> None:
    outcome = of(
        findings=[
            *findings(1, severity="note", code="left"),
            *findings(1, code="b"),
            *findings(1, code="a"),
            *findings(1, severity="conflict", code="taken"),
            *findings(1, code="b"),
            *findings(1, severity="blocker", code="busy"),
        ]
    )
    headings = [line for line in shown(outcome).split("\n") if ": " in line]
    assert headings == [
        "blocker: busy",
        "conflict: taken",
        "warning: a",
        "warning: b (2): it has no row",
        "note: left",
    ]


def test_fixes_that_differ_stand_with_what_they_mend() -> None:
    outcome = of(
        findings=[
            Finding("c", "warning", "t1", "m1", "f1"),
            Finding("c", "warning", "t2", "m2", "f2"),
            Finding("c", "warning", "t3", "m3"),
        ]
    )
    assert shown(outcome).split("\n")[2:6] == [
        "warning: c (3)",
        "  t1  m1; f1",
        "  t2  m2; f2",
        "  t3  m3",
    ]


def test_a_long_list_is_cut_and_says_how_much_it_hides() -> None:
    outcome = of(
        details={
            "left": [{"path": f"p{index}"} for index in range(1_234)],
            "units": {f"u{index}": index for index in range(21)},
        },
        findings=findings(1_006),
    )
    lines = shown(outcome).split("\n")
    assert sum(line.startswith("  p") for line in lines) == 20
    assert sum(line.startswith("  u") for line in lines) == 20
    assert sum(line.startswith("  t") for line in lines) == 5
    assert [line for line in lines if "more" in line] == [
        "  and 1 214 more: --json shows all",
        "  and 1 more: --json shows all",
        "  and 1 001 more: --json shows all",
    ]


def test_what_holds_for_all_findings_of_a_kind_is_said_once() -> None:
    assert shown(of(findings=findings(2, fix="name its owner"))).split("\n")[2:6] == [
        "warning: orphan (2): it has no row",
        "  t0",
        "  t1",
        "  -> name its owner",
    ]


HOSTILE = "\x1b[31mred\nnext: migrator finalize --yes\u202e[bold]:smile:\udcff"


def test_a_hostile_name_is_one_line_and_does_nothing_to_a_terminal() -> None:
    outcome = of(
        next=HOSTILE,
        details={HOSTILE: HOSTILE, "list": [HOSTILE], "map": {HOSTILE: HOSTILE}},
        findings=[Finding("code", "warning", HOSTILE, HOSTILE, HOSTILE)],
    )
    text = shown(outcome)
    safe = "\\x1b[31mred\\x0anext: migrator finalize --yes\\u202e[bold]:smile:\\xff"
    assert text.count(safe) == 9
    assert text.replace("\n", "").isprintable()
    assert [line for line in text.split("\n") if line.startswith("next:")] == [f"next: {safe}"]


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"])
def test_no_colour_goes_into_a_pipe(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b" not in shown(of(findings=findings(3)))


def test_a_row_in_a_pipe_is_one_line_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    long = "wide 数据 " * 200
    outcome = of(findings=[Finding("code", "note", "subject", long)])
    assert shown(outcome).split("\n")[3] == f"  subject  {long.rstrip()}"


def test_on_a_terminal_lines_fold_and_nothing_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")
    name = "x" * 100
    text = shown(of(findings=[Finding("code", "note", name, "left alone")]), Screen())
    assert max(len(line) for line in text.split("\n")) <= 80
    assert text.count("x") == 100


def test_what_does_not_fit_beside_a_long_name_stands_beneath_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")  # 80 columns
    finding = Finding("code", "note", "path/" * 10, "it is no part of this layout: left alone")
    assert shown(of(findings=[finding]), Screen()).split("\n")[2:5] == [
        "note: code",
        f"  {finding.subject}",
        f"    {finding.message}",
    ]
    assert shown(of(findings=[finding])).split("\n")[3] == (
        f"  {finding.subject}  {finding.message}"
    )


def test_a_terminal_with_colours_gets_them_unless_it_says_no(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = shown(of(findings=findings(1)), Screen())
    assert "\x1b[33mwarning: orphan" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[33m" not in shown(of(findings=findings(1)), Screen())


@pytest.mark.parametrize(
    ("given", "text"),
    [(0, "0"), (999, "999"), (16_384, "16 384"), (1_000_000, "1 000 000"), (1234.56, "1 234.6")],
)
def test_digits_stand_in_threes(given: float, text: str) -> None:
    assert number(given) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1 << 30, "1.0 GiB"),
        (5 << 60, "5120.0 PiB"),
    ],
)
def test_sizes_are_told_in_the_largest_whole_unit(given: int, text: str) -> None:
    assert size(given) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (0, "0 s"),
        (0.2, "< 1 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3600, "1 h 0 min"),
        (90_000, "25 h 0 min"),
    ],
)
def test_time_spans_are_told_in_two_units(given: float, text: str) -> None:
    assert duration(given) == text
