"""The mount table is read exactly, seen as a lookup sees it, and never waits for a daemon."""

from __future__ import annotations

import dataclasses
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfs.mount import mountapi, table
from vfs.mount.table import Mount

NASTY = b"a b\tc\nd\\e\\040#f\xff-\xe4\xb8\xad"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[bytes]:
    """A folder in which whatever is mounted is unmounted at the end."""
    path = os.fsencode(tmp_path)
    yield path
    for mount in reversed(table.beneath(path)):
        mountapi.umount(mount.point, mountapi.MNT_DETACH)


def make_tmpfs(point: bytes, source: bytes = b"none") -> None:
    os.makedirs(point, exist_ok=True)
    mountapi.mount(source, point, b"tmpfs", 0, b"size=4k")


def make_mount(id: int, parent: int, point: bytes) -> Mount:
    return Mount(id, parent, "0:1", b"/", point, ("rw",), (), "tmpfs", b"none", ("rw",))


def test_a_line_is_read_into_its_parts() -> None:
    text = (
        b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n"
        rb"37 36 0:45 /a\040b/\134040 /mnt/\011x\012y ro,nosymfollow - fuse.gem\040space n\0431 rw"
        b"\n38 36 0:46 / / rw - tmpfs  rw,size=4k\n"
    )
    assert table.parse(text) == [
        Mount(
            id=36,
            parent=35,
            dev="98:0",
            root=b"/mnt1",
            point=b"/mnt2",
            options=("rw", "noatime"),
            propagation=("master:1", "shared:7"),
            type="ext3",
            source=b"/dev/root",
            super_options=("rw", "errors=continue"),
        ),
        Mount(
            id=37,
            parent=36,
            dev="0:45",
            root=b"/a b/\\040",
            point=b"/mnt/\tx\ny",
            options=("ro", "nosymfollow"),
            propagation=(),
            type="fuse.gem space",
            source=b"n#1",
            super_options=("rw",),
        ),
        Mount(
            id=38,
            parent=36,
            dev="0:46",
            root=b"/",
            point=b"/",
            options=("rw",),
            propagation=(),
            type="tmpfs",
            source=b"",
            super_options=("rw", "size=4k"),
        ),
    ]


@given(st.binary(), st.binary(), st.binary())
def test_any_bytes_survive_the_kernels_escapes(root: bytes, point: bytes, source: bytes) -> None:
    def escape(name: bytes) -> bytes:
        return b"".join(b"\\%03o" % c if c in b" \t\n\\#" else bytes([c]) for c in name)

    line = b"1 0 0:1 %b %b rw - tmpfs %b rw" % (escape(root), escape(point), escape(source))
    assert table.parse(line) == [
        Mount(1, 0, "0:1", root, point, ("rw",), (), "tmpfs", source, ("rw",))
    ]


def test_a_real_mount_with_a_nasty_name_is_found_whole(folder: bytes) -> None:
    point = folder + b"/" + NASTY
    make_tmpfs(point, source=NASTY)
    status = os.stat(point)
    found = table.at(point)
    below = table.at(mountpoint_of(folder))
    assert found is not None and below is not None
    assert dataclasses.replace(found, id=0, propagation=(), super_options=()) == Mount(
        id=0,
        parent=below.id,
        dev=f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}",
        root=b"/",
        point=point,
        options=("rw", "relatime"),
        propagation=(),
        type="tmpfs",
        source=NASTY,
        super_options=(),
    )
    assert found in table.mounts()


def mountpoint_of(path: bytes) -> bytes:
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def test_only_the_very_mountpoint_is_one(folder: bytes) -> None:
    make_tmpfs(folder + b"/m")
    os.mkdir(folder + b"/m/below")
    os.mkdir(folder + b"/mm")
    found = [table.at(folder + name) for name in (b"", b"/m/below", b"/mm", b"/missing")]
    assert found == [None, None, None, None]
    with pytest.raises(ValueError, match="absolute"):
        table.at(b"m")


def test_of_stacked_mounts_the_top_one_is_seen(folder: bytes) -> None:
    point = folder + b"/m"
    sources = [b"first", b"second", b"third"]
    for source in sources:
        make_tmpfs(point, source)
    seen = []
    while (mount := table.at(point)) is not None:
        seen.append(mount.source)
        mountapi.umount(point)
    assert seen == [b"third", b"second", b"first"]


