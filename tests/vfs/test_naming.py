"""Nobody gets another's name, whatever he calls himself."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from vfs.errors import InvalidName
from vfs.naming import (
    NAME_MAX,
    SANDBOX_ID_BITS,
    SLUG_MAX,
    is_user_directory,
    safe_uid,
    sandbox_id,
    skill_slug,
)

# Hypothesis' default text leaves lone surrogates out, so each of these can be written as UTF-8.
PLAIN = st.text(alphabet="abcxyzABCXYZ0189_-", min_size=1, max_size=300)
TEXT = st.text(min_size=1)
NEAR = st.text(alphabet="ab:_-. \n\0AéE\u0301ß", min_size=1, max_size=6)
UID = st.one_of(PLAIN, TEXT, NEAR)
UID_OR_NAME = st.one_of(UID, UID.map(safe_uid), UID.map(safe_uid).map(safe_uid))


def hashed(uid: str) -> str:
    return "uid-" + hashlib.sha256(uid.encode()).hexdigest()


@pytest.mark.parametrize(
    ("uid", "name"),
    [
        ("abc", "abc"),
        ("A_b-9", "A_b-9"),
        ("-rf", "-rf"),
        ("uid-1", "uid-1"),
        ("uid-" + "A" * 64, "uid-" + "A" * 64),
        ("uid-" + "0" * 63, "uid-" + "0" * 63),
        ("uid-" + "0" * 65, "uid-" + "0" * 65),
        ("x" * 255, "x" * 255),
        ("a.b", "uid-2e7336dc8eba87ef472df568c35482abf2575dc3e5eac0c5c62b8ffaeac2c934"),
        ("oidc:x", "uid-b2b92994c7c7d812e84326d02e437622031ea8ff32adf81294b622427724b0b9"),
    ],
)
def test_names_on_disk_never_change(uid: str, name: str) -> None:
    assert safe_uid(uid) == name


@pytest.mark.parametrize(
    "uid",
    [
        ".",
        "..",
        "/",
        "a/b",
        "\0",
        " ",
        "abc ",
        " abc",
        "abc\n",
        "\nabc",
        "a\nb",
        "abc\r",
        "é",
        "e\u0301",
        "ab\u0441",  # Cyrillic es
        "１２３",  # full-width digits, which \d and isalnum take
        "ª",  # which \w takes
        "x" * 256,
        "uid-" + "0" * 64,
        hashed("a.b"),
        "中文",
        "😀",
    ],
)
def test_what_is_not_plain_is_hashed(uid: str) -> None:
    assert safe_uid(uid) == hashed(uid)


def test_registering_the_hash_of_another_does_not_give_his_directory() -> None:
    victim = safe_uid("a.b")
    attackers = [victim, victim + "\n", victim + " ", victim.upper(), " " + victim]
    names = {safe_uid(uid) for uid in [*attackers, safe_uid(victim), "a.b"]}
    assert len(names) == len(attackers) + 2


@given(UID_OR_NAME, UID_OR_NAME)
@example("a.b", hashed("a.b"))
@example("abc", "abc\n")
@example("abc", "abc ")
@example("abc", "ABC")
@example("é", "e\u0301")
@example("ß", "ss")
@example("x" * 255, "x" * 256)
@example("\u212a", "K")  # the Kelvin sign
def test_two_uids_have_two_directories(one: str, other: str) -> None:
    assert (safe_uid(one) == safe_uid(other)) == (one == other)


@given(UID)
def test_a_uid_and_the_name_of_its_directory_are_two_users_unless_they_are_one_text(
    uid: str,
) -> None:
    name = safe_uid(uid)
    assert (safe_uid(name) == name) == (name == uid)


@given(TEXT)
def test_normal_forms_case_and_white_space_are_kept_apart(uid: str) -> None:
    variants = {uid, uid.strip(), uid.lower(), uid.upper(), uid + "\n", " " + uid} | {
        unicodedata.normalize(form, uid) for form in ("NFC", "NFD", "NFKC", "NFKD")
    }
    variants.discard("")
    assert len({safe_uid(variant) for variant in variants}) == len(variants)


@given(UID)
def test_every_directory_name_is_plain_and_fits(uid: str) -> None:
    name = safe_uid(uid)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,255}", name)
    assert len(name) <= NAME_MAX


@pytest.mark.parametrize("uid", ["\ud800", "a\udcff", "\udcc3\udca9", "ok\udfff"])
def test_text_that_is_no_utf8_has_no_name(uid: str) -> None:
    with pytest.raises(InvalidName, match="cannot be written as UTF-8") as refusal:
        safe_uid(uid)
    assert str(refusal.value).isprintable()
    for pair in [(uid, "scope"), ("user", uid)]:
        with pytest.raises(InvalidName, match="cannot be written as UTF-8"):
            sandbox_id(*pair)


def test_the_empty_text_has_no_name() -> None:
    with pytest.raises(InvalidName, match=r"^the user id is empty; give a user id$"):
        safe_uid("")
    with pytest.raises(InvalidName, match=r"^the user id is empty; give a user id$"):
        sandbox_id("", "scope")
    with pytest.raises(InvalidName, match=r"^the runtime scope id is empty; give a runtime scope"):
        sandbox_id("user", "")


def test_a_sandbox_is_found_again_after_a_restart() -> None:
    assert sandbox_id("a:b", "c") == "s4tj2zuy2gbyx7rgdzlnqck5mpd"
    assert sandbox_id("a", "b:c") == "smf65onsau6bdqplqbw23e5odjz"


def test_sandbox_id_does_not_depend_on_the_process() -> None:
    script = "from vfs.naming import sandbox_id; print(sandbox_id('oidc:x', '范围'))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == sandbox_id("oidc:x", "范围")


@given(UID, UID, UID, UID)
@example("a:b", "c", "a", "b:c")
@example("ab", "c", "a", "bc")
@example("a", "b", "b", "a")
@example("a\0", "b", "a", "\0b")
@example("a", "b\n", "a", "b")
def test_two_pairs_of_user_and_scope_have_two_sandboxes(
    uid: str, scope: str, other_uid: str, other_scope: str
) -> None:
    same = (uid, scope) == (other_uid, other_scope)
    assert (sandbox_id(uid, scope) == sandbox_id(other_uid, other_scope)) == same


@given(st.text(min_size=2), st.data())
def test_where_the_user_ends_and_the_scope_begins_counts(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(text) - 1))
    other = data.draw(st.integers(1, len(text) - 1))
    assume(cut != other)
    assert sandbox_id(text[:cut], text[cut:]) != sandbox_id(text[:other], text[other:])


@given(UID, UID)
def test_sandbox_id_is_a_dns_label_with_room_for_a_prefix(uid: str, scope: str) -> None:
    name = sandbox_id(uid, scope)
    assert re.fullmatch(r"[a-z][a-z0-9]*", name)
    assert len(name) == 1 + SANDBOX_ID_BITS // 5 <= 40
    assert SANDBOX_ID_BITS >= 125


def test_sandbox_id_is_not_of_the_old_form() -> None:
    # Old ids, 12 hex digits, are still accepted on the wire: ours must not be one of them.
    assert not re.fullmatch(r"[0-9a-f]{12}", sandbox_id("abc", "scope"))


@pytest.mark.parametrize("slug", ["a", "0", "pdf", "pdf-tools", "a-1-b-2", "a" * SLUG_MAX])
def test_a_slug_is_itself(slug: str) -> None:
    assert skill_slug(slug) == slug


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "-a",
        "a-",
        "a--b",
        "A",
        "a_b",
        "a b",
        " a",
        "a ",
        "a\n",
        "a\0",
        "a/b",
        ".",
        "..",
        "é",
        "١",  # an Arabic digit
        "\udcff",
        "a" * (SLUG_MAX + 1),
        "-".join(["a"] * 100_000),
    ],
)
def test_what_is_no_slug_is_refused_in_one_short_line(text: str) -> None:
    with pytest.raises(InvalidName, match=r"^not a skill slug: ") as refusal:
        skill_slug(text)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 600


@given(st.from_regex(r"[a-z0-9]{1,9}(-[a-z0-9]{1,9}){0,5}", fullmatch=True))
def test_every_slug_is_accepted(slug: str) -> None:
    assert skill_slug(slug) == slug


@given(st.text(alphabet="ab0-\nA", max_size=8))
def test_the_rule_is_words_joined_by_single_hyphens(text: str) -> None:
    words = text.split("-")
    by_the_rule = all(word and set(word) <= set("ab0") for word in words)
    try:
        accepted = skill_slug(text) == text
    except InvalidName:
        accepted = False
    assert accepted == by_the_rule


@given(name=st.binary(max_size=300))
def test_a_user_directory_is_one_that_some_uid_has(name: bytes) -> None:
    try:
        text = name.decode()
        expected = safe_uid(text) == text
    except (UnicodeDecodeError, InvalidName):
        expected = False
    assert is_user_directory(name) is expected


@given(uid=UID)
def test_every_uid_has_a_user_directory(uid: str) -> None:
    assert is_user_directory(safe_uid(uid).encode())
