"""What the verbs share: their options, the request that these make up, and the question beforehand.

Every option may stand before the verb and after it; what stands after it counts. A path is taken as
the exact bytes that it was given as, and made absolute once, here.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from migrator.errors import Precondition
from migrator.outcome import Outcome
from migrator.request import Request, Transfer
from vfs.printable import printable
from vfs.verbs import HostPath, Verb

if TYPE_CHECKING:
    from migrator.state import Facts

LAYOUTS = ("yuxi", "thread-local", "deerflow")
"""The names of `migrator.layouts`, told here since that need not be loaded for a help text."""
TRANSFERS = ("auto", "link", "reflink", "copy")

JOBS_MAX = 1024
"""Processes that may be asked for: more than any machine has processors for this."""

STATE = b".gemspace-migration"
"""The folder of the journal, where none is named: beside the user-data root."""

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(slots=True)
class Settings:
    """What was said before the verb and after it."""

    source: bytes | None = None
    storage: bytes | None = None
    """The folder that holds the three roots."""
    user_data: bytes | None = None
    skill_store: bytes | None = None
    skill_projections: bytes | None = None
    """Roots that are named apart."""
    database: str | None = None
    state: bytes | None = None
    layout: str | None = None
    jobs: int | None = None
    owners: bytes | None = None
    owner: str | None = None
    transfer: Transfer = "auto"
    json: bool = False

    def request(self) -> Request:
        """What the verb is to act on; a usage error for what is missing."""
        if self.source is None:
            raise click.UsageError("No old saves are named: give --source DIR.")
        if self.owners is not None and self.owner is not None:
            raise click.UsageError("--owners and --owner exclude each other.")
        return Request(
            source=absolute(self.source),
            user_data=self._root(self.user_data, "user-data"),
            skill_store=self._root(self.skill_store, "skill-store"),
            skill_projections=self._root(self.skill_projections, "skill-projections"),
            state=self.state_folder(),
            database=self.database,
            layout=self.layout,
            owners=None if self.owners is None else absolute(self.owners),
            owner=self.owner,
            jobs=len(os.sched_getaffinity(0)) if self.jobs is None else self.jobs,
            transfer=self.transfer,
        )

    def begun(self) -> Request:
        """The same for a migration that was begun: its journal tells the folders not named here.

        Precondition if there is none. A usage error where it has a database and none is named: the
        journal knows no password.
        """
        state = self.state_folder()
        facts = _facts(state)
        if facts is None:
            raise Precondition(
                f"there is no migration in {printable(state)}",
                fix="name its state folder with --state, or begin with: migrator plan",
            )
        if self.database is None and facts.database is not None:
            raise click.UsageError(
                f"The migration is also that of {facts.database}: give --database URL, or set "
                "GEMSPACE_DATABASE."
            )
        places = facts.places
        known = replace(self, source=_either(self.source, places["source"]), state=state)
        if self.storage is None:
            known.user_data = _either(self.user_data, places["user-data"])
            known.skill_store = _either(self.skill_store, places["skill-store"])
            known.skill_projections = _either(self.skill_projections, places["skill-projections"])
        return known.request()

    def state_folder(self) -> bytes:
        """The folder of the journal; a usage error if nothing tells where it is."""
        if self.state is not None:
            return absolute(self.state)
        if self.user_data is None and self.storage is None:
            raise click.UsageError(
                "Nothing tells where the journal is: give --state DIR, --storage DIR (or set "
                "GEMSPACE_STORAGE), or --user-data DIR."
            )
        return _parent(self._root(self.user_data, "user-data")) + b"/" + STATE

    def _root(self, apart: bytes | None, name: str) -> bytes:
        if apart is not None:
            return absolute(apart)
        if self.storage is None:
            raise click.UsageError(
                f"No place is named for the {name}: give --storage DIR (or set GEMSPACE_STORAGE), "
                f"or --{name} DIR."
            )
        return absolute(self.storage) + b"/" + name.encode()


def absolute(path: bytes) -> bytes:
    """Return `path` from the root on, without empty parts and ``.``; ``..`` stays, as in ``a/..``
    where ``a`` is a link it is not what the text says.

    A usage error for the empty path.
    """
    if not path:
        raise click.UsageError("An empty path names no folder.")
    # The folder that this process is in may be gone; who names whole paths need not know.
    whole = path if path.startswith(b"/") else os.path.join(os.getcwdb(), path)
    return b"/" + b"/".join(part for part in whole.split(b"/") if part not in (b"", b"."))


def _either(named: bytes | None, known: bytes) -> bytes:
    return known if named is None else named


def _facts(state: bytes) -> Facts | None:
    """What the journal in a state folder begins with; None if there is none."""
    from migrator import journal
    from migrator.places import open_folder

    folder = open_folder(state, "the state folder")
    if folder is None:
        return None
    with folder:
        return journal.read(folder).facts


def _parent(path: bytes) -> bytes:
    above, _, last = path.rpartition(b"/")
    return path + b"/.." if last == b".." else above


def verb(
    name: str, *options: _Decorator, examples: Sequence[str]
) -> Callable[[Callable[..., Outcome]], Verb]:
    """Makes a function of `Settings` the verb `name`, with the options that every verb has."""

    def decorate(function: Callable[..., Outcome]) -> Verb:
        @functools.wraps(function)
        def wrapper(settings: Settings, **arguments: Any) -> Outcome:
            if not settings.json:
                from migrator import tables

                tables.require()  # not only when there is an answer to show
            return function(settings, **arguments)

        made = click.command(name, cls=Verb, examples=examples)(
            with_options(*options, *GENERAL)(pass_settings(wrapper))
        )
        assert isinstance(made, Verb)
        return made

    return decorate


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def with_options(*options: _Decorator) -> _Decorator:
    """Adds options, which the help lists in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        assert param.name is not None
        setattr(ctx.ensure_object(Settings), param.name, value)


