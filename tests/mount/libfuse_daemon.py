"""Serves a folder through `vfs.mount.libfuse`: a mount must not be used by its server.

usage: libfuse_daemon.py FOLDER MOUNTPOINT OPTIONS    (OPTIONS is JSON)

Writes "mounted" to stdout once it is and "closed" when it ends well; logs to stderr. SIGTERM calls
`stop` from the signal's handler, SIGUSR1 from a thread. An error is one line on stderr, and exit
status 1.
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
from typing import Any

from vfs.beneath import Directory
from vfs.errors import VfsError
from vfs.mount.attributes import Entry
from vfs.mount.libfuse import LibfuseSession
from vfs.mount.operations import Operations, Options
from vfs.mount.view import Branch, Export, fixed


class Staged(Operations):
    """Operations that fail, wait and tell where a test wants it."""

    def lookup(self, parent_id: int, name: bytes) -> Entry:
        if name == b"bug":
            raise ValueError("planted")
        if name.startswith(b"errno-"):
            raise OSError(int(name[6:]), "planted")
        return super().lookup(parent_id, name)

    @staticmethod
    def fsync(fh: int, datasync: bool) -> None:
        # Until the file says something else.
        while stat.S_ISREG(os.fstat(fh).st_mode) and os.pread(fh, 5, 0) == b"stuck":
            time.sleep(0.001)
        Operations.fsync(fh, datasync)

    def getxattr(self, node_id: int, name: bytes) -> bytes:
        if name == b"user.known":
            return b"%d" % self.known
        return super().getxattr(node_id, name)


def become(user: int) -> None:
    """Give up being root, once all is loaded: that user may not reach the modules."""
    import vfs.mount.libfuse_server  # noqa: F401

    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def main(folder: str, mountpoint: str, options: dict[str, Any]) -> int:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    if "user" in options:
        become(options.pop("user"))
    writable = not options.get("read_only", False)
    export = Export(Directory.open(folder), (), writable)
    view: Branch | Export = export
    if options.pop("branch", False):
        view = fixed({b"one": export, b"two": export})
    timeout = options.pop("timeout", 1.0)
    operations = Staged(view, Options(writable=writable, timeout=timeout))
    session = LibfuseSession(
        operations,
        os.fsencode(mountpoint),
        **{
            "read_only": False,
            "allow_other": False,
            "nosymfollow": True,
            "fsname": options.pop("fsname", "test").encode(),
            **options,
        },
    )
    signal.signal(signal.SIGTERM, lambda *_: session.stop())
    signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=session.stop).start())
    try:
        session.mount()
        print("mounted", flush=True)
        session.run()
    except VfsError as exc:
        print(f"{type(exc).__name__}: {exc}", file=sys.stderr)
        return 1
    finally:
        session.close()
        operations.close()
    print("closed", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
