"""From what an operator asks for to a live mount: the checks, and the choice of the engine.

Of the engines the kernel's own is tried first where it can serve what was asked; of the transports
the one that needs root, by root. `Mounted.reasons` says why each that was passed over could not.
Whatever fails before the mount is live changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

from vfs.errors import NotFound, PermissionDenied, Unavailable, VfsError
from vfs.linux import fstatx
from vfs.mount import kernel, mountpoint, registry, serving, unmounting
from vfs.mount.links import Links
from vfs.mount.mountpoint import Place
from vfs.mount.request import Mounted, MountRequest, label, options
from vfs.namespace import workdir_path
from vfs.naming import skill_slug
from vfs.printable import printable
from vfs.workspace import OWNER, Storage


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
        unmounting.clear_dead(path)
        place = mountpoint.take(path, storage=protected)
        stack.callback(place.close)
        if request.uid is not None and request.workdir is not None and request.writable:
            with storage.workspace(request.uid) as workspace:
                workspace.workdir(request.workdir).close()
        reasons: dict[str, str] = {}
        if request.engine != "fuse":
            refusal = _mount_kernel(storage, request, place)
            if refusal is None:
                report(Mounted(place.point, "kernel", None, None, reasons))
                return
            if request.engine == "kernel":
                raise refusal
            reasons["kernel"] = refusal.message
        serving.mount(storage, request, place, reasons, report)


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


def _mount_kernel(storage: Storage, request: MountRequest, place: Place) -> VfsError | None:
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
                label=label(request),
                options=options(request, None),
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
