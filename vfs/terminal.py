"""What every command does with its standard streams, and how it says why it ended early.

An error is one line on stderr, `program: message; fix`; with --json it is one JSON document there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from itertools import takewhile
from typing import TextIO

import click

from vfs.printable import one_line

USAGE = 2
"""Exit status of wrong usage."""
INTERNAL = 70
"""Exit status of an error of this program: EX_SOFTWARE of sysexits(3)."""


def open_streams() -> None:
    """Makes the three streams usable, whatever the caller closed and whatever the locale.

    /dev/null stands for those that are closed, so that no file of a user gets their number; only
    for writing, so that a closed stdin does not pass for an empty one.
    """
    while (fd := os.open(os.devnull, os.O_WRONLY)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard(stream: TextIO) -> None:
    """Lets go what a stream still holds: the interpreter must not try once more to write it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def usage(program: str, exc: click.ClickException) -> tuple[str, str, str]:
    """Kind, message and fix of wrong usage."""
    context = exc.ctx if isinstance(exc, click.UsageError) else None
    command = program if context is None else context.command_path
    return "usage", exc.format_message().removesuffix("."), f"see {command} --help"


def internal(exc: Exception) -> tuple[str, str, str]:
    """Kind, message and fix of an error of this program."""
    return (
        "internal",
        f"an error of this program: {type(exc).__name__}: {exc}",
        "set GEMSPACE_DEBUG=1 to see where, and report it",
    )


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for JSON; wrong usage may end its parsing before it is known."""
    return "--json" in takewhile(lambda word: word != "--", arguments)


def report(program: str, document: Mapping[str, object], *, as_json: bool) -> None:
    """Writes an error's `document`, with ``message`` and ``fix``, on stderr."""
    if as_json:
        text = json.dumps(document, ensure_ascii=False)
    else:
        said = (document["message"], document["fix"])
        text = f"{program}: " + "; ".join(str(part) for part in said if part)
    try:
        sys.stderr.write(one_line(text) + "\n")
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)  # the exit status still tells


def debug() -> None:
    """Shows where the error at hand came from, if GEMSPACE_DEBUG=1 asks for it."""
    if os.environ.get("GEMSPACE_DEBUG") == "1":
        import traceback

        traceback.print_exc()
