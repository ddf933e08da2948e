"""Where host paths lie to each other. On a fake file system: no descriptor is needed for it."""

from __future__ import annotations

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from migrator.estimating import existing
from migrator.overlaps import beneath


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (b"/srv/saves", ()),
        (b"/srv/saves/", ()),
        (b"/srv/saves/threads", (b"threads",)),
        (b"/srv/saves/a/../threads/./x", (b"threads", b"x")),
        (b"/srv/alias/threads/new", (b"threads", b"new")),
        ("/srv/saves/é/x".encode(), ("é".encode(), b"x")),
        (b"/srv/saves2", None),
        (b"/srv", None),
        (b"/elsewhere/saves", None),
    ],
)
def test_a_path_beneath_another_whatever_it_is_written_like(
    fs: FakeFilesystem, place: bytes, expected: tuple[bytes, ...] | None
) -> None:
    fs.create_dir("/srv/saves/a")
    fs.create_symlink("/srv/alias", "/srv/saves")
    assert beneath(b"/srv/saves", place) == expected
    assert beneath(b"/srv/alias", place) == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (b"/srv/new", b"/srv/new"),
        (b"/srv/new/user-data/x", b"/srv/new"),
        (b"/srv/file/x", b"/srv"),
        (b"/srv/alias/x", b"/srv/new"),
        (b"/nothing/at/all", b"/"),
    ],
)
def test_the_nearest_folder_that_is_there(
    fs: FakeFilesystem, place: bytes, expected: bytes
) -> None:
    fs.create_dir("/srv/new")
    fs.create_file("/srv/file")
    fs.create_symlink("/srv/alias", "/srv/new")
    assert existing(place) == expected
