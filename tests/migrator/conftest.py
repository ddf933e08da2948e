"""What the tests of the migrator share."""

from __future__ import annotations

from tests.migrator.memory import memory
from tests.migrator.postgres import postgres, postgres_url

__all__ = ["memory", "postgres", "postgres_url"]
