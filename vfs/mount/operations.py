"""The mount's file system, apart from any transport: each method answers one kind of request.

Methods are synchronous and called by one thread, save those of `FileIO`. They raise OSError, whose
errno is the answer, or VfsError, which has one too. `vfs.mount.attributes` holds what they take and
give. Nothing is resolved by a path: every step is one name in a pinned directory
(`vfs.mount.nodes`), and what is opened must be the inode that the kernel asked for. Here is what is
asked by name, and listings; `vfs.mount.inodes` has what is asked of one inode.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator

from vfs import beneath, linux
from vfs.linktext import is_contained
from vfs.linux import Status
from vfs.mount.attributes import Caller, DirectoryEntry, Entry, Opened
from vfs.mount.inodes import Inodes, Options
from vfs.mount.links import Links
from vfs.mount.listing import Listing
from vfs.mount.nodes import Node, stale
from vfs.mount.view import View
from vfs.resolving import O_LIST

__all__ = ["Operations", "Options"]

_NEVER = (0, 0, -1)
"""A stamp that no file has."""


class Operations(Inodes):
    """One mount's answers."""

    def __init__(
        self, view: View, options: Options, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(view, options, clock)
        self._hide_links = options.links is Links.HIDE
        self._listings: dict[int, Listing] = {}
        self._next_listing = 1

    def close(self) -> None:
        """Closes every file and directory that is open."""
        for listing in self._listings.values():
            listing.close()
        self._listings.clear()
        super().close()

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

    def _entry(self, node: Node, status: Status) -> Entry:
        return Entry(node.id, self._shown(node, status))

    # Changes of names.

    def _writable_directory(self, node_id: int) -> Node:
        node = self._nodes.get(node_id)
        if node.export is None or not node.export.writable:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return node

    @staticmethod
    def _refuse_reserved(parent: Node, name: bytes) -> None:
        export = parent.export
        if export is not None and parent.is_top and name in export.reserved:
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

    # Listings.

    def opendir(self, node_id: int) -> int:
        """A handle to list a directory."""
        node = self._nodes.get(node_id)
        if node.branch is not None:
            listing = Listing.of_branch(node.branch.names())
        else:
            fd = os.open(".", O_LIST, dir_fd=self._nodes.dirfd(node))
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
                if kind == stat.S_IFDIR and self._nodes.is_above(number, node):
                    yield DirectoryEntry(name, offset, number, kind >> 12, None, None, False)
                    continue
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
