"""The mount's operations, driven directly: what each request answers, with no kernel in between."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vfs import linux
from vfs.beneath import Directory
from vfs.mount.attributes import NOW, Change, Entry
from vfs.mount.links import Links
from vfs.mount.operations import Operations, Options
from vfs.mount.view import RESERVED, Branch, Export, fixed

ROOT = 1
CALLER = (0, 0)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Mounted:
    """Operations on a workspace and a projection in a temporary folder."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.workspace = folder / "data" / "shared" / "u" / "workspace"
        self.projection = folder / "skills" / "u"
        if not self.workspace.exists():
            (self.workspace / "agents").mkdir(parents=True)
            (self.projection / "notes").mkdir(parents=True)
            (self.projection / "notes" / "SKILL.md").write_bytes(b"notes\n")
            (self.projection / "other").mkdir()
        self.clock = Clock()
        self._data = Directory.open(folder / "data")
        self._skills = Directory.open(folder / "skills")
        visible = options.pop("visible", None)
        chosen = {"writable": True, **options}
        view = fixed(
            {
                b"user-data": Export(
                    self._data,
                    (b"shared", b"u", b"workspace"),
                    bool(chosen["writable"]),
                    reserved=RESERVED,
                ),
                b"skills": Export(self._skills, (b"u",), visible=visible),  # type: ignore[arg-type]
            }
        )
        self.ops = Operations(view, Options(**chosen), self.clock)  # type: ignore[arg-type]
        self.data = self.ops.lookup(ROOT, b"user-data").node
        self.skills = self.ops.lookup(ROOT, b"skills").node

    def close(self) -> None:
        self.ops.close()
        self._data.close()
        self._skills.close()

    def make(self, name: bytes, content: bytes = b"", parent: int = 0) -> Entry:
        opened, entry = self.ops.create(parent or self.data, name, 0o644, os.O_RDWR, CALLER)
        self.ops.write(opened.fh, content, 0)
        self.ops.release(opened.fh)
        return entry

    def read(self, node: int) -> bytes:
        opened = self.ops.open(node, os.O_RDONLY)
        try:
            return self.ops.read(opened.fh, 1 << 20, 0)
        finally:
            self.ops.release(opened.fh)

    def names(self, node: int) -> list[bytes]:
        handle = self.ops.opendir(node)
        try:
            return sorted(e.name for e in self.ops.readdir(handle, 0, True) if not e.dots)
        finally:
            self.ops.releasedir(handle)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    made = Mounted(tmp_path)
    yield made
    made.close()


def refused(number: int, call: Callable[[], object]) -> None:
    with pytest.raises(OSError) as caught:
        call()
    assert errno.errorcode[caught.value.errno or 0] == errno.errorcode[number]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_root_lists_both_directories_and_refuses_everything_else(mounted: Mounted) -> None:
    assert mounted.names(ROOT) == [b"skills", b"user-data"]
    refused(errno.ENOENT, lambda: mounted.ops.lookup(ROOT, b"etc"))
    refused(errno.EROFS, lambda: mounted.ops.mkdir(ROOT, b"x", 0o755, CALLER))
    refused(errno.EROFS, lambda: mounted.ops.rmdir(ROOT, b"skills"))
    refused(errno.EROFS, lambda: mounted.ops.rename(ROOT, b"skills", mounted.data, b"skills", 0))


def test_a_file_is_made_written_read_and_removed(mounted: Mounted) -> None:
    entry = mounted.make(b"note", b"hello")
    assert mounted.read(entry.node) == b"hello"
    assert (mounted.workspace / "note").read_bytes() == b"hello"
    assert stat.filemode(entry.attributes[9]) == "-rw-r--r--"
    mounted.ops.unlink(mounted.data, b"note")
    assert not (mounted.workspace / "note").exists()
    refused(errno.ENOENT, lambda: mounted.ops.lookup(mounted.data, b"note"))


def test_what_root_makes_is_given_to_the_storage_owner(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, made_owner=(1000, 1000), shown_owner=(0, 0))
    shown = mounted.make(b"note").attributes[11:13]
    mounted.ops.mkdir(mounted.data, b"folder", 0o750, CALLER)
    mounted.close()
    assert shown == (0, 0)
    owners = {
        name: ((status := (mounted.workspace / name).lstat()).st_uid, status.st_gid)
        for name in ("note", "folder")
    }
    assert owners == {"note": (1000, 1000), "folder": (1000, 1000)}


