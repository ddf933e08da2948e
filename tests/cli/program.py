"""The command, run in a process of its own on a storage of the test's."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = os.path.join(os.path.dirname(sys.executable), "vfs")
FORKER = Path(__file__).with_name("forker.py")

SECONDS = 60.0
"""After which a command hangs."""


def until(condition: Callable[[], bool], what: str) -> None:
    """Polls until the condition holds; fails by name when it takes too long."""
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {SECONDS} s")
        time.sleep(0.01)


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: bytes
    err: bytes

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The one document on stderr."""
        return json.loads(self.err)


class Forker:
    """The process that commands are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, FORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def close(self) -> None:
        """Ends it."""
        self._process.communicate(timeout=SECONDS)

    def run(self, order: Mapping[str, object]) -> int:
        """Runs one command; its exit status."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SECONDS)
        assert ready, f"{order['arguments']} hangs"
        return int(process.stdout.readline())


class Vfs:
    """Runs `vfs` on one storage, as root or as the user of a number."""

    def __init__(self, forker: Forker, storage: Path, uid: int | None = None) -> None:
        self.storage = storage
        self._forker = forker
        self._uid = uid
        self.environment = {**os.environ, "GEMSPACE_STORAGE": str(storage)}
        self.environment.pop("GEMSPACE_DEBUG", None)

    def by(self, uid: int, storage: Path) -> Vfs:
        """The same for another user and storage."""
        return Vfs(self._forker, storage, uid)

    def __call__(
        self,
        *arguments: str | bytes | Path,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: Path = Path("/"),
        umask: int = 0o022,
    ) -> Done:
        """Runs one command line, whatever its exit status."""
        with tempfile.TemporaryDirectory() as folder:
            streams = [os.path.join(folder, name) for name in ("in", "out", "err")]
            for path in streams:
                Path(path).write_bytes(stdin)
            status = self._forker.run(
                {
                    "arguments": [os.fsencode(word).hex() for word in arguments],
                    "environment": {**self.environment, **(env or {})},
                    "cwd": str(cwd),
                    "umask": umask,
                    "uid": self._uid,
                    "streams": streams,
                }
            )
            return Done(status, Path(streams[1]).read_bytes(), Path(streams[2]).read_bytes())

    def good(self, *arguments: str | bytes | Path, **options: Any) -> bytes:
        """Runs one that must succeed without a word on stderr; its stdout."""
        done = self(*arguments, **options)
        assert (done.status, done.err) == (0, b"")
        return done.out

    def real(self, *arguments: str | bytes | Path, env: Mapping[str, str] | None = None) -> Done:
        """Runs the installed command, interpreter and all."""
        done = subprocess.run(
            [PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**self.environment, **(env or {})},
            timeout=SECONDS,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)
