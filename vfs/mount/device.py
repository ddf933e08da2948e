"""One mount served over /dev/fuse: made, answered until it is gone, and taken away.

It speaks the kernel's protocol itself, so it needs neither libfuse nor a compiler, but it needs the
right to mount (CAP_SYS_ADMIN). One thread reads and answers one request at a time; whatever a
handler raises, the mount lives. When the process dies, the kernel answers ENOTCONN in its place.

The process that serves a mount must never use it: the request would wait for its own answer. The
mount is therefore made before it is attached, and found again by its id.
"""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import select
import threading
import time

from vfs.errors import Unavailable
from vfs.mount import attach, mountapi, wire
from vfs.mount.attach import Identity
from vfs.mount.backing import BackingFiles
from vfs.mount.dispatch import Dispatcher
from vfs.mount.handlers import Handlers
from vfs.mount.latency import CpuLatency
from vfs.mount.operations import Operations
from vfs.mount.replies import Replies
from vfs.mount.wire import Init

MAX_WRITE = 1 << 20
"""Bytes of the largest WRITE and READ: 256 pages, the kernel's limit (fs.fuse.max_pages_limit)."""

_MAX_BACKGROUND = 64
_CONGESTION = 48
"""Requests that nobody waits for: how many may be queued, and from how many on readahead holds
back (three quarters, as the kernel's own defaults of 12 and 9)."""

_SPIN = 50e-6
"""Seconds for which the next request is looked for before the thread sleeps. Waking a sleeping
processor costs 30 to 60 us on a virtual machine, several times what a request does, and the next
one mostly comes sooner. Longer gained nothing measurable; an idle mount sleeps."""

_BURST = 32
"""Requests, none more than `_SPIN` after the one before, that make a burst: few enough to matter in
every walk of a tree, too many for a glance at a file."""

_LINGER = 10
"""Milliseconds for which processors are kept awake after a burst: each change of mind interrupts
all that are idle."""

_WANTED = (
    Init.ASYNC_READ
    | Init.ATOMIC_O_TRUNC
    | Init.BIG_WRITES
    | Init.AUTO_INVAL_DATA
    | Init.DO_READDIRPLUS
    | Init.READDIRPLUS_AUTO
    | Init.ASYNC_DIO
    | Init.PARALLEL_DIROPS
    | Init.MAX_PAGES
    | Init.HANDLE_KILLPRIV_V2
    | Init.INIT_EXT
    | Init.PASSTHROUGH
)

_log = logging.getLogger("vfs.mount")


