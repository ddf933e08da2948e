"""Serves a workspace with operations that raise what they never should, where a test wants it.

Run as a program: `posix_faulty TRANSPORT STORAGE MOUNTPOINT FAULT`. As long as the file FAULT holds
the name of an operation, that operation raises ValueError. The kernel caches nothing. SIGTERM ends.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vfs.beneath import Directory
from vfs.mount.device import DeviceSession
from vfs.mount.libfuse import LibfuseSession
from vfs.mount.operations import Operations, Options
from vfs.mount.view import Export

OPERATIONS = (
    "lookup", "forget", "getattr", "setattr", "readlink", "mknod", "mkdir", "symlink", "unlink",
    "rmdir", "rename", "link", "open", "create", "read", "write", "release", "fsync", "fallocate",
    "lseek", "copy_file_range", "opendir", "readdir", "adopt", "releasedir", "fsyncdir", "statfs",
    "getxattr", "setxattr", "listxattr", "removexattr",
)  # fmt: skip
"""All that a transport calls."""


def faulty(operations: Operations, fault: Path) -> None:
    """Puts a wrapper around each operation that raises while `fault` holds its name."""

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            if fault.exists() and fault.read_text() == name:
                raise ValueError(f"{name} is made to fail")
            return call(*arguments, **named)

        return wrapped

    for name in OPERATIONS:
        setattr(operations, name, wrap(name, getattr(operations, name)))


def main() -> None:
    """Serves until the mount is gone."""
    transport, storage, mountpoint, fault = sys.argv[1:]
    logging.basicConfig(level=logging.INFO)
    base = Directory.open(storage)
    operations = Operations(Export(base, (), True), Options(writable=True, timeout=0.0))
    faulty(operations, Path(fault))
    kind = DeviceSession if transport == "device" else LibfuseSession
    session = kind(
        operations,
        mountpoint.encode(),
        read_only=False,
        allow_other=False,
        nosymfollow=True,
        fsname=b"faulty",
    )
    session.mount()
    signal.signal(signal.SIGTERM, lambda number, frame: session.stop())
    try:
        session.run()
    finally:
        session.close()
        operations.close()


if __name__ == "__main__":
    main()
