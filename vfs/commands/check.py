"""`vfs check`: what is wrong in a storage."""

from __future__ import annotations

from collections import Counter

import click

from vfs.commands import output
from vfs.commands.base import Settings, pass_settings, verb

FINDINGS = 1
"""Exit status when something was found."""


@verb(
    "check",
    examples=("vfs check", "vfs check --json | jq .counts"),
)
@click.pass_context
@pass_settings
def command(settings: Settings, ctx: click.Context) -> None:
    """Look through the whole storage for what should not be there; change nothing.

    Wrong owners and modes, links, special files, names that would collide, stray entries, skill
    projections that differ from their source: each by its kind, with what mends it. Exit status 0
    when nothing was found, 1 when something was.
    """
    from vfs.check import check