class DeviceSession:
    """A mount and the thread that serves it. The operations stay the caller's to close."""

    def __init__(
        self,
        operations: Operations,
        mountpoint: int | bytes,
        *,
        read_only: bool,
        allow_other: bool,
        nosymfollow: bool,
        fsname: bytes,
        subtype: bytes = b"gemspace",
        max_write: int = MAX_WRITE,
        low_latency: bool = False,
    ) -> None:
        """`mountpoint` is a directory, by a descriptor that stays the caller's or by its path.

        `nosymfollow` has the kernel refuse every link on the mount. `fsname` is the source that the
        mount table shows. `max_write` in bytes. `low_latency` has the processors kept awake while a
        burst of requests lasts (`vfs.mount.latency`).
        """
        self._operations = operations
        self._read_only = read_only
        self._mountpoint = mountpoint
        self._allow_other = allow_other
        self._fsname = fsname
        self._subtype = subtype
        self._max_write = max_write
        self._low_latency = low_latency
        self._attributes = mountapi.restricted(read_only=read_only, nosymfollow=nosymfollow)
        self._device = -1
        self._mount: Identity | None = None
        self._handlers: Handlers | None = None
        self._replies: Replies | None = None
        self._wake = -1
        self._stopping = False
        """Return once nothing more is asked."""
        self._abandoned = False
        """Return at once."""
        self._ended = threading.Event()
        self._unmounter: threading.Thread | None = None

    def mount(self) -> None:
        """Makes the mount and puts it on its mountpoint; from then on `run` must serve it.

        Raises Unavailable where the machine has no FUSE that serves, and the kernel's OSError.
        """
        self._device = attach.open_device(os.O_NONBLOCK)
        try:
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            root = attach.make_detached(
                self._device,
                fsname=self._fsname,
                subtype=self._subtype,
                allow_other=self._allow_other,
                attributes=self._attributes,
            )
            try:
                self._negotiate()
                self._mount = attach.identify(root)
                # It is for speed alone, and /sys may be read-only.
                with contextlib.suppress(OSError):
                    attach.set_readahead(self._mount, attach.READAHEAD)
                with attach.opened(self._mountpoint) as mountpoint:
                    attach.attach(root, mountpoint)
            finally:
                os.close(root)
        except BaseException:
            self.close()
            raise

    def _negotiate(self) -> None:
        """Answers INIT, the first request, and makes the handlers for all others."""
        request = os.read(self._device, wire.MIN_READ_BUFFER)
        _, _, unique, *_ = wire.IN_HEADER.unpack_from(request)
        body = request[wire.IN_HEADER_SIZE :].ljust(wire.INIT_IN.size, b"\0")
        major, minor, _, low, high = wire.INIT_IN.unpack_from(body)
        if major != wire.MAJOR or minor < wire.OLDEST_MINOR:
            raise Unavailable(
                f"the kernel speaks FUSE {major}.{minor}", fix="use Linux 5.4 or later"
            )
        offered = Init(low | (high << 32 if low & Init.INIT_EXT else 0))
        agreed = offered & _WANTED
        stack = 1 if agreed & Init.PASSTHROUGH else 0
        os.write(
            self._device,
            wire.INIT_REPLY.pack(
                wire.INIT_REPLY.size, 0, unique,
                wire.MAJOR, min(minor, wire.MINOR), attach.READAHEAD << 10, agreed & 0xFFFFFFFF,
                _MAX_BACKGROUND, _CONGESTION, self._max_write,
                1, self._max_write // wire.PAGE_SIZE, 0, agreed >> 32, stack, 0,
            ),
        )  # fmt: skip
        backing = BackingFiles(self._device, enabled=bool(stack))
        self._replies = Replies(self._device)
        self._handlers = Handlers(
            self._operations,
            self._replies,
            backing,
            read_only=self._read_only,
            max_write=self._max_write,
        )

    def run(self) -> None:
        """Answers requests until the mount is gone or `stop` was called."""
        latency = CpuLatency() if self._low_latency else None
        try:
            self._serve(latency)
        finally:
            self._ended.set()
            if latency is not None:
                latency.close()

    def _serve(self, latency: CpuLatency | None) -> None:
        handlers, replies = self._handlers, self._replies
        assert handlers is not None and replies is not None
        buffer = handlers.buffer
        dispatch = Dispatcher(handlers).dispatch
        # Unlike os.readv, it tells by None that nothing is there: an exception would cost more
        # than the read.
        receive = io.FileIO(self._device, "r+", closefd=False).readinto
        device, write, clock = self._device, os.write, time.monotonic
        wait = select.poll()
        wait.register(device, select.POLLIN)
        wait.register(self._wake, select.POLLIN)
        spinning, until, served = False, 0.0, 0
        held = False
        while not self._abandoned:
            try:
                length = receive(buffer)
            except OSError as exc:
                if exc.errno == errno.ENODEV:
                    return  # unmounted
                if exc.errno == errno.ENOENT:
                    continue  # the request was given up before it was read
                raise
            if length is None:
                if self._stopping:
                    return
                os.sched_yield()  # the client may have to run on this processor
                if not spinning:
                    spinning, until = True, clock() + _SPIN
                elif clock() > until:
                    if held and latency is not None and not wait.poll(_LINGER):
                        latency.relax()
                        held = False
                    if not held:
                        wait.poll()
                    spinning, served = False, 0
                continue
            spinning = False
            served += 1
            if served == _BURST and latency is not None:
                latency.hold()
                held = True
            reply = dispatch(length)
            if reply is not None:
                try:
                    write(device, reply)
                except OSError as exc:
                    replies.note_refused(exc)

    def stop(self) -> None:
        """Takes the mount away and has `run` return; for signal handlers and other threads.

        What programs wrote through mappings is asked from the kernel first, and what is asked
        meanwhile is answered, for at most DRAIN seconds. A second call does not wait for either.
        """
        if self._unmounter is None:
            self._unmounter = threading.Thread(target=self._unmount, daemon=True)
            self._unmounter.start()
        else:
            self._abandon()

    def _unmount(self) -> None:
        try:
            assert self._mount is not None
            root = attach.open_attached(self._mount)
            try:
                attach.flush(root)
                attach.detach(root)
            finally:
                os.close(root)
        except OSError as exc:
            _log.info("the mount is not taken away: %s", exc.strerror)
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        if not self._ended.wait(attach.DRAIN):
            self._abandon()

    def _abandon(self) -> None:
        self._abandoned = True
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Ends the connection, and takes the mount away if it still is there."""
        if self._device < 0:
            return
        self._ended.set()
        root = self._find_own()
        if self._replies is not None:
            self._replies.close()
        os.close(self._device)
        self._device = -1
        if root >= 0:
            with contextlib.suppress(OSError):  # `stop` may have done it meanwhile
                attach.detach(root)
            os.close(root)
        if self._unmounter is not None:
            self._unmounter.join()
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1

    def _find_own(self) -> int:
        """A descriptor of our mount's root, -1 when it is attached nowhere."""
        if self._mount is None:
            return -1
        try:
            root = attach.open_attached(self._mount)
        except OSError:
            return -1
        if not self._is_connected():
            # Our numbers may be another mount's by now; that one answers, and ours cannot.
            try:
                os.fstat(root)
            except OSError as exc:
                if exc.errno == errno.ENOTCONN:
                    return root
            os.close(root)
            return -1
        return root

    def _is_connected(self) -> bool:
        poll = select.poll()
        poll.register(self._device, select.POLLIN)
        return not any(events & select.POLLERR for _, events in poll.poll(0))

    def invalidate(self, node: int) -> None:
        """Has the kernel forget a node's attributes and cached pages."""
        # ENOENT: the kernel does not know it any more.
        with contextlib.suppress(FileNotFoundError):
            os.write(self._device, wire.inval_inode_notice(node, 0, 0))
