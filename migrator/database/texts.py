"""JSON in a column, as its exact text: read, judged, and written again without loss.

- A text that needs no change is never written, so it stays as it is to the byte.
- In a text that is changed every number keeps its digits (1.10 stays 1.10, and 1e400 and integers
  of any length stay what they are), keys keep their order, and characters outside of ASCII stay
  escaped or not as they were. White space and equal keys in one object are not kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from migrator.database.engine import Session

Kind = Literal["object", "null", "list", "string", "scalar", "malformed"]


class Parsed(NamedTuple):
    """What a text holds."""

    kind: Kind
    value: Any
    """None where it is malformed."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number by its digits; it is nothing to calculate with."""

    digits: str


def parse(text: str | None) -> Parsed:
    """What the text holds; None, SQL's null, is ``null`` like JSON's own."""
    if text is None:
        return Parsed("null", None)
    try:
        # Bytes that are no UTF-8 come as surrogates: writing those again is not ours to try.
        text.encode()
        value = _decoder.decode(text)
    except (ValueError, RecursionError):
        return Parsed("malformed", None)
    return Parsed(_kind(value), value)


def _kind(value: Any) -> Kind:
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "list"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "scalar"


def rewritten(text: str | None, change: Callable[[Any], Any]) -> tuple[str | None, Kind]:
    """The new text of an object, None if nothing is to be written; and what the old one holds.

    `change` gives back the very object that it got when nothing in it changes.
    """
    kind, value = parse(text)
    if kind != "object":
        return None, kind
    new = change(value)
    if new is value:
        return None, kind
    return dump(new, like=text or ""), kind


def dump(value: Any, *, like: str = "") -> str:
    """The text of a value, with other characters than ASCII as they stand in the text `like`."""
    if not like.isascii():
        text = "".join(_pieces(value, ascii_only=False))
        try:
            text.encode()
            return text
        except UnicodeEncodeError:
            pass  # half a surrogate pair that was escaped
    return "".join(_pieces(value, ascii_only=True))


def _pieces(value: Any, *, ascii_only: bool) -> list[str]:
    """The text of a value in pieces, to any depth."""
    quoted = _ascii if ascii_only else _unicode
    pieces: list[str] = []
    # What is still to write, the next last: a text as it is in a tuple, or a value.
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, tuple):
            pieces.append(item[0])
        elif isinstance(item, Number):
            pieces.append(item.digits)
        elif isinstance(item, dict):
            todo.append(("}",))
            for position, (key, member) in reversed(list(enumerate(item.items()))):
                comma = ", " if position else ""
                todo += (member, (f"{comma}{quoted(key)}: ",))
            pieces.append("{")
        elif isinstance(item, list):
            todo.append(("]",))
            for position, member in reversed(list(enumerate(item))):
                todo.append(member)
                if position:
                    todo.append((", ",))
            pieces.append("[")
        else:
            pieces.append(quoted(item))
    return pieces


def digest(text: str | None) -> str | None:
    """What stands for a text in the records: its SHA-256 in hex; None for null."""
    if text is None:
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def select(session: Session, column: str) -> str:
    """The SQL expression for the exact text of a column.

    A value of SQLite's that is no text (its binary JSON) is given as a word that no JSON is, so
    that it counts as malformed and stays as it is.
    """
    if session.dialect == "sqlite":
        return f"CASE typeof({column}) WHEN 'blob' THEN 'blob' ELSE CAST({column} AS TEXT) END"
    return f"CAST({column} AS text)"


_ascii = json.JSONEncoder(ensure_ascii=True).encode
_unicode = json.JSONEncoder(ensure_ascii=False).encode

_decoder = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=Number)
