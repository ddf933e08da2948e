"""The check of a storage: each kind of finding, and nothing where nothing is wrong."""

from __future__ import annotations

import os
import stat
import subprocess
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vfs.steps import as_user, killed_at
from vfs import inspection, projecting, skilltrees
from vfs.beneath import Directory
from vfs.check import Finding, check
from vfs.locking import lock
from vfs.naming import safe_uid
from vfs.saving import is_temporary, save, temporary_name
from vfs.skills import SkillStore, project
from vfs.workspace import Storage

HOME = "/home/gem/user-data"
SKILLS = "/home/gem/skills"
LEFT = os.fsdecode(temporary_name("0" * 32))

ASIDE = "move what is needed of it elsewhere, then remove it"
REFRESH = "bring the user's skills up to date: vfs skills project"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def storage(top: Path, tmp_path: Path) -> Iterator[Storage]:
    """Two users, a file of each, and a skill that both see."""
    with Storage.create(top) as made:
        for uid in ("alice", "a.b"):
            with made.add_user(uid) as workspace, workspace.scope() as scope:
                scope.make_directory("/notes")
                scope.save("/notes/today", b"milk")
        skill = tmp_path / "pdf"
        skill.mkdir()
        (skill / "SKILL.md").write_text("how to")
        SkillStore(made).add(skill)
        for uid in ("alice", "a.b"):
            project(made, uid)
        yield made


@pytest.fixture
def home(storage: Storage, top: Path) -> Path:
    """Alice's workspace."""
    return top / "user-data/shared/alice/workspace"


@pytest.fixture
def shown(storage: Storage, top: Path) -> Path:
    """Alice's projection."""
    return top / "skill-projections/alice"


def found(storage: Storage) -> list[Finding]:
    return list(check(storage))


def kinds(storage: Storage) -> list[tuple[str, str]]:
    return [(finding.kind, finding.path) for finding in check(storage)]


def own(path: Path) -> Path:
    os.chown(path, 1000, 1000, follow_symlinks=False)
    return path


def write(path: Path, mode: int = 0o600) -> Path:
    path.write_bytes(b"")
    path.chmod(mode)
    return own(path)


def directory(path: Path, mode: int = 0o700) -> Path:
    path.mkdir()
    path.chmod(mode)
    return own(path)


def link(path: Path, text: str | bytes) -> Path:
    os.symlink(os.fsencode(text), os.fsencode(path))
    return own(path)


def test_a_storage_in_order_has_no_findings(storage: Storage) -> None:
    assert found(storage) == []


def test_what_an_agent_makes_in_the_usual_way_is_no_finding(storage: Storage, home: Path) -> None:
    write(home / "under umask 022", 0o644)
    directory(home / "directory", 0o755)
    write(home / "program", 0o755)
    write(home / "read-only, as git makes objects", 0o444)
    write(home / "closed to all others", 0o700)
    write(home / "a\nname\x1b of \udcff any bytes")
    write(home / ".gemspace-notes")
    os.link(home / "program", home / "another name of it")
    directory(home / "agents")
    assert found(storage) == []


def test_an_empty_storage_is_in_order(tmp_path: Path) -> None:
    with Storage.create(tmp_path / "new") as storage:
        assert found(storage) == []


# Owners and modes.


def test_a_wrong_owner_is_found_wherever_it_is(
    storage: Storage, home: Path, shown: Path, top: Path
) -> None:
    places = {
        top / "skill-projections": "skill-projections",
        top / "user-data/shared/alice": "user-data/shared/alice",
        home: HOME,
        home / "notes/today": f"{HOME}/notes/today",
        shown / "pdf/SKILL.md": f"{SKILLS}/pdf/SKILL.md",
        top / "skill-store/shared/pdf": "skill-store/shared/pdf",
    }
    for path in places:
        os.chown(path, 0, 1000)
    os.chown(home / "notes", 1000, 7)
    os.symlink("notes", home / "link")
    findings = [finding for finding in check(storage) if not finding.harmless]
    assert {finding.path for finding in findings} == {
        *places.values(),
        f"{HOME}/notes",
        f"{HOME}/link",
    }
    assert {finding.kind for finding in findings} == {"owner"}
    by_path = {finding.path: finding for finding in findings}
    assert by_path[f"{HOME}/notes"] == Finding(
        "owner",
        f"{HOME}/notes",
        "it belongs to 1000:7, not to 1000:1000",
        "chown -h 1000:1000",
        "alice",
    )
    assert by_path["user-data/shared/alice"].user is None


