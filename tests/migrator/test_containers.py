"""Which containers stand in the way, by their mounts, labels and names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from migrator import containers, engine
from migrator.findings import Finding
from tests.migrator.engines import Docker, answering, docker, listing
from vfs.beneath import Directory


@pytest.fixture(scope="module")
def real() -> Iterator[Docker]:
    with docker() as started:
        yield started


@pytest.fixture
def saves(tmp_path: Path) -> Path:
    top = tmp_path / "srv" / "saves"
    (top / "threads" / "t1").mkdir(parents=True)
    return top


def look(
    saves: Path,
    socket: Path | str | None,
    environment: Mapping[str, str] | None = None,
    ours: str | None = None,
) -> list[Finding]:
    """What is found, checked to name each blocking container's id."""
    with Directory.open(saves) as source, Directory.open(saves / "threads") as user_data:
        told = containers.look(
            {"source": source, "user-data": user_data},
            environment or {},
            socket=None if socket is None else str(socket),
            ours=ours,
        )
    blockers = [one.message for one in told.findings if one.severity == "blocker"]
    assert len(told.blocking) == len(blockers)
    assert all(any(f"({id_[:12]})" in one for one in blockers) for id_ in told.blocking)
    return told.findings


def answered(saves: Path, *given: Mapping[str, Any], **options: Any) -> list[Finding]:
    """The same of an engine that answers with these containers."""
    socket = saves.parent.parent / "engine.sock"
    socket.unlink(missing_ok=True)
    with answering(socket, listing(*given)):
        return look(saves, socket, **options)


def volume(source: Path | str, *, writable: bool = True) -> dict[str, Any]:
    return {"Type": "bind", "Source": str(source), "Destination": "/data", "RW": writable}


def mount_finding(where: str) -> Finding:
    return Finding(
        "container_mount",
        "blocker",
        "container api",
        f"container api (000000000000) is running and has {where} mounted at /data",
        "stop it (docker stop api), then check again",
    )


@pytest.mark.parametrize(
    ("below", "where"),
    [
        ("", "the source itself"),
        ("threads", "the user-data itself"),
        ("threads/t1", "t1 beneath the user-data"),
        ("skills", "skills beneath the source"),
        ("not/there/yet", "not/there/yet beneath the source"),
    ],
)
@pytest.mark.parametrize("writable", [True, False])
def test_a_container_that_has_a_part_of_the_storage_mounted_stands_in_the_way(
    saves: Path, below: str, where: str, writable: bool
) -> None:
    given = {"Names": ["/api"], "Mounts": [volume(saves / below, writable=writable)]}
    assert answered(saves, given) == [mount_finding(where)]


def test_the_way_to_the_storage_may_be_another(saves: Path) -> None:
    link = saves.parent / "link"
    link.symlink_to("saves/threads")
    given = {"Names": ["/api"], "Mounts": [volume(link / "t1")]}
    assert answered(saves, given) == [mount_finding("t1 beneath the user-data")]


def test_a_link_within_the_storage_that_leads_out_of_it_is_where_it_leads(saves: Path) -> None:
    (saves / "out").symlink_to(saves.parent.parent)
    given = {"Names": ["/api"], "Mounts": [volume(saves / "out" / "other", writable=False)]}
    assert answered(saves, given) == []


@pytest.mark.parametrize(
    "source", ["", "relative", "/none", "/dev/shm", "/x\0y", "/\ud800", "/" + "x/" * 3000]
)
def test_other_mounts_are_no_matter(saves: Path, source: str) -> None:
    given = {"Names": ["/api"], "Mounts": [volume(source)]}
    assert answered(saves, given) == []


def test_a_neighbour_whose_name_only_begins_alike_is_no_matter(saves: Path) -> None:
    (saves.parent / "saves-old").mkdir()
    given = {"Names": ["/api"], "Mounts": [volume(saves.parent / "saves-old")]}
    assert answered(saves, given) == []


def test_who_may_write_above_the_storage_is_warned_of_and_who_may_read_is_not(saves: Path) -> None:
    above = saves.parent
    found = answered(
        saves,
        {"Names": ["/api"], "Mounts": [volume(above)]},
        {"Names": ["/monitor"], "Mounts": [volume(above, writable=False)]},
        {"Names": ["/monitor-2"], "Mounts": [volume("/", writable=False)]},
    )
    assert found == [
        Finding(
            "container_above",
            "warning",
            "container api",
            f"container api (000000000000) is running and may write to {above}, which the storage "
            "is in",
            "see to it that it leaves the storage alone, or stop it (docker stop api), then check "
            "again",
        )
    ]


