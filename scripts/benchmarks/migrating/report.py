"""The tables and the comparisons that a run ends with."""

from __future__ import annotations

from mounting.report import Sheet

from migrating.contenders import Contender
from migrating.measure import Results


def transfers(results: Results, lines: list[str], contenders: list[Contender]) -> Sheet:
    """Median seconds, and how many times those of the first contender they are."""
    names = [contender.name for contender in contenders]
    return _times(results, lines, names, "Seconds, median (multiple of the first)")


def ownership(results: Results, line: str) -> Sheet:
    """The same for the ways to change owners."""
    names = list(results.runs.get(line, {}))
    return _times(results, [line], names, "Owner and mode, seconds, median (multiple of the first)")


def _times(results: Results, lines: list[str], names: list[str], title: str) -> Sheet:
    rows = []
    for line in lines:
        for row, which in ((line, 0), ("… on the disk (sync -f)", 1)):
            cells = []
            first = results.median(line, names[0]) if names else None
            for name in names:
                median = results.median(line, name)
                if median is None:
                    cells.append("-")
                elif first is None or name == names[0]:
                    cells.append(_seconds(median[which]))
                else:
                    ratio = median[which] / first[which]
                    cells.append(f"{_seconds(median[which])} ({ratio:.2f}x)")
            rows.append([row, *cells])
    return Sheet(title, ["work", *names], rows)


def memory(results: Results) -> Sheet:
    """What runs took in memory."""
    rows = [
        [
            line,
            name,
            _seconds(taken.seconds),
            f"{taken.largest / 1e6:.0f}",
            f"{taken.together / 1e6:.0f}",
        ]
        for line, found in results.watched.items()
        for name, taken in found.items()
    ]
    header = ["work", "program", "seconds", "largest process, MB", "all processes, MB"]
    return Sheet("Memory at most", header, rows)


def comparisons(results: Results) -> list[str]:
    """The two that matter of each line, in words."""
    notes = []
    for line in results.runs:
        for name, other in (
            ("migrator, link", "cp -a + chown -R"),
            ("migrator, copy", "rsync -a --chown"),
            ("ownership pass", "chown -R"),
        ):
            ours, theirs = results.median(line, name), results.median(line, other)
            if ours is not None and theirs is not None:
                notes.append(
                    f"{line}: {name} is {theirs.seconds / ours.seconds:.2f} times as fast as "
                    f"{other}, {theirs.synced / ours.synced:.2f} times with a final sync"
                )
    return notes


def of_size(results: Results, single: str, double: str) -> list[str]:
    """What twice the bytes make of linking them."""
    one, two = (results.median(line, "migrator, link") for line in (single, double))
    if one is None or two is None:
        return []
    return [f"twice the bytes in as many files: linking takes {two[0] / one[0]:.2f} times as long"]


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"
