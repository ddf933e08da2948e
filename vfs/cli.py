"""The `vfs` command: options that hold for every verb, and how errors end it.

An error is one line on stderr, `vfs: message; fix`, and the exit status of its kind
(`vfs.errors`); with --json it is one JSON document on stderr. Wrong usage ends with 2, an interrupt
with 130, an error of this program with 70 and no traceback, unless GEMSPACE_DEBUG=1 asks for it.
Stdout holds the answer alone.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

import click

from vfs import terminal
from vfs.commands.base import Settings, json_option
from vfs.errors import VfsError, from_oserror
from vfs.printable import one_line
from vfs.verbs import Verbs

SECTIONS = {
    "Storage": ("init", "user", "users", "check"),
    "Files": ("ls", "tree", "cat", "stat", "find", "du", "put", "mkdir", "mv", "rm"),
    "Skills": ("skills",),
    "Mounts": ("mount", "umount", "mounts"),
    "Shell": ("completion",),
}
"""The verbs, in the order of the help."""

INTERRUPTED = 128 + signal.SIGINT
"""Exit status as a shell reports an end by Ctrl-C."""


@click.command(
    cls=Verbs,
    package="vfs.commands",
    sections=SECTIONS,
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
    terminal.open_streams()
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        terminal.discard(sys.stdout)  # it was reported
    return status


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; its exit status."""
    try:
        status = cli.main(list(arguments), prog_name="vfs", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except click.ClickException as exc:
        failure = _document(*terminal.usage("vfs", exc)), terminal.USAGE
    except VfsError as exc:
        failure = exc.to_json(), exc.exit_status
        terminal.debug()
    except OSError as exc:
        error = from_oserror(exc, action="finish")
        failure = error.to_json(), error.exit_status
        terminal.debug()
    except Exception as exc:
        failure = _document(*terminal.internal(exc)), terminal.INTERNAL
        terminal.debug()
    document, status = failure
    terminal.report("vfs", document, as_json=terminal.wants_json(arguments))
    return status


def _document(kind: str, message: str, fix: str) -> dict[str, str | None]:
    return {"error": kind, "message": one_line(message), "fix": fix, "path": None}