def _option(*names: str, **attributes: Any) -> _Decorator:
    return click.option(*names, expose_value=False, callback=_keep, **attributes)


def _folder(name: str, help_text: str) -> _Decorator:
    return _option(name, metavar="DIR", type=HostPath(), help=help_text)


GENERAL: tuple[_Decorator, ...] = (
    _folder("--source", "The old saves."),
    _folder("--storage", "The folder of user-data/, skill-store/ and skill-projections/."),
    _folder("--user-data", "The folder of the workspaces, named apart."),
    _folder("--skill-store", "The folder of the skills, named apart."),
    _folder("--skill-projections", "The folder of the projections, named apart."),
    _option(
        "--database",
        metavar="URL",
        help="The database as SQLAlchemy writes it. `ps` shows a password in it to everybody: set "
        "GEMSPACE_DATABASE instead.",
    ),
    _folder("--state", "The folder of the journal. [.gemspace-migration beside the user-data]"),
    _option(
        "--layout",
        metavar="NAME",
        type=click.Choice(LAYOUTS),
        help=f"Insist on a layout of the old saves: {', '.join(LAYOUTS)}.",
    ),
    _option(
        "--jobs",
        metavar="N",
        type=click.IntRange(1, JOBS_MAX),
        help="Work in N processes. [processors]",
    ),
    _option("--json", is_flag=True, is_eager=True, help="Print one JSON document instead of text."),
)
"""The options of every verb."""

PLANNING: tuple[_Decorator, ...] = (
    _option(
        "--owners",
        metavar="FILE",
        type=HostPath(),
        help="A CSV or JSON file that says whose thread is whose.",
    ),
    _option("--owner", metavar="UID", help="The user whom every thread belongs to."),
    _option(
        "--transfer",
        metavar="METHOD",
        type=click.Choice(TRANSFERS),
        help="How files get into the new tree: link, reflink, copy, or auto, the first that works. "
        "[auto]",
    ),
)
"""The options of the verbs that plan."""

YES = click.option("--yes", is_flag=True, help="Do it without being asked.")


def confirm(*, yes: bool, what: str) -> None:
    """Asks on the terminal whether to do `what`; a usage error where nobody can be asked."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError(f"{what} Nobody can be asked here: give --yes to have it done.")
    click.confirm(f"{what} Go on?", abort=True, err=True)
