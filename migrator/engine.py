"""What a container engine runs, asked over its Unix socket in Docker's HTTP API; Podman has it too.

One question, one answer: the list of the containers that are not stopped. Nothing is changed, and
neither an engine's silence nor the size of its answer goes beyond the bounds here.
"""

from __future__ import annotations

import http.client
import io
import json
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

SOCKETS: Final = ("/var/run/docker.sock", "/run/podman/podman.sock")
"""Where the engines of a host listen, unless told otherwise (dockerd(8), podman-system-service(1)).
"""

ANSWER_SECONDS: Final = 10.0
"""How long an engine may take in all. One with 1 000 containers needs about one second."""

ANSWER_BYTES: Final = 64 << 20
"""The longest answer that is read: about 30 000 containers at 2 KiB each."""

_STOPPED: Final = frozenset(("created", "configured", "initialized", "exited", "stopped", "dead"))
"""States in which nothing of a container runs, Docker's and Podman's words. A paused or a
restarting one goes on by itself."""


class EngineError(Exception):
    """An engine that is there but did not answer; the text is one line without a full stop."""


@dataclass(frozen=True, slots=True)
class Volume:
    """One directory of the host that a container has."""

    source: str
    """The host path; ``""`` where the engine does not tell it."""
    destination: str
    """The path in the container."""
    read_only: bool


@dataclass(frozen=True, slots=True)
class Container:
    """One container that is not stopped. All text is as the engine gave it."""

    id: str
    """64 hex digits."""
    name: str
    state: str
    """``running``, ``paused`` …"""
    labels: Mapping[str, str]
    volumes: tuple[Volume, ...]


def containers(
    path: str, *, clock: Callable[[], float] = time.monotonic, seconds: float = ANSWER_SECONDS
) -> list[Container] | None:
    """The containers that are not stopped, by name; None where there is no socket at `path`.

    Raises EngineError where there is one that does not answer, or not in a way that is understood.
    """
    # all: without it Podman leaves the paused ones out.
    answer = _get(path, "/containers/json?all=1", clock, seconds)
    if answer is None:
        return None
    try:
        found = [_container(one) for one in json.loads(answer)]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise EngineError("its list of containers is not understood") from None
    return sorted(
        (one for one in found if one.state not in _STOPPED), key=lambda one: (one.name, one.id)
    )


def _container(given: Mapping[str, Any]) -> Container:
    names = given.get("Names") or [given["Id"][:12]]
    return Container(
        id=str(given["Id"]),
        name=str(names[0]).removeprefix("/"),
        state=str(given.get("State") or "").lower(),
        labels={str(key): str(value) for key, value in (given.get("Labels") or {}).items()},
        volumes=tuple(
            Volume(
                source=str(mount.get("Source") or ""),
                destination=str(mount.get("Destination") or ""),
                read_only=mount.get("RW") is False,
            )
            for mount in given.get("Mounts") or ()
        ),
    )


def _get(path: str, target: str, clock: Callable[[], float], seconds: float) -> bytes | None:
    """The body of the answer to one GET, in one connection that ends with it."""
    request = f"GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode()
    end = clock() + seconds
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(path)
            connection.sendall(request)
            raw = _all_of(connection, lambda: end - clock())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except TimeoutError:
        raise EngineError(f"it did not answer within {seconds:g} seconds") from None
    except OSError as exc:
        raise EngineError(exc.strerror or str(exc)) from None
    try:
        answer = http.client.HTTPResponse(cast(socket.socket, _Read(raw)))
        answer.begin()
        body = answer.read()
    except http.client.HTTPException:
        raise EngineError("what it answers is not HTTP, or not whole") from None
    if answer.status != 200:
        raise EngineError(f"it answers with status {answer.status}")
    return body


def _all_of(connection: socket.socket, left: Callable[[], float]) -> bytes:
    raw = bytearray()
    while True:
        if (seconds := left()) <= 0:
            raise TimeoutError
        connection.settimeout(seconds)
        piece = connection.recv(1 << 16)
        if not piece:
            return bytes(raw)
        raw += piece
        if len(raw) > ANSWER_BYTES:
            raise EngineError(f"its answer is longer than {ANSWER_BYTES} bytes")


class _Read:
    """An answer that was read already, in place of the socket that http.client asks for one."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self.raw)
