"""The FUSE protocol as bytes: layouts, replies, and what becomes of malformed requests."""

from __future__ import annotations

import errno
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfs.errors import LinkRefused
from vfs.mount import wire
from vfs.mount.attributes import NOW, Attributes, Change, DirectoryEntry, Entry, Opened
from vfs.mount.backing import BackingFiles
from vfs.mount.dircache import DirectoryCache
from vfs.mount.dispatch import Dispatcher
from vfs.mount.handlers import Handlers
from vfs.mount.latency import CpuLatency
from vfs.mount.replies import Replies
from vfs.mount.wire import Fopen, Opcode, Validity

ATTRIBUTES: Attributes = (5, 6, 7, 8, -9, 10, 11, 12, 13, 0o100644, 15, 16, 17, 18, 19)

# sizeof of the structures in include/uapi/linux/fuse.h at 7.45, and of the header of a reply.
OUT = 16
SIZES = {
    "IN_HEADER": 40,
    "OUT_HEADER": OUT,
    "FORGET_IN": 8,
    "BATCH_FORGET_IN": 8,
    "FORGET_ONE": 16,
    "GETATTR_IN": 16,
    "SETATTR_IN": 88,
    "MKNOD_IN": 16,
    "MKDIR_IN": 8,
    "RENAME_IN": 8,
    "RENAME2_IN": 16,
    "LINK_IN": 8,
    "OPEN_IN": 8,
    "CREATE_IN": 16,
    "READ_IN": 40,
    "WRITE_IN": 40,
    "RELEASE_IN": 24,
    "FSYNC_IN": 16,
    "ACCESS_IN": 8,
    "SETXATTR_IN": 8,  # FUSE_COMPAT_SETXATTR_IN_SIZE
    "GETXATTR_IN": 8,
    "FALLOCATE_IN": 32,
    "LSEEK_IN": 24,
    "COPY_FILE_RANGE_IN": 56,
    "INIT_IN": 20,  # the part of the 64 bytes that is read
    "INIT_REPLY": OUT + 64,
    "ENTRY_REPLY": OUT + 128,
    "ATTR_REPLY": OUT + 104,
    "OPEN_REPLY": OUT + 16,
    "CREATE_REPLY": OUT + 128 + 16,
    "WRITE_REPLY": OUT + 8,
    "STATFS_REPLY": OUT + 80,
    "XATTR_SIZE_REPLY": OUT + 8,
    "LSEEK_REPLY": OUT + 8,
    "DIRENT": 24,
    "DIRENTPLUS": 128 + 24,
    "BACKING_MAP": 16,
    "BACKING_CLOSE": 4,
    "STORE": OUT + 24,
    "INVAL_INODE": OUT + 24,
    "INVAL_ENTRY": OUT + 16,
}


def test_layouts_have_the_sizes_of_the_kernels_structures() -> None:
    known = {
        name: value.size for name, value in vars(wire).items() if isinstance(value, struct.Struct)
    }
    assert {name: size for name, size in known.items() if not name.startswith("_")} == SIZES


def test_an_entry_reply_lies_as_the_kernel_reads_it() -> None:
    reply = wire.entry_reply(77, 5, Validity(1.5), ATTRIBUTES)
    assert struct.unpack("=IiQ", reply[:16]) == (144, 0, 77)
    nodeid, generation, entry_valid, attr_valid = struct.unpack("=QQQQ", reply[16:48])
    assert (nodeid, generation, entry_valid, attr_valid) == (5, 0, 1, 1)
    assert struct.unpack("=II", reply[48:56]) == (500_000_000, 500_000_000)
    assert struct.unpack("=QQQQqQ", reply[56:104]) == (5, 6, 7, 8, -9, 10)
    assert struct.unpack("=10I", reply[104:]) == (11, 12, 13, 0o100644, 15, 16, 17, 18, 19, 0)


