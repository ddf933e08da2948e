"""Listings, searches, sizes and digests of trees."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vfs.conftest import Mount
from tests.vfs.hostile import NOBODY, run_python
from tests.vfs.trees import Plan, plant
from vfs.beneath import Directory
from vfs.errors import InvalidPath, LinkRefused, NotADirectory, NotFound
from vfs.tree import (
    Cut,
    Entry,
    Limits,
    Usage,
    digest,
    list_directory,
    search,
    usage,
)

pytestmark = pytest.mark.usefixtures("way")


# Listings.


def test_a_listing_has_directories_first_and_no_regard_to_case(
    folder: Path, root: Directory
) -> None:
    plant(folder, {"b": {}, "A": {"x": b""}, "a.txt": b"", "B.txt": b"", "É": b"", "ê": b"",
                   "c": "b", "C": b""})  # fmt: skip
    (folder / os.fsdecode(b"\xff")).write_bytes(b"")
    os.mkfifo(folder / "b.fifo")
    listing = list_directory(root)
    assert [os.fsdecode(entry.name) for entry in listing.entries] == [
        "A", "b", "a.txt", "b.fifo", "B.txt", "C", "c", "É", "ê", os.fsdecode(b"\xff"),
    ]  # fmt: skip
    assert listing.cut == Cut()
    assert [entry.path for entry in list_directory(root, "A/").entries] == [(b"A", b"x")]
    for path, error in (("c", LinkRefused), ("C", NotADirectory), ("nope", NotFound)):
        with pytest.raises(error):
            list_directory(root, path)


def test_a_listing_looks_at_no_more_than_its_limit_and_says_so(
    folder: Path, root: Directory, outside: Path, mount: Mount
) -> None:
    plant(folder, {f"{number}": b"" for number in range(10)})
    limits = Limits(entries_per_directory=4)
    listing = list_directory(root, limits=limits)
    assert (len(listing.entries), listing.cut) == (4, Cut(entries_per_directory=1))
    (folder / "m").mkdir()
    mount(folder / "m", "--bind", outside)
    listing = list_directory(root)
    assert (len(listing.entries), listing.cut) == (10, Cut(mounts=1))


# Searches.

FOREST: Plan = {
    "README.md": b"",
    "src": {"main.py": b"", "Main_test.PY": b"", "deep": {"readme.txt": b"", "x.pyc": b""}},
    "docs": {"readme": {"a": b""}, "café.txt": b""},
    "link-to-readme": "README.md",
    "b[1]": b"",
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("readme", ["README.md", "link-to-readme", "docs/readme", "src/deep/readme.txt"]),
        ("README", ["README.md", "link-to-readme", "docs/readme", "src/deep/readme.txt"]),
        (b"readme.", ["README.md", "src/deep/readme.txt"]),
        ("*.py", ["src/Main_test.PY", "src/main.py"]),
        ("*.PY?", ["src/deep/x.pyc"]),
        ("main*", ["src/Main_test.PY", "src/main.py"]),
        ("readme", ["README.md", "link-to-readme", "docs/readme", "src/deep/readme.txt"]),
        ("cafe\u0301", ["docs/café.txt"]),
        ("CAF\u00c9", ["docs/café.txt"]),
        ("b[[]1]", ["b[1]"]),
        ("nothing like it", []),
        (lambda entry: entry.is_dir and len(entry.path) == 2, ["docs/readme", "src/deep"]),
    ],
)
def test_a_search_finds_parts_of_names_and_globs_the_nearest_first(
    folder: Path,
    root: Directory,
    pattern: str | bytes | Callable[[Entry], bool],
    expected: list[str],
) -> None:
    plant(folder, FOREST)
    hits = search(root, (), pattern)
    assert ["/".join(map(os.fsdecode, entry.path)) for entry in hits.entries] == expected
    assert hits.cut == Cut()


def test_a_search_starts_where_it_is_told_and_follows_nothing(
    folder: Path, root: Directory, outside: Path
) -> None:
    plant(folder, {"a": {"secret": b"", "out": str(outside), "b": {"secret": b""}}, "secret": b""})
    hits = search(root, "a", "secret")
    assert [b"/".join(entry.path) for entry in hits.entries] == [b"a/secret", b"a/b/secret"]
    with pytest.raises(LinkRefused):
        search(root, "a/out", "secret")


def test_a_wide_directory_at_the_side_does_not_hide_what_is_near(
    folder: Path, root: Directory
) -> None:
    plant(folder, {"a": {f"{number}": {"x": b""} for number in range(30)}, "z": {"wanted": b""}})
    hits = search(root, (), "wanted", Limits(directories=10))
    assert [entry.path for entry in hits.entries] == [(b"z", b"wanted")]
    assert hits.cut == Cut(directories=23)


@pytest.mark.parametrize(
    ("limits", "found", "cut"),
    [
        (Limits(), 6, Cut()),
        (Limits(hits=6), 6, Cut()),
        (Limits(hits=5), 5, Cut(hits=1)),
        (Limits(hits=0), 0, Cut(hits=1)),
        (Limits(depth=3), 6, Cut()),
        (Limits(depth=2), 5, Cut(depth=1)),
        (Limits(depth=1), 1, Cut(depth=2)),
        (Limits(entries=9), 6, Cut()),
        (Limits(entries=8), 5, Cut(entries=1)),
        (Limits(entries_per_directory=3), 6, Cut()),
        (Limits(directories=2), 3, Cut(directories=1)),
    ],
)
def test_a_search_says_which_limit_ended_it(
    folder: Path, root: Directory, limits: Limits, found: int, cut: Cut
) -> None:
    plant(folder, {"a": {"f1": b"", "f2": b""}, "b": {"c": {"f3": b""}, "f4": b"", "f5": b""},
                   "f6": b""})  # fmt: skip
    hits = search(root, (), "f", limits)
    assert len(hits.entries) == found
    assert hits.cut == cut


def test_a_search_says_which_directories_it_did_not_read_to_the_end(
    folder: Path, root: Directory
) -> None:
    plant(folder, {"f": {"f1": b"", "f2": b"", "f3": b""}})
    hits = search(root, (), "f", Limits(entries_per_directory=2))
    assert (len(hits.entries), hits.cut) == (3, Cut(entries_per_directory=1))


# Sizes.


def test_usage_counts_names_and_the_bytes_of_hard_links_once(folder: Path, root: Directory) -> None:
    plant(folder, {"a": {"f": b"x" * 5000, "l": "/etc"}, "g": b"12"})
    os.link(folder / "a" / "f", folder / "again")
    os.mkfifo(folder / "p")
    with open(folder / "sparse", "wb") as sparse:
        sparse.truncate(1 << 30)
    total = usage(root)
    blocks = {path.lstat().st_ino: path.lstat().st_blocks for path in folder.rglob("*")}
    assert total == Usage(
        files=4,
        directories=2,
        links=1,
        special=1,
        size=5000 + 2 + (1 << 30),
        allocated=512 * (sum(blocks.values()) + folder.stat().st_blocks),
        cut=Cut(),
    )


def test_usage_of_one_entry_is_that_entrys(folder: Path, root: Directory, outside: Path) -> None:
    plant(folder, {"f": b"123", "l": str(outside)})
    one = (folder / "f").stat().st_blocks * 512
    assert usage(root, "f") == Usage(files=1, size=3, allocated=one)
    assert usage(root, "l") == Usage(links=1, allocated=(folder / "l").lstat().st_blocks * 512)
    with pytest.raises(LinkRefused):
        usage(root, "l/secret")


def test_usage_says_what_it_could_not_see(folder: Path) -> None:
    plant(folder, {"closed": {"x": b""}, "f": b"1"})
    os.chmod(folder, 0o755)
    os.chmod(folder / "closed", 0o700)
    files, cut = run_python(
        "import json, os, sys\n"
        "from vfs.beneath import Directory\n"
        "from vfs.tree import usage\n"
        "root = Directory.open(sys.argv[1])\n"
        f"os.setgroups([]); os.setresgid(*[{NOBODY}] * 3); os.setresuid(*[{NOBODY}] * 3)\n"
        "total = usage(root)\n"
        "print(json.dumps([total.files, total.cut.to_json()]))\n",
        folder,
    )
    assert (files, cut) == (1, Cut(unreadable=1).to_json())


# Digests.

TREE: Plan = {"a": {"f": b"one", "empty": {}}, "l": "a/f", "x": b"#!"}


def changed(folder: Path, change: Callable[[Path], object]) -> bytes:
    """The digest of a tree of its own, with one thing changed."""
    folder.mkdir()
    plant(folder, TREE)
    change(folder)
    with Directory.open(folder) as directory:
        return digest(directory)


SAME: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "times": lambda top: [os.utime(top / "a" / "f", (1, 2)), os.utime(top / "a", (3, 4))],
    "owners": lambda top: [os.chown(top / "a" / "f", 7, 8), os.chown(top / "a", 7, 8)],
    "other mode bits": lambda top: [(top / "x").chmod(0o4640), (top / "a").chmod(0o711)],
    "a file made anew": lambda top: [(top / "x").unlink(), (top / "x").write_bytes(b"#!")],
}
OTHER: dict[str, Callable[[Path], object]] = {
    "content": lambda top: (top / "a" / "f").write_bytes(b"onE"),
    "the executable bit": lambda top: (top / "x").chmod(0o700),
    "the executable bit of the group": lambda top: (top / "a" / "f").chmod(0o654),
    "a name": lambda top: (top / "x").rename(top / "y"),
    "a place": lambda top: (top / "x").rename(top / "a" / "x"),
    "a further file": lambda top: (top / "a" / "new").touch(),
    "a further directory": lambda top: (top / "a" / "empty" / "e").mkdir(),
    "a file less": lambda top: (top / "x").unlink(),
    "a directory less": lambda top: (top / "a" / "empty").rmdir(),
    "a link's text": lambda top: [(top / "l").unlink(), (top / "l").symlink_to("a/g")],
    "a link's type": lambda top: [(top / "l").unlink(), (top / "l").write_bytes(b"a/f")],
    "a directory's type": lambda top: [(top / "a" / "empty").rmdir(), (top / "a/empty").touch()],
    "a FIFO": lambda top: os.mkfifo(top / "p"),
    "a device": lambda top: os.mknod(top / "p", stat.S_IFCHR, os.makedev(1, 3)),
}


def test_a_digest_tells_every_difference_of_content_and_no_other(tmp_path: Path) -> None:
    same = {
        name: changed(tmp_path / f"same-{number}", change)
        for number, (name, change) in enumerate(SAME.items())
    }
    assert same == dict.fromkeys(SAME, same["nothing"])
    others = {
        name: changed(tmp_path / f"other-{number}", change)
        for number, (name, change) in enumerate(OTHER.items())
    }
    assert len({same["nothing"], *others.values()}) == 1 + len(OTHER)
    assert {len(value) for value in others.values()} == {32}


def test_a_digest_does_not_take_names_for_content(folder: Path, root: Directory) -> None:
    plans: list[Plan] = [
        {"a": {"b": b""}}, {"a": {}, "b": b""}, {"ab": b""}, {"a": b"b"}, {"a": {"b": {}}},
        {"a": "b"}, {"a": b"", "b": b""}, {"a": {"b": b"", "c": b""}}, {"a": {"b": b""}, "c": b""},
        {},
    ]  # fmt: skip
    for number, plan in enumerate(plans):
        (folder / f"{number}").mkdir()
        plant(folder / f"{number}", plan)
    digests = [digest(root, f"{number}") for number in range(len(plans))]
    assert len(set(digests)) == len(plans)


def test_a_digest_of_one_entry_does_not_depend_on_its_name(folder: Path, root: Directory) -> None:
    plant(folder, {"a": b"1", "b": b"1", "c": b"2", "l": "1", "d": {"x": b""}, "e": {"x": b""}})
    assert digest(root, "a") == digest(root, "b") != digest(root, "c")
    assert digest(root, "d") == digest(root, "e")
    assert digest(root, "l") not in (digest(root, "a"), digest(root, "d"))


def test_a_digest_is_of_everything_or_none(
    folder: Path, root: Directory, outside: Path, mount: Mount
) -> None:
    plant(folder, {"a": {"m": {}}})
    mount(folder / "a" / "m", "--bind", outside)
    with pytest.raises(InvalidPath):
        digest(root)


def test_holes_make_no_difference_to_a_digest_and_take_no_time(
    folder: Path, root: Directory, memory: Directory
) -> None:
    size = 1 << 20
    data = {0: b"head", 70_000: b"middle", 130_000: bytes(100), size - 3: b"end"}
    for path in ("sparse", "zeros", "other"):
        with open(folder / path, "wb") as file:
            file.write(b"" if path == "sparse" else bytes(size))
            for offset, text in data.items():
                file.seek(offset)
                file.write(b"MIDDLE" if path == "other" and text == b"middle" else text)
    assert (folder / "sparse").stat().st_blocks < (folder / "zeros").stat().st_blocks
    assert digest(memory, "sparse") == digest(memory, "zeros") != digest(memory, "other")
    sizes = [0, 1, 65535, 65536, 65537, size, 2**62, 2**63 - 1]
    for number in sizes:
        with open(folder / f"{number}", "wb") as file:
            file.truncate(number)
    assert len({digest(memory, f"{number}") for number in sizes}) == len(sizes)


def test_digests_stay_the_same_between_versions(folder: Path, root: Directory) -> None:
    plant(folder, TREE)
    (folder / "x").chmod(0o755)
    assert digest(root).hex() == "443af7d006bef1cc2c1112f4944586b6e3c2589450df7b2dceff452936238214"
