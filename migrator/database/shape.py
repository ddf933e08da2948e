"""How a table is made up, as far as the migration depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "time", "json", "number", "other"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    kind: Kind
    length: int | None
    """The most characters that a text may have; None: any number."""
    nullable: bool
    filled: bool
    """Whether the database gives it a value when an insert gives none."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key."""

    columns: tuple[str, ...]
    table: str
    target: tuple[str, ...]
    on_delete: str
    """``NO ACTION``, ``CASCADE`` …"""


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    name: str
    columns: Mapping[str, Column]
    primary: tuple[str, ...]
    uniques: frozenset[tuple[str, ...]]
    """The columns of each unique constraint, and of each unique index over all rows."""
    references: frozenset[Reference]
    indexes: frozenset[tuple[str, ...]]

    def is_unique(self, *columns: str) -> bool:
        """Whether no two rows may have the same values in exactly these columns."""
        wanted = set(columns)
        return any(set(unique) == wanted for unique in (self.primary, *self.uniques))

    def has_index_on(self, column: str) -> bool:
        """Whether rows are found by this column alone."""
        return any(
            columns[:1] == (column,) for columns in (self.primary, *self.uniques, *self.indexes)
        )


def kind_of(reflected: Any) -> Kind:
    """The kind of a type that SQLAlchemy reflected."""
    for base in type(reflected).__mro__:
        if base.__name__ in _KINDS:
            return _KINDS[base.__name__]
    return "other"


# By name, so that this module does not import SQLAlchemy. CITEXT: PostgreSQL's text without case.
_KINDS: dict[str, Kind] = {
    "String": "text",
    "CITEXT": "text",
    "DateTime": "time",
    "JSON": "json",
    "Integer": "number",
    "Numeric": "number",
}