def test_a_create_reply_is_an_entry_and_an_open_file() -> None:
    reply = wire.create_reply(77, 5, Validity(1.5), ATTRIBUTES, 9, Fopen.PASSTHROUGH, 3)
    entry = wire.entry_reply(77, 5, Validity(1.5), ATTRIBUTES)
    opened = wire.open_reply(77, 9, Fopen.PASSTHROUGH, 3)
    assert reply == struct.pack("=IiQ", 160, 0, 77) + entry[16:] + opened[16:]
    assert opened[16:] == struct.pack("=QIi", 9, 128, 3)


def test_an_absent_name_is_node_0_with_its_validity() -> None:
    reply = wire.absent_reply(77, Validity(2))
    assert struct.unpack("=QQQQ", reply[16:48]) == (0, 0, 2, 2)
    assert reply[48:] == bytes(96)


def test_listing_records_are_padded_to_eight_bytes() -> None:
    for length in range(1, 256):
        name = b"n" * length
        padded = -(-(24 + length) // 8) * 8
        record = wire.dirent(5, 2, 8, name)
        assert record == struct.pack("=QQII", 5, 2, length, 8) + name + bytes(padded - 24 - length)
        plus = wire.direntplus(5, 2, 8, name, Validity(1), ATTRIBUTES)
        assert plus == wire.entry_reply(0, 5, Validity(1), ATTRIBUTES)[16:] + record
        assert wire.direntplus(5, 2, 8, name, Validity(1), None)[128:] == record


def test_an_errno_that_the_device_refuses_becomes_eio() -> None:
    for number in (0, -5, 512, 100_000):
        assert wire.error_reply(1, number) == struct.pack("=IiQ", 16, -errno.EIO, 1)
    assert wire.error_reply(1, errno.ENOENT) == struct.pack("=IiQ", 16, -errno.ENOENT, 1)


def test_notices_have_no_unique_and_their_code_for_an_error() -> None:
    assert wire.inval_inode_notice(5, 0, -1) == struct.pack("=IiQQqq", 40, 2, 0, 5, 0, -1)
    assert (
        wire.inval_entry_notice(5, b"name") == struct.pack("=IiQQII", 37, 3, 0, 5, 4, 0) + b"name\0"
    )


# The dispatcher, over operations that answer anything.


class Agreeable:
    """Operations that carry out nothing and remember what they were asked."""

    timeout = 1.0

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        entry = Entry(5, ATTRIBUTES)
        opened = Opened(1 << 30, False, False, 0, False)
        results: dict[str, Any] = {
            "getattr": ATTRIBUTES, "setattr": ATTRIBUTES, "readlink": b"text", "opendir": 3,
            "open": opened, "create": (opened, entry), "read": b"data", "write": 4, "lseek": 7,
            "copy_file_range": 9, "statfs": os.statvfs("/"), "getxattr": b"value",
            "listxattr": [b"user.a", b"user.b"], "readdir": iter(()),
            "lookup": entry, "mknod": entry, "mkdir": entry, "symlink": entry, "link": entry,
        }  # fmt: skip

        def call(*arguments: Any) -> Any:
            # What the request's buffer holds is another request's by the time it is looked at.
            kept = tuple(bytes(a) if isinstance(a, memoryview) else a for a in arguments)
            self.calls.append((name, *kept))
            return results.get(name)

        return call


class Connection:
    """A dispatcher whose further replies go nowhere."""

    def __init__(self, operations: Any) -> None:
        self.device = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        backing = BackingFiles(self.device, enabled=False)
        self.replies = Replies(self.device)
        self.handlers = Handlers(
            operations, self.replies, backing, read_only=False, max_write=65536
        )
        self._dispatch = Dispatcher(self.handlers).dispatch

    def ask(self, opcode: int, body: bytes = b"", *, node: int = 1, size: int | None = None) -> Any:
        """What comes of a request: an errno, or the reply's body, or None."""
        length = 40 + len(body)
        request = struct.pack(
            "=IIQQIIIHH", length if size is None else size, opcode, 99, node, 1000, 1001, 4, 0, 0
        )
        self.handlers.buffer[:length] = request + body
        return self.answer(self._dispatch(length))

    def raw(self, request: bytes) -> Any:
        """What comes of any bytes."""
        self.handlers.buffer[: len(request)] = request
        return self.answer(self._dispatch(len(request)))

    @staticmethod
    def answer(reply: bytes | None) -> Any:
        if reply is None:
            return None
        size, error, _unique = struct.unpack("=IiQ", reply[:16])
        assert size == len(reply)
        if error:
            assert size == 16
            assert 0 < -error < 512
            return -error
        return reply[16:]

    def close(self) -> None:
        self.replies.close()
        os.close(self.device)


@pytest.fixture
def asked() -> Iterator[tuple[Connection, Agreeable]]:
    operations = Agreeable()
    connection = Connection(operations)
    yield connection, operations
    connection.close()


def test_requests_become_calls(asked: tuple[Connection, Agreeable]) -> None:
    connection, operations = asked
    connection.ask(Opcode.LOOKUP, b"name\0")
    connection.ask(Opcode.FORGET, struct.pack("=Q", 3), node=8)
    connection.ask(Opcode.BATCH_FORGET, struct.pack("=IIQQQQ", 2, 0, 5, 1, 6, 2))
    connection.ask(Opcode.GETATTR, struct.pack("=IIQ", 0, 0, 12), node=8)
    connection.ask(Opcode.GETATTR, struct.pack("=IIQ", 1, 0, 12), node=8)
    connection.ask(Opcode.SYMLINK, b"name\0../target\0")
    connection.ask(Opcode.MKNOD, struct.pack("=IIII", 0o100600, 0, 0o22, 0) + b"name\0")
    connection.ask(Opcode.MKDIR, struct.pack("=II", 0o700, 0o22) + b"name\0")
    connection.ask(Opcode.RENAME, struct.pack("=Q", 8) + b"old\0new\0")
    connection.ask(Opcode.RENAME2, struct.pack("=QII", 8, 2, 0) + b"old\0new\0")
    connection.ask(Opcode.LINK, struct.pack("=Q", 8) + b"name\0")
    connection.ask(Opcode.CREATE, struct.pack("=IIII", 2, 0o600, 0o22, 0) + b"name\0")
    connection.ask(Opcode.READ, struct.pack("=QQIIQII", 12, 4096, 100, 0, 0, 0, 0))
    connection.ask(Opcode.WRITE, struct.pack("=QQIIQII", 12, 4096, 4, 0, 0, 0, 0) + b"data")
    connection.ask(Opcode.SETXATTR, struct.pack("=II", 3, 1) + b"user.a\0" + b"a\0b")
    connection.ask(Opcode.SETXATTR, struct.pack("=II", 0, 0) + b"user.a\0")
    assert operations.calls == [
        ("lookup", 1, b"name"),
        ("forget", 8, 3),
        ("forget", 5, 1),
        ("forget", 6, 2),
        ("getattr", 8, None),
        ("getattr", 8, 12),
        ("symlink", 1, b"name", b"../target", (1000, 1001)),
        ("mknod", 1, b"name", 0o100600, 0, (1000, 1001)),
        ("mkdir", 1, b"name", 0o700, (1000, 1001)),
        ("rename", 1, b"old", 8, b"new", 0),
        ("rename", 1, b"old", 8, b"new", 2),
        ("link", 8, 1, b"name"),
        ("create", 1, b"name", 0o600, 2, (1000, 1001)),
        ("read", 12, 100, 4096),
        ("write", 12, b"data", 4096),
        ("setxattr", 1, b"user.a", b"a\0b", 1),
        ("setxattr", 1, b"user.a", b"", 0),
    ]


def test_a_setattr_names_only_what_it_changes(asked: tuple[Connection, Agreeable]) -> None:
    connection, operations = asked
    layout = "=II" + "QQQ" + "qqq" + "III" + "IIIII"

    def setattr(valid: int) -> None:
        values = (valid, 0, 12, 4096, 0, -1, 2, 3, 4, 5, 6, 0o100755, 0, 7, 8, 0)
        connection.ask(Opcode.SETATTR, struct.pack(layout, *values), node=9)

    setattr(0b0000_0001)
    setattr(0b0000_0110)
    setattr(0b0100_1000)
    setattr(0b0011_0000)
    setattr(0b1_1011_0000)
    assert operations.calls == [
        ("setattr", 9, None, Change(mode=0o755), (1000, 1001)),
        ("setattr", 9, None, Change(uid=7, gid=8), (1000, 1001)),
        ("setattr", 9, 12, Change(size=4096), (1000, 1001)),
        (
            "setattr", 9, None,
            Change(atime_ns=-999_999_996, mtime_ns=2_000_000_005), (1000, 1001),
        ),
        ("setattr", 9, None, Change(atime_ns=NOW, mtime_ns=NOW), (1000, 1001)),
    ]  # fmt: skip


def test_an_attribute_is_told_by_size_then_by_value(asked: tuple[Connection, Agreeable]) -> None:
    connection, _ = asked
    for opcode, body, value in (
        (Opcode.GETXATTR, b"user.a\0", b"value"),
        (Opcode.LISTXATTR, b"", b"user.a\0user.b\0"),
    ):
        size = len(value)
        assert connection.ask(opcode, struct.pack("=II", 0, 0) + body) == struct.pack(
            "=II", size, 0
        )
        assert connection.ask(opcode, struct.pack("=II", size, 0) + body) == value
        assert connection.ask(opcode, struct.pack("=II", size - 1, 0) + body) == errno.ERANGE


def entries(*names: bytes) -> list[DirectoryEntry]:
    return [
        DirectoryEntry(name, position, 5, 8, ATTRIBUTES, None, False)
        for position, name in enumerate(names, 1)
    ]


def test_only_entries_that_fit_a_listing_count_as_looked_up() -> None:
    adopted: list[bytes] = []
    names = [b"%04d" % number for number in range(100)]
    operations = SimpleNamespace(
        timeout=1.0,
        readdir=lambda dh, offset, plus: iter(entries(*names)),
        adopt=lambda dh, entry: adopted.append(entry.name),
    )
    connection = Connection(operations)
    request = struct.pack("=QQIIQII", 3, 0, 1000, 0, 0, 0, 0)
    reply = connection.ask(Opcode.READDIRPLUS, request)
    assert len(reply) == 6 * 160  # of 1000 bytes; an entry with a name of 4 bytes takes 160
    assert adopted == names[:6]
    adopted.clear()
    assert len(connection.ask(Opcode.READDIR, request)) == 31 * 32
    assert adopted == []
    connection.close()


def test_a_listing_that_fails_midway_gives_what_was_counted() -> None:
    def failing(dh: int, offset: int, plus: bool) -> Iterator[DirectoryEntry]:
        if not offset:
            yield from entries(b"one")
        raise OSError(errno.EIO, "planted")

    connection = Connection(
        SimpleNamespace(timeout=1.0, readdir=failing, adopt=lambda dh, entry: None)
    )
    for offset, expected in ((0, 160), (1, None)):
        request = struct.pack("=QQIIQII", 3, offset, 4096, 0, 0, 0, 0)
        reply = connection.ask(Opcode.READDIRPLUS, request)
        assert reply == errno.EIO if expected is None else len(reply) == expected
    connection.close()


@pytest.mark.parametrize(
    ("raised", "number"),
    [
        (OSError(errno.ENOSPC, "x"), errno.ENOSPC),
        (OSError("no errno"), errno.EIO),
        (LinkRefused("a link"), errno.ELOOP),
        (FileNotFoundError(errno.ENOENT, "x"), errno.ENOENT),
    ],
)
def test_errors_are_answered_by_their_errno(raised: Exception, number: int) -> None:
    def fail(*_: object) -> None:
        raise raised

    connection = Connection(SimpleNamespace(timeout=1.0, getattr=fail))
    assert connection.ask(Opcode.GETATTR, bytes(16)) == number
    connection.close()


def test_a_fault_is_answered_eio_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    connection = Connection(SimpleNamespace(timeout=1.0))
    assert connection.ask(Opcode.GETATTR, bytes(16)) == errno.EIO
    assert connection.ask(Opcode.FORGET, bytes(8)) is None
    connection.close()
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


def test_what_is_not_served_is_answered_enosys(asked: tuple[Connection, Agreeable]) -> None:
    connection, operations = asked
    unserved = (
        Opcode.FLUSH, Opcode.INTERRUPT, Opcode.BMAP, Opcode.POLL, Opcode.IOCTL, Opcode.GETLK,
        Opcode.TMPFILE, Opcode.STATX, Opcode.COPY_FILE_RANGE_64, 0, 7, 54, 4096, 2**32 - 1,
    )  # fmt: skip
    for opcode in unserved:
        assert connection.ask(opcode, bytes(100)) == errno.ENOSYS
    assert operations.calls == []


@pytest.mark.parametrize(
    ("opcode", "body"),
    [
        (Opcode.LOOKUP, b""),
        (Opcode.LOOKUP, b"\0"),
        (Opcode.LOOKUP, b"no end"),
        (Opcode.LOOKUP, b"two\0names\0"),
        (Opcode.LOOKUP, b"a/b\0"),
        (Opcode.GETATTR, bytes(15)),
        (Opcode.RENAME2, bytes(16) + b"one\0"),
        (Opcode.RENAME2, bytes(16) + b"one\0two"),
        (Opcode.RENAME2, bytes(16) + b"one\0two\0three\0"),
        (Opcode.SYMLINK, b"name\0target"),
        (Opcode.SYMLINK, b"\0target\0"),
        (Opcode.SETXATTR, struct.pack("=II", 100, 0) + b"user.a\0value"),
        (Opcode.SETXATTR, struct.pack("=II", 0, 0) + b"user.a"),
        (Opcode.WRITE, struct.pack("=QQIIQII", 12, 0, 5, 0, 0, 0, 0) + b"data"),
    ],
)
def test_a_malformed_request_is_answered_einval(
    asked: tuple[Connection, Agreeable], opcode: Opcode, body: bytes
) -> None:
    connection, operations = asked
    connection.raw(bytes(200))  # nothing of an earlier request helps
    assert connection.ask(opcode, body) == errno.EINVAL
    assert operations.calls == []


@given(
    opcode=st.integers(0, 60) | st.integers(0, 2**32 - 1),
    body=st.binary(max_size=200),
    size=st.none() | st.integers(0, 2**32 - 1),
)
def test_any_request_is_answered(opcode: int, body: bytes, size: int | None) -> None:
    # A handle is a descriptor: none that this process might have.
    if opcode == Opcode.READ:
        body = struct.pack("=Q", 1 << 30) + body[8:]
    connection = Connection(Agreeable())
    logging.disable()
    try:
        answer = connection.ask(opcode, body, size=size)
    finally:
        logging.disable(logging.NOTSET)
        connection.close()
    unanswered = (Opcode.FORGET, Opcode.BATCH_FORGET)
    later = (Opcode.FSYNC, Opcode.FSYNCDIR, Opcode.FALLOCATE, Opcode.COPY_FILE_RANGE)
    assert (answer is None) <= (opcode in unanswered + later)


@given(request=st.binary(max_size=100))
def test_any_bytes_raise_nothing(request: bytes) -> None:
    connection = Connection(Agreeable())
    logging.disable()
    try:
        answer = connection.raw(request)
    finally:
        logging.disable(logging.NOTSET)
        connection.close()
    if len(request) < 40:  # whom it is from cannot be told
        assert answer is None


# Which opens are passed through, and which listings the kernel keeps.


class Kernel:
    """Backing ids as the kernel gives them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open: set[int] = set()
        self.refuses = False
        self._next = 1
        monkeypatch.setattr("vfs.mount.backing.fcntl.ioctl", self.ioctl)

    def ioctl(self, fd: int, request: int, argument: bytes) -> int:
        if request == wire.IOC_BACKING_CLOSE:
            (backing,) = struct.unpack("=I", argument)
            self.open.remove(backing)
            return 0
        assert request == wire.IOC_BACKING_OPEN
        if self.refuses:
            raise OSError(errno.ELOOP, "planted")
        self.open.add(self._next)
        self._next += 1
        return self._next - 1


SMALL = Opened(9, False, False, 65535, False)
LARGE = Opened(9, False, False, 65536, False)
WRITTEN = Opened(9, False, False, 0, True)


def test_the_first_open_of_a_node_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    backing = BackingFiles(3, enabled=True)
    assert [backing.open(5, opened, 0) for opened in (SMALL, LARGE, WRITTEN)] == [0, 0, 0]
    assert [backing.open(6, opened, 0) for opened in (WRITTEN, SMALL, LARGE)] == [1, 1, 1]
    assert kernel.open == {1}
    for _ in range(3):
        backing.release(5)
        backing.release(6)
    assert kernel.open == set()
    assert [backing.open(5, LARGE, 0), backing.open(6, SMALL, 0)] == [2, 0]
    assert kernel.open == {2}


def test_what_cannot_be_passed_through_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(monkeypatch)
    kernel.refuses = True
    backing = BackingFiles(3, enabled=True)
    assert backing.open(5, LARGE, 0) == 0
    kernel.refuses = False
    assert backing.open(5, LARGE, 0) == 0
    assert BackingFiles(3, enabled=False).open(5, LARGE, 0) == 0
    backing.release(5)
    backing.release(5)
    assert backing.open(5, WRITTEN, os.O_WRONLY | os.O_DIRECT) == 0
    backing.release(5)
    assert backing.open(5, LARGE, 0) == 1


def read_whole(cache: DirectoryCache, dh: int, *, attributed: bool = True) -> None:
    cache.asked(dh, 0)
    cache.given(dh, 20, attributed=attributed)
    cache.asked(dh, 20)
    cache.given(dh, 0, attributed=True)
    cache.closed(dh)


def test_a_whole_listing_serves_until_its_attributes_expire() -> None:
    now = 100.0
    cache = DirectoryCache(10.0, lambda: now)
    assert cache.opened(5, 1) == Fopen.CACHE_DIR
    read_whole(cache, 1)
    now = 109.9
    assert cache.opened(5, 2) == Fopen.CACHE_DIR | Fopen.KEEP_CACHE
    cache.closed(2)
    assert cache.opened(6, 3) == Fopen.CACHE_DIR
    now = 110.0
    assert cache.opened(5, 4) == Fopen.CACHE_DIR


def test_a_listing_in_part_or_without_attributes_does_not_serve() -> None:
    cache = DirectoryCache(10.0, lambda: 100.0)
    cache.opened(5, 1)
    read_whole(cache, 1, attributed=False)
    assert cache.opened(5, 2) == Fopen.CACHE_DIR
    cache.asked(2, 0)
    cache.given(2, 20, attributed=True)
    cache.closed(2)
    assert cache.opened(5, 3) == Fopen.CACHE_DIR


def test_no_more_listings_are_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vfs.mount.dircache.MAX_LISTED", 2)
    cache = DirectoryCache(10.0, lambda: 100.0)
    for node in (5, 6, 7):
        cache.opened(node, node)
        read_whole(cache, node)
    kept = [bool(cache.opened(node, 9) & Fopen.KEEP_CACHE) for node in (5, 6, 7)]
    assert kept == [False, True, True]


def test_processors_are_kept_awake_by_what_the_kernel_reads(tmp_path: Path) -> None:
    device = tmp_path / "cpu_dma_latency"
    device.write_bytes(b"")
    latency = CpuLatency(str(device))
    latency.hold()
    latency.relax()
    latency.close()
    assert device.read_bytes() == struct.pack("=ii", 0, 2_000_000_000)
    missing = CpuLatency(str(tmp_path / "missing"))
    missing.hold()
    missing.relax()
    missing.close()
    assert sorted(tmp_path.iterdir()) == [device]
