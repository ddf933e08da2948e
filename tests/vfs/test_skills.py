"""Skills: the store, and each user's projection: whole, up to date, and untouched if unchanged."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.vfs.steps import killed_at
from vfs import linux, projecting, skills, skilltrees, tree
from vfs.beneath import Directory
from vfs.errors import (
    AlreadyExists,
    Busy,
    InvalidName,
    InvalidPath,
    LinkRefused,
    NoSpace,
    NotADirectory,
    NotFound,
    SpecialFileRefused,
    Unavailable,
    VfsError,
)
from vfs.locking import lock
from vfs.naming import safe_uid
from vfs.skills import Difference, Projection, Skill, SkillStore, description, project, verify
from vfs.workspace import Storage

PDF = {"SKILL.md": b"---\nname: pdf\ndescription: Reads PDFs.\n---\n", "run.py*": b"print()\n"}
CSV = {"SKILL.md": b"no front matter", "lib/deep/data": b"\0" * 5000}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.fixture
def storage(top: Path) -> Iterator[Storage]:
    with Storage.create(top) as made:
        made.add_user("alice").close()
        yield made


@pytest.fixture
def store(storage: Storage) -> SkillStore:
    return SkillStore(storage)


@pytest.fixture
def shared(top: Path) -> Path:
    """The store's folder of skills."""
    return top / "skill-store/shared"


@pytest.fixture
def shown(top: Path) -> Path:
    """What alice sees."""
    return top / "skill-projections/alice"