def test_in_somebodys_own_storage_only_the_user_counts(tmp_path: Path) -> None:
    top = tmp_path / "own"
    os.chown(tmp_path, 1234, 1234)
    for above in tmp_path.parents[:2]:
        above.chmod(0o755)

    def make() -> None:
        with (
            Storage.create(top) as storage,
            storage.add_user("alice") as workspace,
            workspace.scope() as scope,
        ):
            scope.save("/file", b"")
            scope.save("/other", b"")

    assert as_user(make, uid=1234) == 0
    home = top / "user-data/shared/alice/workspace"
    os.chown(home / "file", 1234, 99)
    with Storage.open(top) as storage:
        assert found(storage) == []
        os.chown(home / "other", 1000, 1000)
        assert found(storage) == [
            Finding(
                "owner",
                f"{HOME}/other",
                "it belongs to 1000:1000, not to 1234",
                "chown -h 1234",
                "alice",
            )
        ]

    def look() -> None:
        with Storage.open(top) as storage:
            assert kinds(storage) == [("owner", f"{HOME}/other")]

    assert as_user(look, uid=1234) == 0


@pytest.mark.parametrize(
    ("make", "mode", "faults", "right"),
    [
        (write, 0o666, "others than its owner may write", 0o644),
        (write, 0o620, "others than its owner may write", 0o600),
        (write, 0o4755, "it has a set-id bit", 0o755),
        (write, 0o2600, "it has a set-id bit", 0o600),
        (write, 0o244, "its owner may not use it", 0o644),
        (write, 0o000, "its owner may not use it", 0o400),
        (directory, 0o777, "others than its owner may write", 0o755),
        (directory, 0o1777, "others than its owner may write", 0o1755),
        (directory, 0o2755, "it has a set-id bit", 0o755),
        (directory, 0o555, "its owner may not use it", 0o755),
        (directory, 0o600, "its owner may not use it", 0o700),
        (
            write,
            0o6022,
            "others than its owner may write, it has a set-id bit, its owner may not use it",
            0o400,
        ),
    ],
)
def test_a_wrong_mode_is_found_with_the_right_one(
    storage: Storage,
    home: Path,
    make: Callable[[Path, int], Path],
    mode: int,
    faults: str,
    right: int,
) -> None:
    path = make(home / "entry", 0o700)
    path.chmod(mode)
    assert found(storage) == [
        Finding(
            "mode",
            f"{HOME}/entry",
            f"its mode is {mode:04o}: {faults}",
            f"chmod {right:04o}",
            "alice",
        )
    ]
    path.chmod(right)
    assert found(storage) == []


def test_a_wrong_mode_is_found_in_the_store_and_the_projections_too(
    storage: Storage, shown: Path, top: Path
) -> None:
    (top / "skill-store/shared/pdf/SKILL.md").chmod(0o666)
    (shown / "pdf").chmod(0o777)
    (top / "user-data").chmod(0o775)
    assert kinds(storage) == [
        ("mode", "user-data"),
        ("mode", "skill-store/shared/pdf/SKILL.md"),
        ("mode", f"{SKILLS}/pdf"),
    ]


# Links.


