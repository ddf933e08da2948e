"""What an engine answers, well or badly: a real Docker, and sockets that answer as told."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from migrator import engine
from migrator.engine import Container, EngineError, Volume
from tests.migrator.engines import Docker, answering, docker

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def real() -> Iterator[Docker]:
    with docker() as started:
        yield started


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "engine.sock"


def sized(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.slow
def test_a_real_engine_tells_of_what_runs_its_labels_and_its_mounts(
    real: Docker, tmp_path: Path
) -> None:
    (tmp_path / "workspace").mkdir()
    with (
        real.container(
            "b-sandbox",
            "--label=sandbox-id=s1",
            f"--volume={tmp_path}/workspace:/home/gem/user-data",
            f"--volume={tmp_path}:/ro:ro",
            "--volume=named:/named",
        ) as sandbox,
        real.container("a-paused") as paused,
        real.container("ended", command="true"),
    ):
        real("pause", "a-paused")
        real("wait", "ended")
        real("create", "--name=made", "busybox:test", "/bin/sh")
        found = engine.containers(real.socket)
        real("unpause", "a-paused")
        real("rm", "made")
    real("volume", "rm", "named")
    named = f"{real.folder}/data/volumes/named/_data"
    assert found is not None
    assert [(one.id, one.name, one.state, one.labels) for one in found] == [
        (paused, "a-paused", "paused", {}),
        (sandbox, "b-sandbox", "running", {"sandbox-id": "s1"}),
    ]
    assert sorted(found[1].volumes, key=lambda volume: volume.destination) == [
        Volume(f"{tmp_path}/workspace", "/home/gem/user-data", read_only=False),
        Volume(named, "/named", read_only=False),
        Volume(str(tmp_path), "/ro", read_only=True),
    ]


def test_the_question_is_one_that_every_engine_understands(path: Path) -> None:
    with answering(path, sized(b"[]")) as asked:
        assert engine.containers(str(path)) == []
    assert asked == [b"GET /containers/json?all=1 HTTP/1.0\r\nHost: localhost\r\n\r\n"]


@pytest.mark.parametrize("state", ["running", "paused", "restarting", "removing", "", "Running"])
def test_whatever_is_not_stopped_counts(path: Path, state: str) -> None:
    given = [{"Id": "ab" * 32, "Names": None, "State": state, "Labels": None, "Mounts": None}]
    with answering(path, sized(json.dumps(given).encode())):
        assert engine.containers(str(path)) == [
            Container("ab" * 32, "ab" * 6, state.lower(), {}, ())
        ]


@pytest.mark.parametrize(
    "state", ["created", "configured", "initialized", "exited", "stopped", "dead"]
)
def test_what_is_stopped_does_not(path: Path, state: str) -> None:
    with answering(path, sized(json.dumps([{"Id": "ab" * 32, "State": state}]).encode())):
        assert engine.containers(str(path)) == []


def test_an_answer_in_pieces_and_one_without_a_length_are_read_to_their_ends(path: Path) -> None:
    body = json.dumps([{"Id": "ab" * 32, "Names": ["/one"], "State": "running"}]).encode()
    pieces = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:9], body[9:], b""))
    expected = [Container("ab" * 32, "one", "running", {}, ())]
    with answering(path, OK + b"Transfer-Encoding: chunked\r\n\r\n" + pieces):
        assert engine.containers(str(path)) == expected
    path.unlink()
    with answering(path, OK + b"\r\n" + body):
        assert engine.containers(str(path)) == expected


def test_without_a_socket_there_is_no_engine(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert engine.containers(str(tmp_path / "none.sock")) is None
    assert engine.containers(str(tmp_path / "file" / "none.sock")) is None


def test_a_socket_that_nobody_listens_at_is_an_error(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
    with pytest.raises(EngineError, match=r"^Connection refused$"):
        engine.containers(str(path))


def test_what_stands_where_the_socket_should_be_is_an_error(path: Path) -> None:
    path.mkdir()  # as Docker makes it for a bind mount of a socket that is not there
    with pytest.raises(EngineError, match=r"^Connection refused$"):
        engine.containers(str(path))


def test_a_path_too_long_for_a_socket_is_an_error() -> None:
    with pytest.raises(EngineError, match=r"path too long"):
        engine.containers("/" + "x" * 200)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "what it answers is not HTTP, or not whole"),
        (b"SSH-2.0-OpenSSH\r\n", "what it answers is not HTTP, or not whole"),
        (OK + b"Content-Length: 9\r\n\r\n[]", "what it answers is not HTTP, or not whole"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            "what it answers is not HTTP, or not whole",
        ),
        (b"HTTP/1.1 500 Oops\r\n\r\n{}", "it answers with status 500"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "it answers with status 403"),
        (sized(b"nonsense"), "its list of containers is not understood"),
        (sized(b'{"message": "x"}'), "its list of containers is not understood"),
        (sized(b"[1]"), "its list of containers is not understood"),
        (sized(b'[{"State": "running"}]'), "its list of containers is not understood"),
        (sized(b'["\xff"]'), "its list of containers is not understood"),
        (sized(b"[" * 100_000), "its list of containers is not understood"),
        (sized(b"null"), "its list of containers is not understood"),
    ],
)
def test_an_answer_that_is_not_understood_is_one_line(
    path: Path, answer: bytes, message: str
) -> None:
    with answering(path, answer), pytest.raises(EngineError) as caught:
        engine.containers(str(path))
    assert str(caught.value) == message


def test_an_engine_that_keeps_silent_is_given_up(path: Path) -> None:
    with answering(path, b"", hold=True), pytest.raises(EngineError) as caught:
        engine.containers(str(path), seconds=0.05)
    assert str(caught.value) == "it did not answer within 0.05 seconds"


def test_an_engine_that_answers_too_slowly_is_given_up_though_it_goes_on(path: Path) -> None:
    seconds = count()
    with answering(path, OK + b"\r\n" + b" " * (1 << 20)), pytest.raises(EngineError) as caught:
        engine.containers(str(path), clock=lambda: float(next(seconds)), seconds=5)
    assert str(caught.value) == "it did not answer within 5 seconds"


def test_an_answer_without_end_is_not_kept_in_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ANSWER_BYTES", 100_000)
    with answering(path, sized(b" " * 200_000)), pytest.raises(EngineError) as caught:
        engine.containers(str(path))
    assert str(caught.value) == "its answer is longer than 100000 bytes"
