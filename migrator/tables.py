"""An answer as people read it: lines and tables that are safe on a terminal, and plain elsewhere.

Colours, and the terminal's width, are for terminals. What goes into a file or a pipe has neither:
each row is one line, however long. Long lists are cut, and say how much they hide: `--json` shows
everything.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO

from migrator.findings import Finding
from migrator.outcome import Outcome
from vfs.printable import one_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

ROWS = 20
"""Rows of a list that are shown: with what stands around them they fit on a screen."""
FINDINGS = 5
"""Findings of one code that are shown."""

_UNBOUNDED = 1 << 20
"""Columns where no terminal has a width: longer than any line."""

_SEVERITIES = ("blocker", "conflict", "warning", "note")
"""What matters most comes first."""
_STYLES = {"blocker": "bold red", "conflict": "bold red", "warning": "yellow", "note": "dim"}

_BYTES = ("bytes", "allocated", "need", "free")
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def require() -> None:
    """Raises ModuleNotFoundError now if the package that the tables are made with is missing."""
    import rich  # noqa: F401


def show(outcome: Outcome, stream: TextIO) -> None:
    """Prints the answer of a verb."""
    from rich.console import Console

    terminal = stream.isatty()
    page = io.StringIO()
    console = Console(file=page, force_terminal=terminal, width=None if terminal else _UNBOUNDED)
    for number, block in enumerate(_blocks(outcome, console.width)):
        if number:
            console.print()
        for piece in block:
            console.print(piece)
    for line in page.getvalue().removesuffix("\n").split("\n"):
        stream.write((line if terminal else line.rstrip()) + "\n")


def _blocks(outcome: Outcome, width: int) -> Iterator[list[RenderableType]]:
    """The parts of an answer, which blank lines separate, for so many columns."""
    yield [_text(outcome.summary, "bold")]
    if facts := list(_facts(outcome.details)):
        yield [_grid([(_words(name), _value(name, value)) for name, value in facts])]
    if numbers := outcome.numbers.items():
        yield [_grid([(_words(name), _value(name, value)) for name, value in numbers], right=(1,))]
    for name, value in outcome.details.items():
        if value and isinstance(value, Mapping):
            rows = [(str(key), _value(str(key), item)) for key, item in value.items()]
            yield [_text(_words(name), "bold"), *_cut_grid(rows)]
        elif value and isinstance(value, list | tuple):
            yield [_text(_words(name), "bold"), *_list(value)]
    for group in _grouped(outcome.findings):
        yield list(_findings(group, width))
    if outcome.next is not None:
        yield [_text(f"next: {outcome.next}", "bold")]


def _facts(details: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What is one value and no collection."""
    return (
        (name, value)
        for name, value in details.items()
        if not isinstance(value, Mapping | list | tuple)
    )


def _list(items: Sequence[Any]) -> list[RenderableType]:
    """A list, as a table with a heading if its items have fields."""
    if not all(isinstance(item, Mapping) for item in items):
        return _cut_grid([(_value("", item),) for item in items])
    names = list(dict.fromkeys(name for item in items for name in item))
    heading = tuple(_words(name).upper() for name in names)
    rows = [tuple(_value(name, item.get(name)) for name in names) for item in items[:ROWS]]
    right = [index for index, name in enumerate(names) if _is_numeric(items, name)]
    return [_grid([heading, *rows], right=right), *_more(len(items) - ROWS)]


def _is_numeric(items: Sequence[Mapping[str, Any]], name: str) -> bool:
    return all(type(item.get(name)) in (int, float, type(None)) for item in items)


def _cut_grid(rows: Sequence[tuple[str, ...]]) -> list[RenderableType]:
    return [_grid(rows[:ROWS]), *_more(len(rows) - ROWS)]


def _more(hidden: int) -> list[RenderableType]:
    return [_text(f"  and {number(hidden)} more: --json shows all", "dim")] if hidden > 0 else []


def _grouped(findings: Sequence[Finding]) -> Iterator[list[Finding]]:
    """The findings of one kind after another, what matters most first."""

    def kind(finding: Finding) -> tuple[int, str]:
        return _SEVERITIES.index(finding.severity), finding.code

    for _, group in groupby(sorted(findings, key=kind), key=kind):
        yield list(group)


def _findings(group: Sequence[Finding], width: int) -> Iterator[RenderableType]:
    """Findings of one code: how many, the first of them, and what to do about them.

    What holds for all of them is said once.
    """
    first, shown = group[0], group[:FINDINGS]
    fixes = {finding.fix for finding in group}
    head = f"{first.severity}: {first.code}"
    if len(group) == 1:
        yield _text(head, _STYLES[first.severity])
        yield from _beside([(first.subject, first.message)], width)
    elif len({_said(finding, fixes) for finding in group}) == 1:
        yield _text(
            f"{head} ({number(len(group))}): {_said(first, fixes)}", _STYLES[first.severity]
        )
        yield _grid([(finding.subject,) for finding in shown])
    else:
        yield _text(f"{head} ({number(len(group))})", _STYLES[first.severity])
        yield from _beside([(finding.subject, _said(finding, fixes)) for finding in shown], width)
    yield from _more(len(group) - FINDINGS)
    if len(fixes) == 1 and first.fix is not None:
        yield _text(f"  -> {first.fix}", "")


def _said(finding: Finding, fixes: set[str | None]) -> str:
    """A finding's message, and its fix where that is not the same for all of them."""
    if len(fixes) == 1 or finding.fix is None:
        return finding.message
    return f"{finding.message}; {finding.fix}"


def _beside(rows: Sequence[tuple[str, str]], width: int) -> Iterator[RenderableType]:
    """Subjects with what is said of them beside them; beneath them where that does not fit."""
    from rich.cells import cell_len
    from rich.padding import Padding

    longest = max(cell_len(subject) for subject, _ in rows)
    if longest <= width // 3 or longest + max(cell_len(said) for _, said in rows) <= width - 6:
        yield _grid(rows)
        return
    for subject, said in rows:
        yield Padding(_text(subject, ""), (0, 0, 0, 2), expand=False)
        yield Padding(_text(said, ""), (0, 0, 0, 4), expand=False)


def _grid(rows: Sequence[tuple[str, ...]], *, right: Sequence[int] = ()) -> RenderableType:
    """Columns without lines around them, a little to the right."""
    from rich.padding import Padding
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for index in range(len(rows[0])):
        table.add_column(justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(cell, "") for cell in row))
    return Padding(table, (0, 0, 0, 2), expand=False)


def _text(text: str, style: str) -> Text:
    from rich.text import Text

    return Text(one_line(text), style=style, overflow="fold")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value(name: str, value: Any) -> str:
    """A value as text; its name tells what it is measured in."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(_value(name, item) for item in value)
    if isinstance(value, int | float):
        if name in _BYTES or name.endswith("_bytes"):
            return size(value)
        if name == "seconds" or name.endswith("_seconds"):
            return duration(value)
        return number(value)
    return str(value)


def number(value: int | float) -> str:
    """A number whose digits stand in threes: ``16 384``, ``1.5``."""
    return (f"{value:,}" if isinstance(value, int) else f"{value:,.1f}").replace(",", " ")


def size(count: int | float) -> str:
    """Bytes in the largest unit that leaves a whole one: ``512 B``, ``1.5 GiB``."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in _UNITS:
        count /= 1024
        if count < 1024 or unit == _UNITS[-1]:
            break
    return f"{count:.1f} {unit}"


def duration(seconds: int | float) -> str:
    """A time span in its two largest units: ``< 1 s``, ``4 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if 0 < seconds < 1:
        return "< 1 s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
