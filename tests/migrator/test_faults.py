"""Runs that are killed, or fail, at each place: run again, they end as one that was let alone.

Of the hundreds of places some are tried, spread evenly; GEMSPACE_ALL_FAULTS=1 has all of them
tried, in about twenty minutes.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.migrator import faults, sample, trees
from tests.migrator.faults import CHANGING, LOOKING, Step
from tests.migrator.operator import MARKERS, Done, Found, differences, look, markers, migrator
from tests.migrator.saves import Saves

pytestmark = pytest.mark.slow

PLACES = sys.maxsize if os.environ.get("GEMSPACE_ALL_FAULTS") else 40
"""Of each verb, in each test."""

GOOD = (0, 1)

SPARED = {("conflict", "unreadable"), ("conflict", "owner_not_set")}

ERRORS = (errno.EIO, errno.ENOSPC, errno.EPERM)


@dataclass
class Laboratory:
    """One kind of run, to be done over and over from the same beginning."""

    folder: Path
    transfer: str
    in_place: bool

    def fresh(self) -> Saves:
        """The saves, as they are before any run."""
        folder = self.folder / "s"
        if folder.exists():
            shutil.rmtree(folder)
        return sample.minimal(folder, in_place=self.in_place)

    def verb(self, saves: Saves, verb: str, before: Callable[[], object] | None = None) -> Done:
        """Runs a verb in one process."""
        options = ["--jobs", "1"]
        if verb == "run":
            options += ["--transfer", self.transfer]
        return migrator(saves, verb, *options, before=before or (lambda: None))

    def steps(
        self,
        verb: str,
        names: frozenset[str],
        prepare: tuple[str, ...] = (),
        of: Callable[[list[Step]], list[Step]] = lambda steps: steps,
    ) -> list[Step]:
        """Steps to fail at: some of those at each place of a verb that is let alone."""
        saves = self.fresh()
        for before in prepare:
            self.verb(saves, before).expect(*GOOD)
        into = self.folder / "steps"
        self.verb(saves, verb, faults.recording(into, names)).expect(*GOOD)
        return spread(of(faults.each_place(faults.recorded(into))))


def spread(steps: list[Step]) -> list[Step]:
    """At most `PLACES` of them, evenly."""
    count = min(PLACES, len(steps))
    return [steps[number * len(steps) // count] for number in range(count)]


@pytest.fixture(params=["copy elsewhere", "link in place"])
def laboratory(request: pytest.FixtureRequest, memory: Path) -> Laboratory:
    transfer, _, place = request.param.partition(" ")
    return Laboratory(memory, transfer, place == "in place")


def settled(saves: Saves) -> Found:
    """All that a run must bring about, whenever it was interrupted: without the time of day."""
    found = look(saves)
    assert found.database is not None
    return Found(
        timeless(found.source),
        timeless(found.user_data),
        timeless(found.skill_store),
        timeless(found.projections),
        {
            name: {**table, "rows": []} if name in ("projects", "config_options") else table
            for name, table in found.database.items()
        },
    )


def timeless(tree: trees.Tree) -> trees.Tree:
    """Without the times of directories that got entries, and of the markers."""
    now = 10**18 * 1.75
    return {
        path: replace(node, mtime_ns=None) if (node.mtime_ns or 0) > now else node
        for path, node in tree.items()
    }


def wrong(saves: Saves, reference: Found) -> list[str]:
    """What is not as a run that was let alone leaves it."""
    found = settled(saves)
    lines = differences(saves)
    if markers(saves) != MARKERS:
        lines.append(f"markers: {markers(saves)}")
    for name in ("source", "user_data", "skill_store", "projections"):
        lines += trees.differences(getattr(found, name), getattr(reference, name))
    if found.database != reference.database:
        lines.append("the database is another")
    return lines


def reference_of(laboratory: Laboratory) -> Found:
    saves = laboratory.fresh()
    laboratory.verb(saves, "run").expect(*GOOD)
    assert differences(saves) == []
    return settled(saves)


def test_a_run_that_is_killed_anywhere_is_gone_on_with(laboratory: Laboratory) -> None:
    reference = reference_of(laboratory)
    failures = []
    for step in laboratory.steps("run", CHANGING):
        saves = laboratory.fresh()
        killed = laboratory.verb(saves, "run", faults.killing(step, CHANGING))
        if killed.status != -9:
            failures.append(f"{step}: not killed: {killed}")
        again = laboratory.verb(saves, "run")
        if again.status not in GOOD:
            failures.append(f"{step}: the run after it ends with {again}")
        else:
            failures += [f"{step}: {line}" for line in wrong(saves, reference)[:3]]
    assert failures == []


def test_a_run_in_which_a_call_fails_says_so_and_is_gone_on_with(laboratory: Laboratory) -> None:
    reference = reference_of(laboratory)
    failures = []
    names = CHANGING | LOOKING
    for number, step in each_error(laboratory.steps("run", names)):
        saves = laboratory.fresh()
        done = laboratory.verb(saves, "run", faults.failing(step, number, names))
        failures += [f"{step}: {line}" for line in unclear(done)]
        if done.status in GOOD:
            # It did without that call, as with a copy where there may be no link.
            failures += [f"{step}: said to be done: {line}" for line in differences(saves)[:3]]
            continue
        if laboratory.verb(saves, "status").json["state"] == "done":
            failures.append(f"{step}: it counts as done")
        again = laboratory.verb(saves, "run")
        if again.status not in GOOD:
            failures.append(f"{step}: {done}, and the run after it ends with {again}")
        else:
            failures += [f"{step}: {line}" for line in wrong(saves, reference)[:3]]
    assert failures == []


def each_error(steps: list[Step]) -> Iterator[tuple[int, Step]]:
    """Each step with an error, in turns; with every one where all is tried."""
    for turn, step in enumerate(steps):
        for number in ERRORS if sys.maxsize == PLACES else ERRORS[turn % 3 :][:1]:
            yield number, step


def unclear(done: Done) -> list[str]:
    """What is wrong with how a verb says that it failed."""
    if done.status in GOOD:
        return []
    lines = []
    # What cannot be read, or be given to its owner, keeps nothing else from being migrated.
    told = done.findings if done.status == 6 else set()
    if done.status not in (3, 5) and not told & SPARED:
        lines.append(f"ends with {done.status}: {done.err!r}")
    if b"Traceback" in done.err or len(done.err.splitlines()) > 1:
        lines.append(f"says {done.err!r}")
    return lines


def test_what_was_killed_anywhere_can_be_rolled_back(laboratory: Laboratory) -> None:
    failures = []
    for step in laboratory.steps("run", CHANGING, of=at_the_journal):
        saves = laboratory.fresh()
        before = look(saves)
        laboratory.verb(saves, "run", faults.killing(step, CHANGING)).expect(-9)
        if laboratory.verb(saves, "status").json["state"] == "nothing":
            continue
        done = laboratory.verb(saves, "rollback")
        if done.status not in GOOD:
            failures.append(f"{step}: the rollback after it ends with {done}")
        failures += [f"{step}: {line}" for line in unlike(look(saves), before)[:3]]
    assert failures == []


def at_the_journal(steps: list[Step]) -> list[Step]:
    """The steps that write records, and those that come next."""
    found: dict[Step, None] = {}
    for step, after in pairwise([*steps, steps[-1]]):
        if "journal.py" in step.place or "lines.py" in step.place:
            found[step] = found[after] = None
    return list(found)


def unlike(found: Found, expected: Found) -> list[str]:
    """What differs of the trees and the database."""
    lines = []
    for name in ("source", "user_data", "skill_store", "projections"):
        lines += trees.differences(getattr(found, name), getattr(expected, name))
    if found.database != expected.database:
        lines.append("the database is another")
    return lines


def test_a_rollback_that_is_killed_anywhere_is_gone_on_with(laboratory: Laboratory) -> None:
    failures = []
    for step in laboratory.steps("rollback", CHANGING, prepare=("run",)):
        saves = laboratory.fresh()
        before = look(saves)
        laboratory.verb(saves, "run").expect(*GOOD)
        killed = laboratory.verb(saves, "rollback", faults.killing(step, CHANGING))
        if killed.status != -9:
            failures.append(f"{step}: not killed: {killed}")
        done = laboratory.verb(saves, "rollback")
        if done.status not in GOOD:
            failures.append(f"{step}: the rollback after it ends with {done}")
        failures += [f"{step}: {line}" for line in unlike(look(saves), before)[:3]]
    assert failures == []


def test_a_rollback_in_which_a_call_fails_says_so_and_is_gone_on_with(
    laboratory: Laboratory,
) -> None:
    failures = []
    names = CHANGING | LOOKING
    for number, step in each_error(laboratory.steps("rollback", names, prepare=("run",))):
        saves = laboratory.fresh()
        before = look(saves)
        laboratory.verb(saves, "run").expect(*GOOD)
        done = laboratory.verb(saves, "rollback", faults.failing(step, number, names))
        failures += [f"{step}: {line}" for line in unclear(done)]
        if done.status not in GOOD:
            done = laboratory.verb(saves, "rollback")
            if done.status not in GOOD:
                failures.append(f"{step}: the rollback after it ends with {done}")
        failures += [f"{step}: {line}" for line in unlike(look(saves), before)[:3]]
    assert failures == []


def finalized(laboratory: Laboratory) -> Found:
    saves = laboratory.fresh()
    laboratory.verb(saves, "run").expect(*GOOD)
    laboratory.verb(saves, "finalize").expect(*GOOD)
    return settled(saves)


def test_finalize_that_is_killed_anywhere_is_gone_on_with(laboratory: Laboratory) -> None:
    reference = finalized(laboratory)
    failures = []
    for step in laboratory.steps("finalize", CHANGING, prepare=("run",)):
        saves = laboratory.fresh()
        laboratory.verb(saves, "run").expect(*GOOD)
        killed = laboratory.verb(saves, "finalize", faults.killing(step, CHANGING))
        if killed.status != -9:
            failures.append(f"{step}: not killed: {killed}")
        done = laboratory.verb(saves, "finalize")
        if done.status not in GOOD:
            failures.append(f"{step}: the finalize after it ends with {done}")
        failures += [f"{step}: {line}" for line in wrong(saves, reference)[:3]]
    assert failures == []


def test_finalize_in_which_a_call_fails_says_so_and_is_gone_on_with(
    laboratory: Laboratory,
) -> None:
    reference = finalized(laboratory)
    failures = []
    names = CHANGING | LOOKING
    for number, step in each_error(laboratory.steps("finalize", names, prepare=("run",))):
        saves = laboratory.fresh()
        laboratory.verb(saves, "run").expect(*GOOD)
        done = laboratory.verb(saves, "finalize", faults.failing(step, number, names))
        failures += [f"{step}: {line}" for line in unclear(done)]
        if done.status not in GOOD:
            done = laboratory.verb(saves, "finalize")
            if done.status not in GOOD:
                failures.append(f"{step}: the finalize after it ends with {done}")
        failures += [f"{step}: {line}" for line in wrong(saves, reference)[:3]]
    assert failures == []


def test_any_prefix_and_then_the_rest_is_one_run(memory: Path) -> None:
    laboratory = Laboratory(memory, "copy", in_place=False)
    reference = reference_of(laboratory)

    steps = laboratory.steps("run", CHANGING)

    @settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(st.sampled_from(steps), min_size=1, max_size=4))
    def runs(kills: list[Step]) -> None:
        saves = laboratory.fresh()
        for step in kills:
            laboratory.verb(saves, "run", faults.killing(step, CHANGING)).expect(-9, *GOOD)
        laboratory.verb(saves, "run").expect(*GOOD)
        assert wrong(saves, reference) == []

    runs()


def test_of_two_at_once_one_does_it_all_and_the_other_is_refused(tmp_path: Path) -> None:
    saves = sample.minimal(tmp_path / "s")
    answer = tmp_path / "answer"

    def before() -> None:
        # While the first one links its first file, a second one begins, with a journal of its own.
        real = os.link

        def second(*arguments: object, **options: object) -> None:
            os.link = real
            state = str(tmp_path / "another state")
            done = migrator(saves, "run", "--state", state)
            answer.write_text(f"{done.status} {done.err.decode()}")
            real(*arguments, **options)  # type: ignore[arg-type]

        os.link = second

    migrator(saves, "run", "--transfer", "link", "--jobs", "1", before=before).expect(*GOOD)
    assert answer.read_text().startswith("3 ")
    assert differences(saves) == []


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """An ext4 of that size."""
    image, point = folder / "image", folder / "disk"
    with open(image, "wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image], check=True)
    point.mkdir()
    subprocess.run(["mount", "-o", "loop", image, point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


def test_a_full_disk_ends_a_run_that_goes_on_when_there_is_room(tmp_path: Path) -> None:
    saves = sample.normal(tmp_path / "s")
    before = trees.snapshot(saves.source)
    with small_disk(tmp_path, 24) as disk:
        saves.new = disk / "new"
        in_the_way = disk / "in the way"

        def fill() -> None:
            # After the look at how much room there is.
            real = os.mkdir

            def mkdir(*arguments: object, **options: object) -> None:
                if not in_the_way.exists():
                    fill_up(in_the_way)
                real(*arguments, **options)  # type: ignore[arg-type]

            os.mkdir = mkdir

        done = migrator(saves, "run", "--jobs", "1", before=fill).expect(5)
        assert done.error["error"] == "retryable"
        in_the_way.unlink()
        migrator(saves, "run").expect(*GOOD)
        assert differences(saves) == []
        assert trees.differences(trees.snapshot(saves.source), before) == []


def fill_up(path: Path) -> None:
    """Writes until there is no room."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1 << 9):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as exc:
                assert exc.errno == errno.ENOSPC