def test_a_mount_that_another_one_hides_is_not_seen(folder: bytes) -> None:
    make_tmpfs(folder + b"/a/b", b"hidden")
    make_tmpfs(folder + b"/a", b"above")
    assert table.at(folder + b"/a/b") is None
    assert [mount.source for mount in table.beneath(folder + b"/a")] == [b"hidden"]
    make_tmpfs(folder + b"/a/b", b"in sight")
    found = table.at(folder + b"/a/b")
    assert found is not None and found.source == b"in sight"
    mountapi.umount(folder + b"/a/b")
    mountapi.umount(folder + b"/a")
    found = table.at(folder + b"/a/b")
    assert found is not None and found.source == b"hidden"


@pytest.mark.parametrize(
    ("mounts", "point", "expected"),
    [
        ([], b"/", None),
        ([(27, 1, b"/")], b"/", 27),
        ([(22, 27, b"/proc"), (27, 1, b"/")], b"/proc", 22),
        ([(1, 1, b"/"), (2, 1, b"/proc")], b"/proc", 2),  # rootfs stands on itself
        ([(1, 1, b"/"), (3, 1, b"/"), (4, 3, b"/proc")], b"/proc", 4),
        ([(1, 1, b"/"), (2, 1, b"/proc"), (3, 1, b"/")], b"/proc", None),
        ([(9, 5, b"/proc")], b"/proc", 9),  # in a chroot, whose own mount is out of sight
        ([(9, 5, b"/proc")], b"/", None),
    ],
)
def test_lookup_begins_at_the_root_that_is_in_sight(
    mounts: list[tuple[int, int, bytes]], point: bytes, expected: int | None
) -> None:
    found = table.topmost([make_mount(*mount) for mount in mounts], point)
    assert (None if found is None else found.id) == expected


def test_beneath_gives_what_is_below_and_nothing_beside(folder: bytes) -> None:
    for name in (b"/m", b"/m/x", b"/m/x/y", b"/mm"):
        make_tmpfs(folder + name, name)
    assert [mount.source for mount in table.beneath(folder + b"/m")] == [b"/m/x", b"/m/x/y"]
    assert table.beneath(folder + b"/m/x/y") == []
    assert set(table.beneath(b"/")) == {mount for mount in table.mounts() if mount.point != b"/"}


class Fuse:
    """A FUSE mount whose daemon is this process, and answers only when it is told to."""

    def __init__(self, point: bytes) -> None:
        os.mkdir(point)
        self.point = point
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % self.device
        mountapi.mount(b"gemspace", point, b"fuse.gemspace", 0, options)

    def answer(self, opcode: int, reply: bytes) -> None:
        # include/uapi/linux/fuse.h: fuse_in_header, fuse_out_header
        request = os.read(self.device, 1 << 20)
        _, asked, unique = struct.unpack_from("=IIQ", request)
        assert asked == opcode
        os.write(self.device, struct.pack("=IiQ", 16 + len(reply), 0, unique) + reply)

    def die(self) -> None:
        os.close(self.device)
        self.device = -1


@pytest.fixture
def fuse(folder: bytes) -> Iterator[Fuse]:
    mount = Fuse(folder + b"/m")
    yield mount
    if mount.device >= 0:
        mount.die()


def test_a_mount_whose_daemon_is_gone_is_dead(fuse: Fuse) -> None:
    fuse.die()
    started = time.monotonic()
    assert table.is_dead(fuse.point)
    assert time.monotonic() - started < table.PROBE_SECONDS


def test_a_daemon_that_does_not_answer_is_not_dead_and_holds_nobody_up(
    fuse: Fuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "PROBE_SECONDS", 0.05)
    started = time.monotonic()
    assert not table.is_dead(fuse.point)
    assert time.monotonic() - started < 2
    fuse.die()
    for thread in threading.enumerate():
        if thread.name == "mount-probe":
            thread.join(10)
            assert not thread.is_alive()


def test_attributes_in_the_kernels_cache_do_not_make_a_dead_mount_alive(fuse: Fuse) -> None:
    client = threading.Thread(target=os.stat, args=(fuse.point,))
    client.start()
    init = struct.pack("=IIIIHHIIHHI7I", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0, *[0] * 7)
    fuse.answer(26, init)
    attributes = struct.pack(
        "=QII6Q10I", 3600, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, *[0] * 5
    )
    fuse.answer(3, attributes)
    client.join()
    fuse.die()
    assert os.stat(fuse.point).st_mode == 0o40755
    assert table.is_dead(fuse.point)


def test_only_fuse_mounts_can_be_dead(folder: bytes) -> None:
    make_tmpfs(folder + b"/m")
    assert [table.is_dead(folder + name) for name in (b"", b"/m", b"/missing")] == [False] * 3
