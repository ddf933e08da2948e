"""Work that has to happen in a process of its own, because it changes that process's namespaces.

Both functions run a short-lived child (this module, as a program) that sends back one descriptor:
a process with threads can neither unshare(CLONE_NEWUSER) nor safely fork. What the child makes is
seen by nobody else and is gone with it, whenever and however it ends. No child outlives the call.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from vfs import linux
from vfs.mount import mountapi

CHILD_SECONDS = 30.0
"""How long a child may take before it is given up; it takes 50 ms on an idle machine."""

_FD = struct.Struct("i")


def userns_idmap(host_uid: int, host_gid: int, shown_uid: int, shown_gid: int) -> int:
    """A user namespace for id-mapped mounts, by which the on-disk owner is shown as the other one.

    Every other owner is shown as 65534 (nobody). OSError: ENOSPC where user namespaces are switched
    off (/proc/sys/user/max_user_namespaces), EPERM without the right to map these ids.
    """
    with _child("userns") as (pid, userns_fd):
        try:
            # user_namespaces(7): first id inside, first id outside, length. To a mount, inside is
            # what the disk holds.
            for name, line in (
                ("uid_map", f"{host_uid} {shown_uid} 1"),
                ("gid_map", f"{host_gid} {shown_gid} 1"),
            ):
                with open(f"/proc/{pid}/{name}", "wb", buffering=0) as file:
                    file.write(line.encode())
        except BaseException:
            os.close(userns_fd)
            raise
        return userns_fd


def assemble(root_fd: int, folders: Mapping[bytes, int]) -> int:
    """A detached tree: the detached mount `root_fd`, other detached mounts on directories in it.

    The tree is a copy; the mounts given are used up. Before Linux 6.15 a mount can only be put on
    an attached one, so they meet in a mount namespace that nobody else has.
    """
    places = [word for name, fd in folders.items() for word in (str(fd), os.fsdecode(name))]
    with _child("assemble", str(root_fd), *places, keep=(root_fd, *folders.values())) as (_, tree):
        return tree


@contextmanager
def _child(task: str, *arguments: str, keep: Sequence[int] = ()) -> Iterator[tuple[int, int]]:
    """Runs a task in a child; gives its pid and the descriptor it sent, and ends it afterwards."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        child = subprocess.Popen(
            # -P: a module that lies in the working directory is none of ours.
            [sys.executable, "-P", "-m", __spec__.name, task, str(theirs.fileno()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *keep),
        )
        try:
            theirs.close()
            yield child.pid, _receive(ours)
        finally:
            child.kill()
            child.wait()


def _receive(connection: socket.socket) -> int:
    connection.settimeout(CHILD_SECONDS)
    try:
        # Not socket.recv_fds: it drops its flags, and the descriptor would be inherited.
        message, passed, _, _ = connection.recvmsg(
            16, socket.CMSG_LEN(_FD.size), socket.MSG_CMSG_CLOEXEC
        )
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
    for _level, _type, content in passed:
        fd: int = _FD.unpack(content)[0]
        return fd
    number = int(message) if message else errno.EIO  # no message: it was killed
    raise OSError(number, os.strerror(number))


def _make_userns() -> int:
    mountapi.unshare(mountapi.CLONE_NEWUSER)
    return os.open("/proc/self/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def _make_tree(root_fd: int, folders: Mapping[bytes, int]) -> int:
    mountapi.unshare(mountapi.CLONE_NEWNS)
    # What is mounted here stays here; what is unmounted elsewhere is not kept busy by the copy.
    mountapi.mount(b"", b"/", b"", mountapi.MS_REC | mountapi.MS_SLAVE, b"")
    mountapi.move_mount(root_fd, b"", linux.AT_FDCWD, b"/")
    for name, fd in folders.items():
        mountapi.move_mount(fd, b"", root_fd, name)
    flags = linux.AT_EMPTY_PATH | linux.AT_RECURSIVE | mountapi.OPEN_TREE_CLONE
    return mountapi.open_tree(root_fd, b"", flags)


def main(arguments: Sequence[str]) -> None:
    """The child: runs one task, sends its descriptor or the errno it met, waits to be ended."""
    task, connection_fd, *rest = arguments
    with socket.socket(fileno=int(connection_fd)) as connection:
        try:
            if task == "userns":
                fd = _make_userns()
            else:
                root_fd, *places = rest
                pairs = zip(places[1::2], places[::2], strict=True)
                fd = _make_tree(int(root_fd), {os.fsencode(name): int(n) for name, n in pairs})
        except OSError as exc:
            connection.send(str(exc.errno).encode())
            return
        socket.send_fds(connection, [b"fd"], [fd])
        connection.recv(1)  # until the parent has used /proc/PID, or is gone


if __name__ == "__main__":
    main(sys.argv[1:])
