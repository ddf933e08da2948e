"""`vfs check`: what is wrong in a storage."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from vfs.commands import output
from vfs.commands.base import FINDINGS, Settings, pass_settings, verb
from vfs.printable import printable

if TYPE_CHECKING:
    from vfs.check import Finding


@verb("check", examples=("vfs check", "vfs check --json | jq .counts"))
@click.pass_context
@pass_settings
def command(settings: Settings, ctx: click.Context) -> None:
    """Look through the whole storage for what should not be there.

    Nothing is changed. Wrong owners and modes, links, special files, names that would collide,
    stray entries, skill projections that differ from their source: each with its kind and what
    mends it. The number of links is told, which is no fault. Exit status 0 when nothing is wrong,
    else 1.
    """
    from vfs.check import check

    counts: Counter[str] = Counter()
    faults = 0
    documents = []
    with settings.open() as storage:
        for finding in check(storage):
            counts[finding.kind] += 1
            faults += not finding.harmless
            if settings.json:
                documents.append(_document(finding))
            else:
                output.say(_line(finding))
    if settings.json:
        output.emit({"findings": documents, "counts": dict(counts), "faults": faults})
    elif not faults:
        output.say("nothing is wrong")
    if faults:
        ctx.exit(FINDINGS)


def _line(finding: Finding) -> str:
    place = printable(finding.path)
    if finding.user is not None:
        place = f"{finding.user} {place}"
    return f"{finding.kind} {place}: {finding.detail}; {finding.fix}"


def _document(finding: Finding) -> dict[str, object]:
    return {
        "kind": finding.kind,
        "user": finding.user,
        **output.named("path", finding.path),
        "detail": finding.detail,
        "fix": finding.fix,
        "harmless": finding.harmless,
    }
