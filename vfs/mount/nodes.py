"""The inodes that the kernel knows of, and the descriptors that reach them.

A node remembers its inode's identity and the last name that led to it. It never trusts the name:
what is opened under it must be that inode, else the answer is ESTALE and the kernel looks the name
up again. Directories keep an O_PATH descriptor in a least-recently-used set, so that any number of
files can be known with a bounded number of descriptors; a descriptor is used for `timeout` seconds
before it is checked that the directory is still where it was, beneath its root.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Callable

from vfs import beneath, linux
from vfs.errors import VfsError
from vfs.linux import Status
from vfs.mount.view import Branch, Export, View
from vfs.resolving import O_ENTER

ROOT = 1
"""The root's node id (FUSE_ROOT_ID)."""

_FOREIGN = 1 << 62
"""First id of nodes whose inode number cannot serve: on no disk, or of a second file system."""

_MAX_NAMES = 8
"""Names kept for one hard-linked file beside the last one; a file with more is looked up again."""


def stale() -> OSError:
    """The answer that makes the kernel look a name up again."""
    return OSError(errno.ESTALE, os.strerror(errno.ESTALE))


class Node:
    """One inode that the kernel holds, or did and still has open."""

    __slots__ = (
        "branch", "checked", "device", "export", "fd", "handles", "id", "ino", "kind", "lookups",
        "name", "others", "parent", "stamp",
    )  # fmt: skip

    def __init__(self, id: int, parent: Node | None, name: bytes) -> None:
        self.id = id
        self.parent = parent
        self.name = name
        self.lookups = 0
        self.ino = 0
        self.device = (0, 0)
        self.kind = stat.S_IFDIR
        """The file type bits of the mode."""
        self.export: Export | None = None
        """The export that the node is in; None for a branch."""
        self.branch: Branch | None = None
        self.fd = -1
        """A directory's O_PATH descriptor while it is in the set."""
        self.checked = 0.0
        """When `fd` was last seen to be beneath its root, by the table's clock."""
        self.handles: list[int] | None = None
        """Descriptors of open files of the node."""
        self.others: list[tuple[Node, bytes]] | None = None
        """Further names of a hard-linked file."""
        self.stamp: tuple[int, int, int] | None = None
        """mtime, ctime (nanoseconds) and size in bytes when the file was last opened."""

    @property
    def is_top(self) -> bool:
        """Whether the node is the root directory of its export."""
        return self.export is not None and (self.parent is None or self.parent.branch is not None)

    def is_inode(self, status: Status) -> bool:
        """Whether `status` is of this very inode."""
        return (
            status.ino == self.ino
            and (status.dev_major, status.dev_minor) == self.device
            and status.mode & 0o170000 == self.kind
        )

    def is_file(self, status: os.stat_result) -> bool:
        """Whether the status of an open descriptor is of this very inode."""
        return (
            status.st_ino == self.ino
            and status.st_dev == os.makedev(*self.device)
            and stat.S_IFMT(status.st_mode) == self.kind
        )


