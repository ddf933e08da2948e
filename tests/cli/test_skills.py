"""`vfs skills`: what is in the store and in the projections after each verb, and what it says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.cli.program import Vfs


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder named csv-report, with two files."""
    folder = tmp_path / "csv-report"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: csv\ndescription: Reads \x1b tables\n---\n")
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    return folder


def projected(vfs: Vfs, user: str = "alice") -> list[str]:
    """The files that the user sees."""
    top = vfs.storage / "skill-projections" / user
    return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())


def test_add_copies_a_folder_into_the_store(alice: Vfs, source: Path) -> None:
    size = sum(path.stat().st_size for path in source.iterdir())
    said = alice.good("skills", "add", source)
    assert said.decode() == f"csv-report is in the store: 2 files, {size} bytes\n"
    stored = alice.storage / "skill-store" / "shared" / "csv-report"
    assert (stored / "run").read_bytes() == b"#!/bin/sh\n"
    assert (stored / "run").stat().st_mode & 0o100
    assert {(s.st_uid, s.st_gid) for p in stored.iterdir() for s in [p.stat()]} == {(1000, 1000)}


def test_add_again_takes_replace(alice: Vfs, source: Path) -> None:
    alice.good("skills", "add", source)
    (source / "run").write_text("new")
    done = alice("skills", "add", source)
    assert (done.status, done.out, done.err.decode()) == (
        4,
        b"",
        "vfs: there is a skill csv-report already; replace it, or choose another slug\n",
    )
    alice.good("skills", "add", source, "--replace")
    alice.good("skills", "add", source, "--slug", "other")
    shared = alice.storage / "skill-store" / "shared"
    assert {p.name: (p / "run").read_text() for p in shared.iterdir()} == {
        "csv-report": "new", "other": "new",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "status"),
    [
        (lambda folder: os.symlink("/etc/passwd", folder / "l"), 8),
        (lambda folder: os.mkfifo(folder / "p"), 9),
        (lambda folder: folder.rename(folder.with_name("gone")), 3),
    ],
)
def test_add_refuses_what_cannot_be_a_skill(
    alice: Vfs, source: Path, spoil: object, status: int
) -> None:
    assert callable(spoil)
    spoil(source)
    done = alice("skills", "add", source)
    assert (done.status, done.out, done.err.count(b"\n")) == (status, b"", 1)
    assert os.listdir(alice.storage / "skill-store" / "shared") == []


def test_add_refuses_a_name_that_is_no_slug(alice: Vfs, source: Path) -> None:
    folder = source.rename(source.with_name("Csv Report"))
    done = alice("skills", "add", folder)
    assert (done.status, done.err.decode()) == (
        19,
        "vfs: not a skill slug: Csv Report; use words of a-z and 0-9 joined by single hyphens, at "
        "most 128 characters\n",
    )


def test_list_shows_what_is_in_the_store(alice: Vfs, source: Path) -> None:
    assert alice.good("skills", "list") == b""
    alice.good("skills", "add", source)
    (source / "SKILL.md").unlink()
    alice.good("skills", "add", source, "--slug", "plain")
    assert alice.good("skills", "list").decode() == (
        "SKILL       FILES  BYTES  DESCRIPTION\n"
        "csv-report      2     56  Reads \\x1b tables\n"
        "plain           1     10  -\n"
    )
    assert alice("skills", "list", "--json").json == {
        "skills": [
            {"slug": "csv-report", "description": "Reads \\x1b tables", "files": 2, "size": 56},
            {"slug": "plain", "description": None, "files": 1, "size": 10},
        ]
    }


def test_project_brings_a_user_up_to_date(alice: Vfs, source: Path) -> None:
    alice.good("skills", "add", source)
    alice.good("skills", "add", source, "--slug", "pdf")
    assert alice.good("skills", "project", "alice") == b"added csv-report\nadded pdf\n0 unchanged\n"
    assert projected(alice) == ["csv-report/SKILL.md", "csv-report/run", "pdf/SKILL.md", "pdf/run"]
    assert alice.good("skills", "project", "alice") == b"2 unchanged\n"
    (source / "run").write_text("newer")
    alice.good("skills", "add", source, "--replace")
    alice.good("skills", "remove", "pdf")
    assert alice.good("skills", "project", "alice") == (
        b"updated csv-report\nremoved pdf\n0 unchanged\n"
    )
    run = alice.storage / "skill-projections" / "alice" / "csv-report" / "run"
    assert (run.read_text(), bool(stat.S_IMODE(run.stat().st_mode) & 0o100)) == ("newer", True)


