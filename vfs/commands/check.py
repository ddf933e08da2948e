"""`vfs check`: what is wrong in a storage."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from vfs.commands import output
from vfs.commands.base import FINDINGS, Settings, pass_settings, verb

if TYPE_CHECKING:
    from vfs.check import Finding


@verb("check", examples=("vfs check", "vfs check --json | jq .counts"))
@click.pass_context
@pass_settings
def command(settings: Settings, ctx: click.Context) -> None:
    """Look through the whole storage for what should not be there.

    Nothing is changed. Wrong owners and modes, links, special files, names that would collide,
    stray entries, skill projections that differ from their source: each with its kind and what
    mends it. Exit status 0 when nothing was found, 1 when something was.
    """
    from vfs.check import check

    counts: Counter[str] = Counter()
    found = []
    with settings.open() as storage:
        for finding in check(storage):
            counts[finding.kind] += 1
            if settings.json:
                found.append(_document(finding))
            else:
                output.say(f"{finding.kind} {finding.path}: {finding.detail}; {finding.fix}")
    if settings.json:
        output.emit({"findings": found, "counts": dict(counts)})
    if counts:
        ctx.exit(FINDINGS)


def _document(finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind,
        **output.named("path", finding.path),
        "detail": finding.detail,
        "fix": finding.fix,
    }
