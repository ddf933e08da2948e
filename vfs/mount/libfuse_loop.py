"""What pyfuse3's main loop asks of trio, without a pass of the scheduler for each request.

pyfuse3 reaches trio through its module's global `trio`, which may be replaced (as `pyfuse3.asyncio`
does). The loop still runs in trio, and waits for requests in trio while anything else could run.
Else there is nothing to schedule: the task that has answered a request waits for the next one in
poll(2), and takes it. That halves the time of a request (docs/performance.md).

Importing it needs trio, so only `vfs.mount.libfuse` does, and late.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import trio


class RequestLoop:
    """Stands in for the module `trio` in pyfuse3, for one session."""

    def __init__(self, device: int) -> None:
        """Requests come from the descriptor `device`."""
        self._others = 0
        self._device = device
        self._stopping = False
        self._abandoned = False
        self._stopped, self._stopper = socket.socketpair()
        self._stopper.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._stopped, select.POLLIN)
        self._poll.register(device, select.POLLIN)
        # A request may be given up between poll(2) and read(2), which libfuse calls with the
        # interpreter's lock held: there it would wait with all threads.
        os.set_blocking(device, False)
        self._reader = _Reader()
        self.lowlevel = _LowLevel(self)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While a task of ours waits for anything but a request."""
        self._others += 1
        self._reader.resume_one()
        try:
            yield
        finally:
            self._others -= 1

    def stop(self) -> None:
        """Has a wait fail once nothing more is asked; for signal handlers and other threads.

        A wait that is under way in trio goes on until pyfuse3.terminate is called in trio.
        """
        self._stopping = True
        # Fails where it was closed, or called so often that the socket is full.
        with suppress(OSError):
            self._stopper.send(b"\0")

    def abandon(self) -> None:
        """Has every wait fail from now on, whatever is asked; else as `stop`."""
        self._abandoned = True
        self.stop()

    def is_asked(self) -> bool:
        """Whether a request is there."""
        return any(fd == self._device for fd, _ in self._poll.poll(0))

    def close(self) -> None:
        """Gives the loop's descriptors back."""
        self._stopped.close()
        self._stopper.close()

    # What pyfuse3 calls, by trio's names.

    def __getattr__(self, name: str) -> Any:
        return getattr(trio, name)

    def Lock(self) -> _Reader:
        """The lock of the one task that waits for a request."""
        return self._reader

    async def wait_readable(self, device: int) -> None:
        """Returns when a request is there; raises ClosedResourceError once stopped."""
        if self._others and not self._stopping:
            await trio.lowlevel.wait_readable(device)
            ready = self._poll.poll(0)
        else:
            ready = self._poll.poll()
        stopped = any(fd != device for fd, _ in ready)
        if self._abandoned or (stopped and len(ready) == 1):
            raise trio.ClosedResourceError

    @asynccontextmanager
    async def open_nursery(self) -> AsyncIterator[_Workers]:
        """A nursery whose tasks outlive a request that was given up before it was read."""
        async with trio.open_nursery() as nursery:
            yield _Workers(nursery, self._reader)


class _LowLevel:
    """Stands in for `trio.lowlevel`."""

    def __init__(self, loop: RequestLoop) -> None:
        self.wait_readable = loop.wait_readable

    def __getattr__(self, name: str) -> Any:
        return getattr(trio.lowlevel, name)


class _Reader:
    """Stands in for a `trio.Lock`; but whoever gives it back may take it again, before who waits.

    Those who wait are resumed when the last holder waits for something else, or ends.
    """

    def __init__(self) -> None:
        self._held = False
        self._waiting = trio.lowlevel.ParkingLot()

    async def __aenter__(self) -> None:
        while self._held:
            await self._waiting.park()
        self._held = True

    async def __aexit__(self, *exc_info: object) -> None:
        self._held = False

    def resume_one(self) -> None:
        self._waiting.unpark()

    def resume_all(self) -> None:
        self._waiting.unpark_all()


class _Workers:
    """Stands in for the nursery of pyfuse3's tasks."""

    def __init__(self, nursery: trio.Nursery, reader: _Reader) -> None:
        self._nursery = nursery
        self._reader = reader

    def start_soon(self, work: Callable[..., Awaitable[None]], *args: Any, name: str) -> None:
        self._nursery.start_soon(self._persevere, work, args, name=name)

    async def _persevere(self, work: Callable[..., Awaitable[None]], args: tuple[Any, ...]) -> None:
        try:
            while True:
                try:
                    return await work(*args)
                except OSError as exc:
                    # The caller was killed and its request given up: after poll told of it
                    # (EAGAIN), or while it was read (ENOENT).
                    if exc.errno not in (errno.EAGAIN, errno.ENOENT):
                        raise
        finally:
            self._reader.resume_all()
