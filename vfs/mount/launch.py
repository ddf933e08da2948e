"""From what an operator asks for to a live mount: the engine, the transport, the process.

Of the engines the kernel's own is tried first where it can serve what was asked; of the transports
the one that needs root, by root. `Mounted.reasons` says why each that was passed over could not.
Whatever fails before the mount is live changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from vfs.beneath import Directory
from vfs.errors import (
    NotFound,
    PermissionDenied,
    StorageFailure,
    Unavailable,
    VfsError,
    from_oserror,
)
from vfs.linux import fstatx
from vfs.mount import daemon, kernel, mountapi, mountpoint, registry, table
from vfs.mount import view as views
from vfs.mount.links import Links
from vfs.namespace import workdir_path
from vfs.naming import skill_slug
from vfs.printable import printable
from vfs.workspace import OWNER, Storage, owner_for_process

if TYPE_CHECKING:
    from vfs.mount.operations import Operations
    from vfs.mount.view import View

Engine = Literal["kernel", "fuse"]
Transport = Literal["device", "pyfuse3"]

ENGINES: tuple[Engine, ...] = ("kernel", "fuse")
TRANSPORTS: tuple[Transport, ...] = ("device", "pyfuse3")

FSNAME = b"gemspace"
"""The source of the mount in the kernel's table."""

EVERYONE = "(all users)"
"""What stands for the uid where every user is shown."""


