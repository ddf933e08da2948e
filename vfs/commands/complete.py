"""What the shell offers for UID and PATH: a bounded look at the storage, silence where it fails.

Only names that mean themselves to every shell are offered: the scripts that ask do not quote.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

import click
from click.shell_completion import CompletionItem

from vfs.commands.base import Settings
from vfs.errors import VfsError

MAX_OFFERED = 200
"""More names than these help nobody who is looking for one."""

_PLAIN = re.compile(r"[\w.%+/-]+")


def complete_uid(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The users whose directory has their own name; what others are called is not known."""
    from vfs.naming import safe_uid

    with suppress(VfsError, OSError, click.UsageError), _settings(ctx).open() as storage:
        return _items((n for n in storage.users() if safe_uid(n) == n), incomplete)
    return []


def complete_path(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The entries of the directory that the path is in; directories with a slash behind them."""
    from vfs.namespace import scope_parts

    above, slash, _ = incomplete.rpartition("/")
    uid, workdir = ctx.params.get("uid"), ctx.params.get("workdir")
    if uid is None:
        return []
    with suppress(VfsError, OSError, click.UsageError):
        parts = scope_parts("/" + above.removeprefix("/"))
        with _settings(ctx).open_scope(uid, workdir) as scope:
            entries = scope.list(parts).entries
        names = (os.fsdecode(entry.name) + "/" * entry.is_dir for entry in entries)
        return _items((above + slash + name for name in names), incomplete)
    return []


def _settings(ctx: click.Context) -> Settings:
    # The group's function does not run while a line is completed.
    given = ctx.find_root().params
    return Settings(
        given.get("storage"),
        given.get("user_data"),
        given.get("skill_projections"),
        given.get("skill_store"),
    )


def _items(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    fitting = (n for n in names if n.startswith(incomplete) and _PLAIN.fullmatch(n))
    return [CompletionItem(name) for name in islice(fitting, MAX_OFFERED)]
