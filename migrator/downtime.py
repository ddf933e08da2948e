"""Whether the storage is at rest: the operator's word for it, and a look at what still uses it.

`token` checks the word: one secret in the environment and in a file, as existing scripts put it
there. It proves little, since a script can write it for itself. So `look` names everything that it
finds in use: processes with something open beneath the roots, containers and other mount namespaces
that have a part of them mounted, running sandboxes, and other sessions of the database. Nothing is
written, stopped or waited for.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from migrator import containers, procfs
from migrator.containers import where
from migrator.findings import Finding, Severity
from migrator.procfs import Mounted, Survey, Use
from vfs.beneath import Directory
from vfs.errors import VfsError
from vfs.printable import printable

TOKEN: Final = "YUXI_STORAGE_MIGRATION_QUIESCENCE_TOKEN"
TOKEN_FILE: Final = "YUXI_STORAGE_MIGRATION_QUIESCENCE_FILE"
TOKEN_NAME: Final = b".storage-migration-quiesced"
"""Environment variables and default file of existing deployments' scripts."""

TOKEN_BYTES: Final = 4096
"""The longest token file that is read; existing scripts write 65 bytes."""

SHOWN_MAX: Final = 20
"""Findings of one kind that are told one by one; of the others only the number is."""

_PIDS_MAX: Final = 5
"""Pids that one finding repeats."""

_WORST_FIRST: Final[tuple[Severity, ...]] = ("blocker", "conflict", "warning", "note")

_AGAIN = "then check again"


class Sessions(Protocol):
    """What is asked of a database."""

    def other_sessions(self) -> Sequence[str]:
        """Each session but ours, described on one line."""


def look(
    roots: Mapping[str, Directory],
    state: bytes | None,
    database: Sessions | None,
    environment: Mapping[str, str],
    *,
    proc: str = "/proc",
    engine_socket: str | None = None,
) -> list[Finding]:
    """All that was found in use, worst first: blockers, then warnings, then notes.

    `roots`: each directory by what it is called, as ``source``. `state`: the migrator's own folder,
    which does not count. The engine is asked at `engine_socket`, else where DOCKER_HOST says, else
    where Docker and Podman listen. The database's errors are the caller's.
    """
    found: list[Finding] = []
    if database is not None:
        found += [_session(text) for text in database.other_sessions()]
    try:
        ours = procfs.container_of_this_process(proc)
        told = containers.look(roots, environment, socket=engine_socket, ours=ours)
        found += told.findings
        survey = procfs.survey(roots, proc=proc, apart=state)
    except OSError as exc:
        found.append(_unseen(f"the processes cannot be looked at: {exc.strerror or exc}"))
    else:
        found += [_process(use) for use in survey.uses if use.home not in told.blocking]
        found += [_mount(one) for one in survey.elsewhere if one.home not in told.blocking]
        found += [_own_mount(one) for one in survey.here]
        if survey.unreadable:
            found.append(_unreadable(survey))
        if survey.partial:
            found.append(_unseen("only the processes of this container or PID namespace are seen"))
    return _bounded(found)


def token(environment: Mapping[str, str], source: bytes) -> Finding | None:
    """What is wrong with the operator's word; None if token and file agree.

    Both must be there, not empty and equal, white space around them not counted: the scripts end
    the file with a newline. The file is no link, and regular.
    """
    path = os.fsencode(environment.get(TOKEN_FILE) or os.path.join(source, TOKEN_NAME))
    given = os.fsencode(environment.get(TOKEN, "")).strip()
    if not given:
        return _no_word(f"the environment variable {TOKEN} is not set", path)
    folder, name = os.path.split(os.path.abspath(path))
    try:
        # The way to the file is the operator's own; the file itself must be what it seems.
        with Directory.open(os.path.realpath(folder)) as directory:
            fd = directory.open_file([name])
        try:
            written = os.read(fd, TOKEN_BYTES + 1)
        finally:
            os.close(fd)
    except VfsError as exc:
        return _no_word(f"the token file {printable(path)} cannot be read: {exc.message}", path)
    except OSError as exc:
        return _no_word(f"the token file {printable(path)} cannot be read: {exc.strerror}", path)
    if len(written) > TOKEN_BYTES:
        return _no_word(
            f"the token file {printable(path)} is longer than {TOKEN_BYTES} bytes", path
        )
    if not written.strip():
        return _no_word(f"the token file {printable(path)} is empty", path)
    if not hmac.compare_digest(written.strip(), given):
        return _no_word(f"the token file {printable(path)} holds another token than {TOKEN}", path)
    return None


