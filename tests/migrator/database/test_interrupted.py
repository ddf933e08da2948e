"""A cut-over that does not come to its commit leaves the database as it was, whatever ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from migrator.database import connect
from tests.migrator import rows
from tests.migrator.database import old as samples
from tests.migrator.database.exact import everything

if TYPE_CHECKING:
    from collections.abc import Mapping

KILLED_WHILE = """
import os, signal, sys
from tests.migrator.database import old as samples
from migrator.database import connect

url, moment = sys.argv[1], sys.argv[2]
change = samples.change()
records = 0

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def record(entry):
    global records
    records += 1
    if moment == str(records):
        die()

def gate():
    if moment == "gate":
        die()

connect(url).cut_over(change, record, gate)
raise SystemExit("was not killed")
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["1", "4", "gate"])
def test_kill_9_of_the_migrator(old: str, moment: str) -> None:
    change = samples.small(old)
    before = everything(old)

    done = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE, old, moment],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    # PostgreSQL's backend may still be about to find out; it holds its locks until then.
    with rows.connection(old) as opened:
        if opened.dialect.name == "postgresql":
            opened.exec_driver_sql("LOCK TABLE conversations IN ACCESS EXCLUSIVE MODE")
    assert everything(old) == before
    _, recorded = samples.cut(old, change)
    with connect(old) as database:
        assert database.differences(change, recorded) == []
        database.roll_back(recorded)
    assert everything(old) == before


class Stop(Exception):
    """What a test stops a cut-over with."""


@pytest.mark.parametrize("moment", range(1, 9))
def test_a_record_that_cannot_be_kept(old: str, moment: int) -> None:
    change = samples.small(old)
    before = everything(old)
    taken = []

    def record(entry: Mapping[str, object]) -> None:
        taken.append(entry)
        if len(taken) == moment:
            raise Stop

    with connect(old) as database, pytest.raises(Stop):
        database.cut_over(change, record, lambda: None)

    assert everything(old) == before


def test_every_record_is_there_before_the_gate_and_the_change_after_it(old: str) -> None:
    change = samples.small(old)
    taken: list[Mapping[str, object]] = []
    at_the_gate = []

    with connect(old) as database:

        def gate() -> None:
            at_the_gate.append(len(taken))
            if old.startswith("sqlite"):
                with rows.connection(old) as opened:
                    columns = opened.exec_driver_sql("PRAGMA table_info(conversations)")
                    assert "project_id" not in {row.name for row in columns}

        database.cut_over(change, taken.append, gate)

    assert at_the_gate == [len(taken)]


@pytest.mark.parametrize("moment", [1, 3, 5])
def test_a_roll_back_that_is_stopped_changes_nothing(old: str, moment: int) -> None:
    change = samples.small(old)
    before = everything(old)
    _, recorded = samples.cut(old, change)
    after = everything(old)

    def broken() -> object:
        for number, entry in enumerate(recorded):
            if number == moment:
                raise Stop
            yield entry

    with connect(old) as database:
        with pytest.raises(Stop):
            database.roll_back(broken())
        assert everything(old) == after
        database.roll_back(recorded)
    assert everything(old) == before


def test_leaving_off_in_the_middle_of_the_conversations_blocks_nobody(old: str) -> None:
    change = samples.small(old)
    with connect(old) as database:
        reading = database.conversations()
        next(reading)
        assert database.cut_over(change, lambda _: None, lambda: None).conversations == 3


def test_a_fork_has_no_part_in_any_connection(old: str) -> None:
    change = samples.small(old)
    with connect(old) as database:
        next(database.conversations())
        child = os.fork()
        if child == 0:
            os._exit(0 if len(list(database.conversations())) == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert database.cut_over(change, lambda _: None, lambda: None).conversations == 3
