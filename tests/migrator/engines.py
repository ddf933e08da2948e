"""Container engines for tests: a real Docker of the test's own, and sockets that answer as told."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

READY_SECONDS = 60.0
"""How long dockerd may take to start; it takes half a second on an idle machine."""

IMAGE = "busybox:test"


class Docker:
    """A Docker engine that nobody else uses, with one image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "docker.sock")

    def __call__(self, *words: str | Path) -> str:
        """What `docker WORDS` prints."""
        command = ["docker", "--host", f"unix://{self.socket}", *words]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def wait_for_a_line(self, container: str) -> None:
        """Returns when the container has written a line."""
        command = ["docker", "--host", f"unix://{self.socket}", "logs", "--follow", container]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as logs:
            assert logs.stdout is not None and logs.stdout.readline() == b"\n"
            logs.kill()

    @contextmanager
    def container(
        self, name: str, *options: str | Path, command: str = "sleep 600"
    ) -> Iterator[str]:
        """The id of a container that runs a shell command; removed in the end."""
        words = ("run", "--detach", "--network=none", f"--name={name}", *options, IMAGE)
        id_ = self(*words, "/bin/busybox", "sh", "-c", command)
        try:
            yield id_
        finally:
            self("rm", "--force", "--volumes", name)


@contextmanager
def docker() -> Iterator[Docker]:
    """Starts dockerd in a folder of its own, and ends it with all that it made."""
    # The path of a socket has 107 bytes at most, and containerd's is deep in that folder.
    folder = Path(tempfile.mkdtemp(prefix="gsd"))
    with (
        (folder / "log").open("wb") as log,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
    ):
        ready.bind(str(folder / "ready"))
        ready.settimeout(READY_SECONDS)
        daemon = subprocess.Popen(
            [
                "dockerd",
                f"--host=unix://{folder}/docker.sock",
                f"--data-root={folder}/data",
                f"--exec-root={folder}/exec",
                f"--pidfile={folder}/pid",
                "--storage-driver=vfs",
                "--bridge=none",
                "--iptables=false",
                "--ip-forward=false",
                "--exec-opt=native.cgroupdriver=cgroupfs",
                f"--cgroup-parent=/{folder.name}",
            ],
            env={**os.environ, "NOTIFY_SOCKET": str(folder / "ready")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            assert b"READY=1" in ready.recv(4096)
            engine = Docker(folder)
            _import_image(engine)
            yield engine
        finally:
            daemon.terminate()
            daemon.wait()
    shutil.rmtree(folder)
    for group in Path("/sys/fs/cgroup").glob(f"**/{folder.name}"):
        group.rmdir()


def _import_image(engine: Docker) -> None:
    top = engine.folder / "image"
    (top / "bin").mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "busybox", top / "bin")
    for name in ("sh", "sleep"):
        (top / "bin" / name).symlink_to("busybox")
    with subprocess.Popen(["tar", "-c", "-C", top, "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(
            ["docker", "--host", f"unix://{engine.socket}", "import", "-", IMAGE],
            stdin=tar.stdout,
            stdout=subprocess.DEVNULL,
            check=True,
        )


def listing(*containers: Mapping[str, Any]) -> bytes:
    """An engine's answer: the containers as given, running, with ids of 00, 01 … if not said."""
    whole = [{"Id": f"{n:02x}" * 32, "State": "running", **one} for n, one in enumerate(containers)]
    return b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps(whole).encode()


@contextmanager
def answering(path: Path, answer: bytes, *, hold: bool = False) -> Iterator[list[bytes]]:
    """Listens at `path` and sends each caller the answer; gives what they asked.

    `hold`: the connection stays open after it, until the block ends.
    """
    asked: list[bytes] = []
    held: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                held.append(connection)
                with contextlib.suppress(OSError):
                    asked.append(connection.recv(65536))
                    connection.sendall(answer)
                if not hold:
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in held:
                connection.close()