LABELS = {"app": "sandbox", "managed-by": "provisioner", "sandbox-id": "s\n1"}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            {"Names": ["/box"], "Labels": LABELS},
            "container box (000000000000) is running and is a sandbox (label sandbox-id=s\\x0a1)",
        ),
        (
            {"Names": ["/yuxi-sandbox-1"], "State": "paused"},
            "container yuxi-sandbox-1 (000000000000) is paused and is a sandbox",
        ),
    ],
)
def test_a_sandbox_is_known_by_its_labels_or_its_name(
    saves: Path, given: dict[str, Any], shown: str
) -> None:
    name = given["Names"][0].removeprefix("/")
    assert answered(saves, given) == [
        Finding(
            "running_sandbox",
            "blocker",
            f"container {name}",
            shown,
            f"quiesce the provisioner and stop it, then docker stop {name}, then check again",
        )
    ]


def test_the_names_of_sandboxes_begin_as_the_deployment_says(saves: Path) -> None:
    given = [{"Names": ["/yuxi-sandbox-1"]}, {"Names": ["/ours-1"]}, {"Names": ["/theirs"]}]
    found = answered(saves, *given, environment={"DOCKER_SANDBOX_PREFIX": "ours"})
    assert [one.subject for one in found] == ["container ours-1"]


def test_some_of_the_labels_are_everybodys(saves: Path) -> None:
    labels = {"app": "web", "managed-by": "compose"}
    assert answered(saves, {"Names": ["/web"], "Labels": labels}) == []


def test_the_container_that_the_program_runs_in_does_not_count(saves: Path) -> None:
    own = {"Names": ["/migrator"], "Mounts": [volume(saves)]}
    found = answered(saves, own, {"Names": ["/yuxi-sandbox-1"]}, ours="00" * 32)
    assert [one.subject for one in found] == ["container yuxi-sandbox-1"]


def test_an_engine_that_does_not_answer_is_a_warning_with_the_reason(saves: Path) -> None:
    socket = saves.parent.parent / "engine.sock"
    with answering(socket, b""):
        found = look(saves, socket)
    assert found == [
        Finding(
            "engine_silent",
            "warning",
            "container engine",
            f"the engine at {socket} cannot be asked for its containers: what it answers is not "
            "HTTP, or not whole",
            "mend or stop that engine, then check again; or see to it that none of its containers "
            "runs",
        )
    ]


def test_without_an_engine_there_is_nothing_to_say(saves: Path) -> None:
    assert look(saves, saves / "none.sock") == []


def test_docker_host_names_the_socket_and_what_is_not_one_is_not_asked(saves: Path) -> None:
    socket = saves.parent.parent / "podman.sock"
    with answering(socket, listing({"Names": ["/yuxi-sandbox-1"]})):
        [found] = look(saves, None, {"DOCKER_HOST": f"unix://{socket}"})
    assert found.fix == (
        "quiesce the provisioner and stop it, then podman stop yuxi-sandbox-1, then check again"
    )
    assert look(saves, None, {"DOCKER_HOST": "tcp://10.0.0.1:2375"}) == [
        Finding(
            "engine_not_asked",
            "warning",
            "container engine",
            "DOCKER_HOST names an engine that is not reached by a Unix socket",
            "see to it that no container of that engine uses the storage",
        )
    ]


def test_otherwise_the_engines_of_the_host_are_asked(
    saves: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = [str(saves.parent / name) for name in ("none.sock", "a.sock", "b.sock")]
    monkeypatch.setattr(engine, "SOCKETS", sockets)
    with (
        answering(Path(sockets[1]), listing({"Names": ["/yuxi-sandbox-1"]})),
        answering(Path(sockets[2]), listing({"Id": "ff" * 32, "Names": ["/yuxi-sandbox-2"]})),
    ):
        found = look(saves, None)
    assert [one.subject for one in found] == [
        "container yuxi-sandbox-1",
        "container yuxi-sandbox-2",
    ]


@pytest.mark.slow
def test_a_real_engines_volume_that_holds_the_storage_is_known(
    real: Docker, tmp_path: Path
) -> None:
    real("volume", "create", "saves")
    saves = real.folder / "data" / "volumes" / "saves" / "_data"
    (saves / "threads").mkdir()
    with (
        real.container("api", "--volume=saves:/app/saves:ro") as id_,
        real.container("other", f"--volume={tmp_path}:/x"),
        real.container("ended", "--volume=saves:/app/saves", command="true"),
    ):
        real("wait", "ended")
        assert [one.message for one in look(saves, real.socket)] == [
            f"container api ({id_[:12]}) is running and has the source itself mounted at /app/saves"
        ]
    real("volume", "rm", "saves")
