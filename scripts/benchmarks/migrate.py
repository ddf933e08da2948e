"""The migrator, side by side with cp, rsync and a plain copy that hashes twice.

It makes old saves in a folder of its own, has every contender bring them to a new place, in turns,
and prints medians and their ratios. Nothing is left behind, whenever it ends. Needs root.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from migrating import data, report
from migrating.contenders import Contender, CpChown, Migrator, Plain, Rsync
from migrating.disk import NoDisk, own_disk
from migrating.measure import Bench, remove
from mounting.measure import say
from mounting.report import Sheet, machine, markdown, show

ROWS = ("small", "large", "ownership", "memory")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; --help and mistakes end the program."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench migrate", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the data")
    parser.add_argument("--rows", metavar="A,B", help=f"of: {', '.join(ROWS)}")
    parser.add_argument("--runs", type=int, default=3, help="for each row (default: 3)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="of the migrator")
    parser.add_argument("--scale", action="store_true", help="link a million files, and no more")
    parser.add_argument("--folder", metavar="DIR", help="make the data there, not in TMPDIR")
    parser.add_argument(
        "--here", action="store_true", help="on that folder's file system, not on a fresh ext4"
    )
    parser.add_argument("--markdown", metavar="FILE", help="write the tables there too")
    options = parser.parse_args(arguments)
    wanted = ROWS if options.rows is None else options.rows.split(",")
    for name in wanted:
        if name not in ROWS:
            parser.error(f"there is no {name!r}; there are: {', '.join(ROWS)}")
    options.rows = wanted
    for name in ("runs", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is at least 1")
    if os.geteuid() != 0:
        parser.error("only root gives files to others: run it as root")
    return options


@contextmanager
def own_folder(parent: str | None, here: bool) -> Iterator[Path]:
    """A folder that is removed in the end, on a file system of its own unless it is to be here."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="gemspace-bench-", dir=parent)))
    try:
        with nullcontext(folder) if here else own_disk(folder) as place:
            yield place
    finally:
        say("removing the data")
        remove(folder)
        say("")


def measure(bench: Bench, options: argparse.Namespace) -> tuple[list[Sheet], list[str]]:
    """The tables of a run, and what is to be said beside them."""
    sizes = data.QUICK if options.quick else data.FULL
    link, copy = Migrator("link", options.jobs), Migrator("copy", options.jobs)
    contenders: list[Contender] = [CpChown(), Rsync(), Plain(), link, copy]
    sheets, lines, notes = [], [], []
    if {"small", "ownership", "memory"} & set(options.rows):
        say("making the small files")
        small = data.make_small(bench.folder / "small", sizes)
        if "small" in options.rows:
            for line, cold in ((small.name, False), (f"{small.name}, from the disk", True)):
                bench.transfer(line, small, contenders, options.runs, keep=True, cold=cold)
                lines.append(line)
        if "memory" in options.rows:
            for contender in (link, copy):
                bench.memory(small, contender)
        if "ownership" in options.rows:
            line = f"owner and mode of {sizes.small_files} files"
            bench.ownership(line, small.saves / "threads", options.jobs, options.runs)
            sheets.append(report.ownership(bench.results, line))
    if "large" in options.rows:
        say("making the large files")
        large = data.make_large(bench.folder / "large", sizes.large_mib)
        bench.transfer(large.name, large, contenders, options.runs, keep=False)
        say("making twice as large files")
        double = data.make_large(bench.folder / "double", 2 * sizes.large_mib)
        bench.transfer(double.name, double, [link], options.runs, keep=False)
        lines += [large.name, double.name]
        notes = report.of_size(bench.results, large.name, double.name)
    if lines:
        sheets.insert(0, report.transfers(bench.results, lines, contenders))
    if bench.results.watched:
        sheets.append(report.memory(bench.results))
    return sheets, [*report.comparisons(bench.results), *notes]


def measure_scale(bench: Bench, options: argparse.Namespace) -> tuple[list[Sheet], list[str]]:
    """The table of the million files."""
    sizes = data.QUICK if options.quick else data.SCALE
    say(f"scale: making {sizes.small_files} files")
    many = data.make_small(bench.folder / "many", sizes)
    bench.memory(many, Migrator("link", options.jobs))
    return [report.memory(bench.results)], []


def main(arguments: list[str]) -> int:
    """Runs the benchmark."""
    begin = time.monotonic()
    options = parse(arguments)
    # Every clean-up below runs as for Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with own_folder(options.folder, options.here) as folder:
            bench = Bench(folder)
            sheets, notes = (measure_scale if options.scale else measure)(bench, options)
            where = machine(folder)
    except NoDisk as exc:
        print(f"bench: no file system of its own: {exc}; try --here", file=sys.stderr)
        return 1
    notes += [
        "the saves are in the kernel's cache unless it says otherwise; every run writes into a new "
        "directory",
        "the migrator's own run ends with its files, journal and database on the disk",
        f"{where}; {time.monotonic() - begin:.0f} s in all",
        *dict.fromkeys(bench.results.failures),
    ]
    show(sheets, notes)
    if options.markdown is not None:
        Path(options.markdown).write_text(markdown(sheets, notes), encoding="utf-8")
    return 1 if bench.results.failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
