"""FUSE mounts for those who may not mount: by fusermount3, the set-user-id helper of libfuse.

It checks that the mountpoint is the caller's, mounts, and sends back the descriptor of the device
over a socket whose number it finds in its environment (doc/fusermount3.1 and lib/mount.c of
libfuse). It adds nosuid and nodev.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess

from vfs.errors import Busy, PermissionDenied, Unavailable, VfsError
from vfs.printable import printable

PROGRAM = "fusermount3"

_ADVICE: tuple[tuple[str, type[VfsError], str], ...] = (
    ("user_allow_other", PermissionDenied, "add the line user_allow_other to /etc/fuse.conf"),
    ("too many FUSE", Busy, "unmount one, or raise mount_max in /etc/fuse.conf"),
    ("open /dev/fuse: Permission", PermissionDenied, "let users open it: chmod 666 /dev/fuse"),
    ("open /dev/fuse: Operation", PermissionDenied, "give the container the device /dev/fuse"),
    ("device not found", Unavailable, "load it: modprobe fuse"),
    ("access to mountpoint", PermissionDenied, "choose a directory of yours as the mountpoint"),
    ("not owned", PermissionDenied, "choose a directory of yours as the mountpoint"),
    ("Operation not permitted", PermissionDenied, "let it mount as root: chmod u+s fusermount3"),
)
"""Words of the helper's complaints (util/fusermount.c), the kind of each, and what helps."""


def mount(
    mountpoint: bytes, *, fsname: bytes, subtype: bytes, allow_other: bool, read_only: bool
) -> int:
    """Mounts on a directory and returns the descriptor through which the mount must be served.

    Raises Unavailable, PermissionDenied or Busy with the way out.
    """
    options = [
        b"default_permissions",
        b"fsname=" + _escaped(fsname),
        b"subtype=" + _escaped(subtype),
        b"ro" if read_only else b"rw",
    ]
    if allow_other:
        options.append(b"allow_other")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        complaint = _run(b"-o", b",".join(options), b"--", mountpoint, socket_fd=theirs.fileno())
        if complaint is not None:
            raise _refusal(complaint)
        ours.setblocking(False)  # what it sent is there, or never will be
        _, fds, _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
    return fds[0]


def unmount(mountpoint: bytes, *, lazy: bool = True) -> None:
    """Takes a mount of the caller's away; `lazy`: whoever uses it, out of sight at once.

    Raises Busy for one that is in use, PermissionDenied for one that is not the caller's, and
    Unavailable.
    """
    complaint = _run(b"-u", *([b"-z"] if lazy else []), b"--", mountpoint)
    if complaint is None:
        return
    if "busy" in complaint.lower():
        raise Busy(f"{PROGRAM} refuses: {complaint}", fix="leave it with every shell and program")
    raise PermissionDenied(
        f"cannot unmount {printable(mountpoint)}: {complaint}",
        fix="have whoever mounted it, or root, unmount it",
        path=mountpoint,
    )


def _run(*arguments: bytes, socket_fd: int | None = None) -> str | None:
    """Runs the helper; its complaint if it fails, which is its last line."""
    # Its words are matched, so they must not be translated.
    environment = {**os.environ, "LC_ALL": "C"}
    passed: tuple[int, ...] = ()
    if socket_fd is not None:
        environment["_FUSE_COMMFD"] = str(socket_fd)
        passed = (socket_fd,)
    done = subprocess.run(
        [PROGRAM.encode(), *arguments],
        executable=_program(),
        env=environment,
        pass_fds=passed,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    if done.returncode == 0:
        return None
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix(f"{PROGRAM}: ") if lines else "it gives no reason"


def _program() -> str:
    # A service's PATH may be empty.
    found = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=os.defpath)
    if found is None:
        raise Unavailable(f"{PROGRAM} is not installed", fix="install it: apt-get install fuse3")
    return found


def _escaped(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b",", b"\\,")


def _refusal(complaint: str) -> VfsError:
    for words, kind, fix in _ADVICE:
        if words in complaint:
            return kind(f"{PROGRAM} refuses: {complaint}", fix=fix)
    return PermissionDenied(f"{PROGRAM} refuses: {complaint}", fix="mount as root")
