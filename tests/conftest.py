"""What holds for every test, whatever it tests."""

from __future__ import annotations

import pytest
from hypothesis import settings


def pytest_configure(config: pytest.Config) -> None:
    # How long one example takes says nothing on a machine with other work. What hypothesis itself
    # chooses for CI (fixed seeds, no database) stays.
    settings.register_profile("gemspace", deadline=None)
    settings.load_profile("gemspace")
