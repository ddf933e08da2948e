"""Databases of both kinds for every test: `url` is an empty one, `old` one with the old schema."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.migrator import rows

if TYPE_CHECKING:
    from tests.migrator.postgres import Server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database."""
    if request.param == "sqlite":
        file = tmp_path / "old.db"
        file.touch()
        yield f"sqlite:///{file}"
        return
    server: Server = request.getfixturevalue("postgres")
    with server.database() as name:
        yield server.url(name)


@pytest.fixture
def old(url: str) -> str:
    """The URL of a database with the old schema and no rows."""
    with rows.connection(url) as opened:
        rows.create(opened)
    return url
