"""The command `migrator` as an operator runs it: in a process of its own, on a test's saves."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from migrator import cli, finalizing, rolling_back, running, verifying
from tests.migrator import rows, trees
from tests.migrator.rows import Rows
from tests.migrator.saves import OWNER, Saves
from tests.migrator.trees import Node, Tree

TOKEN = "the services are down"

SECONDS = 120
"""After which a command hangs: it is ended by SIGALRM."""

MARKERS = {
    b".v072-runtime-identity": b"1000:1000\n",
    b".legacy-migration-complete": b"1\n",
}

VERSION_TIMES = ("created_at", "updated_at")


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    """Its exit status, or minus the signal that killed it."""
    out: bytes
    err: bytes

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The one document on stderr, its last line."""
        return json.loads(self.err.splitlines()[-1])

    @property
    def findings(self) -> set[tuple[str, str]]:
        """Severity and code of what it found."""
        return {(finding["severity"], finding["code"]) for finding in self.json["findings"]}

    def expect(self, *statuses: int) -> Done:
        """The same, when it ended with one of these."""
        assert self.status in statuses, (self.status, self.out[-3000:], self.err[-3000:])
        return self


LOADED = (finalizing, rolling_back, running, verifying)
"""What the command loads when it needs it; here it is loaded once, before every process."""


def forked(action: Callable[[], int], folder: Path, stdin: bytes = b"") -> Done:
    """Runs `action` in a child with streams of its own; what it returns is the exit status."""
    with tempfile.TemporaryDirectory(dir=folder) as streams:
        paths = [os.path.join(streams, name) for name in ("in", "out", "err")]
        for path in paths:
            Path(path).write_bytes(stdin)
        with warnings.catch_warnings():
            # The child runs nothing but the action: threads of other tests do not matter to it.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _child(action, paths)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return Done(status, Path(paths[1]).read_bytes(), Path(paths[2]).read_bytes())


def _child(action: Callable[[], int], streams: list[str]) -> NoReturn:
    status = 99
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        for number, path in enumerate(streams):
            fd = os.open(path, os.O_RDWR)
            os.dup2(fd, number)
            os.close(fd)
        # pytest has put its own in their places.
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        status = action()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def migrator(
    saves: Saves,
    verb: str,
    *arguments: str,
    before: Callable[[], object] = lambda: None,
    environment: Mapping[str, str] | None = None,
) -> Done:
    """Runs one verb with --json on the saves; `before` is done in its process first."""

    def action() -> int:
        prepared(saves)
        os.environ.update(environment or {})
        before()
        return cli.run([verb, *saves.arguments, "--json", *confirmed(verb), *arguments])

    return forked(action, saves.folder)


def prepared(saves: Saves) -> None:
    """Makes this process's environment that of an operator who has stopped the services."""
    quiesced = saves.folder / "quiesced"
    quiesced.write_text(TOKEN)
    os.environ["YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN"] = TOKEN
    os.environ["YUXI_STORAGE_MIGRATION_QUIESCENCE_FILE"] = str(quiesced)
    os.environ.pop("GEMSPACE_DEBUG", None)


def confirmed(verb: str) -> list[str]:
    """What has a verb not ask."""
    return ["--yes"] if verb in ("rollback", "finalize") else []


@dataclass(frozen=True)
class Found:
    """Everything that a migration may change, as one value."""

    source: Tree
    user_data: Tree
    skill_store: Tree
    projections: Tree
    database: rows.Dump | None


def look(saves: Saves) -> Found:
    """All of it, now. In place, `user_data` is the part of the source that is the new tree."""
    return Found(
        trees.snapshot(saves.source),
        _tree(saves.user_data),
        _tree(saves.skill_store),
        _tree(saves.projections),
        None if saves.url is None else rows.dump(saves.url),
    )


def _tree(top: Path) -> Tree:
    return trees.snapshot(top) if top.exists() else {}


def differences(saves: Saves) -> list[str]:
    """Where the new tree and the database are not what a right migration makes of them."""
    found = []
    for top, expected in (
        (saves.user_data, saves.tree),
        (saves.skill_store, saves.skill_tree),
    ):
        tree = trees.snapshot(
            top, without=lambda path: path in MARKERS or (saves.in_place and not _is_new(path))
        )
        made = {b"": Node("directory", 0o700, OWNER)}
        if expected or b"shared" in tree:
            made[b"shared"] = made[b""]
        found += trees.differences(tree, {**made, **expected})
    if saves.url is not None:
        found += row_differences(rows.read(saves.url), saves.rows)
    return found


def _is_new(path: bytes) -> bool:
    """Whether a path in an old `threads` is one of the new tree: nor a thread's, nor a user's whose
    directory has another name now."""
    names = path.split(b"/")
    return names[0] in (b"", b"shared") and names[1:2] not in ([b"li.wei"], [b"j.doe"])


def row_differences(found: Rows, expected: Rows) -> list[str]:
    """What differs in the database, a line for each kind of row."""
    return [
        f"{name}: {getattr(found, name)!r}, expected {getattr(expected, name)!r}"
        for name in Rows.__dataclass_fields__
        if getattr(found, name) != getattr(expected, name)
    ]


def markers(saves: Saves) -> dict[bytes, bytes]:
    """Those that are there, with what they hold."""
    found = {}
    for top in (saves.user_data, saves.skill_store):
        for name in MARKERS:
            path = os.path.join(os.fsencode(top), name)
            if os.path.lexists(path):
                found[name] = Path(os.fsdecode(path)).read_bytes()
    return found
