"""The mount, side by side with the native tree and with other pass-through file systems.

It makes its data in a folder of its own, does the same work on every system, and prints medians and
their ratio to the native tree. Nothing is left behind, whenever it ends.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from mounting import data, report, requests, scale, systems
from mounting.measure import Bench, say
from mounting.rows import Row, rows
from mounting.systems import System

SYSTEMS = ("native", "kernel", "fuse-device", "fuse-pyfuse3", "bindfs", "pyfuse3-example")


def parse(arguments: list[str], keys: list[str]) -> argparse.Namespace:
    """The options; --help and mistakes end the program."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench mount", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="less data: about a minute")
    parser.add_argument("--rows", metavar="A,B", help=f"of: {', '.join(keys)}")
    parser.add_argument("--systems", metavar="A,B", help=f"of: {', '.join(SYSTEMS)}")
    parser.add_argument("--runs", type=int, help="at most, for each row (default: 3; quick: 2)")
    parser.add_argument(
        "--requests", action="store_true", help="count each row's requests (root, Linux 6.10)"
    )
    parser.add_argument("--scale", action="store_true", help="walk a million files, and no more")
    parser.add_argument("--cache", metavar="SECONDS", help="of our FUSE mounts")
    parser.add_argument("--folder", metavar="DIR", help="make the data there, not in TMPDIR")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables there too")
    options = parser.parse_args(arguments)
    options.rows = _chosen(parser, options.rows, keys)
    options.systems = _chosen(parser, options.systems, list(SYSTEMS))
    if options.runs is None:
        options.runs = 2 if options.quick else 3
    if options.runs < 1:
        parser.error("--runs is at least 1")
    return options


def _chosen(parser: argparse.ArgumentParser, text: str | None, known: list[str]) -> list[str]:
    if text is None:
        return known
    wanted = text.split(",")
    for name in wanted:
        if name not in known:
            parser.error(f"there is no {name!r}; there are: {', '.join(known)}")
    return [name for name in known if name in wanted]


@contextmanager
def own_folder(parent: str | None) -> Iterator[Path]:
    """A folder that is removed in the end, unless something is still mounted in it."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="gemspace-bench-", dir=parent)))
    try:
        yield folder
    finally:
        say("removing the data")
        for point in (folder / "mounts").glob("*"):
            systems.unmount(point)
        # Its own file system alone, and far faster than shutil.rmtree.
        subprocess.run(["rm", "-rf", "--one-file-system", "--", folder], check=True)
        say("")


def build(folder: Path, names: list[str], cache: str | None, stack: ExitStack) -> Bench:
    """The folder's storage, and the systems that show it; nothing is started."""
    storage = folder / "storage"
    native = systems.make_storage(storage)
    points = {name: folder / "mounts" / name for name in SYSTEMS}
    for point in points.values():
        point.mkdir(parents=True)
    options = [] if cache is None else ["--cache", cache]
    download = systems.ExampleDownload(folder / "download")
    made: dict[str, System] = {
        "native": systems.Native(native),
        "kernel": systems.KernelEngine(storage, points["kernel"]),
        "bindfs": systems.bindfs(native, points["bindfs"]),
        "pyfuse3-example": systems.PassthroughExample(native, points["pyfuse3-example"], download),
    }
    for transport in ("device", "pyfuse3"):
        name = f"fuse-{transport}"
        made[name] = systems.fuse_engine(storage, points[name], transport, options)
    if "pyfuse3-example" in names:
        stack.callback(download.cancel)
        download.begin()
    return Bench([made[name] for name in names], native, data.FULL, os.geteuid() == 0)


def measure(bench: Bench, chosen: list[Row], runs: int, count: bool) -> list[report.Sheet]:
    """The tables of a run."""
    names = [system.name for system in bench.systems]
    trips = {}
    for system in list(bench.systems):
        trip = requests.round_trip(bench, system)
        if trip is not None:
            trips[system.name] = trip
    sheets = []
    if count:
        counted = {}
        with requests.tracing(bench.native.parents[4] / "tracing") as instance:
            for row in chosen:
                for system in list(bench.systems):
                    found = requests.count(bench, row, system, instance)
                    if found is not None:
                        counted[row.key, system.name] = found
        sheets.append(report.requests(counted))
    else:
        bench.measure(chosen, runs)
        sheets.append(report.times(bench.results, names))
    return [*sheets, report.round_trips(trips)]


def measure_scale(bench: Bench) -> list[report.Sheet]:
    """The table of the million files."""
    scale.make(bench.native)
    found = {}
    for system in list(bench.systems):
        walked = scale.walk(bench, system)
        if walked is not None:
            found[system.name] = walked
    return [report.scales(found)]


def main(arguments: list[str]) -> int:
    """Runs the benchmark."""
    begin = time.monotonic()
    keys = [row.key for row in rows(data.FULL)]
    options = parse(arguments, keys)
    # Every clean-up below runs as for Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        folder = stack.enter_context(own_folder(options.folder))
        bench = build(folder, options.systems, options.cache, stack)
        bench.sizes = data.QUICK if options.quick else data.FULL
        if options.scale:
            sheets = measure_scale(bench)
        else:
            say("making the data")
            data.make(bench.native, bench.sizes)
            chosen = [row for row in rows(bench.sizes) if row.key in options.rows]
            sheets = measure(bench, chosen, options.runs, options.requests)
        notes = [report.machine(folder), *bench.results.failures]
    notes[0] += f"; {time.monotonic() - begin:.0f} s in all"
    report.show(sheets, notes)
    if options.markdown is not None:
        Path(options.markdown).write_text(report.markdown(sheets, notes), encoding="utf-8")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
