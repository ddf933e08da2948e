"""`vfs put`: one file, saved whole or not at all."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from vfs.commands import output
from vfs.commands.base import (
    Settings,
    pass_settings,
    path_argument,
    uid_argument,
    verb,
    workdir_option,
)
from vfs.errors import SpecialFileRefused, from_oserror
from vfs.printable import printable
from vfs.verbs import HostPath

CHUNK = 1 << 20
"""Bytes read at once."""

STDIN = b"-"


@verb(
    "put",
    examples=(
        "vfs put alice /notes.txt notes.txt",
        "date | vfs put alice /log/today - --mkdirs",
        "vfs put alice /notes.txt notes.txt --no-clobber",
        "etag=$(vfs stat alice /notes.txt --json | jq -r .etag)",
        'vfs put alice /notes.txt new.txt --if-match "$etag"',
    ),
)
@uid_argument
@path_argument()
@click.argument("source", type=HostPath())
@workdir_option
@click.option("--mkdirs", is_flag=True, help="Make the directories that are missing.")
@click.option("--no-clobber", is_flag=True, help="Refuse to replace a file.")
@click.option(
    "--if-match", metavar="ETAG", help="Replace only the file of this ETag, as stat shows it."
)
@pass_settings
def command(
    settings: Settings,
    uid: str,
    path: tuple[bytes, ...],
    source: bytes,
    workdir: str | None,
    mkdirs: bool,
    no_clobber: bool,
    if_match: str | None,
) -> None:
    """Save a file of the host, or stdin (-), as PATH.

    A file that is replaced keeps its mode; a new one gets 0600. Readers find the old content or the
    new, and nothing in between.
    """
    from vfs.saving import etag
    from vfs.walking import Entry

    if no_clobber and if_match is not None:
        raise click.UsageError("--no-clobber and --if-match exclude each other.")
    with _opened(source) as file, settings.open_scope(uid, workdir, create=True) as scope:
        if mkdirs and len(path) > 1:
            scope.make_directory(path[:-1], parents=True)
        status = scope.save(path, _chunks(file, source), clobber=not no_clobber, if_match=if_match)
    if settings.json:
        output.emit({**output.entry(Entry(path, status)), "etag": etag(status)})


@contextmanager
def _opened(source: bytes) -> Iterator[BinaryIO]:
    if source == STDIN:
        if fcntl.fcntl(sys.stdin.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
            raise click.UsageError("Stdin is closed: nothing can be read from it.")
        yield sys.stdin.buffer
        return
    try:
        file = open(  # noqa: SIM115 - closed below
            source, "rb", buffering=0, opener=_open_at_once
        )
    except OSError as exc:
        raise from_oserror(exc, path=source, action="read") from exc
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SpecialFileRefused(
                f"{printable(source)} is no regular file",
                fix="to save what a pipe or device gives, name - and redirect it to stdin",
                path=source,
            )
        yield file


def _open_at_once(path: str, flags: int) -> int:
    """Opens a host file without waiting for the writer of a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)


def _chunks(file: BinaryIO, source: bytes) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(file.fileno(), CHUNK)
        except OSError as exc:
            raise from_oserror(exc, path=source, action="read") from exc
        if not chunk:
            return
        yield chunk