def test_links_are_counted_and_those_that_lead_out_are_listed(storage: Storage, home: Path) -> None:
    link(home / "a", "notes/today")
    link(home / "b", "/etc/passwd")
    link(home / "notes/c", "../notes")
    link(home / "notes/d", "../../bob")
    link(home / "e", b"\xff/../x\n")
    outside = "nothing follows it; put the file in its place if it is needed"
    assert found(storage) == [
        Finding(
            "link",
            f"{HOME}/b",
            "it is a link to /etc/passwd, which may be outside",
            outside,
            "alice",
        ),
        Finding(
            "link",
            f"{HOME}/e",
            "it is a link to \\xff/../x\\x0a, which may be outside",
            outside,
            "alice",
        ),
        Finding(
            "link",
            f"{HOME}/notes/d",
            "it is a link to ../../bob, which may be outside",
            outside,
            "alice",
        ),
        Finding(
            "links",
            HOME,
            "it holds 5 symbolic links",
            "nothing: they are shown as links and never followed",
            "alice",
            harmless=True,
        ),
    ]


def test_links_that_stay_are_only_counted(storage: Storage, home: Path) -> None:
    link(home / "notes/link", "today")
    assert [(finding.kind, finding.harmless) for finding in check(storage)] == [("links", True)]


def test_no_link_belongs_into_the_store_or_a_projection(
    storage: Storage, shown: Path, top: Path
) -> None:
    link(top / "skill-store/shared/pdf/link", "SKILL.md")
    link(shown / "pdf/other", "SKILL.md")
    fix = "put the file itself in its place"
    assert found(storage) == [
        Finding("link", "skill-store/shared/pdf/link", "it is a link to SKILL.md", fix),
        Finding("link", f"{SKILLS}/pdf/other", "it is a link to SKILL.md", fix, "alice"),
    ]


# Special files.


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (stat.S_IFIFO, "FIFO"),
        (stat.S_IFSOCK, "socket"),
        (stat.S_IFCHR, "character device"),
        (stat.S_IFBLK, "block device"),
    ],
)
def test_a_special_file_is_found_and_not_opened(
    storage: Storage, home: Path, kind: int, word: str
) -> None:
    os.mknod(home / "special", kind | 0o600, os.makedev(1, 3))
    own(home / "special")
    assert found(storage) == [
        Finding(
            "special", f"{HOME}/special", f"it is a {word}; nothing opens it", "remove it", "alice"
        )
    ]


# Names.


