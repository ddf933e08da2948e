"""`vfs cat`: the bytes of a file."""

from __future__ import annotations

import base64
import codecs
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
from vfs.errors import TooLarge
from vfs.printable import one_line

if TYPE_CHECKING:
    from vfs.scope import Scope

CHUNK = 1 << 20
"""Bytes read at once."""

MAX_JSON = 16 << 20
"""Bytes that are put into one JSON document: it is held in memory several times over."""


@verb(
    "cat",
    examples=(
        "vfs cat alice /notes.txt",
        "vfs cat alice /photo.png > photo.png       # byte for byte",
        "vfs cat alice /log --raw | less -R",
    ),
)
@uid_argument
@path_argument()
@workdir_option
@click.option("--raw", is_flag=True, help="Do not escape control characters on a terminal.")
@pass_settings
def command(
    settings: Settings, uid: str, path: tuple[bytes, ...], workdir: str | None, raw: bool
) -> None:
    """Print a file: byte for byte, but escaped where stdout is a terminal.

    On a terminal control characters other than newline and tab, and bytes that are not UTF-8, are
    shown as \\xNN. With --json the content stands in one document, as text or as base64.
    """
    with settings.open_scope(uid, workdir) as scope:
        if settings.json:
            output.emit(_document(scope, path))
            return
        fd = scope.open(path)
        try:
            if raw or not sys.stdout.isatty():
                _copy(fd)
            else:
                _show(fd)
        finally:
            os.close(fd)


def _chunks(fd: int) -> Iterator[bytes]:
    while chunk := os.read(fd, CHUNK):
        yield chunk


def _copy(fd: int) -> None:
    for chunk in _chunks(fd):
        sys.stdout.buffer.write(chunk)


def _show(fd: int) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    for chunk in _chunks(fd):
        sys.stdout.write(_escaped(decoder.decode(chunk)))
    sys.stdout.write(_escaped(decoder.decode(b"", final=True)))


def _escaped(text: str) -> str:
    return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in text.split("\n"))


def _document(scope: Scope, path: tuple[bytes, ...]) -> dict[str, object]:
    try:
        content = scope.read(path, limit=MAX_JSON)
    except TooLarge as exc:
        raise TooLarge(
            exc.message, fix="leave --json away: the bytes are printed as they are", path=exc.path
        ) from exc
    document = {**output.named("path", output.path_bytes(path)), "size": len(content)}
    try:
        return {**document, "encoding": "utf-8", "content": content.decode()}
    except UnicodeDecodeError:
        encoded = base64.b64encode(content).decode("ascii")
        return {**document, "encoding": "base64", "content": encoded}
