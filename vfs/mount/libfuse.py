"""One mount served by pyfuse3 (libfuse) on trio, for root and for whoever may run fusermount3.

It has the methods of `vfs.mount.device.DeviceSession`. It needs no right to mount, but pyfuse3; and
what that cannot say is missing: pass-through, caching of directories, fallocate, lseek,
copy_file_range. pyfuse3 keeps its session in globals of its module, so that a process serves one
such mount at a time.

The process that serves a mount must never use it: the request would wait for its own answer.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from typing import TYPE_CHECKING

from vfs import linux
from vfs.errors import Busy, Unavailable, VfsError
from vfs.mount import attach, fusermount, mountapi, table
from vfs.mount.attach import Identity
from vfs.mount.operations import Operations

if TYPE_CHECKING:
    from vfs.mount.libfuse_server import Server

_log = logging.getLogger("vfs.mount")

_one_session = threading.Lock()


class LibfuseSession:
    """A mount and the loop that serves it. The operations stay the caller's to close."""

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
    ) -> None:
        """`mountpoint` is a directory, by a descriptor that stays the caller's or by its path.

        `nosymfollow` has the kernel refuse every link on the mount where root makes it; elsewhere
        the operations alone do. `fsname` is shown as the mount's source.
        """
        self._operations = operations
        self._mountpoint = mountpoint
        self._allow_other = allow_other
        self._read_only = read_only
        self._nosymfollow = nosymfollow
        self._fsname = fsname
        self._subtype = subtype
        self._by_root = os.geteuid() == 0
        self._mount: Identity | None = None
        self._server: Server | None = None
        self._ended = threading.Event()
        self._unmounter: threading.Thread | None = None

    def mount(self) -> None:
        """Makes the mount and puts it on its mountpoint; from then on `run` must serve it.

        Raises Unavailable where pyfuse3 or FUSE is missing, PermissionDenied where fusermount3
        refuses, Busy where the process serves another mount already, and the kernel's OSError.
        """
        try:
            from vfs.mount.libfuse_server import Server
        except ImportError as exc:
            raise Unavailable(
                f"pyfuse3 cannot be used: {exc}",
                fix="pip install 'gemspace[fuse]' (needs libfuse3-dev, pkg-config and gcc)",
            ) from exc
        if not _one_session.acquire(blocking=False):
            raise Busy(
                "this process serves a mount already", fix="serve each by a process of its own"
            )
        device = -1
        try:
            device = self._mount_as_root() if self._by_root else self._mount_by_helper()
            self._server = Server(self._operations, device, self._raise_readahead)
        except BaseException:
            if device >= 0:
                os.close(device)
            self._detach_dead()
            _one_session.release()
            raise

    def _mount_as_root(self) -> int:
        attributes = mountapi.restricted(read_only=self._read_only, nosymfollow=self._nosymfollow)
        device = attach.open_device()
        try:
            root = attach.make_detached(
                device,
                fsname=self._fsname,
                subtype=self._subtype,
                allow_other=self._allow_other,
                attributes=attributes,
            )
            try:
                self._mount = attach.identify(root)
                with attach.opened(self._mountpoint) as mountpoint:
                    attach.attach(root, mountpoint)
            finally:
                os.close(root)
        except BaseException:
            os.close(device)
            raise
        return device

    def _mount_by_helper(self) -> int:
        # The helper takes a path. It checks that the caller may write there, and does not follow a
        # link at its end.
        with attach.opened(self._mountpoint) as opened:
            point = os.readlink(b"/proc/self/fd/%d" % opened)
        device = fusermount.mount(
            point,
            fsname=self._fsname,
            subtype=self._subtype,
            allow_other=self._allow_other,
            read_only=self._read_only,
        )
        found = table.at(point)
        if found is not None:
            self._mount = Identity(found.id, found.dev)
        return device

    def _raise_readahead(self) -> None:
        """Has the kernel read ahead as far as one READ goes; only root may, and for speed alone."""
        if self._by_root and self._mount is not None:
            with contextlib.suppress(OSError):
                attach.set_readahead(self._mount, attach.READAHEAD)

    def run(self) -> None:
        """Answers requests until the mount is gone or `stop` was called.

        Raises StorageFailure where the connection to the kernel breaks.
        """
        assert self._server is not None
        try:
            self._server.run()
        finally:
            self._ended.set()

    def stop(self) -> None:
        """Takes the mount away and has `run` return; for signal handlers and other threads.

        What programs wrote through mappings is asked from the kernel first, and what is asked
        meanwhile is answered, for at most DRAIN seconds. A second call does not wait for either.
        """
        if self._unmounter is None:
            self._unmounter = threading.Thread(
                target=self._unmount, name="vfs-unmount", daemon=True
            )
            self._unmounter.start()
        elif self._server is not None:
            self._server.abandon()

    def _unmount(self) -> None:
        assert self._mount is not None and self._server is not None
        try:
            root = attach.open_attached(self._mount)
            try:
                attach.flush(root)
                self._detach(root)
            finally:
                os.close(root)
        except (OSError, VfsError) as exc:
            _log.info("the mount is not taken away: %s", exc)
        finally:
            self._server.stop()
            if not self._ended.wait(attach.DRAIN):
                self._server.abandon()

    def close(self) -> None:
        """Ends the connection, and takes the mount away if it still is there."""
        if self._server is None:
            return
        self._ended.set()
        self._server.close()
        if self._unmounter is not None:
            self._unmounter.join()
        self._detach_dead()
        self._server = None
        _one_session.release()

    def _detach_dead(self) -> None:
        """Takes our mount away, now that its connection is closed, unless that was done already."""
        if self._mount is None:
            return
        try:
            root = attach.open_attached(self._mount)
        except OSError:
            return
        try:
            # If ours is gone, its numbers may be another mount's by now: that one answers.
            linux.statx(root, b"", linux.AT_EMPTY_PATH | linux.AT_STATX_FORCE_SYNC)
        except OSError as exc:
            if exc.errno == errno.ENOTCONN:
                self._detach(root)
        finally:
            os.close(root)

    def _detach(self, root: int) -> None:
        if self._by_root:
            attach.detach(root)
        else:
            fusermount.unmount(os.readlink(b"/proc/self/fd/%d" % root))