@dataclass(frozen=True, slots=True)
class MountRequest:
    """What to show, and how."""

    uid: str | None
    """Whose workspace; None: every user's, by directory name."""
    workdir: bytes | None = None
    """The Workdir that is the root, relative to the workspace; None: the whole namespace."""
    skills: tuple[str, ...] | None = None
    """The slugs that are visible; None: all of the projection's."""
    writable: bool = False
    keep_owner: bool = False
    """Whether entries show the owner they have on the disk, instead of the caller."""
    allow_other: bool = False
    links: Links = Links.SHOW
    cache: float = 1.0
    """Seconds for which the kernel may answer without asking; FUSE alone."""
    foreground: bool = False
    log: bytes | None = None
    """The file that the process of the mount logs to."""
    engine: Engine | None = None
    transport: Transport | None = None


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mount that is live."""

    point: bytes
    """Absolute."""
    engine: Engine
    transport: Transport | None
    """None for the kernel engine."""
    pid: int | None
    """The process that serves it; None for the kernel engine."""
    reasons: Mapping[str, str]
    """Engine or transport that was preferred → why it could not serve."""


class _Session(daemon.Session, Protocol):
    def mount(self) -> None: ...

    def close(self) -> None: ...


def mount(
    storage: Storage,
    request: MountRequest,
    path: bytes,
    *,
    folder: int | None = None,
    report: Callable[[Mounted], None],
) -> None:
    """Mounts on the directory `path`, and calls `report` when the mount is live.

    Returns when it is live; in the foreground when it has been unmounted. `folder` is a descriptor
    of the storage's folder, if it has one, which must not hold the mountpoint either.
    """
    with ExitStack() as stack:
        protected = [
            storage.user_data.fd,
            storage.skill_projections.fd,
            storage.skill_store.fd,
            *([] if folder is None else [folder]),
        ]
        _check_request(storage, request)
        fd, point = mountpoint.take(path, storage=protected)
        place = _Place(fd, point)
        stack.callback(place.close)
        if request.uid is not None and request.workdir is not None and request.writable:
            with storage.workspace(request.uid) as workspace:
                workspace.workdir(request.workdir).close()
        reasons: dict[str, str] = {}
        if request.engine != "fuse":
            refusal = _mount_kernel(storage, request, place)
            if refusal is None:
                report(Mounted(point, "kernel", None, None, reasons))
                return
            if request.engine == "kernel":
                raise refusal
            reasons["kernel"] = refusal.message
        _mount_fuse(storage, request, place, reasons, report)


class _Place:
    """A checked mountpoint; its descriptor holds the lock until it is closed."""

    def __init__(self, fd: int, point: bytes) -> None:
        self.fd = fd
        self.point = point

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _check_request(storage: Storage, request: MountRequest) -> None:
    """Raises the error of a user, Workdir or skill that is not there."""
    for slug in request.skills or ():
        skill_slug(slug)
    if request.uid is None:
        return
    with storage.workspace(request.uid) as workspace:
        name = workspace.name.encode()
        if request.workdir is not None:
            managed = workdir_path(request.workdir).kind == "managed"
            try:
                workspace.workdir(request.workdir, create=False).close()
            except NotFound:
                if not (managed and request.writable):
                    raise
    for slug in request.skills or ():
        try:
            storage.skill_projections.directory((name, slug.encode())).close()
        except NotFound:
            raise NotFound(
                f"no skill {slug} is projected for {printable(request.uid)}",
                fix="`vfs skills verify` says what is; `vfs skills project` projects more",
            ) from None


# The kernel engine.


def _mount_kernel(storage: Storage, request: MountRequest, place: _Place) -> VfsError | None:
    """Mounts with the kernel engine; else the error that says why it cannot serve this."""
    reason = _kernel_limit(request)
    if reason is not None:
        return Unavailable(f"the kernel engine {reason}", fix="use --engine fuse")
    assert request.uid is not None
    with ExitStack() as stack:
        workspace = stack.enter_context(storage.workspace(request.uid))
        if request.workdir is not None:
            root = stack.enter_context(workspace.workdir(request.workdir, create=False))
            shown = root.directory.fd
            view = kernel.View(root_fd=shown)
        else:
            shown = workspace.directory.fd
            try:
                skills = storage.skill_projections.directory((workspace.name.encode(),))
            except VfsError:
                return Unavailable(
                    "the kernel engine needs the user's skill projection, which is not there",
                    fix="make it (vfs skills project), or use --engine fuse",
                )
            view = kernel.View(user_data_fd=shown, skills_fd=stack.enter_context(skills).fd)
        status = fstatx(shown)
        if not request.keep_owner and (status.uid, status.gid) != OWNER:
            return Unavailable(
                "the kernel engine can show as the caller's what belongs to 1000:1000 alone",
                fix="use --engine fuse, or --owner keep",
            )
        if not request.allow_other and status.mode & 0o077:
            return Unavailable(
                "the kernel engine cannot keep others out, and the directory is open to them",
                fix="use --engine fuse, or --allow-other",
            )
        owner = None if request.keep_owner else (os.geteuid(), os.getegid())
        try:
            attached = kernel.attach(view, place.fd, owner=owner)
        except (Unavailable, PermissionDenied) as exc:
            return exc
        try:
            registry.record(
                attached.mount_id,
                engine="kernel",
                pid=None,
                label=_label(request),
                options=_options(request, None),
            )
        except BaseException:
            kernel.detach(attached.point, attached.mount_id, lazy=True)
            raise
    return None


def _kernel_limit(request: MountRequest) -> str | None:
    """What in the request the kernel engine can never serve."""
    limits = (
        (os.geteuid() != 0, "needs root"),
        (request.writable, "is read-only"),
        (request.uid is None, "shows one user at a time"),
        (request.skills is not None, "cannot choose among skills"),
        (request.links is not Links.SHOW, "can only show links"),
        (request.transport is not None, "has no transport"),
        (request.foreground, "has no process that could stay in the foreground"),
        (request.log is not None, "has no process that could log"),
    )
    return next((reason for asked, reason in limits if asked), None)


# The FUSE engine.


def _mount_fuse(
    storage: Storage,
    request: MountRequest,
    place: _Place,
    reasons: dict[str, str],
    report: Callable[[Mounted], None],
) -> None:
    # Both are opened before the mount: nothing may lead its process into its own mount later.
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
    storage: Storage, request: MountRequest, place: _Place, announce: daemon.Announce
) -> None:
    """The life of the process of a mount."""
    from vfs.mount.operations import Operations, Options

    daemon.settle()
    descriptors = daemon.raise_descriptor_limit()
    sealed = _sealed(storage, request)
    options = Options(
        writable=request.writable,
        links=request.links,
        timeout=request.cache,
        shown_owner=None if request.keep_owner else (os.geteuid(), os.getegid()),
        made_owner=owner_for_process(),
        max_descriptors=descriptors,
        sealed=sealed is not None,
    )
    operations = Operations(_view(sealed or storage, request), options)
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
            label=_label(request),
            options=_options(request, transport),
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
        return None  # not root, or a kernel before 5.12
    return Storage(user_data, projections, storage.skill_store, storage.owner)


def _connect(
    request: MountRequest, operations: Operations, place: _Place
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
    transport: Transport, request: MountRequest, operations: Operations, place: _Place
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


# What is written down for `vfs mounts`.


def _label(request: MountRequest) -> str:
    return EVERYONE if request.uid is None else request.uid


def _options(request: MountRequest, transport: Transport | None) -> dict[str, str]:
    options = {
        "users": "all" if request.uid is None else "one",
        "mode": "rw" if request.writable else "ro",
        "links": request.links.value,
        "owner": "keep" if request.keep_owner else "self",
    }
    if transport is not None:
        options["transport"] = transport
    if request.workdir is not None:
        options["workdir"] = request.workdir.decode("utf-8", "surrogateescape")
    if request.skills is not None:
        options["skills"] = ",".join(request.skills)
    return options
