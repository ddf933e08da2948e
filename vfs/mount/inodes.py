"""What is asked of one inode of a mount: its attributes, its opens, its extended attributes.

An inode is reached through its node (`vfs.mount.nodes`), never by a path, and what is held or
opened is that very inode or the answer is ESTALE. `vfs.mount.operations` adds what is asked by
name, and says how all of it is called.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from vfs import beneath, linux
from vfs.linktext import is_contained
from vfs.linux import Status
from vfs.mount.attributes import Attributes, Caller, Change, Opened
from vfs.mount.changes import apply_change
from vfs.mount.fileio import FileIO
from vfs.mount.links import Links
from vfs.mount.nodes import Node, NodeTable, stale
from vfs.mount.view import Branch, View
from vfs.resolving import O_LOOK

_WRITE_BITS = 0o222
_FIFO_TO_SOCKET = stat.S_IFIFO ^ stat.S_IFSOCK
_XATTR_PREFIX = b"user."


@dataclass(frozen=True, slots=True)
class Options:
    """How a mount shows its view."""

    writable: bool = False
    links: Links = Links.SHOW
    timeout: float = 1.0
    """Seconds for which the kernel may answer from its caches; changes made outside show after."""
    shown_owner: tuple[int, int] | None = None
    """The owner that every entry appears to have; None: its own."""
    made_owner: tuple[int, int] | None = None
    """The owner given to what root makes here; None: left to the file system."""
    max_descriptors: int = 4096
    """Directories kept open at once."""
    sealed: bool = False
    """Whether the view's roots are on mounts made by root that open no device and no link."""


