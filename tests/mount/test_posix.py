"""POSIX conformance of the mount, call by call against the file system that lies beneath it.

Thousands of small scenarios run twice, once on the disk and once on the mount, and everything they
see is compared; `posix_compare.DIFFERENCES` lists what may differ.
"""

from __future__ import annotations

import functools
import pickle
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mount import posix_files, posix_names, posix_rights
from tests.mount.posix_compare import DIFFERENCES, Comparison
from tests.mount.posix_mount import ROOT, Mounted, mounted, program
from tests.mount.posix_run import Scenario

Group = Callable[[], Iterator[Scenario]]

GROUPS: tuple[Group, ...] = (
    posix_names.on_paths,
    posix_names.open_flags,
    posix_names.made_modes,
    posix_names.renames,
    posix_names.links,
    posix_names.directories,
    posix_rights.classes,
    posix_rights.sticky,
    posix_rights.chmods,
    posix_rights.chowns,
    posix_rights.setgid_directories,
    posix_rights.setid_files,
    posix_rights.times,
    posix_files.sizes,
    posix_files.reads_and_writes,
    posix_files.allocation,
    posix_files.copies,
    posix_files.mappings,
    posix_files.unlinked,
    posix_files.locks,
    posix_files.attributes,
)

SHOWN = 10
"""Differences that a failure prints."""


def run(scenarios: list[Scenario], view: Path, disk: Path) -> list[list[Any]]:
    """The records of the scenarios, run in a process of their own."""
    done = subprocess.run(
        program("posix_run", view, disk),
        cwd=ROOT,
        input=pickle.dumps(scenarios),
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    records: list[list[Any]] = pickle.loads(done.stdout)
    return records


@functools.cache
def natively(group: Group) -> tuple[list[Scenario], list[list[Any]]]:
    """A group's scenarios and what they do on the disk."""
    scenarios = list(group())
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        return scenarios, run(scenarios, folder, folder)
    finally:
        shutil.rmtree(folder)


def differing(
    made: Mounted,
    comparison: Comparison,
    group: Group,
    chosen: Callable[[Scenario], bool] = lambda scenario: True,
) -> list[str]:
    """Runs the chosen scenarios of a group on the mount; what they do that they may not."""
    pairs = [
        (scenario, native)
        for scenario, native in zip(*natively(group), strict=True)
        if chosen(scenario)
    ]
    view, disk = made.folder(group.__name__)
    records = run([scenario for scenario, _ in pairs], view, disk)
    found = [
        line
        for (scenario, native), record in zip(pairs, records, strict=True)
        for line in comparison.differences(scenario, native, record)
    ]
    return [f"{len(found)} scenarios differ", *found[:SHOWN]] if found else []


@pytest.fixture(scope="module")
def comparison(transport: str) -> Comparison:
    """What all groups together compared on one transport."""
    return Comparison(transport)


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.__name__)
def test_every_call_does_what_it_does_beneath(
    keeping_mount: Mounted, comparison: Comparison, group: Group
) -> None:
    found = differing(keeping_mount, comparison, group)
    assert not found, "\n".join(found)


def is_roots(scenario: Scenario) -> bool:
    """Whether only root calls, and does not speak of owners: the mount shows all as root's."""
    _, _, steps = scenario
    return all(step[0] == "root" and "chown" not in step[1] for step in steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    # The flags of open(2) are the kernel's own business, and by far the most scenarios.
    "group",
    [g for g in GROUPS if g is not posix_names.open_flags],
    ids=lambda group: group.__name__,
)
def test_every_call_of_root_does_so_where_the_kernel_does_not_check_it(
    shared_mount: Mounted, group: Group
) -> None:
    comparison = Comparison(shared_mount.transport, owners=False)
    found = differing(shared_mount, comparison, group, is_roots)
    assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def uncached_mount(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """A mount as `keeping_mount`, whose server is asked for everything each time."""
    folder = tmp_path_factory.mktemp("uncached")
    options = ("--owner", "keep", "--allow-other", "--cache", "0")
    with mounted(folder, transport, *options) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize(
    "group",
    [
        posix_names.links,
        posix_names.directories,
        posix_files.unlinked,
        posix_files.sizes,
        posix_rights.chowns,
    ],
    ids=lambda group: group.__name__,
)
def test_every_call_does_so_where_the_kernel_caches_nothing(
    uncached_mount: Mounted, group: Group
) -> None:
    found = differing(uncached_mount, Comparison(uncached_mount.transport), group)
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_tens_of_thousands_of_facts_were_compared_and_every_difference_was_met(
    keeping_mount: Mounted, comparison: Comparison, request: pytest.FixtureRequest
) -> None:
    chosen = sum("test_every_call" in item.name for item in request.session.items)
    if chosen < 2 * len(GROUPS):
        return  # only some groups were asked for
    assert comparison.compared > 50_000
    unmet = [
        difference.reason
        for difference in DIFFERENCES
        if difference.transport in ("", comparison.transport)
        and not comparison.needed[difference.reason]
    ]
    assert unmet == []


def test_the_suite_finds_a_file_system_that_differs(tmp_path: Path) -> None:
    # A harness that compared nothing would pass everything.
    step = ("root", "mkdir", b"d", 0o755)
    scenarios: list[Scenario] = [("made", (), (step, step))]
    native = run(scenarios, tmp_path, tmp_path)
    (first, second, left) = native[0]
    facts = {**first[1][b"d"], "mode": "0o750"}
    others = (
        [("EPERM", {}, False), second, left],
        [first, ("EACCES", {}, False), left],
        [(None, {**first[1], b"d": facts}, False), second, left],
        [(None, {b"d": first[1][b"d"]}, False), second, left],
        [first, second, {}],
    )
    assert list(Comparison("device").differences(scenarios[0], native[0], native[0])) == []
    for other in others:
        assert len(list(Comparison("device").differences(scenarios[0], native[0], other))) == 1
