"""The system settings in base.toml: what is known, what is kept in the report, what is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.findings import Finding
from migrator.settings import SIZE_MAX, Settings, read
from vfs.beneath import Directory

FILE = (b"config", b"base.toml")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Directory]:
    (tmp_path / "config").mkdir()
    with Directory.open(tmp_path) as directory:
        yield directory


def write(folder: Path, text: str | bytes) -> None:
    data = text.encode() if isinstance(text, str) else text
    (folder / "config" / "base.toml").write_bytes(data)


def unknown(key: str, why: str = "no setting of this name is known") -> Finding:
    return Finding(
        "setting_unknown",
        "warning",
        key,
        f"{why}: kept in the report alone",
        "set it by hand if the new version has a use for it",
    )


def test_known_keys_are_taken_over_and_unknown_ones_kept_apart(
    tmp_path: Path, source: Directory
) -> None:
    write(tmp_path, 'default_model = "m1"\nenable_content_guard = true\nunknown_key = 1\n')
    assert read(source, FILE) == Settings(
        {"default_model": "m1", "enable_content_guard": True},
        {"unknown_key": 1},
        (unknown("unknown_key"),),
    )


def test_a_key_that_the_database_has_a_field_for_is_known(
    tmp_path: Path, source: Directory
) -> None:
    write(tmp_path, "new_in_the_database = [1, 2.5]\n")
    assert read(source, FILE, {"new_in_the_database"}) == Settings(
        {"new_in_the_database": [1, 2.5]}
    )


@pytest.mark.parametrize(
    "value",
    ["2026-01-01", "inf", "nan", "[{a = 07:30:00}]", '"a\\u0000b"', '{"a\\u0000" = 1}'],
)
def test_a_value_that_json_cannot_carry_is_kept_as_text(
    tmp_path: Path, source: Directory, value: str
) -> None:
    write(tmp_path, f"reranker = {value}\n")
    found = read(source, FILE)
    assert (found.known, list(found.unknown)) == ({}, ["reranker"])
    assert isinstance(found.unknown["reranker"], str)
    why = "a value of this kind has no place in the database"
    assert found.findings == (unknown("reranker", why),)


def test_a_key_is_shown_without_control_characters(tmp_path: Path, source: Directory) -> None:
    write(tmp_path, '"\\u001b[31m" = 1\n')
    assert [finding.subject for finding in read(source, FILE).findings] == ["\\x1b[31m"]


@pytest.mark.parametrize("text", [b"\xef\xbb\xbffast_model = 'x'\r\n", b"fast_model = 'x'"])
def test_a_mark_at_the_beginning_and_line_ends_of_windows_do_not_matter(
    tmp_path: Path, source: Directory, text: bytes
) -> None:
    write(tmp_path, text)
    assert read(source, FILE) == Settings({"fast_model": "x"})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"not = toml = at all\n", "it is no TOML: "),
        (b"\xff\xfe = 1\n", "it is not UTF-8"),
        (b"a = " + b"9" * 5000, "it is no TOML: "),
        (b"a = " + b"[" * 5000, "its values are nested too deeply"),
        (b"#" * (SIZE_MAX + 1), f"it is larger than {SIZE_MAX} bytes"),
    ],
)
def test_a_file_that_is_no_toml_is_left_with_a_warning(
    tmp_path: Path, source: Directory, text: bytes, why: str
) -> None:
    write(tmp_path, text)
    found = read(source, FILE)
    assert (found.known, found.unknown) == ({}, {})
    [finding] = found.findings
    assert (finding.code, finding.severity) == ("settings_unreadable", "warning")
    assert finding.message.startswith(f"no setting is taken over: {why}")
    assert finding.subject == "config/base.toml"


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_what_is_no_regular_file_is_not_opened(
    tmp_path: Path, source: Directory, kind: str
) -> None:
    path = tmp_path / "config" / "base.toml"
    if kind == "link":
        (tmp_path / "elsewhere").write_text("fast_model = 'x'\n")
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert [finding.code for finding in read(source, FILE).findings] == ["settings_unreadable"]


def test_no_file_is_no_settings(source: Directory) -> None:
    assert read(source, FILE) == Settings()
