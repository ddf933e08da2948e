"""What the tests of the migrator share."""

from __future__ import annotations

from tests.migrator.postgres import postgres, postgres_url

__all__ = ["postgres", "postgres_url"]