def test_where_owners_are_kept_other_callers_own_what_they_make(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, made_owner=(1000, 1000))
    mounted.ops.mkdir(mounted.data, b"theirs", 0o755, (4711, 4712))
    mounted.ops.mkdir(mounted.data, b"root's", 0o755, CALLER)
    shown = {name: mounted.ops.lookup(mounted.data, name).attributes[11:13]
             for name in (b"theirs", b"root's")}  # fmt: skip
    mounted.close()
    assert shown == {b"theirs": (4711, 4712), b"root's": (1000, 1000)}


def test_skills_are_read_only_even_on_a_writable_mount(mounted: Mounted) -> None:
    skill = mounted.ops.lookup(mounted.skills, b"notes")
    document = mounted.ops.lookup(skill.node, b"SKILL.md")
    assert mounted.read(document.node) == b"notes\n"
    assert document.attributes[9] & 0o222 == 0
    change = Change(mode=0o777)
    for call in (
        lambda: mounted.ops.open(document.node, os.O_WRONLY),
        lambda: mounted.ops.open(document.node, os.O_RDONLY | os.O_TRUNC),
        lambda: mounted.ops.create(skill.node, b"x", 0o644, os.O_RDWR, CALLER),
        lambda: mounted.ops.unlink(skill.node, b"SKILL.md"),
        lambda: mounted.ops.setattr(document.node, None, change, CALLER),
        lambda: mounted.ops.link(document.node, skill.node, b"x"),
        lambda: mounted.ops.setxattr(document.node, b"user.a", b"1", 0),
    ):
        refused(errno.EROFS, call)


def test_only_the_visible_skills_are_shown(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, visible=frozenset({b"notes"}))
    assert mounted.names(mounted.skills) == [b"notes"]
    refused(errno.ENOENT, lambda: mounted.ops.lookup(mounted.skills, b"other"))
    inner = mounted.ops.lookup(mounted.skills, b"notes")
    assert mounted.names(inner.node) == [b"SKILL.md"]
    mounted.close()


def test_a_projection_that_appears_later_is_seen(tmp_path: Path) -> None:
    (tmp_path / "data" / "shared" / "u" / "workspace").mkdir(parents=True)
    (tmp_path / "skills").mkdir()
    mounted = Mounted(tmp_path)
    assert mounted.names(mounted.skills) == []
    (tmp_path / "skills" / "u" / "late").mkdir(parents=True)
    assert mounted.names(mounted.ops.lookup(ROOT, b"skills").node) == [b"late"]
    mounted.close()


def test_the_agents_folder_can_be_filled_but_not_taken_away(mounted: Mounted) -> None:
    agents = mounted.ops.lookup(mounted.data, b"agents").node
    mounted.make(b"AGENTS.md", b"rules", agents)
    mounted.make(b"other")
    for call in (
        lambda: mounted.ops.rmdir(mounted.data, b"agents"),
        lambda: mounted.ops.rename(mounted.data, b"agents", mounted.data, b"a", 0),
        lambda: mounted.ops.rename(mounted.data, b"other", mounted.data, b"agents", 0),
    ):
        refused(errno.EPERM, call)
    (mounted.workspace / "agents" / "AGENTS.md").unlink()
    (mounted.workspace / "agents").rmdir()
    refused(
        errno.EPERM,
        lambda: mounted.ops.create(mounted.data, b"agents", 0o644, os.O_RDWR, CALLER),
    )
    mounted.ops.mkdir(mounted.data, b"agents", 0o755, CALLER)


def test_a_link_is_listed_and_not_read(mounted: Mounted) -> None:
    os.symlink("/etc/passwd", mounted.workspace / "link")
    entry = mounted.ops.lookup(mounted.data, b"link")
    assert stat.S_ISLNK(entry.attributes[9])
    refused(errno.ELOOP, lambda: mounted.ops.readlink(entry.node))
    refused(errno.ELOOP, lambda: mounted.ops.open(entry.node, os.O_RDONLY))
    refused(errno.EPERM, lambda: mounted.ops.symlink(mounted.data, b"l", b"note", CALLER))
    assert b"link" in mounted.names(mounted.data)


