"""Which running containers stand in the way: those with the storage mounted, and all sandboxes.

The engines are asked for their containers, and what they answer is compared with the roots: the
directories that a container has mounted by identity, its labels and its name with those that the
provisioners of existing deployments give.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from migrator import engine
from migrator.engine import Container
from migrator.findings import Finding
from vfs.beneath import Directory
from vfs.printable import printable

SANDBOX_LABELS: Final = frozenset(("app", "managed-by", "sandbox-id"))
"""Labels that every sandbox of a provisioner has, whatever their values."""

SANDBOX_PREFIX: Final = "yuxi-sandbox"
"""How the names of existing deployments' sandboxes begin, unless DOCKER_SANDBOX_PREFIX is set."""


@dataclass(slots=True)
class Told:
    """What the engines told."""

    findings: list[Finding] = field(default_factory=list)
    blocking: set[str] = field(default_factory=set)
    """The ids of the containers among them that block."""


def look(
    roots: Mapping[str, Directory],
    environment: Mapping[str, str],
    *,
    socket: str | None,
    ours: str | None,
) -> Told:
    """Asks the engine at `socket`; None: the one that DOCKER_HOST names, else those of the host.

    `ours`: the id of the container that this process runs in, which does not count.
    """
    told = Told()
    sockets = [socket] if socket else _sockets(environment, told)
    prefix = environment.get("DOCKER_SANDBOX_PREFIX") or SANDBOX_PREFIX
    tops = _Tops(roots)
    for path in sockets:
        tool = "podman" if "podman" in path else "docker"
        try:
            running = engine.containers(path) or []
        except engine.EngineError as exc:
            told.findings.append(_silent(path, exc))
            continue
        for one in running:
            finding = None if one.id == ours else _container(one, tops, prefix, tool)
            if finding is not None:
                told.findings.append(finding)
                if finding.severity == "blocker":
                    told.blocking.add(one.id)
    return told


def _sockets(environment: Mapping[str, str], told: Told) -> Sequence[str]:
    host = environment.get("DOCKER_HOST", "")
    if not host:
        return engine.SOCKETS
    if host.startswith("unix://"):
        return [host.removeprefix("unix://")]
    told.findings.append(
        Finding(
            code="engine_not_asked",
            severity="warning",
            subject="container engine",
            message="DOCKER_HOST names an engine that is not reached by a Unix socket",
            fix="see to it that no container of that engine uses the storage",
        )
    )
    return ()


def where(root: str, path: str | bytes) -> str:
    """Words for a path beneath the root of that name, ``""`` being the root itself."""
    return f"{printable(path)} beneath the {root}" if path else f"the {root} itself"


class _Tops:
    """The roots by their identity, to compare with the host paths that an engine knows."""

    def __init__(self, roots: Mapping[str, Directory]) -> None:
        self.names: dict[tuple[int, int], str] = {}
        self.above: set[tuple[int, int]] = set()
        for name, root in roots.items():
            status = os.stat(root.fd)
            self.names.setdefault((status.st_dev, status.st_ino), name)
            path = os.readlink(f"/proc/self/fd/{root.fd}")
            while path != "/":
                path = os.path.dirname(path)
                if (identity := _identity(path)) is not None:
                    self.above.add(identity)

    def find(self, host_path: str) -> tuple[str, str] | None:
        """The root that a host path is in, and the path from there; "" for the root itself."""
        if not host_path.startswith("/"):
            return None
        try:
            path, below = os.path.realpath(host_path), ""
        except ValueError:  # what the engine gave is no path
            return None
        while True:
            name = self.names.get(_identity(path) or (-1, -1))
            if name is not None:
                return name, below
            if path == "/":
                return None
            path, last = os.path.split(path)
            below = f"{last}/{below}" if below else last

    def is_above(self, host_path: str) -> bool:
        return host_path.startswith("/") and _identity(host_path) in self.above


def _identity(path: str) -> tuple[int, int] | None:
    with suppress(OSError, ValueError):
        status = os.stat(path)
        return (status.st_dev, status.st_ino)
    return None


def _container(one: Container, tops: _Tops, prefix: str, tool: str) -> Finding | None:
    shown = f"container {printable(one.name)}"
    state = printable(one.state)
    fix = f"stop it ({tool} stop {printable(one.name)}), then check again"
    for volume in one.volumes:
        if (place := tops.find(volume.source)) is not None:
            return Finding(
                code="container_mount",
                severity="blocker",
                subject=shown,
                message=f"{shown} ({one.id[:12]}) is {state} and has {where(*place)} mounted at "
                f"{printable(volume.destination)}{_label(one)}",
                fix=fix,
            )
    if one.labels.keys() >= SANDBOX_LABELS or one.name.startswith(prefix):
        return Finding(
            code="running_sandbox",
            severity="blocker",
            subject=shown,
            message=f"{shown} ({one.id[:12]}) is {state} and is a sandbox{_label(one)}",
            fix=f"quiesce the provisioner and stop it, then {tool} stop {printable(one.name)}, "
            f"then check again",
        )
    for volume in one.volumes:
        if not volume.read_only and tops.is_above(volume.source):
            return Finding(
                code="container_above",
                severity="warning",
                subject=shown,
                message=f"{shown} ({one.id[:12]}) is {state} and may write to "
                f"{printable(volume.source)}, which the storage is in",
                fix=f"see to it that it leaves the storage alone, or {fix}",
            )
    return None


def _label(one: Container) -> str:
    given = one.labels.get("sandbox-id")
    return "" if given is None else f" (label sandbox-id={printable(given)})"


def _silent(path: str, exc: engine.EngineError) -> Finding:
    return Finding(
        code="engine_silent",
        severity="warning",
        subject="container engine",
        message=f"the engine at {printable(path)} cannot be asked for its containers: {exc}",
        fix="mend or stop that engine, then check again; or see to it that none of its containers "
        "runs",
    )
