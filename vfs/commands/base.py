"""What the verbs share: the storage they work on, their arguments, the form of their help.

A command line's text is taken as the exact bytes that it was given as.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vfs.verbs import Verb

if TYPE_CHECKING:
    from vfs.scope import Scope
    from vfs.workspace import Storage

    _PathType = click.ParamType[tuple[bytes, ...]]
else:
    _PathType = click.ParamType  # older releases of click do not subscript it

_Function = TypeVar("_Function", bound=Callable[..., Any])


FINDINGS = 1
"""Exit status of a look that found something to mend."""


@dataclass(slots=True)
class Settings:
    """What was said before the verb."""

    storage: str | None = None
    """The folder that holds the three roots."""
    user_data: str | None = None
    skill_projections: str | None = None
    skill_store: str | None = None
    """Roots that are named apart."""
    json: bool = False

    def roots(self) -> dict[str, str | None]:
        """The roots' host paths, as `Storage.open` takes them."""
        given = (self.storage, self.user_data, self.skill_projections, self.skill_store)
        if self.storage is None and None in given[1:]:
            raise click.UsageError(
                "No storage is named: give --storage DIR before the verb, or set GEMSPACE_STORAGE."
            )
        return {
            "storage": self.storage,
            "user_data": self.user_data,
            "skill_projections": self.skill_projections,
            "skill_store": self.skill_store,
        }

    def open(self) -> Storage:
        """The storage, which must be there."""
        from vfs.workspace import Storage

        return Storage.open(**self.roots())

    @contextmanager
    def open_scope(self, uid: str, workdir: str | None, *, create: bool = False) -> Iterator[Scope]:
        """Where a command line's paths start: the user's workspace, or a Workdir in it.

        `create` has a managed Workdir made that is missing; only what writes asks for it.
        """
        with self.open() as storage, storage.workspace(uid) as workspace, ExitStack() as stack:
            if workdir is None:
                yield stack.enter_context(workspace.scope())
            else:
                below = stack.enter_context(workspace.workdir(os.fsencode(workdir), create=create))
                yield stack.enter_context(below.scope())

    @contextmanager
    def open_folder(self) -> Iterator[int | None]:
        """A descriptor of the folder that holds the three roots; None if none is named."""
        if self.storage is None:
            yield None
            return
        fd = os.open(self.storage, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def verb(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., Any]], Verb]:
    """Makes a function the verb `name`, with --json."""

    def decorate(function: Callable[..., Any]) -> Verb:
        made = click.command(name, cls=Verb, examples=examples)(json_option(function))
        assert isinstance(made, Verb)
        return made

    return decorate


def json_option(function: _Function) -> _Function:
    """Adds --json, which may stand before the verb and after it."""

    def callback(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value:
            ctx.ensure_object(Settings).json = True

    return click.option(
        "--json",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=callback,
        help="Print one JSON document instead of text.",
    )(function)


class ScopePath(_PathType):
    """A path in the user's workspace, or in the Workdir given: a tuple of exact names."""

    name = "path"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[bytes, ...]:
        """Takes absolute and relative paths as the same; InvalidPath for what is none."""
        from vfs.namespace import scope_parts

        if isinstance(value, tuple):
            return value
        try:
            exact = os.fsencode(value)
        except UnicodeEncodeError:
            return scope_parts(value)
        if exact and not exact.startswith(b"/"):
            exact = b"/" + exact
        return scope_parts(exact)


def uid_argument(function: _Function) -> _Function:
    """Adds the argument UID."""
    from vfs.commands.complete import complete_uid

    return click.argument("uid", shell_complete=complete_uid)(function)


def path_argument(
    name: str = "path", *, default: str | None = None
) -> Callable[[_Function], _Function]:
    """Adds a scope path as an argument."""
    from vfs.commands.complete import complete_path

    if default is None:
        return click.argument(name, type=ScopePath(), shell_complete=complete_path)
    return click.argument(name, type=ScopePath(), default=default, shell_complete=complete_path)


def workdir_option(function: _Function) -> _Function:
    """Adds --workdir, from which on the paths count."""
    return click.option(
        "--workdir",
        metavar="WORKDIR",
        help="Take paths from this Workdir on, as projects/<uuid>; else from the workspace on.",
    )(function)


def limit_options(what: str, *fields: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds --limit N, the number of `what`, and --unlimited; both become the argument `limits`.

    `fields` are those of `Limits` that N stands for.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, limit: int | None, unlimited: bool, **kwargs: Any) -> Any:
            from vfs.walking import Limits

            if limit is not None and unlimited:
                raise click.UsageError("--limit and --unlimited exclude each other.")
            limits = Limits.unbounded() if unlimited else Limits()
            if limit is not None:
                limits = replace(limits, **dict.fromkeys(fields, limit))
            return function(*args, limits=limits, **kwargs)

        click.option("--unlimited", is_flag=True, help="Leave nothing out, however much it is.")(
            wrapper
        )
        click.option("--limit", type=click.IntRange(min=1), metavar="N", help=what)(wrapper)
        return wrapper

    return decorate