def make(folder: Path, files: dict[str, bytes]) -> Path:
    """Makes a folder of files; a name that ends with * may be executed."""
    for name, content in files.items():
        path = folder / name.removesuffix("*")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if name.endswith("*") else 0o644)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    """The files of a folder, as `make` takes them."""
    return {
        str(path.relative_to(folder)) + ("*" if path.stat().st_mode & 0o111 else ""): (
            path.read_bytes()
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def facts(top: Path) -> dict[str, tuple[int, ...]]:
    """Everything that a touch would change, of all that is beneath a folder, and of itself."""
    found = {}
    for path in [top, *top.rglob("*")]:
        status = path.lstat()
        found[str(path.relative_to(top))] = (
            status.st_ino,
            status.st_mode,
            status.st_uid,
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
        )
    return found


def modes(top: Path) -> dict[str, tuple[str, int, int]]:
    return {
        str(path.relative_to(top)): (
            stat.filemode(path.lstat().st_mode),
            path.lstat().st_uid,
            path.lstat().st_gid,
        )
        for path in [top, *top.rglob("*")]
    }


# The store.


def test_a_skill_is_copied_with_its_executable_bits(
    store: SkillStore, shared: Path, tmp_path: Path
) -> None:
    source = make(tmp_path / "pdf", PDF)
    before = facts(source)
    assert store.add(source) == Skill("pdf", "Reads PDFs.", 2, 51)
    assert content(shared / "pdf") == PDF
    assert modes(shared) == {
        ".": ("drwx------", 1000, 1000),
        "pdf": ("drwx------", 1000, 1000),
        "pdf/SKILL.md": ("-rw-------", 1000, 1000),
        "pdf/run.py": ("-rwx------", 1000, 1000),
    }
    assert facts(source) == before


def test_skills_are_listed_by_slug(store: SkillStore, shared: Path, tmp_path: Path) -> None:
    assert store.list() == []
    store.add(make(tmp_path / "pdf", PDF))
    store.add(make(tmp_path / "csv", CSV), "csv-report")
    (shared / "Not A Slug").mkdir()
    (shared / "file").write_text("")
    (shared / "link").symlink_to("pdf")
    assert store.list() == [
        Skill("csv-report", None, 2, 5015),
        Skill("pdf", "Reads PDFs.", 2, 51),
    ]


def test_a_skill_that_exists_is_replaced_only_if_told(
    store: SkillStore, shared: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    with pytest.raises(AlreadyExists) as caught:
        store.add(make(tmp_path / "csv", CSV), "pdf")
    assert str(caught.value) == ("there is a skill pdf already; replace it, or choose another slug")
    assert content(shared / "pdf") == PDF
    store.add(tmp_path / "csv", "pdf", replace=True)
    assert content(shared / "pdf") == CSV
    store.add(tmp_path / "csv", "other", replace=True)
    assert os.listdir(shared) == ["pdf", "other"] or os.listdir(shared) == ["other", "pdf"]


def test_a_removed_skill_is_gone(store: SkillStore, shared: Path, tmp_path: Path) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    store.remove("pdf")
    assert os.listdir(shared) == []
    with pytest.raises(NotFound) as caught:
        store.remove("pdf")
    assert str(caught.value) == "there is no skill pdf; see which there are: vfs skills list"


@pytest.mark.parametrize("slug", ["", "PDF", "a_b", "-a", "a--b", "../x", "a" * 129, "pdf\n", "é"])
def test_what_is_no_slug_is_refused(
    store: SkillStore, storage: Storage, shared: Path, tmp_path: Path, slug: str
) -> None:
    source = make(tmp_path / "pdf", PDF)
    doors: list[Callable[[], object]] = [
        lambda: store.add(source, slug),
        lambda: store.remove(slug),
        lambda: project(storage, "alice", [slug]),
        lambda: verify(storage, "alice", [slug]),
    ]
    for door in doors:
        with pytest.raises(InvalidName):
            door()
    assert os.listdir(shared) == []


@pytest.mark.parametrize(
    "spelling", ["{}/pdf", "{}/pdf/", "{}/pdf/.", "{}/csv/../pdf", "{}/to-pdf"]
)
def test_the_folder_gives_the_slug_and_may_be_reached_through_links(
    store: SkillStore, shared: Path, tmp_path: Path, spelling: str
) -> None:
    make(tmp_path / "pdf", PDF)
    make(tmp_path / "csv", CSV)
    (tmp_path / "to-pdf").symlink_to("pdf")
    slug = store.add(spelling.format(tmp_path)).slug
    assert slug == ("to-pdf" if "to-pdf" in spelling else "pdf")
    assert content(shared / slug) == PDF


def test_a_folder_without_a_slug_for_a_name_needs_one(store: SkillStore, tmp_path: Path) -> None:
    source = make(tmp_path / "My Skill", PDF)
    with pytest.raises(InvalidName):
        store.add(source)
    assert store.add(source, "my-skill").slug == "my-skill"


@pytest.mark.parametrize(
    ("path", "error"),
    [("missing", NotFound), ("file", NotADirectory), ("a\0b", InvalidPath), ("", NotFound)],
)
def test_what_is_no_folder_is_no_skill(
    store: SkillStore, shared: Path, tmp_path: Path, path: str, error: type[VfsError]
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(error, match="cannot open the folder of the skill"):
        store.add(f"{tmp_path}/{path}" if path else "", "pdf")
    assert os.listdir(shared) == []


def a_link(path: Path) -> None:
    path.symlink_to("SKILL.md")


def a_dangling_link(path: Path) -> None:
    path.symlink_to("/etc/passwd-not-there")


def a_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def a_device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))


BAD = [
    (a_link, LinkRefused, "is a symbolic link"),
    (a_dangling_link, LinkRefused, "is a symbolic link"),
    (os.mkfifo, SpecialFileRefused, "is a FIFO, socket or device"),
    (a_socket, SpecialFileRefused, "is a FIFO, socket or device"),
    (a_device, SpecialFileRefused, "is a FIFO, socket or device"),
]


@pytest.mark.parametrize(("bad", "error", "reason"), BAD)
def test_a_link_or_special_file_is_refused_by_name_on_the_way_in(
    store: SkillStore,
    shared: Path,
    tmp_path: Path,
    bad: Callable[[Path], None],
    error: type[VfsError],
    reason: str,
) -> None:
    source = make(tmp_path / "pdf", PDF)
    (source / "sub").mkdir()
    bad(source / "sub/bad\nname")
    with pytest.raises(error) as caught:
        store.add(source)
    assert caught.value.message == f"pdf: sub/bad\\x0aname {reason}"
    assert caught.value.path == b"pdf/sub/bad\nname"
    assert os.listdir(shared) == []


def test_a_skill_over_the_limits_is_refused(
    store: SkillStore, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = r"^deep: it holds more than \d+ entries or 32 levels$"
    path = tmp_path / "deep"
    (path / "/".join("d" * 31)).mkdir(parents=True)
    store.add(path)
    (path / "/".join("d" * 32)).mkdir(parents=True)
    with pytest.raises(VfsError) as caught:
        store.add(path, replace=True)
    assert (caught.value.kind, caught.value.message) == (
        "too_large",
        "deep: it holds more than 10000 entries or 32 levels",
    )
    monkeypatch.setattr(skilltrees, "ENTRIES_MAX", 2)
    with pytest.raises(VfsError, match=message.removesuffix("$")):
        store.add(make(tmp_path / "three", {"a": b"", "b": b"", "c": b""}), "deep", replace=True)
    assert os.listdir(shared) == ["deep"]


def test_a_folder_that_holds_the_store_is_not_copied_into_it(
    store: SkillStore, top: Path, shared: Path
) -> None:
    make(shared / "pdf", PDF)
    with pytest.raises(InvalidPath):
        store.add(top, "all")
    assert os.listdir(shared) == ["pdf"]


def test_a_full_disk_changes_no_skill(top: Path, tmp_path: Path) -> None:
    top.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", top], check=True)
    try:
        with Storage.create(top) as storage:
            storage.add_user("alice").close()
            store = SkillStore(storage)
            store.add(make(tmp_path / "pdf", PDF))
            project(storage, "alice")
            source = make(tmp_path / "big", {"data": b"x" * 400_000})
            store.add(source)
            with pytest.raises(NoSpace):
                store.add(make(tmp_path / "bigger", {"data": b"x" * 900_000}), "pdf", replace=True)
            with pytest.raises(NoSpace):
                project(storage, "alice")
            assert [skill.slug for skill in store.list()] == ["big", "pdf"]
            assert os.listdir(top / "skill-projections/alice") == ["pdf"]
            assert content(top / "skill-projections/alice/pdf") == PDF
            store.remove("big")
            assert project(storage, "alice") == Projection(unchanged=("pdf",))
    finally:
        subprocess.run(["umount", top], check=True)


def test_a_killed_addition_leaves_the_old_skill_or_the_new_one_whole(
    storage: Storage, store: SkillStore, shared: Path, tmp_path: Path
) -> None:
    old = make(tmp_path / "old", PDF)
    new = make(tmp_path / "new", {"SKILL.md": b"new", "lib/run*": b"new"})
    outcomes: dict[str, set[int]] = {"old": set(), "new": set()}
    for step in range(0, 10_000, 7):
        store.add(old, "pdf", replace=True)
        killed = killed_at(step, lambda: store.add(new, "pdf", replace=True))
        found = content(shared / "pdf")
        outcomes["old" if found == PDF else "new"].add(len(os.listdir(shared)))
        assert found in (PDF, content(new))
        if not killed:
            break
    assert {kind: max(count) for kind, count in outcomes.items()} == {"old": 2, "new": 2}
    store.add(new, "pdf", replace=True)
    assert os.listdir(shared) == ["pdf"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("---\ndescription: Reads PDFs.\n---\n", "Reads PDFs."),
        ("---\nname: x\ndescription: Reads PDFs. # not this\nother: y\n---", "Reads PDFs."),
        ("---\ndescription: a#b\n---\n", "a#b"),
        ("---\ndescription: 'It''s: one'\n---\n", "It's: one"),
        ('---\ndescription: "A \\"quoted\\" one: two"\n---\n', 'A "quoted" one: two'),
        ("---\ndescription: >-\n  Reads\n  PDFs.\nname: x\n---\n", "Reads PDFs."),
        ("---\ndescription: |\n  Reads\n\n  PDFs.\n---\n", "Reads PDFs."),
        ("---\ndescription: Reads\n  PDFs.\n---\n", "Reads PDFs."),
        ("---\r\ndescription: Reads PDFs.\r\n---\r\n", "Reads PDFs."),
        ("---\ndescription:\n---\n", None),
        ("---\nname: x\n---\ndescription: not here\n", None),
        ("---\ndescription: never ended\n", None),
        ("description: no front matter\n", None),
        ("", None),
        ("---\ndescription: " + "x" * 2000 + "\n---\n", "x" * 1024),
    ],
)
def test_a_description_is_read_as_it_is_written_in_yaml(text: str, expected: str | None) -> None:
    assert description(text) == expected


@given(st.text())
def test_a_description_is_one_line_or_none(text: str) -> None:
    for front in (text, f"---\n{text}\n---\n", f"---\ndescription: {text}\n---\n"):
        found = description(front)
        assert found is None or (found == " ".join(found.split()) and 0 < len(found) <= 1024)


def test_a_description_that_cannot_be_read_is_none(
    store: SkillStore, shared: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    (shared / "pdf/SKILL.md").unlink()
    os.mkfifo(shared / "pdf/SKILL.md")
    assert store.list() == [Skill("pdf", None, 1, 8)]


# The projection.


def test_a_projection_follows_the_store(
    storage: Storage, store: SkillStore, shown: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    store.add(make(tmp_path / "csv", CSV))
    assert project(storage, "alice") == Projection(added=("csv", "pdf"))
    assert (content(shown / "pdf"), content(shown / "csv")) == (PDF, CSV)
    assert project(storage, "alice") == Projection(unchanged=("csv", "pdf"))
    store.add(make(tmp_path / "new", {"SKILL.md": b"new"}), "pdf", replace=True)
    store.remove("csv")
    store.add(tmp_path / "csv", "added")
    assert project(storage, "alice") == Projection(
        added=("added",), updated=("pdf",), removed=("csv",)
    )
    assert {name: content(shown / name) for name in os.listdir(shown)} == {
        "added": CSV,
        "pdf": {"SKILL.md": b"new"},
    }


def test_a_projection_is_private_real_files(
    storage: Storage, store: SkillStore, shared: Path, shown: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    (shared / "pdf/SKILL.md").chmod(0o4666)
    (shared / "pdf/run.py").chmod(0o555)
    os.link(shared / "pdf/SKILL.md", shared / "pdf/second")
    before = os.umask(0)
    try:
        project(storage, "alice")
    finally:
        os.umask(before)
    assert modes(shown) == {
        ".": ("drwx------", 1000, 1000),
        "pdf": ("drwx------", 1000, 1000),
        "pdf/SKILL.md": ("-rw-------", 1000, 1000),
        "pdf/second": ("-rw-------", 1000, 1000),
        "pdf/run.py": ("-rwx------", 1000, 1000),
    }
    inodes = {path.stat().st_ino for path in shown.rglob("*")}
    assert inodes.isdisjoint(path.stat().st_ino for path in shared.rglob("*"))


def test_only_the_skills_asked_for_are_shown(
    storage: Storage, store: SkillStore, shown: Path, tmp_path: Path
) -> None:
    for slug in ("a", "b", "c"):
        store.add(make(tmp_path / "pdf", PDF), slug)
    assert project(storage, "alice", ["b", "a", "a"]) == Projection(added=("a", "b"))
    assert project(storage, "alice", iter(["b", "c"])) == Projection(
        added=("c",), removed=("a",), unchanged=("b",)
    )
    assert project(storage, "alice", ["b", "gone"]) == Projection(
        removed=("c",), unchanged=("b",), refused={"gone": "it is not in the store"}
    )
    assert project(storage, "alice", []) == Projection(removed=("b",))
    assert os.listdir(shown) == []


def test_each_user_has_a_projection_of_their_own(
    storage: Storage, store: SkillStore, top: Path, tmp_path: Path
) -> None:
    storage.add_user("a.b").close()
    store.add(make(tmp_path / "pdf", PDF))
    assert project(storage, "a.b") == Projection(added=("pdf",))
    assert os.listdir(top / "skill-projections/alice") == []
    assert content(top / "skill-projections" / safe_uid("a.b") / "pdf") == PDF


def test_a_projection_that_was_deleted_is_made_again(
    storage: Storage, store: SkillStore, shown: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    shown.rmdir()
    assert project(storage, "alice") == Projection(added=("pdf",))
    assert modes(shown)["."] == ("drwx------", 1000, 1000)


@pytest.mark.parametrize("door", [project, verify])
def test_an_unknown_user_has_no_skills(
    storage: Storage, top: Path, door: Callable[[Storage, str], object]
) -> None:
    before = facts(top)
    with pytest.raises(NotFound, match="there is no user bob"):
        door(storage, "bob")
    with pytest.raises(InvalidName):
        door(storage, "")
    assert facts(top) == before


@pytest.mark.parametrize("door", [project, verify])
def test_a_store_that_is_not_there_is_not_taken_for_an_empty_one(
    storage: Storage,
    store: SkillStore,
    shared: Path,
    shown: Path,
    tmp_path: Path,
    door: Callable[[Storage, str], object],
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    project(storage, "alice")
    shared.rename(tmp_path / "elsewhere")
    with pytest.raises(NotFound, match="skill-store has no folder shared"):
        door(storage, "alice")
    assert content(shown / "pdf") == PDF


# What counts as a change.


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"!")


def touch(path: Path) -> None:
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def toggle(path: Path) -> None:
    path.chmod(0o700)


def add_beside(path: Path) -> None:
    (path.parent / "added").write_bytes(b"")


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def rename(path: Path) -> None:
    path.rename(path.parent / "renamed")


@pytest.mark.parametrize(
    "change", [grow, touch, toggle, add_beside, replace_by_directory, rename, Path.unlink]
)
@pytest.mark.parametrize("side", ["store", "projection"])
def test_a_quick_look_sees_a_change_on_either_side(
    storage: Storage,
    store: SkillStore,
    shared: Path,
    shown: Path,
    tmp_path: Path,
    change: Callable[[Path], None],
    side: str,
) -> None:
    store.add(make(tmp_path / "csv", CSV))
    project(storage, "alice")
    change({"store": shared, "projection": shown}[side] / "csv/lib/deep/data")
    assert project(storage, "alice") == Projection(updated=("csv",))
    assert content(shown) == content(shared)
    assert project(storage, "alice") == Projection(unchanged=("csv",))


def test_an_empty_directory_is_seen_too(
    storage: Storage, store: SkillStore, shared: Path, shown: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    project(storage, "alice")
    (shared / "pdf/empty").mkdir()
    assert project(storage, "alice") == Projection(updated=("pdf",))
    assert (shown / "pdf/empty").is_dir()


def test_a_change_that_a_quick_look_cannot_see_is_seen_by_content(
    storage: Storage, store: SkillStore, shown: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    project(storage, "alice")
    path = shown / "pdf/run.py"
    before = path.stat()
    path.write_bytes(b"PRINT()\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert project(storage, "alice") == Projection(unchanged=("pdf",))
    assert verify(storage, "alice") == [
        Difference("pdf", "different", "its content differs from the store's")
    ]
    assert project(storage, "alice", by_content=True) == Projection(updated=("pdf",))
    assert content(shown / "pdf") == PDF
    assert project(storage, "alice", by_content=True) == Projection(unchanged=("pdf",))


@pytest.mark.parametrize("bad", [bad for bad, _, _ in BAD])
def test_what_stands_in_the_place_of_a_projection_is_replaced_and_not_followed(
    storage: Storage,
    store: SkillStore,
    shown: Path,
    tmp_path: Path,
    bad: Callable[[Path], None],
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    bad(shown / "pdf")
    assert project(storage, "alice") == Projection(updated=("pdf",))
    assert content(shown / "pdf") == PDF
    outside = make(tmp_path / "outside", PDF)
    (shown / "pdf").rename(tmp_path / "aside")
    (shown / "pdf").symlink_to(outside)
    (shown / "gone").symlink_to(outside)
    assert project(storage, "alice") == Projection(updated=("pdf",), removed=("gone",))
    assert content(outside) == PDF
    (shown / "pdf/lib").symlink_to(outside)
    assert project(storage, "alice") == Projection(updated=("pdf",))
    assert (content(outside), os.listdir(shown)) == (PDF, ["pdf"])


def test_names_of_any_bytes_are_projected(
    storage: Storage, store: SkillStore, shared: Path, shown: Path, tmp_path: Path
) -> None:
    names = [b"\xff", b"a\nb", b"-rf", b" ", "报告".encode(), b"x" * 255]
    folder = os.fsencode(make(tmp_path / "pdf", PDF))
    for name in names:
        os.makedirs(folder + b"/" + name)
        with open(folder + b"/" + name + b"/" + name, "wb") as file:
            file.write(name)
    store.add(tmp_path / "pdf")
    assert project(storage, "alice") == Projection(added=("pdf",))
    assert project(storage, "alice") == Projection(unchanged=("pdf",))
    assert content(shown) == content(shared)


FILES = st.dictionaries(
    st.sampled_from(["a", "b", "c/a", "c/b", "d/e/f", "g*"]), st.binary(max_size=3), max_size=5
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from(["one", "two"]), FILES), max_size=4))
def test_after_each_refresh_the_projection_is_the_store(
    storage: Storage, shared: Path, shown: Path, history: list[dict[str, dict[str, bytes]]]
) -> None:
    for state in [*history, {}]:
        with Directory.open(shared) as directory:
            for name in directory.names():
                tree.remove(directory, (name,))
        for slug, files in state.items():
            make(shared / slug, {**files, "SKILL.md": b""})
        refreshed = project(storage, "alice")
        assert content(shown) == content(shared)
        assert sorted((*refreshed.added, *refreshed.updated, *refreshed.unchanged)) == sorted(state)
        assert verify(storage, "alice") == []
        assert project(storage, "alice") == Projection(unchanged=tuple(sorted(state)))


# An unchanged refresh.


def fifty_skills(shared: Path) -> tuple[str, ...]:
    """Makes 50 skills of 20 files; their slugs."""
    slugs = tuple(f"skill-{number:02}" for number in range(50))
    for slug in slugs:
        make(shared / slug, {f"file-{n}{'*' if n % 5 == 0 else ''}": b"x" * n for n in range(20)})
    return slugs


def test_an_unchanged_refresh_touches_nothing(storage: Storage, shared: Path, shown: Path) -> None:
    slugs = fifty_skills(shared)
    make(shared / slugs[0], {"a/b/c": b"", "a/d": b""})
    assert project(storage, "alice") == Projection(added=slugs)
    before = facts(shown)
    assert len(before) == 1 + 50 * 21 + 4
    assert project(storage, "alice") == Projection(unchanged=slugs)
    assert facts(shown) == before


def test_an_unchanged_refresh_of_fifty_skills_takes_less_than_10_ms(
    storage: Storage, shared: Path
) -> None:
    slugs = fifty_skills(shared)
    project(storage, "alice")
    times = []
    for _ in range(50):
        # It waits for nothing, so this is what it takes where nobody else wants the processor.
        begin = time.thread_time()
        assert project(storage, "alice") == Projection(unchanged=slugs)
        times.append(time.thread_time() - begin)
    print(f"an unchanged refresh of 50 skills of 20 files: {min(times) * 1000:.2f} ms")
    assert min(times) < 0.010


# What is refused.


@pytest.mark.parametrize(("bad", "error", "reason"), BAD)
def test_a_refused_skill_keeps_its_last_projection_and_the_others_are_unharmed(
    storage: Storage,
    store: SkillStore,
    shared: Path,
    shown: Path,
    tmp_path: Path,
    bad: Callable[[Path], None],
    error: type[VfsError],
    reason: str,
) -> None:
    store.add(make(tmp_path / "a", PDF))
    store.add(make(tmp_path / "b", CSV))
    store.add(make(tmp_path / "c", PDF))
    project(storage, "alice", ["a", "b"])
    bad(shared / "b/lib/bad")
    bad(shared / "itself")
    grow(shared / "a/SKILL.md")
    refreshed = project(storage, "alice")
    assert refreshed == Projection(
        added=("c",),
        updated=("a",),
        refused={"b": f"lib/bad {reason}", "itself": refreshed.refused["itself"]},
    )
    assert content(shown / "b") == CSV
    assert {name: content(shown / name) for name in ("a", "c")} == {
        name: content(shared / name) for name in ("a", "c")
    }
    assert sorted(os.listdir(shown)) == ["a", "b", "c"]
    assert [(d.slug, d.kind) for d in verify(storage, "alice")] == [
        ("b", "refused"),
        ("itself", "refused"),
    ]
    (shared / "b/lib/bad").unlink()
    (shared / "itself").unlink()
    assert project(storage, "alice") == Projection(unchanged=("a", "b", "c"))


def test_a_mount_in_a_skill_is_refused(
    storage: Storage, store: SkillStore, shared: Path, shown: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    (shared / "pdf/mounted").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", shared / "pdf/mounted"], check=True)
    try:
        refreshed = project(storage, "alice")
    finally:
        subprocess.run(["umount", shared / "pdf/mounted"], check=True)
    assert refreshed == Projection(
        refused={"pdf": "cannot read pdf/mounted: another filesystem is mounted there"}
    )
    assert os.listdir(shown) == []


def test_a_file_system_without_exchange_is_told(
    storage: Storage,
    store: SkillStore,
    shared: Path,
    shown: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    project(storage, "alice")
    grow(shared / "pdf/SKILL.md")

    real = linux.renameat2

    def refuse(*args: Any) -> None:
        if args[4] == linux.RENAME_EXCHANGE:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(*args)

    monkeypatch.setattr(linux, "renameat2", refuse)
    with pytest.raises(Unavailable, match="cannot replace pdf: the filesystem lacks support"):
        project(storage, "alice")
    assert content(shown / "pdf") == PDF
    assert os.listdir(shown) == ["pdf"]


def during_a_copy(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """Runs `action` at the end of each copy of a tree."""
    real = tree.copy

    def copy(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        action()

    monkeypatch.setattr(tree, "copy", copy)


def test_a_skill_that_is_changed_during_its_copy_is_copied_again(
    storage: Storage,
    store: SkillStore,
    shared: Path,
    shown: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    changes = iter([grow, grow])
    during_a_copy(monkeypatch, lambda: next(changes, lambda path: None)(shared / "pdf/SKILL.md"))
    assert project(storage, "alice") == Projection(added=("pdf",))
    assert content(shown) == content(shared)


def test_a_skill_that_is_replaced_during_its_copy_is_copied_again(
    storage: Storage,
    store: SkillStore,
    shared: Path,
    shown: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    make(tmp_path / "new", CSV)

    def replace() -> None:
        monkeypatch.undo()
        store.add(tmp_path / "new", "pdf", replace=True)

    during_a_copy(monkeypatch, replace)
    assert project(storage, "alice") == Projection(added=("pdf",))
    assert content(shown / "pdf") == CSV


def test_a_skill_that_never_stands_still_is_refused(
    storage: Storage,
    store: SkillStore,
    shared: Path,
    shown: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    during_a_copy(monkeypatch, lambda: grow(shared / "pdf/SKILL.md"))
    assert project(storage, "alice") == Projection(
        refused={"pdf": "it kept changing while it was copied"}
    )
    assert os.listdir(shown) == []


@pytest.mark.parametrize(
    ("slugs", "refused"), [(None, {}), (["pdf", "csv"], {"pdf": "it is not in the store"})]
)
def test_a_skill_that_is_removed_during_its_copy_goes(
    storage: Storage,
    store: SkillStore,
    shared: Path,
    shown: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slugs: list[str] | None,
    refused: dict[str, str],
) -> None:
    store.add(make(tmp_path / "csv", CSV))
    store.add(make(tmp_path / "pdf", PDF))
    project(storage, "alice")
    grow(shared / "pdf/SKILL.md")
    during_a_copy(monkeypatch, lambda: store.remove("pdf"))
    assert project(storage, "alice", slugs) == Projection(
        removed=("pdf",), unchanged=("csv",), refused=refused
    )
    assert os.listdir(shown) == ["csv"]


# Differences.


def test_verify_tells_each_kind_of_difference(
    storage: Storage, store: SkillStore, shared: Path, shown: Path, tmp_path: Path
) -> None:
    for slug in ("different", "extra", "linked", "missing", "same"):
        store.add(make(tmp_path / "pdf", PDF), slug)
    project(storage, "alice", ["different", "extra", "linked", "same"])
    grow(shown / "different/SKILL.md")
    (shown / "linked/link").symlink_to("SKILL.md")
    store.remove("extra")
    before = facts(shown)
    assert verify(storage, "alice") == [
        Difference("different", "different", "its content differs from the store's"),
        Difference("extra", "extra", "it is not in the store"),
        Difference("linked", "different", "its content differs from the store's"),
        Difference("missing", "missing", "it is not projected"),
    ]
    assert verify(storage, "alice", ["same", "gone"]) == [
        Difference("different", "extra", "it was not asked for"),
        Difference("extra", "extra", "it is not in the store"),
        Difference("gone", "refused", "it is not in the store"),
        Difference("linked", "extra", "it was not asked for"),
    ]
    assert facts(shown) == before
    project(storage, "alice")
    assert verify(storage, "alice") == []


def test_verify_without_a_projection_misses_everything(
    storage: Storage, store: SkillStore, shown: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    shown.rmdir()
    assert verify(storage, "alice") == [Difference("pdf", "missing", "it is not projected")]
    assert not shown.exists()


# Several at once, and one that is killed.


def test_a_refresh_waits_its_turn_and_not_for_ever(
    storage: Storage,
    store: SkillStore,
    top: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    monkeypatch.setattr(projecting, "WAIT", 0)
    monkeypatch.setattr(skills, "WAIT", 0)
    fd = os.open(top / "user-data/shared/alice", os.O_RDONLY)
    try:
        lock(fd, wait=0)
        for door in (project, verify):
            with pytest.raises(Busy) as caught:
                door(storage, "alice")
            assert str(caught.value) == "the user's skills are being refreshed; try again later"
    finally:
        os.close(fd)
    fd = os.open(top / "skill-store/shared", os.O_RDONLY)
    try:
        lock(fd, wait=0)
        with pytest.raises(Busy):
            store.remove("pdf")
        assert project(storage, "alice") == Projection(added=("pdf",))
    finally:
        os.close(fd)
    store.remove("pdf")


def test_an_agent_that_locks_what_it_sees_stops_no_refresh(
    storage: Storage, store: SkillStore, top: Path, shown: Path, tmp_path: Path
) -> None:
    store.add(make(tmp_path / "pdf", PDF))
    fds = [
        os.open(place, os.O_RDONLY) for place in (shown, top / "user-data/shared/alice/workspace")
    ]
    try:
        for fd in fds:
            lock(fd, wait=0)
        assert project(storage, "alice") == Projection(added=("pdf",))
    finally:
        for fd in fds:
            os.close(fd)


HAMMER = """
import select
import sys
from vfs.skills import project
from vfs.workspace import Storage

with Storage.open(sys.argv[1]) as storage:
    print("ready", flush=True)
    rounds = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        refreshed = project(storage, "alice")
        assert not refreshed.refused, refreshed
        rounds += 1
print(rounds)
"""


def version_of(skill: Path) -> bytes | None:
    """Which version a reader finds who opens the skill once; None when it was replaced meanwhile.

    Every file of a version holds the same bytes; a mixture or a hole fails the test.
    """
    try:
        fd = os.open(skill, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        before = os.fstat(fd).st_ino
        found = []
        for name in sorted(os.listdir(fd)):
            try:
                file = os.open(name, os.O_RDONLY, dir_fd=fd)
            except FileNotFoundError:
                break
            with open(file, "rb") as opened:
                found.append((name, opened.read()))
        try:
            after = os.stat(skill).st_ino
        except FileNotFoundError:
            after = 0
        if before != after:
            # The old one may be on its way out; what was read is of one version still.
            assert len({text for _, text in found}) <= 1
            return None
        assert [name for name, _ in found] == [f"{n:02}" for n in range(20)]
        texts = {text for _, text in found}
        assert len(texts) == 1
        return texts.pop()
    finally:
        os.close(fd)


@pytest.mark.slow
def test_two_that_refresh_all_the_time_are_safe_and_readers_see_whole_skills(
    storage: Storage, store: SkillStore, shared: Path, shown: Path, top: Path, tmp_path: Path
) -> None:
    def version(number: int) -> dict[str, bytes]:
        return {f"{n:02}": b"version %d" % number for n in range(20)}

    store.add(make(tmp_path / "pdf", version(0)))
    store.add(make(tmp_path / "other", PDF))
    project(storage, "alice")
    hammers = [
        subprocess.Popen(
            [sys.executable, "-c", HAMMER, top], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    seen = set()
    try:
        for hammer in hammers:
            assert hammer.stdout is not None
            assert hammer.stdout.readline() == b"ready\n"
        for number in range(1, 25):
            store.add(make(tmp_path / "pdf", version(number)), "pdf", replace=True)
            if number % 3 == 0:
                store.add(tmp_path / "other", "fleeting")
            elif number % 3 == 1 and number > 1:
                store.remove("fleeting")
            deadline = time.monotonic() + 30
            while (found := version_of(shown / "pdf")) != b"version %d" % number:
                seen.add(found)
                assert time.monotonic() < deadline
            seen.add(found)
    finally:
        ends = [hammer.communicate(b"end") for hammer in hammers]
    assert [hammer.returncode for hammer in hammers] == [0, 0]
    # The lock is not fair: one of them may get few turns, but none is shut out.
    turns = [int(out) for out, _ in ends]
    assert min(turns) > 0
    assert sum(turns) > 10
    assert {b"version %d" % number for number in range(1, 25)} <= seen
    project(storage, "alice")
    assert verify(storage, "alice") == []
    assert sorted(os.listdir(shown)) == sorted(os.listdir(shared))


@pytest.mark.slow
def test_a_refresh_killed_at_any_step_is_completed_by_the_next(
    storage: Storage, store: SkillStore, shared: Path, shown: Path, tmp_path: Path
) -> None:
    old = make(tmp_path / "old", PDF)
    new = {"SKILL.md": b"new", "lib/run*": b"new"}
    make(tmp_path / "new", new)
    leftovers = set()
    for step in range(0, 10_000, 5):
        store.add(old, "changed", replace=True)
        store.add(old, "removed", replace=True)
        with_new = project(storage, "alice", ["changed", "removed"])
        assert with_new.refused == {}
        store.add(tmp_path / "new", "changed", replace=True)
        store.add(tmp_path / "new", "added", replace=True)
        store.remove("removed")
        killed = killed_at(step, lambda: project(storage, "alice"))
        left = {}
        for name in os.listdir(shown):
            if name.startswith(".gemspace-"):
                leftovers.add(step)
            else:
                left[name] = content(shown / name)
        assert left.pop("changed") in (PDF, new)
        assert left.pop("added", new) == new
        assert left.pop("removed", PDF) == PDF
        assert left == {}
        refreshed = project(storage, "alice")
        assert refreshed.refused == {}
        assert sorted(os.listdir(shown)) == ["added", "changed"]
        assert content(shown) == content(shared)
        if not killed:
            break
    assert len(leftovers) > 5


def test_no_descriptor_stays_open(
    storage: Storage, store: SkillStore, shared: Path, tmp_path: Path
) -> None:
    before = os.listdir("/proc/self/fd")
    store.add(make(tmp_path / "pdf", PDF))
    project(storage, "alice")
    store.add(make(tmp_path / "csv", CSV), "pdf", replace=True)
    (shared / "pdf/link").symlink_to("x")
    project(storage, "alice")
    verify(storage, "alice")
    store.list()
    store.remove("pdf")
    project(storage, "alice")
    assert os.listdir("/proc/self/fd") == before
