"""pyfuse3's session and its main loop on trio: from an open connection to the end of the mount.

Importing it needs pyfuse3 and trio, so only `vfs.mount.libfuse` does, and late.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyfuse3
import trio

from vfs.errors import StorageFailure
from vfs.mount.libfuse_handlers import Handlers
from vfs.mount.libfuse_loop import RequestLoop
from vfs.mount.operations import Operations

_MAX_TASKS = 32
"""Requests at a time, all but one of which may wait for a disk; each task has a buffer of 1 MiB."""

_log = logging.getLogger("vfs.mount")


class Server:
    """The one session of pyfuse3 that a process may have at a time."""

    def __init__(self, operations: Operations, device: int, begin: Callable[[], None]) -> None:
        """Takes over `device`, the descriptor of a mount's connection.

        `begin` is called once the kernel and libfuse have agreed on the protocol.
        """
        self._begin = begin
        self._agreed = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._stopping = False
        self._loop = RequestLoop(device)
        handlers = Handlers(operations, self._loop, self._agreed.set)
        # libfuse takes a mount that is made already by the name of its descriptor.
        pyfuse3.init(handlers, f"/dev/fd/{device}", set())
        self._open = True

    def run(self) -> None:
        """Answers requests until the connection ends or `stop` was called; StorageFailure."""
        module: Any = pyfuse3  # its types do not tell that it has `trio`
        module.trio = self._loop
        try:
            trio.run(self._serve)
        except ExceptionGroup as group:
            _log.error("the connection to the kernel broke", exc_info=group)
            raise StorageFailure(
                "the connection to the kernel broke", fix="mount it again; the log says why"
            ) from group
        finally:
            module.trio = trio

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        if self._stopping:
            return
        async with trio.open_nursery() as nursery:
            await nursery.start(self._call_begin)
            await pyfuse3.main(max_tasks=_MAX_TASKS)
            nursery.cancel_scope.cancel()

    async def _call_begin(self, task_status: trio.TaskStatus[None]) -> None:
        # What INIT's answer says of reading ahead would undo what is set before it.
        with self._loop.shared():
            task_status.started()
            await self._agreed.wait()
            self._begin()

    def stop(self) -> None:
        """Has `run` return once nothing more is asked; for signal handlers and other threads."""
        self._stopping = True
        self._loop.stop()
        self._call_soon(self._end_if_idle)

    def abandon(self) -> None:
        """Has `run` return, whatever is asked; for signal handlers and other threads."""
        self._stopping = True
        self._loop.abandon()
        self._call_soon(pyfuse3.terminate)

    def _end_if_idle(self) -> None:
        # While something is asked no wait of trio's is under way, or it is about to end.
        if not self._loop.is_asked():
            pyfuse3.terminate()

    def _call_soon(self, call: Callable[[], None]) -> None:
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(call)

    def close(self) -> None:
        """Closes the connection; the mount, where it still is attached, is dead from then on."""
        if self._open:
            self._open = False
            pyfuse3.close(unmount=False)
            self._loop.close()
