"""The text of a table's definition in SQLite, edited without touching the rest of it.

SQLite keeps the statement that made a table as it was written, with comments, quotes and line
breaks. Columns and constraints are added and taken away between its commas; whatever else it holds,
known or not, stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<skipped>\s+ | --[^\n]* | /\*.*?(?:\*/|\Z))
    | (?P<name>"(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\] | [^\W\d][\w$]*)
    | (?P<other>'(?:[^']|'')*' | .)
    """,
    re.VERBOSE | re.DOTALL,
)

_CONSTRAINTS: Final = frozenset({"constraint", "primary", "unique", "check", "foreign"})
"""The words that a table's constraint begins with; a column begins with its name."""


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int
    end: int
    is_name: bool

    @property
    def plain(self) -> str:
        """Without quotes, in lower case: as SQLite compares names and keywords."""
        text = self.text
        if self.is_name and text[0] in '"`[':
            close = "]" if text[0] == "[" else text[0]
            text = text[1:-1].replace(close * 2, close)
        return text.lower()

    @property
    def is_keyword_like(self) -> bool:
        return self.is_name and self.text[0] not in '"`['


@dataclass(frozen=True, slots=True)
class Item:
    """One column or constraint: from its first word to its last, comments around it left out."""

    words: tuple[_Word, ...]

    @property
    def start(self) -> int:
        """Where it begins in the text."""
        return self.words[0].start

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.words[-1].end

    @property
    def is_constraint(self) -> bool:
        """Whether it is one of the table, not a column with its own."""
        return self.words[0].is_keyword_like and self.words[0].plain in _CONSTRAINTS

    def is_column(self, name: str) -> bool:
        """Whether it is the column of this name."""
        return not self.is_constraint and self.words[0].plain == name

    def constrains(self, name: str) -> bool:
        """Whether it is the table's constraint of this name."""
        return self.is_constraint and [word.plain for word in self.words[:2]] == [
            "constraint",
            name,
        ]


def items(sql: str) -> list[Item]:
    """The columns and constraints in the statement, in order. ValueError if it has none."""
    found: list[Item] = []
    words: list[_Word] = []
    depth = 0
    for word in _words(sql):
        if word.text == "(":
            depth += 1
            if depth == 1:
                continue
        elif word.text == ")":
            depth -= 1
            if depth == 0:
                break
        if depth == 1 and word.text == ",":
            found.append(_item(words))
            words = []
        elif depth:
            words.append(word)
    return [*found, _item(words)]


def _item(words: Sequence[_Word]) -> Item:
    if not words:
        raise ValueError("an empty place between the commas of a table")
    return Item(tuple(words))


def _words(sql: str) -> list[_Word]:
    return [
        _Word(match.group(), match.start(), match.end(), match.lastgroup == "name")
        for match in _TOKEN.finditer(sql)
        if match.lastgroup != "skipped"
    ]


def with_column(sql: str, definition: str) -> str:
    """The statement with one more column, after the others."""
    last = [item for item in items(sql) if not item.is_constraint][-1]
    return f"{sql[: last.end]}, {definition}{sql[last.end :]}"


def with_constraint(sql: str, definition: str) -> str:
    """The statement with one more constraint, at the end."""
    last = items(sql)[-1]
    return f"{sql[: last.end]}, {definition}{sql[last.end :]}"


def with_not_null(sql: str, column: str) -> str:
    """The statement with a NOT NULL at the column; as it is where it has one."""
    item = _column(sql, column)
    if _not_null(item) is not None:
        return sql
    return f"{sql[: item.end]} NOT NULL{sql[item.end :]}"


def without_not_null(sql: str, column: str) -> str:
    """The statement without the column's NOT NULL; as it is where it has none."""
    found = _not_null(_column(sql, column))
    if found is None:
        return sql
    start, end = found
    return f"{sql[:start].rstrip()}{sql[end:]}"


def without_column(sql: str, column: str) -> str:
    """The statement without the column; as it is where there is none."""
    return _without(sql, [item.is_column(column) for item in items(sql)])


def without_constraint(sql: str, name: str) -> str:
    """The statement without the constraint of this name; as it is where there is none."""
    return _without(sql, [item.constrains(name) for item in items(sql)])


def _without(sql: str, unwanted: Sequence[bool]) -> str:
    """The statement without an item, and without the comma before it."""
    found = items(sql)
    if True not in unwanted:
        return sql
    position = unwanted.index(True)
    if position == 0:
        return sql[: found[0].start] + sql[found[1].start :]
    return sql[: found[position - 1].end] + sql[found[position].end :]


def _column(sql: str, name: str) -> Item:
    for item in items(sql):
        if item.is_column(name):
            return item
    raise ValueError(f"there is no column {name}")


def _not_null(item: Item) -> tuple[int, int] | None:
    """Where the column says NOT NULL, outside of any parentheses."""
    depth = 0
    for word, following in zip(item.words, item.words[1:], strict=False):
        depth += (word.text == "(") - (word.text == ")")
        if depth == 0 and [word.text.lower(), following.text.lower()] == ["not", "null"]:
            return word.start, following.end
    return None
