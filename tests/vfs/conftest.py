"""The floor's fixtures: a directory to work in, what lies outside of it, and both resolvers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.vfs.hostile import snapshot
from vfs.beneath import Directory, Openat2, Walk, resolver

Mount = Callable[..., Path]


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each way to resolve a path, chosen as an operator does: by GEMSPACE_NO_OPENAT2."""
    if request.param == "walk":
        monkeypatch.setenv("GEMSPACE_NO_OPENAT2", "1")
    else:
        monkeypatch.delenv("GEMSPACE_NO_OPENAT2", raising=False)
    resolver.cache_clear()
    assert type(resolver()) is {"openat2": Openat2, "walk": Walk}[request.param]
    yield request.param
    resolver.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The path of the directory to work in, for what the tests plant there."""
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
def root(folder: Path) -> Iterator[Directory]:
    """The same, pinned."""
    with Directory.open(folder) as directory:
        yield directory


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A tree beside it, in which the test must not change anything: it is compared whole."""
    top = tmp_path / "outside"
    (top / "sub").mkdir(parents=True)
    (top / "secret").write_bytes(b"outside")
    (top / "sub" / "secret").write_bytes(b"outside")
    (top / "only-outside").write_bytes(b"outside")
    for path in (top / "secret", top / "sub" / "secret", top / "sub", top):
        os.utime(path, ns=(10**18, 10**18))
    before = snapshot(top)
    yield top
    assert snapshot(top) == before


@pytest.fixture
def mount() -> Iterator[Mount]:
    """`mount(point, *arguments)` of mount(8), made the test's own and unmounted after it."""
    points: list[Path] = []

    def make(point: Path, *arguments: str | Path) -> Path:
        subprocess.run(["mount", *arguments, point], check=True)
        points.append(point)
        return point

    yield make
    for point in reversed(points):
        subprocess.run(["umount", "--lazy", point], check=True)


@pytest.fixture
def memory(folder: Path, mount: Mount) -> Iterator[Directory]:
    """The directory to work in on a tmpfs: for trees whose size or depth a disk takes time for."""
    mount(folder, "-t", "tmpfs", "-o", "size=256m,nr_inodes=1m", "none")
    with Directory.open(folder) as directory:
        yield directory


@pytest.fixture
def planted(folder: Path, outside: Path) -> Path:
    """A directory with links of every kind in it, and files and directories beside them."""
    (folder / "source").write_bytes(b"inside")
    (folder / "dir").mkdir()
    (folder / "dir" / "secret").write_bytes(b"inside")
    (folder / "to-directory").symlink_to(outside)
    (folder / "to-file").symlink_to(outside / "secret")
    (folder / "to-parent").symlink_to("..")
    (folder / "to-inside").symlink_to("dir")
    (folder / "chain").symlink_to("to-directory")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to(outside / "not-there")
    (folder / "dir" / "deep").symlink_to(outside)
    return folder
