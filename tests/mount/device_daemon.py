"""Serves a folder through `vfs.mount.device` for the tests: no mount may be used by its server.

usage: device_daemon.py FOLDER MOUNTPOINT OPTIONS    (OPTIONS is JSON: of Options and DeviceSession)

Writes "mounted" to stdout once it is, and at its end a JSON object with the number of calls of each
operation. Logs to stderr. SIGTERM stops it, SIGUSR1 has the kernel forget the file `watched`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import stat
import sys
import threading
import time
from collections import Counter

from vfs.beneath import Directory
from vfs.mount.attributes import Attributes, Entry, Opened
from vfs.mount.device import DeviceSession
from vfs.mount.links import Links
from vfs.mount.operations import Operations, Options
from vfs.mount.view import Export

ROOT = 1


class Watched(Operations):
    """Operations that count the calls that the tests ask about, and fail or hang as planted."""

    counts: Counter[str]

    def getattr(self, node_id: int, fh: int | None = None) -> Attributes:
        self.counts["getattr"] += 1
        return super().getattr(node_id, fh)

    def lookup(self, parent_id: int, name: bytes) -> Entry:
        self.counts["lookup"] += 1
        if name == b"bug":
            raise RuntimeError("planted")
        return super().lookup(parent_id, name)

    def open(self, node_id: int, flags: int) -> Opened:
        self.counts["open"] += 1
        return super().open(node_id, flags)

    def opendir(self, node_id: int) -> int:
        self.counts["opendir"] += 1
        return super().opendir(node_id)

    def readdir(self, handle, offset, plus):  # type: ignore[no-untyped-def]
        self.counts["readdir"] += 1
        return super().readdir(handle, offset, plus)

    def read(self, fh: int, size: int, offset: int) -> bytes:  # type: ignore[override]
        self.counts["read"] += 1
        return super().read(fh, size, offset)

    def write(self, fh: int, data: memoryview, offset: int) -> int:  # type: ignore[override]
        self.counts["write"] += 1
        return super().write(fh, data, offset)

    def fsync(self, fh: int, datasync: bool) -> None:  # type: ignore[override]
        # Until the file says otherwise.
        while stat.S_ISREG(os.fstat(fh).st_mode) and os.pread(fh, 5, 0) == b"stuck":
            time.sleep(0.002)
        super().fsync(fh, datasync)


def main(folder: str, mountpoint: str, options: dict[str, object]) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    session_options = {
        "read_only": False, "allow_other": False, "nosymfollow": True, "fsname": "tests",
    }  # fmt: skip
    session_options |= {key: options.pop(key) for key in list(options) if key in session_options}
    session_options["fsname"] = os.fsencode(str(session_options["fsname"]))
    writable = not session_options["read_only"]
    if "links" in options:
        options["links"] = Links(options["links"])
    base = Directory.open(folder)
    operations = Watched(
        Export(base, (), writable),
        Options(**{"writable": writable, **options}),  # type: ignore[arg-type]
    )
    operations.counts = Counter()
    session = DeviceSession(operations, os.fsencode(mountpoint), **session_options)  # type: ignore[arg-type]

    def forget(*_: object) -> None:
        # From a thread: the kernel may wait for an answer of ours meanwhile.
        node = operations.lookup(ROOT, b"watched").node
        threading.Thread(target=session.invalidate, args=(node,)).start()

    session.mount()
    signal.signal(signal.SIGTERM, lambda *_: session.stop())
    signal.signal(signal.SIGUSR1, forget)
    print("mounted", flush=True)
    try:
        session.run()
    finally:
        session.close()
        operations.close()
    print(json.dumps(operations.counts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
