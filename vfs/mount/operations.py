"""The mount's file system, apart from any transport: each method answers one kind of request.

Methods are synchronous and called by one thread, save those of `FileIO`. They raise OSError, whose
errno is the answer, or VfsError, which has one too. `vfs.mount.attributes` holds what they take and
give. Nothing is resolved by a path: every step is one name in a pinned directory
(`vfs.mount.nodes`), and what is opened must be the inode that the kernel asked for.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from vfs import beneath, linux
from vfs.linux import Status
from vfs.mount.attributes import (
    Attributes,
    Caller,
    Change,
    DirectoryEntry,
    Entry,
    Opened,
)
from vfs.mount.changes import apply_change
from vfs.mount.fileio import FileIO
from vfs.mount.links import Links, is_contained
from vfs.mount.listing import Listing
from vfs.mount.nodes import Node, NodeTable, stale
from vfs.mount.view import Branch, View

_SETID = stat.S_ISUID | stat.S_ISGID
_WRITE_BITS = 0o222
_FIFO_TO_SOCKET = stat.S_IFIFO ^ stat.S_IFSOCK
_XATTR_PREFIX = b"user."
_NEVER = (0, 0, -1)
"""A stamp that no file has."""


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


class Operations(FileIO):
    """One mount's answers."""

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
        self._hide_links = options.links is Links.HIDE
        self._nodes = NodeTable(
            view,
            timeout=options.timeout,
            max_descriptors=options.max_descriptors,
            clock=clock,
        )
        self._handles: dict[int, Node] = {}
        self._listings: dict[int, Listing] = {}
        self._next_listing = 1
        self._started = int(time.time())

    @property
    def known(self) -> int:
        """How many inodes the kernel holds now."""
        return len(self._nodes)

    def close(self) -> None:
        """Closes every file and directory that is open."""
        for fh in list(self._handles):
            self.release(fh)
        for listing in self._listings.values():
            listing.close()
        self._listings.clear()
        self._nodes.close()

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

    def _entry(self, node: Node, status: Status) -> Entry:
        return Entry(node.id, self._shown(node, status))

    # Names.

    def lookup(self, parent_id: int, name: bytes) -> Entry:
        """The entry `name` of a directory; ENOENT. Counts one lookup."""
        parent = self._nodes.get(parent_id)
        if parent.branch is not None:
            return self._lookup_child(parent, name)
        status = self._look(parent, name)
        return self._entry(self._nodes.adopt(parent, name, status), status)

    def _lookup_child(self, parent: Node, name: bytes) -> Entry:
        assert parent.branch is not None
        child = parent.branch.child(name)
        if child is None:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        node = self._nodes.adopt_child(parent, name, child)
        if node.branch is not None:
            return Entry(node.id, self._branch_attributes(node.id))
        return self._entry(node, self._nodes.status(node))

    def _look(self, parent: Node, name: bytes) -> Status:
        """The status of `name`, if the view shows it."""
        return self._look_in(parent, self._nodes.dirfd(parent), name)

    def _look_in(self, parent: Node, dirfd: int, name: bytes) -> Status:
        export = parent.export
        if export is None:
            raise stale()
        status = linux.statx(dirfd, name)
        if (
            status.mnt_id != export.base.mnt_id
            or (self._hide_links and stat.S_ISLNK(status.mode))
            or (export.visible is not None and parent.is_top and name not in export.visible)
        ):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        return status

    def forget(self, node_id: int, count: int) -> None:
        """Takes back `count` lookups of a node."""
        self._nodes.forget(node_id, count)

    def getattr(self, node_id: int, fh: int | None = None) -> Attributes:
        """The attributes of a node, by its open file where one is given."""
        node = self._nodes.get(node_id)
        if node.branch is not None:
            return self._branch_attributes(node_id)
        if fh is not None and fh in self._handles:
            return self._shown(node, linux.fstatx(fh))
        return self._shown(node, self._nodes.status(node))

    def readlink(self, node_id: int) -> bytes:
        """The text of a link that may be followed; ELOOP for every other."""
        node = self._nodes.get(node_id)
        if self._options.links is Links.CONTAINED and node.parent is not None:
            dirfd, name, _ = self._nodes.find(node)
            text = os.readlink(name, dir_fd=dirfd)
            if is_contained(text, self._nodes.depth(node.parent)):
                return text
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    # Changes of names.

    def _writable_directory(self, node_id: int) -> Node:
        node = self._nodes.get(node_id)
        if node.export is None or not node.export.writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return node

    @staticmethod
    def _is_reserved(parent: Node, name: bytes) -> bool:
        export = parent.export
        return export is not None and parent.is_top and name in export.reserved

    def _refuse_reserved(self, parent: Node, name: bytes) -> None:
        if self._is_reserved(parent, name):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def _refuse_hidden(self, parent: Node, name: bytes) -> None:
        """A name that the view hides cannot be taken over: what it holds would be lost unseen."""
        if not self._hide_links:
            return
        try:
            status = linux.statx(self._nodes.dirfd(parent), name)
        except FileNotFoundError:
            return
        if stat.S_ISLNK(status.mode):
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))

    def _owner(self, dirfd: int, caller: Caller) -> tuple[int, int] | None:
        """The owner of what `caller` makes: on root's mount, what root makes is the storage's.

        What others make in a set-group-id directory takes its group.
        """
        if self._options.made_owner is None:
            return None
        if self._options.shown_owner is None and caller[0] != 0:
            folder = os.fstat(dirfd)
            return (caller[0], folder.st_gid) if folder.st_mode & stat.S_ISGID else caller
        return self._options.made_owner

    def _made(self, parent: Node, name: bytes) -> Entry:
        status = linux.statx(self._nodes.dirfd(parent), name)
        return self._entry(self._nodes.adopt(parent, name, status), status)

    def mknod(self, parent_id: int, name: bytes, mode: int, rdev: int, caller: Caller) -> Entry:
        """Makes an empty regular file; EPERM for every special one."""
        if not stat.S_ISREG(mode):
            self._writable_directory(parent_id)
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        opened, entry = self.create(parent_id, name, mode, os.O_WRONLY | os.O_EXCL, caller)
        self.release(opened.fh)
        return entry

    def mkdir(self, parent_id: int, name: bytes, mode: int, caller: Caller) -> Entry:
        """Makes a directory."""
        parent = self._writable_directory(parent_id)
        assert parent.export is not None
        dirfd = self._nodes.dirfd(parent)
        mode &= 0o1777
        mode |= os.fstat(dirfd).st_mode & stat.S_ISGID  # inherited, as the kernel does it
        owner = self._owner(dirfd, caller)
        beneath.make_directory(dirfd, parent.export.base.mnt_id, name, mode, owner)
        return self._made(parent, name)

    def symlink(self, parent_id: int, name: bytes, text: bytes, caller: Caller) -> Entry:
        """Makes a link that may be followed; EPERM for every other."""
        parent = self._writable_directory(parent_id)
        self._refuse_reserved(parent, name)
        contained = self._options.links is Links.CONTAINED
        if not contained or not is_contained(text, self._nodes.depth(parent)):
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        dirfd = self._nodes.dirfd(parent)
        assert parent.export is not None
        owner = self._owner(dirfd, caller)
        made = beneath.make_link(dirfd, parent.export.base.mnt_id, name, text)
        try:
            if owner is not None:
                linux.fchown_held(made, *owner)
        finally:
            os.close(made)
        return self._made(parent, name)

    def unlink(self, parent_id: int, name: bytes) -> None:
        """Removes an entry that is not a directory."""
        parent = self._writable_directory(parent_id)
        self._refuse_reserved(parent, name)
        os.unlink(name, dir_fd=self._nodes.dirfd(parent))

    def rmdir(self, parent_id: int, name: bytes) -> None:
        """Removes an empty directory."""
        parent = self._writable_directory(parent_id)
        self._refuse_reserved(parent, name)
        os.rmdir(name, dir_fd=self._nodes.dirfd(parent))

    def rename(
        self, parent_id: int, name: bytes, new_parent_id: int, new_name: bytes, flags: int
    ) -> None:
        """Renames an entry, with RENAME_NOREPLACE or RENAME_EXCHANGE."""
        if flags & ~(linux.RENAME_NOREPLACE | linux.RENAME_EXCHANGE):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        source = self._writable_directory(parent_id)
        target = self._writable_directory(new_parent_id)
        self._refuse_reserved(source, name)
        self._refuse_reserved(target, new_name)
        self._refuse_hidden(target, new_name)
        if source.export is not target.export:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        # The second descriptor may close the first where very few are allowed, so hold it.
        source_fd = os.dup(self._nodes.dirfd(source))
        try:
            target_fd = self._nodes.dirfd(target)
            beneath.rename(source_fd, name, target_fd, new_name, flags)
            self._tell_moved(target, target_fd, new_name)
            if flags & linux.RENAME_EXCHANGE:
                self._tell_moved(source, source_fd, name)
        finally:
            os.close(source_fd)

    def _tell_moved(self, parent: Node, dirfd: int, name: bytes) -> None:
        try:
            status = linux.statx(dirfd, name)
        except OSError:
            return  # gone again already: the next lookup will tell
        self._nodes.moved(parent, name, status)

    def link(self, node_id: int, new_parent_id: int, new_name: bytes) -> Entry:
        """Makes a further name of a regular file."""
        node = self._nodes.get(node_id)
        target = self._writable_directory(new_parent_id)
        self._refuse_reserved(target, new_name)
        if node.export is not target.export:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        if node.kind != stat.S_IFREG:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        held = self._hold(node)
        try:
            dirfd = self._nodes.dirfd(target)
            os.link(f"/proc/self/fd/{held}", new_name, dst_dir_fd=dirfd, follow_symlinks=True)
        finally:
            os.close(held)
        return self._made(target, new_name)

    # Attributes changed.

    def _hold(self, node: Node) -> int:
        """A new O_PATH descriptor of the very inode."""
        if node.handles:
            return os.open(f"/proc/self/fd/{node.handles[-1]}", os.O_PATH | os.O_CLOEXEC)
        if node.kind == stat.S_IFDIR:
            return os.dup(self._nodes.dirfd(node))
        dirfd, name, _ = self._nodes.find(node)
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dirfd)
        if not node.is_inode(linux.fstatx(fd)):
            os.close(fd)
            raise stale()
        return fd

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

    # Files.

    def _open_inode(self, node: Node, flags: int) -> tuple[int, os.stat_result]:
        """Opens the very inode of a regular file; ESTALE when its name leads elsewhere now."""
        if node.kind == stat.S_IFDIR:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        beneath.refuse_type(node.kind)
        fd, status = self._open_by_name(node, flags)
        try:
            if flags & os.O_ACCMODE != os.O_RDONLY:
                self._allow_write(status)
                if status.st_mode & _SETID:
                    # Writing as root would leave the bits on the new content.
                    os.fchmod(fd, stat.S_IMODE(status.st_mode) & ~_SETID)
        except OSError:
            os.close(fd)
            raise
        return fd, status

    def _open_by_name(self, node: Node, flags: int) -> tuple[int, os.stat_result]:
        """Opens a node by one of its names, or by a file that is open already once it has none."""
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
        try:
            dirfd, name, _ = self._nodes.find(node)
        except OSError as exc:
            if exc.errno != errno.ESTALE or not node.handles:
                raise
            fd = beneath.reopen(node.handles[-1], flags)
        else:
            fd = os.open(name, flags, dir_fd=dirfd)
        status = os.fstat(fd)
        if not node.is_file(status):
            os.close(fd)
            raise stale()
        return fd, status

    def _allow_write(self, status: os.stat_result) -> None:
        """EPERM for a hard link of somebody else's file: whoever planted it, it is not written.

        Where owners are kept, other users write here too, and only root's files are protected.
        """
        made = self._options.made_owner
        if made is None or status.st_nlink <= 1 or status.st_uid == made[0]:
            return
        if self._options.shown_owner is not None or status.st_uid == 0:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

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

    def create(
        self, parent_id: int, name: bytes, mode: int, flags: int, caller: Caller
    ) -> tuple[Opened, Entry]:
        """Makes and opens a regular file; one that appeared meanwhile is opened unless O_EXCL."""
        parent = self._writable_directory(parent_id)
        self._refuse_reserved(parent, name)
        dirfd = self._nodes.dirfd(parent)
        access = flags & os.O_ACCMODE
        try:
            owner = self._owner(dirfd, caller)
            fd = beneath.create_regular(dirfd, name, mode & 0o1777, access, owner)
        except FileExistsError:
            if flags & os.O_EXCL or self._hide_links:
                raise
            entry = self.lookup(parent_id, name)
            try:
                return self.open(entry.node, flags), entry
            except BaseException:
                self.forget(entry.node, 1)
                raise
        status = linux.fstatx(fd)
        node = self._nodes.adopt(parent, name, status)
        self._handles[fd] = node
        self._nodes.opened(node, fd)
        node.stamp = _NEVER  # what is written now may stay in the kernel's cache
        return Opened(fd, False, False, 0, access != os.O_RDONLY), self._entry(node, status)

    def release(self, fh: int) -> None:
        """Closes an open file."""
        node = self._handles.pop(fh)
        os.close(fh)
        self._nodes.closed(node, fh)

    # Listings.

    def opendir(self, node_id: int) -> int:
        """A handle to list a directory."""
        node = self._nodes.get(node_id)
        if node.branch is not None:
            listing = Listing.of_branch(node.branch.names())
        else:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            fd = os.open(".", flags, dir_fd=self._nodes.dirfd(node))
            export = node.export
            assert export is not None
            listing = Listing(
                fd,
                node,
                visible=export.visible if node.is_top else None,
                links=not self._hide_links,
            )
        handle = self._next_listing
        self._next_listing += 1
        self._listings[handle] = listing
        return handle

    def readdir(self, handle: int, offset: int, plus: bool) -> Iterator[DirectoryEntry]:
        """The entries after `offset`; with `plus`, each with its attributes.

        An entry that vanishes meanwhile is left out, as is another mount's root.
        """
        listing = self._listings[handle]
        node = listing.node
        look = self._look_in
        fd = listing.fd
        writable = node is not None and self._keeps_mode(node)
        while batch := listing.batch(offset):
            for name, ino, kind in batch:
                offset += 1
                if not plus or offset <= 2 or node is None:
                    yield DirectoryEntry(
                        name, offset, ino or 1, kind >> 12, None, None, offset <= 2
                    )
                    continue
                try:
                    status = look(node, fd, name)
                except OSError:
                    continue
                number = self._nodes.number(status)
                attributes = self._attributes(status, number, writable)
                yield DirectoryEntry(
                    name, offset, number, attributes[9] >> 12, attributes, status, False
                )

    def adopt(self, handle: int, entry: DirectoryEntry) -> None:
        """Counts one lookup of an entry that was given to the kernel with its attributes."""
        node = self._listings[handle].node
        assert node is not None and entry.status is not None
        self._nodes.adopt(node, entry.name, entry.status)

    def releasedir(self, handle: int) -> None:
        """Closes a listing."""
        self._listings.pop(handle).close()

    def fsyncdir(self, handle: int, datasync: bool) -> None:
        """Makes the entries of a directory durable."""
        fd = self._listings[handle].fd
        if fd >= 0:
            self.fsync(fd, datasync)

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
        return self._hold(node)

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