def _no_word(message: str, path: bytes) -> Finding:
    return Finding(
        code="quiescence_token",
        severity="blocker",
        subject=printable(path),
        message=message,
        fix=f"stop every service that uses the storage, then put one new token into {TOKEN} and "
        "into the file; scripts/migrate-storage does all of it",
    )


def _session(text: str) -> Finding:
    return Finding(
        code="database_session",
        severity="blocker",
        subject="database",
        message=f"the database has another session: {text}",
        fix=f"stop the program that holds it, {_AGAIN}",
    )


def _process(use: Use) -> Finding:
    shown = f"process {use.pid} ({printable(use.command)})"
    if use.path is None:
        what = f"something in or about the {use.root} whose path is too long to show"
    else:
        what = where(use.root, use.path)
    if use.how == "cwd":
        message = f"{shown} works in {what}"
    elif use.how == "root":
        message = f"{shown} has {what} for its root directory"
    else:
        message = f"{shown} has {what} {use.how}"
    if use.things > 1:
        message += f", and {use.things - 1} more"
    if use.home is not None:
        message += f"; it belongs to {_home(use.home)}"
    if use.ancestor and use.how in ("cwd", "root"):
        return Finding(
            "shell_inside", "note", shown, f"{message}; this program was started from it"
        )
    if use.path is None:
        # It may be anywhere on that file system: a deep tree of somebody else's stops nobody.
        return Finding(
            "open_path_unknown", "warning", shown, message, f"see what it works on, {_AGAIN}"
        )
    return Finding(
        code="open_files",
        severity="blocker",
        subject=shown,
        message=message,
        fix=f"stop {_home(use.home) if use.home else 'it'}, {_AGAIN}",
    )


def _mount(one: Mounted) -> Finding:
    shown = f"process {one.pid} ({printable(one.command)})"
    owner = "" if one.home is None else f" of {_home(one.home)}"
    rights = " read-only" if one.read_only else ""
    more = f", and {one.mounts - 1} more" if one.mounts > 1 else ""
    return Finding(
        code="mounted_elsewhere",
        severity="blocker",
        subject=shown,
        message=f"{where(one.root, one.path)} is mounted{rights} at {printable(one.point)}{more} "
        f"in the mount namespace of {shown}{owner}",
        fix=f"stop {_home(one.home) if one.home else 'it'}, {_AGAIN}",
    )


def _own_mount(one: Mounted) -> Finding:
    rights = " read-only" if one.read_only else ""
    return Finding(
        code="mounted_here",
        severity="note",
        subject=printable(one.point),
        message=f"{where(one.root, one.path)} is also mounted{rights} at {printable(one.point)}",
    )


def _unreadable(survey: Survey) -> Finding:
    count = len(survey.unreadable)
    first = ", ".join(map(str, survey.unreadable[:_PIDS_MAX]))
    more = ", …" if count > _PIDS_MAX else ""
    noun = "process" if count == 1 else "processes"
    message = f"{count} {noun} cannot be looked into (pid {first}{more})"
    if survey.entitled:
        return Finding("processes_unreadable", "note", "processes", message)
    return Finding(
        code="processes_unreadable",
        severity="warning",
        subject="processes",
        message=message,
        fix="run as root, with CAP_SYS_PTRACE; or see to it that none of them uses the storage",
    )


def _unseen(message: str) -> Finding:
    return Finding(
        code="processes_unseen",
        severity="warning",
        subject="processes",
        message=message,
        fix="run on the host itself or with its PID namespace (--pid=host, hostPID: true); or see "
        "to it by other means that everything is stopped",
    )


def _home(home: str) -> str:
    return printable(home) if home.endswith(".service") else f"container {home[:12]}"


def _bounded(found: list[Finding]) -> list[Finding]:
    """Worst first; of many with one code the first, and one more with the number of the rest."""
    by_code: dict[tuple[int, str], list[Finding]] = {}
    for one in found:
        by_code.setdefault((_WORST_FIRST.index(one.severity), one.code), []).append(one)
    shown: list[Finding] = []
    for (_, code), alike in sorted(by_code.items(), key=lambda item: item[0][0]):
        shown += alike[:SHOWN_MAX]
        if rest := alike[SHOWN_MAX:]:
            message = f"{len(rest)} more were found like the {SHOWN_MAX} above"
            shown.append(Finding(code, rest[0].severity, "and more", message, rest[0].fix))
    return shown
