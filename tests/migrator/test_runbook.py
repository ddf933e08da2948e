"""docs/migrator.md as a contract: what the program can say stands there, and nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import migrator
from migrator import errors, findings, remains
from migrator.cli import SECTIONS, cli
from migrator.commands import base
from migrator.layouts import LAYOUTS
from vfs import terminal

PACKAGE = Path(migrator.__file__).parent
TEXT = (PACKAGE.parent / "docs" / "migrator.md").read_text()
CODE = re.compile(r"[a-z]+(?:_[a-z]+)+|unreadable")


def section(title: str) -> str:
    """What stands beneath a heading, up to the next one of its rank or above."""
    mark = re.search(rf"^(#+) {re.escape(title)}$", TEXT, re.MULTILINE)
    assert mark is not None, title
    after = TEXT[mark.end() :]
    end = re.search(rf"^#{{1,{len(mark[1])}}} ", after, re.MULTILINE)
    return after if end is None else after[: end.start()]


def first_cells(text: str) -> str:
    return "\n".join(line.split("|")[1] for line in text.split("\n") if line.startswith("| `"))


SCHEMAS = {f"schema_{state}" for state in ("unreleased", "unknown")}
KINDS = {"precondition", "usage", "retryable", "mismatch"}
"""Codes that are made up, and errors that `check` tells as findings."""


def constants() -> Iterator[str]:
    """Every text that the source holds."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def codes() -> Iterator[str]:
    """The codes of findings that the source names: a word with underscores beside a severity, or
    what is passed to something that makes findings."""
    makers = {"Finding", "leave", "tell", "_tell", "_block", "enters", "not_a_directory", "Left"}
    severities = {"note", "warning", "conflict", "blocker"}
    for path in PACKAGE.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            name = call.func.attr if isinstance(call.func, ast.Attribute) else None
            name = call.func.id if isinstance(call.func, ast.Name) else name
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
            words = [
                value.value
                for value in values
                if isinstance(value, ast.Constant) and isinstance(value.value, str)
            ]
            if name in makers or severities.intersection(words):
                yield from filter(CODE.fullmatch, words)


def test_every_code_of_a_finding_is_in_the_runbook_and_no_other() -> None:
    documented = set(re.findall(r"`([a-z_]+)`", first_cells(section("Findings"))))
    told = {*codes(), *remains._MESSAGES, *SCHEMAS, *KINDS}
    assert told - documented == set()
    assert documented - told - set(constants()) == set()


def test_every_state_is_in_the_runbook_and_no_other() -> None:
    documented = re.findall(r"`([a-z-]+)`", first_cells(section("States")))
    assert len(documented) == len(set(documented))
    assert set(documented) <= set(constants())


def test_every_verb_is_in_the_runbook_and_no_other() -> None:
    verbs = [name for names in SECTIONS.values() for name in names]
    assert re.findall(r"`(\w+)`", first_cells(section("Verbs"))) == verbs


def test_every_option_is_in_the_runbook_and_no_other() -> None:
    context = click.Context(cli)
    commands = (cli, *(cli.get_command(context, name) for name in cli.list_commands(context)))
    options = {name for command in commands if command for param in command.params
               for name in param.opts if name.startswith("--")}  # fmt: skip
    documented = set(re.findall(r"--[a-z-]+", first_cells(section("Options"))))
    assert documented == options - {"--version"}


def test_every_exit_status_is_in_the_runbook_and_no_other() -> None:
    cells = first_cells(section("Exit statuses").replace("| ", "| `"))
    kinds = (errors.Usage, errors.Precondition, errors.Mismatch, errors.Retryable, errors.Conflict)
    statuses = {0, findings.WARNINGS, terminal.INTERNAL, errors.INTERRUPTED, errors.TERMINATED}
    statuses.update(kind.exit_status for kind in kinds)
    assert {int(text) for text in re.findall(r"\d+", cells)} == statuses


def test_every_layout_is_in_the_runbook_and_in_the_command() -> None:
    names = {layout.name for layout in LAYOUTS}
    assert names == set(base.LAYOUTS)
    assert names == set(re.findall(r"\*\*`([a-z-]+)`\*\*", section("Layouts")))


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)]+)\)", TEXT))
def test_the_links_of_the_runbook_lead_somewhere(link: str) -> None:
    path, _, anchor = link.partition("#")
    text = TEXT if not path else (PACKAGE.parent / "docs" / path).read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    assert not anchor or anchor in [title.lower().replace(" ", "-") for title in headings]
