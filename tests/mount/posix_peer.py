"""Processes that make system calls on command, for tests of what one sees of another."""

from __future__ import annotations

import pickle
import select
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.mount.posix_mount import DEADLINE, ROOT, program


class Peer:
    """One process whose current directory is `folder`. Calls are `posix_calls.Calls`'s."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            program("posix_calls", folder),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if kind is not None:
            self._process.kill()  # it may wait for something that does not come any more
        try:
            self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()

    def send(self, call: str, *arguments: Any, who: str = "root") -> None:
        """Has the call begin."""
        assert self._process.stdin is not None
        pickle.dump((who, call, *arguments), self._process.stdin)
        self._process.stdin.flush()

    def waits(self, seconds: float = 0.2) -> bool:
        """Whether the call that was begun still has not ended after a while."""
        return not select.select([self._process.stdout], [], [], seconds)[0]

    def receive(self) -> Any:
        """The result of the call that was begun: its value, or the name of its errno."""
        if self.waits(DEADLINE):
            raise AssertionError("a call does not end")
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)

    def call(self, call: str, *arguments: Any, who: str = "root") -> Any:
        """Makes one call."""
        self.send(call, *arguments, who=who)
        return self.receive()
