"""The `vfs` command: options that hold for every verb, and how errors end it.

An error is one line on stderr, `vfs: message; fix`, and the exit status of its kind
(`vfs.errors`); with --json it is one JSON document on stderr. Wrong usage ends with 2, an interrupt
with 130, an error of this program with 70 and no traceback, unless GEMSPACE_DEBUG=1 asks for it.
Stdout holds the answer alone.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from itertools import takewhile
from typing import TextIO

import click

from vfs.commands.base import Settings, json_option
from vfs.errors import VfsError, from_oserror
from vfs.printable import one_line

SECTIONS = {
    "Storage": ("init", "user", "users", "check"),
    "Files": ("ls", "tree", "cat", "stat", "find", "du", "put", "mkdir", "mv", "rm"),
    "Skills": ("skills",),
    "Mounts": ("mount", "umount", "mounts"),
    "Shell": ("completion",),
}
"""The verbs, in the order of the help."""

USAGE = 2
"""Exit status of wrong usage."""
INTERNAL = 70
"""Exit status of an error of this program: EX_SOFTWARE of sysexits(3)."""
INTERRUPTED = 128 + signal.SIGINT
"""Exit status as a shell reports an end by Ctrl-C."""


class Verbs(click.Group):
    """The group that imports a verb's module when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every verb's name."""
        return [name for names in SECTIONS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The verb, imported now."""
        if not any(cmd_name in names for names in SECTIONS.values()):
            return None
        command: click.Command = importlib.import_module(f"vfs.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs by section."""
        for section, names in SECTIONS.items():
            rows = [
                (name, command.get_short_help_str(70))
                for name in names
                if (command := self.get_command(ctx, name)) is not None
            ]
            with formatter.section(section):
                formatter.write_dl(rows)


@click.command(
    cls=Verbs,
    name="vfs",
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`vfs VERB --help` explains a verb, with examples. Paths are the user's own: / is the "
    "workspace.",
)
@click.option(
    "--storage",
    metavar="DIR",
    envvar="GEMSPACE_STORAGE",
    help="The folder that holds user-data/, skill-projections/ and skill-store/.",
)
@click.option("--user-data", metavar="DIR", help="The folder of the workspaces, named apart.")
@click.option("--skill-projections", metavar="DIR", help="The folder of the projections, apart.")
@click.option("--skill-store", metavar="DIR", help="The folder of the skills, apart.")
@json_option
@click.version_option(package_name="gemspace", message="gemspace %(version)s")
@click.pass_context
def cli(
    ctx: click.Context,
    storage: str | None,
    user_data: str | None,
    skill_projections: str | None,
    skill_store: str | None,
) -> None:
    """Workspaces of users: their files, skills and mounts, and no link is ever followed."""
    settings = ctx.ensure_object(Settings)
    settings.storage = storage
    settings.user_data = user_data
    settings.skill_projections = skill_projections
    settings.skill_store = skill_store


def main() -> int:
    """The console command: its exit status."""
    # A reader that ends early ends the writer, without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        _discard(sys.stdout)  # it was reported
    return status


def _discard(stream: TextIO) -> None:
    """Lets go what a stream still holds: the interpreter must not try once more to write it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; its exit status."""
    try:
        status = cli.main(list(arguments), prog_name="vfs", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as exc:
        failure = _usage(exc)
    except VfsError as exc:
        failure = exc.to_json(), exc.exit_status
        _debug()
    except OSError as exc:
        error = from_oserror(exc, action="finish")
        failure = error.to_json(), error.exit_status
        _debug()
    except Exception as exc:
        failure = _internal(exc), INTERNAL
        _debug()
    document, status = failure
    # Looked for here, since wrong usage may have ended the parsing before it.
    _report(document, as_json="--json" in takewhile(lambda word: word != "--", arguments))
    return status


def _open_standard_streams() -> None:
    """Opens /dev/null for those that are closed, so that no file of a user gets their number.

    Only for writing, so that a closed stdin does not pass for an empty one.
    """
    while (fd := os.open(os.devnull, os.O_WRONLY)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


_Failure = tuple[dict[str, str | None], int]


def _usage(exc: click.ClickException) -> _Failure:
    context = exc.ctx if isinstance(exc, click.UsageError) else None
    command = "vfs" if context is None else context.command_path
    return _document(
        "usage", exc.format_message().removesuffix("."), f"see {command} --help"
    ), USAGE


def _internal(exc: Exception) -> dict[str, str | None]:
    return _document(
        "internal",
        f"an error of this program: {type(exc).__name__}: {exc}",
        "set GEMSPACE_DEBUG=1 to see where, and report it",
    )


def _document(kind: str, message: str, fix: str) -> dict[str, str | None]:
    return {"error": kind, "message": one_line(message), "fix": fix, "path": None}


def _report(document: dict[str, str | None], *, as_json: bool) -> None:
    if as_json:
        text = json.dumps(document, ensure_ascii=False)
    else:
        text = "vfs: " + "; ".join(part for part in (document["message"], document["fix"]) if part)
    try:
        sys.stderr.write(one_line(text) + "\n")
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)  # the exit status still tells


def _debug() -> None:
    if os.environ.get("GEMSPACE_DEBUG") == "1":
        import traceback

        traceback.print_exc()