def test_project_can_show_some_skills_alone(alice: Vfs, source: Path) -> None:
    for slug in ("a", "b", "c"):
        alice.good("skills", "add", source, "--slug", slug)
    alice.good("skills", "project", "alice")
    assert alice("skills", "project", "alice", "b", "--json").json == {
        "uid": "alice", "added": [], "updated": [], "removed": ["a", "c"], "unchanged": ["b"],
        "refused": {},
    }  # fmt: skip
    assert projected(alice) == ["b/SKILL.md", "b/run"]


def test_project_refuses_a_bad_skill_by_name_and_shows_the_others(alice: Vfs, source: Path) -> None:
    alice.good("skills", "add", source, "--slug", "good")
    alice.good("skills", "add", source, "--slug", "bad")
    os.symlink("/etc/passwd", alice.storage / "skill-store" / "shared" / "bad" / "l")
    done = alice("skills", "project", "alice")
    assert (done.status, done.err, done.out.decode()) == (
        1,
        b"",
        "added good\nrefused bad: l is a symbolic link\n0 unchanged\n",
    )
    assert projected(alice) == ["good/SKILL.md", "good/run"]


def test_verify_compares_every_byte(alice: Vfs, source: Path) -> None:
    alice.good("skills", "add", source)
    alice.good("skills", "project", "alice")
    assert alice.good("skills", "verify", "alice") == b""
    run = alice.storage / "skill-projections" / "alice" / "csv-report" / "run"
    when = run.stat().st_mtime_ns
    run.write_text("#!/bin/no\n")
    os.utime(run, ns=(when, when))
    assert alice.good("skills", "project", "alice") == b"1 unchanged\n"
    done = alice("skills", "verify", "alice")
    assert (done.status, done.err, done.out) == (
        1,
        b"",
        b"different csv-report: its content differs from the store's\n",
    )
    done = alice("skills", "verify", "alice", "--json")
    assert (done.status, done.json) == (
        1,
        {
            "uid": "alice",
            "differences": [
                {
                    "slug": "csv-report",
                    "kind": "different",
                    "detail": "its content differs from the store's",
                }
            ],
        },
    )
    assert alice.good("skills", "project", "alice", "--by-content") == (
        b"updated csv-report\n0 unchanged\n"
    )
    assert alice.good("skills", "verify", "alice") == b""


def test_remove_takes_a_skill_out_of_the_store_alone(alice: Vfs, source: Path) -> None:
    alice.good("skills", "add", source)
    alice.good("skills", "project", "alice")
    assert alice("skills", "remove", "csv-report", "--json").json == {"removed": "csv-report"}
    assert projected(alice) != []
    done = alice("skills", "remove", "csv-report")
    assert (done.status, done.err.decode()) == (
        3,
        "vfs: there is no skill csv-report; see which there are: vfs skills list\n",
    )


@pytest.mark.parametrize("verb", ["project", "verify"])
def test_an_unknown_user_and_a_bad_slug_are_refused(alice: Vfs, verb: str) -> None:
    assert alice("skills", verb, "bob").status == 3
    assert alice("skills", verb, "alice", "../x").status == 19


def test_a_mistyped_slug_costs_a_user_no_skill(alice: Vfs, source: Path) -> None:
    alice.good("skills", "add", source)
    alice.good("skills", "project", "alice")
    done = alice("skills", "project", "alice", "god")
    assert (done.status, done.err.decode()) == (
        3,
        "vfs: there is no skill god in the store; nothing was changed; "
        "`vfs skills list` says what there is\n",
    )
    assert projected(alice) == ["csv-report/SKILL.md", "csv-report/run"]