def test_hidden_links_keep_their_names(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, links=Links.HIDE)
    os.symlink("/etc/passwd", mounted.workspace / "link")
    mounted.make(b"file")
    assert mounted.names(mounted.data) == [b"agents", b"file"]
    refused(errno.ENOENT, lambda: mounted.ops.lookup(mounted.data, b"link"))
    refused(
        errno.EEXIST, lambda: mounted.ops.rename(mounted.data, b"file", mounted.data, b"link", 0)
    )
    refused(
        errno.EEXIST,
        lambda: mounted.ops.create(mounted.data, b"link", 0o644, os.O_RDWR, CALLER),
    )
    mounted.close()


@pytest.mark.parametrize(
    ("text", "works"),
    [
        ("note", True),
        ("./note", True),
        ("../note", True),
        ("../other/../note", False),
        ("../../note", False),
        ("/etc/passwd", False),
    ],
)
def test_contained_links_work_if_they_provably_stay_inside(
    tmp_path: Path, text: str, works: bool
) -> None:
    mounted = Mounted(tmp_path, links=Links.CONTAINED)
    (mounted.workspace / "folder").mkdir()
    os.symlink(text, mounted.workspace / "folder" / "link")
    folder = mounted.ops.lookup(mounted.data, b"folder").node
    link = mounted.ops.lookup(folder, b"link").node
    if works:
        assert mounted.ops.readlink(link) == text.encode()
        mounted.ops.symlink(folder, b"new", text.encode(), CALLER)
    else:
        refused(errno.ELOOP, lambda: mounted.ops.readlink(link))
        refused(errno.EPERM, lambda: mounted.ops.symlink(folder, b"new", text.encode(), CALLER))
    mounted.close()


def test_a_contained_link_counts_its_depth_when_it_is_read(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, links=Links.CONTAINED)
    (mounted.workspace / "a" / "b").mkdir(parents=True)
    os.symlink("../../note", mounted.workspace / "a" / "b" / "link")
    a = mounted.ops.lookup(mounted.data, b"a").node
    b = mounted.ops.lookup(a, b"b").node
    link = mounted.ops.lookup(b, b"link").node
    assert mounted.ops.readlink(link) == b"../../note"
    mounted.ops.rename(a, b"b", mounted.data, b"b", 0)
    refused(errno.ELOOP, lambda: mounted.ops.readlink(link))
    mounted.close()


