"""The tables that a run ends with: on the terminal, and as Markdown for a file."""

from __future__ import annotations

import math
import os
import platform
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from mounting.measure import Results
from mounting.requests import Counted, RoundTrip
from mounting.scale import FILES, SOFT_LIMIT, Scale
from mounting.work import LIMIT_SECONDS

_WIDTH = 150


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table."""

    title: str
    header: list[str]
    rows: list[list[str]]


def times(results: Results, systems: list[str]) -> Sheet:
    """Median seconds, and how many times the native tree's they are."""
    rows = []
    for line in results.seconds:
        native = results.median(line, "native")
        cells = []
        for system in systems:
            median = results.median(line, system)
            if median is None:
                cells.append("-")
            elif system == "native" or native is None:
                cells.append(_seconds(median))
            else:
                cells.append(f"{_seconds(median)} ({_ratio(median / native)})")
        rows.append([line, *cells])
    return Sheet("Seconds, median (multiple of native)", ["work", *systems], rows)


def round_trips(found: dict[str, RoundTrip]) -> Sheet:
    """What one request costs."""
    rows = [[name, *(f"{value:.1f}" for value in trip)] for name, trip in found.items()]
    header = ["daemon", "by the clock", "on one processor", "of which the daemon"]
    return Sheet("Microseconds of one request (GETATTR)", header, rows)


def requests(found: dict[tuple[str, str], Counted]) -> Sheet:
    """What each work asks of each daemon."""
    rows = [
        [
            work,
            system,
            _kinds(counted.first),
            "-" if counted.again is None else _kinds(counted.again),
        ]
        for (work, system), counted in found.items()
    ]
    return Sheet("Requests", ["work", "daemon", "on a new mount", "again"], rows)


def scales(found: dict[str, Scale]) -> Sheet:
    """The million files."""
    rows = [
        [
            name,
            _seconds(scale.seconds),
            f"{scale.files}",
            "-" if scale.descriptors is None else f"{scale.descriptors}",
            "-" if scale.resident is None else f"{scale.resident:.0f}",
        ]
        for name, scale in found.items()
    ]
    header = ["system", "seconds", "files seen", "descriptors open", "bytes for each file"]
    return Sheet(
        f"find over {FILES} files at a soft limit of {SOFT_LIMIT} descriptors", header, rows
    )


def _kinds(counter: Counter[str]) -> str:
    """The kinds that count: of those below two per cent of all, only their sum."""
    total = counter.total()
    shown = {kind: number for kind, number in counter.most_common() if number * 50 >= total}
    rest = total - sum(shown.values())
    if rest:
        shown["others"] = rest
    return ", ".join(f"{number} {kind}" for kind, number in shown.items()) or "none"


def _seconds(value: float) -> str:
    if math.isinf(value):
        return f">{LIMIT_SECONDS:.0f}"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _ratio(value: float) -> str:
    if math.isinf(value):
        return "given up"
    return f"{value:.2f}x" if value < 2 else f"{value:.1f}x"


def machine(folder: Path) -> str:
    """What it ran on, in one line."""
    processors = len(os.sched_getaffinity(0))
    return (
        f"Linux {platform.release()}, {processors} processors, "
        f"Python {platform.python_version()}, {_file_system(folder)}"
    )


def _file_system(folder: Path) -> str:
    """The type of the file system that a folder is on."""
    best, kind = -1, "?"
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            left, _, right = line.partition(" - ")
            if left.split()[2] == wanted and len(left) > best:
                best, kind = len(left), right.split()[0]
    return kind


def show(sheets: list[Sheet], notes: list[str]) -> None:
    """Prints the tables."""
    # A table that is wider than the terminal is easier to read than one whose cells are wrapped.
    console = Console(width=max(Console().width, _WIDTH))
    for sheet in sheets:
        table = Table(title=sheet.title, box=box.SIMPLE, title_justify="left")
        for number, name in enumerate(sheet.header):
            table.add_column(name, justify="left" if number == 0 else "right")
        for row in sheet.rows:
            table.add_row(*row)
        console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False)


def markdown(sheets: list[Sheet], notes: list[str]) -> str:
    """The same as Markdown."""
    parts = []
    for sheet in sheets:
        lines = [f"### {sheet.title}", "", _line(sheet.header)]
        lines.append(_line(["---", *["---:"] * (len(sheet.header) - 1)]))
        lines += [_line(row) for row in sheet.rows]
        parts.append("\n".join(lines))
    if notes:
        parts.append("\n".join(f"- {note}" for note in notes))
    return "\n\n".join(parts) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
