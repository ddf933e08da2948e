"""Mounts for the suites that run on a real one: each suite runs over both transports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mount.posix_mount import TRANSPORTS, Mounted, mounted


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    """The way to the kernel, by its name on the command line."""
    return str(request.param)


@pytest.fixture(scope="module")
def shared_mount(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """One writable mount for all tests of a module, each entry shown as its caller's."""
    with mounted(tmp_path_factory.mktemp(transport), transport) as made:
        yield made


@pytest.fixture(scope="module")
def keeping_mount(transport: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    """One writable mount for all tests of a module, for all users, with the owners as they are."""
    folder = tmp_path_factory.mktemp(f"{transport}-keep")
    with mounted(folder, transport, "--owner", "keep", "--allow-other") as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Shows what the mount's process said where a test fails."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Mounted):
                report.sections.append((f"vfs mount ({value.transport})", value.output()))
    return report