class Inodes(FileIO):
    """One mount's inodes, and the files of them that are open."""

    def __init__(
        self, view: View, options: Options, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.timeout = options.timeout
        """Seconds for which names, attributes and absences stay valid in the kernel."""
        self._view = view
        self._options = options
        self._shown_uid, self._shown_gid = options.shown_owner or (-1, -1)
        self.reads_quietly = options.sealed
        """Whether what is read here leaves the times of access alone; that takes root."""
        self._nodes = NodeTable(
            view,
            timeout=options.timeout,
            max_descriptors=options.max_descriptors,
            clock=clock,
        )
        self._handles: dict[int, Node] = {}
        """The nodes of the open files."""
        self._started = int(time.time())

    @property
    def known(self) -> int:
        """How many inodes the kernel holds now."""
        return len(self._nodes)

    def close(self) -> None:
        """Closes every file and directory that is open."""
        for fh in list(self._handles):
            self.release(fh)
        self._nodes.close()

    def forget(self, node_id: int, count: int) -> None:
        """Takes back `count` lookups of a node."""
        self._nodes.forget(node_id, count)

    # Attributes.

    def _attributes(self, status: Status, node_id: int, writable: bool) -> Attributes:
        mode = status.mode
        if stat.S_ISFIFO(mode):
            # The kernel opens a FIFO's node by itself and would wait for a writer; a socket's
            # node it refuses with ENXIO.
            mode ^= _FIFO_TO_SOCKET
        if not writable and not stat.S_ISLNK(mode):
            mode &= ~_WRITE_BITS
        uid = self._shown_uid
        return (
            node_id, status.size, status.blocks,
            status.atime, status.mtime, status.ctime,
            status.atime_nsec, status.mtime_nsec, status.ctime_nsec,
            mode, status.nlink,
            status.uid if uid < 0 else uid, status.gid if uid < 0 else self._shown_gid,
            status.rdev if status.rdev_major else 0, status.blksize,
        )  # fmt: skip

    def _branch_attributes(self, node_id: int) -> Attributes:
        now = self._started
        uid, gid = self._options.shown_owner or (0, 0)
        mode = stat.S_IFDIR | 0o555
        return (node_id, 0, 0, now, now, now, 0, 0, 0, mode, 2, uid, gid, 0, 4096)

    def _keeps_mode(self, node: Node) -> bool:
        """Whether a mode's write bits are shown: always where the whole mount is read-only."""
        export = node.export
        return not self._options.writable or (export is not None and export.writable)

    def _shown(self, node: Node, status: Status) -> Attributes:
        return self._attributes(status, node.id, self._keeps_mode(node))

    def getattr(self, node_id: int, fh: int | None = None) -> Attributes:
        """The attributes of a node, by its open file where one is given."""
        node = self._nodes.get(node_id)
        if node.branch is not None:
            return self._branch_attributes(node_id)
        if fh is not None and fh in self._handles:
            return self._shown(node, linux.fstatx(fh))
        return self._shown(node, self._nodes.status(node))

    def access(self, node_id: int, mask: int) -> None:
        """EACCES for what the kernel leaves to us: may root run a file that nobody may run?

        Only root asks, of a mount that no other user may enter (`vfs.mount.attach.make_detached`);
        `mask` is of R_OK, W_OK and X_OK, of which root has the others everywhere.
        """
        mode = self.getattr(node_id)[9]
        if mask & os.X_OK and not stat.S_ISDIR(mode) and not mode & 0o111:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    def readlink(self, node_id: int) -> bytes:
        """The text of a link that may be followed; ELOOP for every other."""
        node = self._nodes.get(node_id)
        if self._options.links is Links.CONTAINED and node.parent is not None:
            dirfd, name, _ = self._nodes.find(node)
            try:
                text = os.readlink(name, dir_fd=dirfd)
            except OSError as exc:
                if exc.errno in (errno.EINVAL, errno.ENOENT):
                    raise stale() from None  # replaced meanwhile
                raise
            if is_contained(text, self._nodes.depth(node.parent)):
                return text
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def setattr(self, node_id: int, fh: int | None, change: Change, caller: Caller) -> Attributes:
        """Changes mode, owner, size and times, in that order of need, and gives the result."""
        node = self._nodes.get(node_id)
        if node.export is None or not node.export.writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if change.size is not None:
            self._truncate(node, fh, change.size)
        if change.touches_inode or change.size is None:
            held = self._hold(node)
            try:
                self._refuse_planted(linux.fstatx(held))
                apply_change(held, change, self._options.shown_owner)
            finally:
                os.close(held)
        return self._shown(node, self._nodes.status(node))

    def _truncate(self, node: Node, fh: int | None, size: int) -> None:
        if fh is not None and fh in self._handles:
            try:
                os.ftruncate(fh, size)
                return
            except OSError as exc:
                if exc.errno not in (errno.EINVAL, errno.EBADF):
                    raise
        fd, _ = self._open_inode(node, os.O_WRONLY)
        try:
            os.ftruncate(fd, size)
        finally:
            os.close(fd)

    # Reaching the inode itself.

    def _hold(self, node: Node) -> int:
        """A new O_PATH descriptor of the very inode."""
        if node.handles:
            return os.open(f"/proc/self/fd/{node.handles[-1]}", os.O_PATH | os.O_CLOEXEC)
        if node.kind == stat.S_IFDIR:
            return os.dup(self._nodes.dirfd(node))
        dirfd, name, _ = self._nodes.find(node)
        fd = os.open(name, O_LOOK, dir_fd=dirfd)
        if not node.is_inode(linux.fstatx(fd)):
            os.close(fd)
            raise stale()
        return fd

    def _open_inode(self, node: Node, flags: int) -> tuple[int, os.stat_result]:
        """Opens the very inode of a regular file; ESTALE when its name leads elsewhere now."""
        if node.kind == stat.S_IFDIR:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        beneath.refuse_type(node.kind)
        fd, status = self._open_node(node, flags)
        try:
            if flags & os.O_ACCMODE != os.O_RDONLY:
                if status.st_nlink > 1:
                    self._refuse_planted(linux.fstatx(fd))
                if status.st_mode & beneath.SETID:
                    # Writing as root would leave the bits on the new content.
                    os.fchmod(fd, stat.S_IMODE(status.st_mode) & ~beneath.SETID)
        except OSError:
            os.close(fd)
            raise
        return fd, status

    def _open_node(self, node: Node, flags: int) -> tuple[int, os.stat_result]:
        """Opens a node by its name where that may be tried, else through a hold of the inode."""
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        if self.reads_quietly:
            flags |= os.O_NOATIME
        if self._options.sealed and node.parent is not None:
            # Nothing that is met here can act on being opened, so the type need not be seen first.
            with suppress(OSError):
                fd = os.open(node.name, flags, dir_fd=self._nodes.dirfd(node.parent))
                status = os.fstat(fd)
                if node.is_file(status):
                    return fd, status
                os.close(fd)
        held = self._hold(node)
        try:
            fd = beneath.reopen(held, flags)
        finally:
            os.close(held)
        return fd, os.fstat(fd)

    def _refuse_planted(self, status: Status) -> None:
        """EPERM for a hard link of somebody else's file: whoever planted it, it is not changed.

        Where owners are kept, other users write here too, and only root's files are protected.
        """
        made = self._options.made_owner
        if made is None or status.nlink <= 1 or stat.S_ISDIR(status.mode):
            return
        if status.uid != made[0] and (self._options.shown_owner is not None or status.uid == 0):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    # Files.

    def open(self, node_id: int, flags: int) -> Opened:
        """Opens a regular file; O_TRUNC empties it once it is known to be the right one."""
        node = self._nodes.get(node_id)
        writable = flags & os.O_ACCMODE != os.O_RDONLY or bool(flags & os.O_TRUNC)
        if writable and (node.export is None or not node.export.writable):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        # O_APPEND is the kernel's to do: it sends offsets.
        access = flags & os.O_ACCMODE
        if access == os.O_RDONLY and flags & os.O_TRUNC:
            access = os.O_RDWR  # Linux empties a file that is opened to be read, too
        fd, status = self._open_inode(node, access)
        if flags & os.O_TRUNC:
            try:
                os.ftruncate(fd, 0)
            except OSError:
                os.close(fd)
                raise
            status = os.fstat(fd)
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size)
        known = node.stamp
        node.stamp = stamp
        self._handles[fd] = node
        self._nodes.opened(node, fd)
        return Opened(fd, known == stamp, known is None, status.st_size, writable)

    def release(self, fh: int) -> None:
        """Closes an open file."""
        node = self._handles.pop(fh)
        os.close(fh)
        self._nodes.closed(node, fh)

    def statfs(self, node_id: int) -> os.statvfs_result:
        """Sizes of the file system that a node is on; for a branch, of its first export's."""
        node: Node | None = self._nodes.get(node_id)
        while node is not None and (node.kind != stat.S_IFDIR or node.branch is not None):
            node = node.parent
        fd = self._view_fd() if node is None else os.dup(self._nodes.dirfd(node))
        try:
            return os.statvfs(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)

    def _view_fd(self) -> int:
        """A descriptor on the file system of the view's first export."""
        view: View | None = self._view
        while isinstance(view, Branch):
            names = view.names()
            view = view.child(names[0]) if names else None
        if view is None:
            return os.open("/", os.O_PATH | os.O_CLOEXEC)
        return os.dup(view.base.fd)

    # Extended attributes: the user's own; all others would speak of the host's security.

    def _xattr_holder(self, node_id: int, name: bytes, *, change: bool) -> int:
        node = self._nodes.get(node_id)
        if not name.startswith(_XATTR_PREFIX) or node.export is None:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        if change and not node.export.writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if node.kind not in (stat.S_IFREG, stat.S_IFDIR):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        held = self._hold(node)
        if change:
            try:
                self._refuse_planted(linux.fstatx(held))
            except OSError:
                os.close(held)
                raise
        return held

    def getxattr(self, node_id: int, name: bytes) -> bytes:
        """A user attribute's value; ENODATA, and EOPNOTSUPP for every other name space."""
        held = self._xattr_holder(node_id, name, change=False)
        try:
            return os.getxattr(f"/proc/self/fd/{held}", name)
        finally:
            os.close(held)

    def setxattr(self, node_id: int, name: bytes, value: bytes, flags: int) -> None:
        """Sets a user attribute; `flags` are XATTR_CREATE and XATTR_REPLACE."""
        held = self._xattr_holder(node_id, name, change=True)
        try:
            os.setxattr(f"/proc/self/fd/{held}", name, value, flags)
        finally:
            os.close(held)

    def listxattr(self, node_id: int) -> list[bytes]:
        """The names of a node's user attributes."""
        node = self._nodes.get(node_id)
        if node.kind not in (stat.S_IFREG, stat.S_IFDIR) or node.export is None:
            return []
        held = self._hold(node)
        try:
            names = [os.fsencode(name) for name in os.listxattr(f"/proc/self/fd/{held}")]
        finally:
            os.close(held)
        return [name for name in names if name.startswith(_XATTR_PREFIX)]

    def removexattr(self, node_id: int, name: bytes) -> None:
        """Removes a user attribute; ENODATA."""
        held = self._xattr_holder(node_id, name, change=True)
        try:
            os.removexattr(f"/proc/self/fd/{held}", name)
        finally:
            os.close(held)