def test_special_files_are_listed_and_refuse_to_open(mounted: Mounted) -> None:
    os.mkfifo(mounted.workspace / "fifo")
    os.mknod(mounted.workspace / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    fifo = mounted.ops.lookup(mounted.data, b"fifo")
    null = mounted.ops.lookup(mounted.data, b"null")
    assert stat.S_ISSOCK(fifo.attributes[9])
    assert stat.S_ISCHR(null.attributes[9])
    for entry in (fifo, null):
        refused(errno.ENXIO, lambda entry=entry: mounted.ops.open(entry.node, os.O_RDONLY))
    for kind in (stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK):
        refused(
            errno.EPERM,
            lambda kind=kind: mounted.ops.mknod(mounted.data, b"x", kind | 0o600, 0, CALLER),
        )


def test_a_mount_below_is_not_shown(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    below = mounted.workspace / "below"
    below.mkdir()
    outside = tmp_path / "outside"
    outside.mkdir()
    os.system(f"mount --bind '{outside}' '{below}'")
    try:
        refused(errno.ENOENT, lambda: mounted.ops.lookup(mounted.data, b"below"))
        assert mounted.names(mounted.data) == [b"agents"]
    finally:
        os.system(f"umount '{below}'")
        mounted.close()


def test_setuid_bits_are_dropped_from_files_when_made_changed_or_written(
    mounted: Mounted,
) -> None:
    opened, entry = mounted.ops.create(mounted.data, b"x", 0o6755, os.O_RDWR, CALLER)
    mounted.ops.release(opened.fh)
    assert oct(entry.attributes[9] & 0o7777) == "0o755"
    after = mounted.ops.setattr(entry.node, None, Change(mode=0o6711), CALLER)
    assert oct(after[9] & 0o7777) == "0o711"
    (mounted.workspace / "x").chmod(0o4755)
    opened = mounted.ops.open(entry.node, os.O_WRONLY)
    mounted.ops.release(opened.fh)
    assert oct((mounted.workspace / "x").stat().st_mode & 0o7777) == "0o755"


def test_a_hard_link_of_somebody_elses_file_is_not_written(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, made_owner=(1000, 1000), shown_owner=(0, 0))
    secret = tmp_path / "data" / "secret"
    secret.write_bytes(b"root's")
    os.link(secret, mounted.workspace / "planted")
    entry = mounted.ops.lookup(mounted.data, b"planted")
    refused(errno.EPERM, lambda: mounted.ops.open(entry.node, os.O_WRONLY))
    refused(errno.EPERM, lambda: mounted.ops.setattr(entry.node, None, Change(size=0), CALLER))
    before = secret.stat()
    for change in (Change(mode=0o666), Change(mtime_ns=1), Change(uid=0), Change()):
        with pytest.raises(PermissionError):
            mounted.ops.setattr(entry.node, None, change, CALLER)
    refused(errno.EPERM, lambda: mounted.ops.setxattr(entry.node, b"user.a", b"1", 0))
    refused(errno.EPERM, lambda: mounted.ops.removexattr(entry.node, b"user.a"))
    assert secret.stat() == before
    mounted.close()
    assert secret.read_bytes() == b"root's"


def test_a_link_that_was_swapped_as_it_was_made_gives_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = Mounted(tmp_path, made_owner=(1000, 1000), shown_owner=(0, 0), links=Links.CONTAINED)
    secret = tmp_path / "data" / "secret"
    secret.write_bytes(b"root's")
    make = os.symlink

    def swapped(text: bytes, name: bytes, *, dir_fd: int) -> None:
        make(text, name, dir_fd=dir_fd)
        os.unlink(name, dir_fd=dir_fd)
        os.link(secret, name, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "symlink", swapped)
    refused(errno.ESTALE, lambda: mounted.ops.symlink(mounted.data, b"l", b"to", CALLER))
    mounted.close()
    assert (secret.stat().st_uid, secret.stat().st_gid) == (os.getuid(), os.getgid())


def test_an_open_file_stays_itself_when_it_is_renamed_outside(mounted: Mounted) -> None:
    entry = mounted.make(b"a", b"first")
    opened = mounted.ops.open(entry.node, os.O_RDONLY)
    os.rename(mounted.workspace / "a", mounted.workspace / "b")
    (mounted.workspace / "a").write_bytes(b"second")
    assert mounted.ops.read(opened.fh, 100, 0) == b"first"
    assert mounted.ops.getattr(entry.node)[1] == len(b"first")
    refused_node = mounted.ops.lookup(mounted.data, b"a").node
    assert refused_node != entry.node
    mounted.ops.release(opened.fh)


def test_a_name_that_leads_to_another_file_now_is_stale(mounted: Mounted) -> None:
    entry = mounted.make(b"a", b"first")
    (mounted.workspace / "b").write_bytes(b"second")
    os.rename(mounted.workspace / "b", mounted.workspace / "a")
    refused(errno.ESTALE, lambda: mounted.ops.open(entry.node, os.O_RDONLY))
    refused(errno.ESTALE, lambda: mounted.ops.getattr(entry.node))
    (mounted.workspace / "a").unlink()
    os.symlink("/etc/passwd", mounted.workspace / "a")
    refused(errno.ESTALE, lambda: mounted.ops.open(entry.node, os.O_RDONLY))


def test_a_directory_moved_within_the_workspace_keeps_working(mounted: Mounted) -> None:
    folder = mounted.ops.mkdir(mounted.data, b"folder", 0o755, CALLER).node
    mounted.make(b"inside", b"1", folder)
    (mounted.workspace / "deeper").mkdir()
    os.rename(mounted.workspace / "folder", mounted.workspace / "deeper" / "folder")
    mounted.clock.now += 10
    assert mounted.names(folder) == [b"inside"]


def test_a_directory_moved_out_of_the_workspace_is_stale(mounted: Mounted, tmp_path: Path) -> None:
    folder = mounted.ops.mkdir(mounted.data, b"folder", 0o755, CALLER).node
    os.rename(mounted.workspace / "folder", tmp_path / "data" / "moved out")
    mounted.clock.now += 10
    refused(errno.ESTALE, lambda: mounted.ops.lookup(folder, b"inside"))
    refused(errno.ESTALE, lambda: mounted.ops.create(folder, b"x", 0o644, os.O_RDWR, CALLER))
    assert os.listdir(tmp_path / "data" / "moved out") == []


def test_hard_links_are_one_node_and_survive_each_others_removal(mounted: Mounted) -> None:
    entry = mounted.make(b"a", b"one")
    second = mounted.ops.link(entry.node, mounted.data, b"b")
    assert second.node == entry.node
    assert second.attributes[10] == 2
    mounted.ops.unlink(mounted.data, b"b")
    assert mounted.read(entry.node) == b"one"
    assert mounted.ops.getattr(entry.node)[10] == 1


def test_an_unlinked_open_file_keeps_its_bytes_and_attributes(mounted: Mounted) -> None:
    opened, entry = mounted.ops.create(mounted.data, b"a", 0o644, os.O_RDWR, CALLER)
    mounted.ops.unlink(mounted.data, b"a")
    mounted.ops.write(opened.fh, b"still", 0)
    after = mounted.ops.setattr(entry.node, None, Change(size=3, mode=0o600), CALLER)
    assert (after[1], oct(after[9] & 0o7777), after[10]) == (3, "0o600", 0)
    again = mounted.ops.open(entry.node, os.O_RDONLY)
    assert mounted.ops.read(again.fh, 10, 0) == b"sti"
    mounted.ops.release(again.fh)
    mounted.ops.release(opened.fh)


def test_rename_keeps_nodes_and_honours_its_flags(mounted: Mounted) -> None:
    a, b = mounted.make(b"a", b"A"), mounted.make(b"b", b"B")
    rename = mounted.ops.rename
    data = mounted.data
    refused(errno.EEXIST, lambda: rename(data, b"a", data, b"b", linux.RENAME_NOREPLACE))
    rename(data, b"a", data, b"b", linux.RENAME_EXCHANGE)
    assert (mounted.workspace / "a").read_bytes() == b"B"
    assert (mounted.read(a.node), mounted.read(b.node)) == (b"A", b"B")
    rename(data, b"b", data, b"a", 0)
    assert mounted.names(data) == [b"a", b"agents"]
    assert mounted.read(a.node) == b"A"
    refused(errno.ESTALE, lambda: mounted.read(b.node))
    refused(errno.EINVAL, lambda: rename(data, b"a", data, b"c", linux.RENAME_WHITEOUT))


def test_times_are_set_to_the_nanosecond_or_to_now(mounted: Mounted) -> None:
    entry = mounted.make(b"a")
    change = Change(atime_ns=1_234_567_890_123_456_789, mtime_ns=-5_000_000_001)
    after = mounted.ops.setattr(entry.node, None, change, CALLER)
    assert (after[3], after[6], after[4], after[7]) == (1_234_567_890, 123_456_789, -6, 999_999_999)
    after = mounted.ops.setattr(entry.node, None, Change(mtime_ns=NOW), CALLER)
    assert after[3] == 1_234_567_890
    assert after[4] > 1_700_000_000


def test_the_owner_can_be_changed_only_where_owners_are_shown(tmp_path: Path) -> None:
    kept = Mounted(tmp_path, made_owner=(1000, 1000))
    entry = kept.make(b"a")
    after = kept.ops.setattr(entry.node, None, Change(uid=7, gid=8), CALLER)
    assert after[11:13] == (7, 8)
    kept.close()
    alike = Mounted(tmp_path, made_owner=(1000, 1000), shown_owner=(0, 0))
    entry = alike.ops.lookup(alike.data, b"a")
    alike.ops.setattr(entry.node, None, Change(uid=0, gid=8), CALLER)
    refused(errno.EPERM, lambda: alike.ops.setattr(entry.node, None, Change(uid=4711), CALLER))
    alike.close()
    assert (alike.workspace / "a").stat().st_uid == 7


def test_user_attributes_are_kept_and_others_are_not_spoken_of(mounted: Mounted) -> None:
    node = mounted.make(b"a").node
    mounted.ops.setxattr(node, b"user.note", b"v", os.XATTR_CREATE)
    assert mounted.ops.listxattr(node) == [b"user.note"]
    assert mounted.ops.getxattr(node, b"user.note") == b"v"
    refused(errno.EEXIST, lambda: mounted.ops.setxattr(node, b"user.note", b"w", os.XATTR_CREATE))
    mounted.ops.removexattr(node, b"user.note")
    refused(errno.ENODATA, lambda: mounted.ops.getxattr(node, b"user.note"))
    for name in (b"security.capability", b"trusted.x", b"system.posix_acl_access"):
        refused(errno.EOPNOTSUPP, lambda name=name: mounted.ops.getxattr(node, name))
        refused(errno.EOPNOTSUPP, lambda name=name: mounted.ops.setxattr(node, name, b"", 0))


def test_a_listing_resumes_at_any_offset_and_starts_again_at_zero(mounted: Mounted) -> None:
    for number in range(50):
        (mounted.workspace / f"{number:02}").touch()
    handle = mounted.ops.opendir(mounted.data)
    whole = list(mounted.ops.readdir(handle, 0, False))
    taken = []
    offset = 0
    while True:
        batch = []
        for entry in mounted.ops.readdir(handle, offset, False):
            if len(batch) == 7:
                break  # as a full reply does: this one is asked for again
            batch.append(entry)
        if not batch:
            break
        taken += batch
        offset = batch[-1].next_offset
    assert taken == whole
    assert list(mounted.ops.readdir(handle, 20, False)) == whole[20:]
    (mounted.workspace / "new").touch()
    assert b"new" in {entry.name for entry in mounted.ops.readdir(handle, 0, False)}
    mounted.ops.releasedir(handle)


def test_file_contents_are_kept_in_the_kernel_only_while_nobody_changed_them(
    mounted: Mounted,
) -> None:
    node = mounted.make(b"a", b"1").node

    def opened() -> bool:
        answer = mounted.ops.open(node, os.O_RDONLY)
        mounted.ops.release(answer.fh)
        return answer.keep_cache

    assert [opened(), opened()] == [False, True]
    (mounted.workspace / "a").write_bytes(b"22")
    assert [opened(), opened()] == [False, True]


def test_few_descriptors_reach_any_number_of_directories(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, max_descriptors=8)
    before = open_descriptors()
    nodes = []
    for number in range(100):
        name = str(number).encode()
        folder = mounted.ops.mkdir(mounted.data, name, 0o755, CALLER).node
        nodes.append((folder, mounted.make(b"f", name, folder).node))
    assert [mounted.read(node) for _, node in nodes] == [str(n).encode() for n in range(100)]
    assert open_descriptors() - before <= 8
    for folder, node in nodes:
        mounted.ops.forget(node, 1)
        mounted.ops.forget(folder, 1)
    assert mounted.ops.known == 3
    mounted.close()


@pytest.mark.slow
def test_a_tree_five_thousand_deep_is_walked_with_few_descriptors(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, max_descriptors=16)
    node = mounted.data
    for _ in range(5000):
        node = mounted.ops.mkdir(node, b"d", 0o755, CALLER).node
    leaf = mounted.make(b"leaf", b"deep", node).node
    mounted.clock.now += 10
    assert mounted.read(leaf) == b"deep"
    mounted.close()
    os.system(f"rm -rf '{mounted.workspace}/d'")


def test_closing_leaves_no_descriptor(tmp_path: Path) -> None:
    before = open_descriptors()
    mounted = Mounted(tmp_path)
    mounted.make(b"a")
    mounted.ops.open(mounted.ops.lookup(mounted.data, b"a").node, os.O_RDONLY)
    mounted.ops.opendir(mounted.data)
    mounted.ops.mkdir(mounted.data, b"d", 0o755, CALLER)
    mounted.close()
    assert open_descriptors() == before


def test_names_of_any_bytes_pass_unchanged(mounted: Mounted) -> None:
    names = [b"a\nb", b"\xff\xfe", b"-rf", b"*", b"back\\slash", b" two  spaces ", b"x" * 255]
    for name in names:
        mounted.make(name, name)
    assert mounted.names(mounted.data) == sorted([b"agents", *names])
    assert [mounted.read(mounted.ops.lookup(mounted.data, n).node) for n in names] == names
    refused(errno.ENAMETOOLONG, lambda: mounted.make(b"x" * 256))
    for name in (b"..", b".", b"", b"a/b", b"a\0b"):
        refused(errno.EINVAL, lambda name=name: mounted.make(name))


def test_an_empty_branch_answers_every_question(tmp_path: Path) -> None:
    ops = Operations(Branch(), Options())
    handle = ops.opendir(ROOT)
    assert [entry.name for entry in ops.readdir(handle, 0, True)] == [b".", b".."]
    ops.releasedir(handle)
    assert stat.filemode(ops.getattr(ROOT)[9]) == "dr-xr-xr-x"
    assert ops.listxattr(ROOT) == []
    assert ops.statfs(ROOT).f_bsize > 0
    ops.close()
