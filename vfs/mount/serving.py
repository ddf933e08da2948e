"""The FUSE engine's mounts: the transport that is chosen, the process that serves.

Everything is opened before the mount is made: nothing may lead its process into its own mount.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

from vfs.beneath import Directory
from vfs.errors import PermissionDenied, StorageFailure, Unavailable, from_oserror
from vfs.mount import daemon, mountapi, mountpoint, registry, table
from vfs.mount import view as views
from vfs.mount.links import Links
from vfs.mount.mountpoint import Place
from vfs.mount.request import Mounted, MountRequest, Transport, label, options
from vfs.namespace import workdir_path
from vfs.workspace import Storage, owner_for_process

if TYPE_CHECKING:
    from vfs.mount.operations import Operations
    from vfs.mount.view import View

FSNAME = b"gemspace"
"""The source of the mount in the kernel's table."""


class _Session(daemon.Session, Protocol):
    def mount(self) -> None: ...

    def close(self) -> None: ...


def mount(
    storage: Storage,
    request: MountRequest,
    place: Place,
    reasons: dict[str, str],
    report: Callable[[Mounted], None],
) -> None:
    """Mounts and serves, in a process of its own or in this one.

    `reasons` say why engines were passed over. Raises the error that the mount failed with.
    """
    daemon.log_to(request.log, foreground=request.foreground)

    def serve(announce: daemon.Announce) -> None:
        with daemon.ending_held():
            _serve(storage, request, place, announce)

    def tell(answer: Mapping[str, object]) -> None:
        passed_over = answer["reasons"]
        assert isinstance(passed_over, dict)
        transport, pid = answer["transport"], answer["pid"]
        assert transport in ("device", "pyfuse3") and isinstance(pid, int)
        report(Mounted(place.point, "fuse", transport, pid, {**reasons, **passed_over}))

    if request.foreground:
        serve(tell)
        return
    answer = daemon.detach(serve)
    place.close()
    try:
        os.stat(place.point)
    except OSError as exc:
        raise from_oserror(exc, action="look at the new mount") from exc
    tell(answer)


def _serve(
    storage: Storage, request: MountRequest, place: Place, announce: daemon.Announce
) -> None:
    """The life of the process of a mount."""
    from vfs.mount.operations import Operations, Options

    daemon.settle()
    descriptors = daemon.raise_descriptor_limit()
    sealed = _sealed(storage, request)
    shown = Options(
        writable=request.writable,
        links=request.links,
        timeout=request.cache,
        shown_owner=None if request.keep_owner else (os.geteuid(), os.getegid()),
        made_owner=owner_for_process(),
        max_descriptors=descriptors,
        sealed=sealed is not None,
    )
    operations = Operations(_view(sealed or storage, request), shown)
    with ExitStack() as stack:
        stack.callback(operations.close)
        session, transport, reasons = _connect(request, operations, place)
        stack.callback(session.close)
        place.close()
        mount = table.at(place.point)
        if mount is None:
            raise StorageFailure("the mount is gone already", fix="see the log; mount it again")
        registry.record(
            mount.id,
            engine="fuse",
            pid=os.getpid(),
            label=label(request),
            options=options(request, transport),
        )
        stack.callback(registry.forget, mount.id)
        announce({"transport": transport, "pid": os.getpid(), "reasons": reasons})
        daemon.run(session)


def _sealed(storage: Storage, request: MountRequest) -> Storage | None:
    """The same storage through mounts of our own, where the kernel lets us make them.

    No device opens in them, no link is followed, and nothing that is mounted below is reached: a
    second lock behind every check of the operations, which saves some of them too.
    """

    def clone(directory: Directory) -> Directory:
        return Directory(mountapi.clone_private(directory.fd, read_only=not request.writable))

    try:
        with ExitStack() as stack:
            user_data = stack.enter_context(clone(storage.user_data))
            projections = stack.enter_context(clone(storage.skill_projections))
            stack.pop_all()
    except OSError:
        return None  # not root, or a kernel before 5.14
    return Storage(user_data, projections, storage.skill_store, storage.owner)


def _connect(
    request: MountRequest, operations: Operations, place: Place
) -> tuple[_Session, Transport, dict[str, str]]:
    """The session of the first transport that can mount, and why the one before it could not."""
    if request.transport is not None:
        return _mounted(request.transport, request, operations, place), request.transport, {}
    if os.geteuid() != 0:
        reasons = {"device": "the device transport needs root"}
        return _mounted("pyfuse3", request, operations, place), "pyfuse3", reasons
    try:
        return _mounted("device", request, operations, place), "device", {}
    except (Unavailable, PermissionDenied) as exc:
        reasons = {"device": exc.message}
        try:
            return _mounted("pyfuse3", request, operations, place), "pyfuse3", reasons
        except (Unavailable, PermissionDenied):
            # What the first lacks is what root should mend.
            raise exc from None


def _mounted(
    transport: Transport, request: MountRequest, operations: Operations, place: Place
) -> _Session:
    session: _Session
    read_only, allow_other = not request.writable, request.allow_other
    # The second lock behind the operations' own; a contained link has to be followed.
    nosymfollow = request.links is not Links.CONTAINED
    if transport == "device":
        from vfs.mount.device import DeviceSession

        session = DeviceSession(
            operations,
            place.fd,
            read_only=read_only,
            allow_other=allow_other,
            nosymfollow=nosymfollow,
            fsname=FSNAME,
            subtype=mountpoint.SUBTYPE,
            low_latency=request.low_latency,
        )
    else:
        from vfs.mount.libfuse import LibfuseSession

        session = LibfuseSession(
            operations,
            place.fd,
            read_only=read_only,
            allow_other=allow_other,
            nosymfollow=nosymfollow,
            fsname=FSNAME,
            subtype=mountpoint.SUBTYPE,
        )
    try:
        session.mount()
    except PermissionError as exc:
        fix = "mount as root, or use --transport pyfuse3"
        if os.geteuid() == 0:
            fix = "start the container with: --cap-add SYS_ADMIN --device /dev/fuse"
        raise PermissionDenied("FUSE may not be used here", fix=fix) from exc
    except OSError as exc:
        raise from_oserror(exc, action="mount") from exc
    return session


def _view(storage: Storage, request: MountRequest) -> View:
    visible = None if request.skills is None else frozenset(s.encode() for s in request.skills)
    if request.uid is None:
        return views.everyone(storage, writable=request.writable, visible=visible)
    if request.workdir is None:
        return views.home(storage, request.uid, writable=request.writable, visible=visible)
    parts = workdir_path(request.workdir).parts
    return views.workdir(storage, request.uid, parts, writable=request.writable)
