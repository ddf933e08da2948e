"""The `migrator` command: its verbs, and how they end.

The answer is on stdout: tables, or with --json one JSON document. Progress and errors are on
stderr; an error is one line, `migrator: message; fix`, with --json one JSON document. The exit
statuses are those of `migrator.errors`; 70 is an error of this program, without a traceback
unless GEMSPACE_DEBUG=1 asks for it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import click

from migrator.commands.base import GENERAL, PLANNING, Settings, pass_settings, with_options
from migrator.errors import INTERRUPTED, TERMINATED, MigratorError, Precondition, retryable
from migrator.outcome import Outcome
from vfs import terminal
from vfs.errors import VfsError
from vfs.printable import one_line
from vfs.verbs import Verbs

SECTIONS = {
    "Before": ("plan", "check"),
    "The migration": ("run", "status", "verify"),
    "After": ("rollback", "finalize"),
}
"""The verbs, in the order of the help."""

_WRITING = ("run", "rollback", "finalize")

_EXTRAS = {"rich": "migrator", "sqlalchemy": "migrator", "psycopg": "postgres"}
"""Packages that the base installation lacks, and the extra that brings each."""

_PASSWORD = re.compile(r"(://[^\s:/@]*):\S*@")
"""What a URL has between the user and the last `@`."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came: it ends the work as Ctrl-C does."""


@click.command(
    cls=Verbs,
    package="migrator.commands",
    sections=SECTIONS,
    name="migrator",
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`migrator VERB --help` explains a verb, with examples. Options may stand before the "
    "verb and after it. GEMSPACE_STORAGE and GEMSPACE_DATABASE stand for --storage and --database.",
)
@with_options(*GENERAL, *PLANNING)
@click.version_option(package_name="gemspace", message="gemspace %(version)s")
@pass_settings
def cli(settings: Settings) -> None:
    """Bring old saves into workspaces owned by 1000:1000, and lose nothing."""
    if settings.storage is None:
        settings.storage = os.environb.get(b"GEMSPACE_STORAGE") or None
    if settings.database is None:
        settings.database = os.environ.get("GEMSPACE_DATABASE") or None


def main() -> int:
    """The console command: its exit status."""
    terminal.open_streams()
    signal.signal(signal.SIGTERM, _terminate)
    return run(sys.argv[1:])


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; its exit status."""
    context = None
    try:
        with cli.make_context("migrator", list(arguments)) as context:
            outcome = cli.invoke(context)
            assert isinstance(outcome, Outcome)
            _answer(outcome, as_json=context.ensure_object(Settings).json)
        return outcome.exit_status
    except click.exceptions.Exit as exc:
        return exc.exit_code
    except click.ClickException as exc:
        document = _document(*terminal.usage("migrator", exc), terminal.USAGE)
    except click.Abort:
        document = _document("interrupted", "not confirmed: nothing was changed", None, INTERRUPTED)
    except KeyboardInterrupt as exc:
        document = _interrupted(exc, None if context is None else context.invoked_subcommand)
    except Exception as exc:
        document = _ended(exc)
        terminal.debug()
    terminal.report("migrator", document, as_json=terminal.wants_json(arguments))
    status = document["exit_status"]
    assert isinstance(status, int)
    return status


def _answer(outcome: Outcome, *, as_json: bool) -> None:
    try:
        if as_json:
            # What is no UTF-8 becomes \udcNN, as JSON writes such a surrogate.
            text = json.dumps(outcome.to_json(), ensure_ascii=False)
            sys.stdout.buffer.write(text.encode(errors="backslashreplace") + b"\n")
        else:
            from migrator import tables

            tables.show(outcome, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        terminal.discard(sys.stdout)  # whoever read had enough; what was done stays done
    except OSError as exc:
        terminal.discard(sys.stdout)
        raise retryable(exc, "write the answer") from exc


def _ended(exc: Exception) -> dict[str, object]:
    """What to say of an exception that ended a verb."""
    if isinstance(exc, MigratorError):
        return _without_password(exc.to_json())
    if isinstance(exc, OSError | VfsError):
        return _without_password(retryable(exc, "finish").to_json())
    if isinstance(exc, ModuleNotFoundError) and exc.name in _EXTRAS:
        extra = f"run: pip install 'gemspace[{_EXTRAS[exc.name]}]'"
        return Precondition(f"the Python package {exc.name} is not installed", fix=extra).to_json()
    return _document(*terminal.internal(exc), terminal.INTERNAL)


def _interrupted(exc: KeyboardInterrupt, verb: str | None) -> dict[str, object]:
    if sys.stderr.isatty():
        sys.stderr.write("\n")  # the terminal shows ^C
    fix = (
        "run the same command again: it goes on where it was"
        if verb in _WRITING
        else "nothing was changed"
    )
    if isinstance(exc, Terminated):
        return _document("interrupted", "interrupted by SIGTERM", fix, TERMINATED)
    return _document("interrupted", "interrupted", fix, INTERRUPTED)


def _document(kind: str, message: str, fix: str | None, status: int) -> dict[str, object]:
    """An error in the form of `MigratorError.to_json`."""
    return _without_password(
        {"error": kind, "message": one_line(message), "fix": fix, "exit_status": status}
    )


def _without_password(document: dict[str, object]) -> dict[str, object]:
    """The same; a message may repeat a URL that was typed or that a library knows."""
    return {**document, "message": _PASSWORD.sub(r"\1:***@", str(document["message"]))}
