"""JSON texts: what is rewritten loses nothing, and what is not rewritten is not touched."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.database.texts import digest, dump, parse, rewritten


def add(value: dict[str, object]) -> dict[str, object]:
    return {**value, "new": True}


@pytest.mark.parametrize(
    "number",
    ["1.10", "1e400", "-0", "0.1000000000000000055511151231257827", "1E+2", "9" * 5000, "NaN"],
)
def test_a_number_keeps_its_digits(number: str) -> None:
    new, _ = rewritten(f'{{"a": [{number}], "b": {number}}}', add)
    assert new == f'{{"a": [{number}], "b": {number}, "new": true}}'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('{"a": "数\\u636e"}', '{"a": "数据", "new": true}'),
        ('{"a": "\\u6570"}', '{"a": "\\u6570", "new": true}'),
        # Half of a pair has no bytes of its own: it stays escaped, and all the rest with it.
        ('{"a": "数\\ud800"}', '{"a": "\\u6570\\ud800", "new": true}'),
        ('{"a": "\\u0000\\n\\""}', '{"a": "\\u0000\\n\\"", "new": true}'),
        ('{ "b":1,"a":{} ,"c":[ ]}', '{"b": 1, "a": {}, "c": [], "new": true}'),
    ],
)
def test_characters_stay_escaped_or_not_as_they_were(old: str, new: str) -> None:
    assert rewritten(old, add) == (new, "object")


def test_an_object_that_comes_back_as_it_is_is_not_written() -> None:
    assert rewritten('{"a" :1.0}', lambda value: value) == (None, "object")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (None, "null"),
        ("null", "null"),
        ("[]", "list"),
        ('[{"attachments": []}]', "list"),
        ('"{\\"a\\": 1}"', "string"),
        ("7", "scalar"),
        ("1.5", "scalar"),
        ("true", "scalar"),
        ("", "malformed"),
        ("{", "malformed"),
        ("{'a': 1}", "malformed"),
        ('{"a": "\udcff"}', "malformed"),
        ("[" * 100_000, "malformed"),
        ('{"a": "\n"}', "malformed"),
        ("{} {}", "malformed"),
    ],
)
def test_whatever_is_no_object_is_left_and_told(text: str | None, kind: str) -> None:
    def never(value: object) -> object:
        raise AssertionError(value)

    assert rewritten(text, never) == (None, kind)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(value=json_values, like=st.sampled_from(["", "ü"]))
def test_any_value_is_read_back_as_it_was(value: object, like: str) -> None:
    text = dump(value, like=like)
    assert json.loads(text) == value
    assert dump(parse(text).value, like=like) == text


def test_as_deep_as_it_can_be_read_it_can_be_written() -> None:
    text = '{"a": ' + "[" * 900 + "]" * 900 + "}"
    assert rewritten(text, add)[0] == text[:-1] + ', "new": true}'


def test_null_has_no_digest_and_surrogates_have_one() -> None:
    assert digest(None) is None
    assert digest("\udcff") != digest("\udcfe")
