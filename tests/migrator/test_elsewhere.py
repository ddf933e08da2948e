"""Files with a name outside of the workspaces are not given away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from migrator.elsewhere import named_elsewhere
from tests.migrator import sample
from tests.migrator.operator import migrator
from vfs.beneath import Directory


def link(old: Path, new: Path) -> Path:
    new.parent.mkdir(parents=True, exist_ok=True)
    os.link(old, new)
    return new


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(path))
    return path


def test_a_file_is_elsewhere_if_not_all_of_its_names_were_found(tmp_path: Path) -> None:
    top = tmp_path / "root"
    alone = write(top / "a/w/alone")
    link(write(top / "a/w/d/twice"), top / "a/w/e/f/twice")
    link(write(top / "a/w/of two users"), top / "b/w/of two users")
    link(write(top / "a/w/of a thread"), top / "t/of a thread")
    out = write(top / "a/w/outside")
    link(out, tmp_path / "outside")
    hidden = write(top / "a/w/skipped/hidden")
    link(hidden, tmp_path / "hidden")
    tops = [(b"a", b"w"), (b"b", b"w"), (b"c", b"missing"), (b"a", b"w", b"alone")]
    with Directory.open(top) as root:
        found = named_elsewhere(root, tops, [(b"a", b"w", b"skipped")])
    assert found == {out.stat().st_ino}
    assert alone.stat().st_ino not in found


@pytest.mark.parametrize("in_place", [False, True], ids=["elsewhere", "in place"])
@pytest.mark.parametrize("transfer", ["link", "copy"])
def test_what_a_user_linked_in_from_outside_keeps_its_owner_there(
    memory: Path, transfer: str, in_place: bool
) -> None:
    saves = sample.minimal(memory / "s", in_place=in_place)
    outside = write(saves.folder / "outside")
    outside.chmod(0o640)
    user = saves.source / "threads/shared/alice/workspace"
    link(outside, user / "planted")
    link(outside, saves.source / "threads/t1/user-data/uploads/planted")
    done = migrator(saves, "run", "--transfer", transfer).expect(1)
    status = outside.stat()
    assert (status.st_uid, status.st_mode & 0o7777) == (0, 0o640)
    assert (("warning", "named_elsewhere") in done.findings) == in_place
    (copied,) = saves.user_data.glob("shared/alice/workspace/projects/*/uploads/planted")
    assert (copied.stat().st_uid, copied.read_bytes()) == (1000, outside.read_bytes())
    assert not copied.samefile(outside)