class NodeTable:
    """All nodes of one mount."""

    def __init__(
        self, view: View, *, timeout: float, max_descriptors: int, clock: Callable[[], float]
    ) -> None:
        """`timeout` in seconds; `max_descriptors` bounds the directories kept open."""
        self._timeout = timeout
        self._max = max_descriptors
        self._clock = clock
        self._nodes: dict[int, Node] = {}
        self._foreign: dict[tuple[object, ...], int] = {}
        self._open: OrderedDict[Node, None] = OrderedDict()
        self._next = _FOREIGN
        self._device: tuple[int, int] | None = None
        root = Node(ROOT, None, b"")
        root.lookups = 1
        self.root = root
        self._nodes[ROOT] = root
        if isinstance(view, Branch):
            root.branch = view
        else:
            root.export = view
            with view.base.directory(view.path) as directory:
                status = linux.fstatx(directory.fd)
                root.fd = os.dup(directory.fd)
            self._identify(root, status)
            root.checked = float("inf")

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def descriptors(self) -> int:
        """How many directory descriptors are open now."""
        return len(self._open)

    def get(self, node_id: int) -> Node:
        """The node of an id that the kernel was given; ESTALE for any other."""
        try:
            return self._nodes[node_id]
        except KeyError:
            raise stale() from None

    def number(self, status: Status) -> int:
        """The node id of an inode: its inode number, on the first file system that is met."""
        device = (status.dev_major, status.dev_minor)
        if self._device is None:
            self._device = device
        if device == self._device and ROOT < status.ino < _FOREIGN:
            return status.ino
        return self._other_number((*device, status.ino))

    def _other_number(self, key: tuple[object, ...]) -> int:
        number = self._foreign.get(key)
        if number is None:
            number = self._foreign[key] = self._next
            self._next += 1
        return number

    def _identify(self, node: Node, status: Status) -> None:
        node.ino = status.ino
        device = (status.dev_major, status.dev_minor)
        # One tuple serves nearly all nodes.
        node.device = self._device if device == self._device else device
        node.kind = stat.S_IFMT(status.mode)

    def adopt(self, parent: Node, name: bytes, status: Status) -> Node:
        """The node of the inode that `name` in `parent` is now; counts one lookup.

        ESTALE where it `is_above` the parent.
        """
        number = self.number(status)
        node = self._nodes.get(number)
        if node is None:
            node = Node(number, parent, name)
            node.export = parent.export
            self._identify(node, status)
            self._nodes[number] = node
        elif node.parent is not parent or node.name != name:
            if self.is_above(number, parent):
                raise stale()
            self._rename(node, parent, name, status)
        if not node.is_inode(status):
            # The number was given to a new file of another type.
            self._unpin(node)
            self._identify(node, status)
        node.lookups += 1
        return node

    def _rename(self, node: Node, parent: Node, name: bytes, status: Status) -> None:
        if node is self.root:
            return
        if status.nlink > 1 and not stat.S_ISDIR(status.mode) and node.parent is not None:
            others = node.others or []
            old = (node.parent, node.name)
            node.others = [old, *(known for known in others if known != (parent, name))]
            del node.others[_MAX_NAMES:]
        node.parent = parent
        node.name = name
        node.export = parent.export

    def is_above(self, number: int, parent: Node) -> bool:
        """Whether a known directory stands above `parent` by the names that led to both.

        So it is when they changed places outside and the new name of the upper one is not looked
        up yet. The kernel, which remembers the same names, then takes the one for no entry of the
        other; nor may this table, where each must stand as deep as the kernel has it (`depth`).
        """
        node = self._nodes.get(number)
        if node is None or node.parent is parent:
            return False
        cursor: Node | None = parent
        while cursor is not None and cursor is not node:
            cursor = cursor.parent
        return cursor is node

    def adopt_child(self, parent: Node, name: bytes, child: View) -> Node:
        """The node of a branch's child; counts one lookup."""
        if isinstance(child, Export):
            with child.base.directory(child.path) as directory:
                status = linux.fstatx(directory.fd)
            node = self.adopt(parent, name, status)
            node.export = child
        else:
            number = self._other_number((parent.id, name))
            found = self._nodes.get(number)
            node = found if found is not None else Node(number, parent, name)
            node.branch = child
            self._nodes[number] = node
            node.lookups += 1
        return node

    def moved(self, parent: Node, name: bytes, status: Status) -> None:
        """Tells that the inode of `status` now has this name, where the kernel knows it."""
        number = self.number(status)
        node = self._nodes.get(number)
        if node is not None and node.is_inode(status) and not self.is_above(number, parent):
            self._rename(node, parent, name, status)

    def forget(self, node_id: int, count: int) -> None:
        """Takes back `count` lookups; the last one lets the node go unless it is open."""
        node = self._nodes.get(node_id)
        if node is None or node is self.root:
            return
        node.lookups -= count
        self._drop_if_unused(node)

    def _drop_if_unused(self, node: Node) -> None:
        if node.lookups <= 0 and not node.handles:
            self._nodes.pop(node.id, None)
            self._unpin(node)
            if node.id >= _FOREIGN:
                key: tuple[object, ...] = (*node.device, node.ino)
                if node.branch is not None and node.parent is not None:
                    key = (node.parent.id, node.name)
                self._foreign.pop(key, None)

    def opened(self, node: Node, fd: int) -> None:
        """Notes an open file of the node."""
        if node.handles is None:
            node.handles = []
        node.handles.append(fd)

    def closed(self, node: Node, fd: int) -> None:
        """Notes that the file was closed."""
        if node.handles is not None:
            node.handles.remove(fd)
            if not node.handles:
                node.handles = None
                self._drop_if_unused(node)

    # Reaching an inode.

    def dirfd(self, node: Node) -> int:
        """A descriptor of a directory, good until the next call; ESTALE once it left its root."""
        if node.fd >= 0 and self._clock() - node.checked <= self._timeout:
            if node is not self.root:
                self._open.move_to_end(node)
            return node.fd
        return self._descend(node)

    def _descend(self, node: Node) -> int:
        now = self._clock()
        chain: list[Node] = []
        cursor = node
        while cursor.fd < 0 or now - cursor.checked > self._timeout:
            chain.append(cursor)
            if cursor.is_top:
                break
            if cursor.parent is None:
                raise stale()
            cursor = cursor.parent
        fd = cursor.fd
        for step in reversed(chain):
            fd = self._confirm(step, fd, now)
        return fd

    def _confirm(self, node: Node, parent_fd: int, now: float) -> int:
        """Opens `node` in its parent, or sees that its descriptor still is what it was."""
        export = node.export
        if export is None:
            raise stale()
        if node.fd >= 0:
            if self._is_there(node, export, parent_fd):
                node.checked = now
                self._open.move_to_end(node)
                return node.fd
            self._unpin(node)
            raise stale()
        try:
            if node.is_top:
                with export.base.directory(export.path) as directory:
                    fd = os.dup(directory.fd)
            else:
                fd = beneath.resolver().open(parent_fd, export.base.mnt_id, (node.name,), O_ENTER)
        except (OSError, VfsError) as exc:
            if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV):
                raise stale() from None
            raise
        if not node.is_inode(linux.fstatx(fd)):
            os.close(fd)
            raise stale()
        self._pin(node, fd, now)
        return fd

    def _is_there(self, node: Node, export: Export, parent_fd: int) -> bool:
        """Whether a pinned directory still is beneath its root, or nowhere at all.

        Beneath its root: under its name, or moved within.
        """
        try:
            if node.is_top:
                with export.base.directory(export.path) as directory:
                    return node.is_inode(linux.fstatx(directory.fd))
            if node.is_inode(linux.statx(parent_fd, node.name)):
                return True
        except (OSError, VfsError):
            pass
        if node.is_top:
            return False
        # A removed directory leads nowhere, and who is in it may go on looking at it.
        return linux.fstatx(node.fd).nlink == 0 or self._climbs_to_top(node, export)

    def _climbs_to_top(self, node: Node, export: Export) -> bool:
        """Whether `..` after `..` leads from the directory to its export's root, on one mount."""
        try:
            with export.base.directory(export.path) as top:
                goal = linux.fstatx(top.fd)
        except VfsError:
            return False
        fd = os.dup(node.fd)
        try:
            last = linux.fstatx(fd)
            while last.nlink and last.mnt_id == goal.mnt_id:
                if last.identity == goal.identity:
                    return True
                above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
                os.close(fd)
                fd = above
                status = linux.fstatx(fd)
                if status.identity == last.identity:
                    return False
                last = status
            return False
        except OSError:
            return False
        finally:
            os.close(fd)

    def _pin(self, node: Node, fd: int, now: float) -> None:
        node.fd = fd
        node.checked = now
        self._open[node] = None
        while len(self._open) > self._max:
            oldest = next(iter(self._open))
            if oldest is node:
                break
            self._unpin(oldest)

    def _unpin(self, node: Node) -> None:
        if node.fd >= 0 and node is not self.root:
            os.close(node.fd)
            node.fd = -1
            self._open.pop(node, None)

    def find(self, node: Node) -> tuple[int, bytes, Status]:
        """The directory descriptor and the name that lead to a node's inode now, and its status."""
        names = [(node.parent, node.name), *(node.others or ())]
        for parent, name in names:
            if parent is None:
                continue
            try:
                dirfd = self.dirfd(parent)
                status = linux.statx(dirfd, name)
            except OSError as exc:
                if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                    continue
                raise
            if node.is_inode(status):
                if (parent, name) != names[0]:
                    self._rename(node, parent, name, status)
                return dirfd, name, status
        raise stale()

    def status(self, node: Node) -> Status:
        """The inode's status, by an open descriptor where there is one."""
        if node.handles:
            return linux.fstatx(node.handles[-1])
        if node.kind == stat.S_IFDIR:
            try:
                return linux.fstatx(self.dirfd(node))
            except OSError as exc:
                if exc.errno != errno.ESTALE or node.parent is None:
                    raise
        return self.find(node)[2]

    def depth(self, node: Node) -> int:
        """How many directories lie between a directory and its export's root, checked right now."""
        count = 0
        cursor = node
        chain = []
        while not cursor.is_top:
            chain.append(cursor)
            if cursor.parent is None:
                raise stale()
            cursor = cursor.parent
            count += 1
        for step in (cursor, *chain):
            if step is not self.root:
                step.checked = float("-inf")
        self.dirfd(node)
        return count

    def close(self) -> None:
        """Closes every descriptor of the table."""
        for node in list(self._open):
            self._unpin(node)
        if self.root.fd >= 0:
            os.close(self.root.fd)
            self.root.fd = -1
        self._nodes.clear()