@pytest.mark.parametrize(
    "names",
    [
        ["README", "readme"],
        ["README", "ReadMe"],
        ["README", "ReadMe", "readme"],
        ["Straße", "STRASSE"],
        [unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")],
        [unicodedata.normalize("NFC", "É"), unicodedata.normalize("NFD", "é")],
        ["Ａ", "ａ"],
        ["A\udcff", "a\udcff"],
    ],
)
def test_names_that_would_collide_are_found_once(
    storage: Storage, home: Path, names: list[str]
) -> None:
    for name in names:
        write(home / "notes" / name)
    (finding,) = found(storage)
    first, *others = sorted(map(os.fsencode, names))
    assert (finding.kind, finding.path) == ("collision", f"{HOME}/notes/{os.fsdecode(first)}")
    assert all(inspection.printable(name) in finding.detail for name in others)


@pytest.mark.parametrize(
    "names", [["a", "b"], ["A", "B", "C"], ["a", "a "], ["é", "e"], ["\udcfe", "\udcff"]]
)
def test_names_that_stay_apart_are_no_finding(
    storage: Storage, home: Path, names: list[str]
) -> None:
    for name in names:
        write(home / name)
    directory(home / "NOTES2")
    write(home / "NOTES2/TODAY")
    assert found(storage) == []


def test_equal_names_in_different_directories_do_not_collide(storage: Storage, home: Path) -> None:
    write(directory(home / "a") / "Name")
    write(home / "name")
    write(directory(home / "b") / "NAME")
    write(home / "b2")
    assert found(storage) == []


def test_a_finding_about_many_names_stays_short(storage: Storage, home: Path) -> None:
    for number in range(256):
        name = "".join(c.upper() if number >> i & 1 else c for i, c in enumerate("abcdefgh"))
        write(home / name)
    (finding,) = found(storage)
    assert finding.path == f"{HOME}/ABCDEFGH"
    assert finding.detail.endswith("ABCDEFgH, ABCDEFgh, ABCDEfGH, ABCDEfGh and 250 more")


def test_a_directory_of_too_many_names_is_said_not_to_be_compared(
    storage: Storage, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "COMPARED_MAX", 3)
    for name in ("A", "B", "C", "c", "d", "e", "f"):
        write(home / name)
    assert kinds(storage) == [("collision", f"{HOME}/C")]
    write(home / "D")
    assert ("unreadable", HOME) in kinds(storage)


# The layout.


def test_what_the_layout_has_no_place_for_is_found(storage: Storage, top: Path) -> None:
    hashed = safe_uid("a.b")
    for name in ("user-data", "skill-projections", "skill-store"):
        directory(top / name / "lost+found")
    write(top / "user-data/stray")
    directory(top / "user-data/other")
    write(top / "user-data/shared/file")
    directory(top / "user-data/shared/b.c")
    directory(top / "user-data/shared/a.b")
    directory(top / os.fsdecode(b"user-data/shared/\xff"))
    write(top / "user-data/shared/alice/stray")
    write(top / "skill-projections/file")
    directory(top / "skill-projections/nobody")
    directory(top / "skill-projections/alice/gone")
    directory(top / "skill-projections/alice/Not A Slug")
    write(top / "skill-projections/alice/file")
    write(top / "skill-store/stray")
    write(top / "skill-store/shared/file")
    directory(top / "skill-store/shared/Not A Slug")
    link(top / "skill-store/shared/link", "pdf")
    aside = "nothing belongs here"
    right = safe_uid("b.c")
    assert sorted(found(storage), key=lambda finding: finding.path) == [
        Finding("stray", f"{SKILLS}/Not A Slug", "it is not a skill", "remove it", "alice"),
        Finding("stray", f"{SKILLS}/file", "it is not a skill", "remove it", "alice"),
        Finding("stray", f"{SKILLS}/gone", "the store has no such skill", REFRESH, "alice"),
        Finding("stray", "skill-projections/file", "it is not a directory", "remove it"),
        Finding("stray", "skill-projections/nobody", "no user has it", "remove it"),
        Finding("stray", "skill-store/shared/Not A Slug", "it is not a skill", ASIDE),
        Finding("stray", "skill-store/shared/file", "it is not a skill", ASIDE),
        Finding("stray", "skill-store/shared/link", "it is not a skill", ASIDE),
        Finding("stray", "skill-store/stray", aside, ASIDE),
        Finding("stray", "user-data/other", aside, ASIDE),
        Finding(
            "collision",
            "user-data/shared/a.b",
            f"the user id a.b has the directory {hashed} as well, which is the one used",
            f"move what is needed of it into {hashed}, then remove it",
        ),
        Finding("stray", "user-data/shared/alice/stray", aside, ASIDE),
        Finding(
            "stray",
            "user-data/shared/b.c",
            f"nobody is found here: the directory of the user id b.c is {right}",
            f"rename it to {right}, or remove it",
        ),
        Finding("stray", "user-data/shared/file", "it is not a directory", ASIDE),
        Finding("stray", "user-data/shared/\udcff", "no user id has this directory", ASIDE),
        Finding("stray", "user-data/stray", aside, ASIDE),
    ]


def test_what_the_layout_misses_is_found(storage: Storage, top: Path) -> None:
    directory(top / "user-data/shared/bob")
    directory(top / "user-data/shared/carol")
    write(top / "user-data/shared/carol/workspace")
    (top / "skill-projections/alice").rename(top / "aside")
    assert found(storage) == [
        Finding(
            "incomplete",
            "user-data/shared/bob/workspace",
            "it is not there",
            "add the user again: vfs user add",
        ),
        Finding("incomplete", "user-data/shared/carol/workspace", "it is not a directory", ASIDE),
    ]
    for name in ("user-data", "skill-store"):
        (top / name / "shared").rename(top / f"{name}-aside")
    assert sorted(kinds(storage)) == [
        ("incomplete", "skill-store/shared"),
        ("incomplete", "user-data/shared"),
        ("stray", f"skill-projections/{safe_uid('a.b')}"),
    ]


def test_a_users_directory_that_is_a_link_is_found_and_not_followed(
    storage: Storage, top: Path, tmp_path: Path
) -> None:
    link(top / "user-data/shared/mallory", "alice")
    (top / "skill-projections/alice").rename(tmp_path / "aside")
    link(top / "skill-projections/alice", tmp_path / "aside")
    assert kinds(storage) == [
        ("stray", "user-data/shared/mallory"),
        ("stray", "skill-projections/alice"),
    ]


# Skills.


def test_a_projection_that_differs_from_its_source_is_found(
    storage: Storage, shown: Path, top: Path
) -> None:
    path = shown / "pdf/SKILL.md"
    before = path.stat()
    path.write_text("HOW TO")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    differs = Finding(
        "projection", f"{SKILLS}/pdf", "its content differs from the store's", REFRESH, "alice"
    )
    assert found(storage) == [differs]
    project(storage, "alice", by_content=True)
    assert found(storage) == []


def test_a_user_who_sees_fewer_skills_is_in_order(storage: Storage) -> None:
    project(storage, "alice", [])
    assert found(storage) == []


def test_a_skill_over_the_limits_is_found(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skilltrees, "ENTRIES_MAX", 0)
    assert found(storage) == [
        Finding(
            "skill",
            "skill-store/shared/pdf",
            "it cannot be shown: pdf: it holds more than 0 entries or 32 levels",
            "leave out what agents do not need",
        )
    ]


def test_a_projection_that_is_being_refreshed_is_said_not_to_be_compared(
    storage: Storage, top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projecting, "WAIT", 0)
    fd = os.open(top / "user-data/shared/alice", os.O_RDONLY)
    try:
        lock(fd, wait=0)
        assert found(storage) == [
            Finding(
                "unreadable",
                SKILLS,
                "it could not be looked at: the user's skills are being refreshed",
                "try again later",
                "alice",
            )
        ]
    finally:
        os.close(fd)


# Leftovers.


def test_what_a_killed_process_left_is_found_everywhere(
    storage: Storage, home: Path, shown: Path, top: Path
) -> None:
    for folder in (
        home / "notes",
        top / "user-data",
        top / "user-data/shared",
        top / "skill-projections",
        shown,
        top / "skill-store/shared",
        top / "skill-store/shared/pdf",
    ):
        write(folder / LEFT)
    assert sorted(path for kind, path in kinds(storage) if kind == "leftover") == [
        f"{SKILLS}/{LEFT}",
        f"{HOME}/notes/{LEFT}",
        f"skill-projections/{LEFT}",
        f"skill-store/shared/{LEFT}",
        f"skill-store/shared/pdf/{LEFT}",
        f"user-data/{LEFT}",
        f"user-data/shared/{LEFT}",
    ]


def test_what_a_killed_save_leaves_is_found(storage: Storage, home: Path) -> None:
    with Directory.open(home) as folder:
        tag = save(folder, b"file", b"old", owner=(1000, 1000))
        for step in range(100):
            assert killed_at(step, lambda: save(folder, b"file", b"new", owner=(1000, 1000)))
            left = [name for name in folder.names() if is_temporary(name)]
            if left:
                break
        assert tag.size == 3
    assert found(storage) == [
        Finding(
            "leftover",
            f"{HOME}/{os.fsdecode(left[0])}",
            "a process that was killed left it, unless one is writing there now",
            "look whether it holds something that is missed, then remove it",
            "alice",
        )
    ]


# What cannot be looked at.


def test_a_mount_is_found_and_not_crossed(storage: Storage, home: Path, top: Path) -> None:
    places = [home / "mounted", top / "user-data/shared/a"]
    for place in places:
        directory(place)
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
        os.mkfifo(place / "inside")
    try:
        detail = "something else is mounted there; it was not looked at"
        fix = "unmount it, and check again"
        assert found(storage) == [
            Finding("mount", "user-data/shared/a", detail, fix),
            Finding("mount", f"{HOME}/mounted", detail, fix, "alice"),
        ]
    finally:
        for place in places:
            subprocess.run(["umount", place], check=True)


def test_a_place_that_cannot_be_read_is_a_finding_and_the_rest_is_checked(tmp_path: Path) -> None:
    top = tmp_path / "own"
    os.chown(tmp_path, 1234, 1234)
    for above in tmp_path.parents[:2]:
        above.chmod(0o755)

    def make() -> None:
        with Storage.create(top) as storage, storage.add_user("alice") as workspace:
            with workspace.scope() as scope:
                for path in ("/a", "/b/c", "/d"):
                    scope.make_directory(path, parents=True)
            for uid in ("bob", "carol"):
                storage.add_user(uid).close()

    assert as_user(make, uid=1234) == 0
    shared = top / "user-data/shared"
    (shared / "alice/workspace/a").chmod(0)
    (shared / "alice/workspace/b").chmod(0o300)
    (shared / "alice/workspace/d").chmod(0o777)
    (shared / "bob").chmod(0)
    (shared / "carol/workspace").chmod(0)

    def look() -> None:
        with Storage.open(top) as storage:
            assert sorted(kinds(storage)) == [
                ("mode", HOME),
                ("mode", f"{HOME}/a"),
                ("mode", f"{HOME}/b"),
                ("mode", f"{HOME}/d"),
                ("mode", "user-data/shared/bob"),
                ("unreadable", HOME),
                ("unreadable", f"{HOME}/a"),
                ("unreadable", f"{HOME}/b"),
                ("unreadable", "user-data/shared/bob"),
            ]
            findings = {(finding.kind, finding.path): finding for finding in check(storage)}
            assert findings["unreadable", f"{HOME}/a"] == Finding(
                "unreadable",
                f"{HOME}/a",
                "it could not be looked at: permission denied",
                "run as the owner of the storage, or as root",
                "alice",
            )

    assert as_user(look, uid=1234) == 0


def test_what_vanishes_meanwhile_is_no_finding(storage: Storage, home: Path) -> None:
    for number in range(50):
        write(home / f"{number:02}", 0o666)
        write(directory(home / f"{number:02}-directory", 0o777) / "file", 0o666)
    seen = []
    for finding in check(storage):
        seen.append(finding.kind)
        if len(seen) == 10:
            subprocess.run(f"rm -rf {home}/*", shell=True, check=True)
    assert set(seen) == {"mode"}


# At large.


def test_findings_come_while_the_walk_goes_on(storage: Storage, home: Path) -> None:
    for number in range(1000):
        write(home / f"{number}", 0o666)
    findings = check(storage)
    assert next(findings).kind == "mode"
    for path in home.iterdir():
        if path.is_file():
            path.chmod(0o600)
    rest = list(findings)
    assert len(rest) < 10


def peak(storage: Storage) -> int:
    """Bytes that a check needs at most."""
    for _ in check(storage):
        pass
    tracemalloc.start()
    try:
        for _ in check(storage):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_files(storage: Storage, home: Path) -> None:
    def grow(directories: range) -> None:
        for number in directories:
            folder = directory(home / f"Directory-{number}")
            for other in range(50):
                write(folder / f"File-{other}", 0o666)

    grow(range(20))
    small = peak(storage)
    grow(range(20, 200))
    assert peak(storage) < small + 100_000


def test_no_descriptor_stays_open(storage: Storage, home: Path, shown: Path) -> None:
    write(home / "file", 0o666)
    link(home / "link", "x")
    before = os.listdir("/proc/self/fd")
    found(storage)
    next(check(storage))
    assert os.listdir("/proc/self/fd") == before
