"""Virtual paths in the database: what is mapped, what is kept, what stays the very object."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.rewriting import map_path, rewrite_metadata, rewrite_tool_input

WORKDIR = "projects/98ffb52f-762f-d7e7-c332-06f81dcbc9cc"
NEW = f"/home/gem/user-data/{WORKDIR}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/home/gem/user-data/workspace", "/home/gem/user-data"),
        ("/home/gem/user-data/workspace/", "/home/gem/user-data/"),
        ("/home/gem/user-data/workspace/a b/c", "/home/gem/user-data/a b/c"),
        ("/home/gem/user-data/workspace/uploads/x", "/home/gem/user-data/uploads/x"),
        ("/home/gem/user-data/uploads", f"{NEW}/uploads"),
        ("/home/gem/user-data/uploads/attachments/a.md", f"{NEW}/uploads/attachments/a.md"),
        ("/home/gem/user-data/outputs/-rf", f"{NEW}/outputs/-rf"),
        ("/home/gem/user-data/outputs/back\\slash\n", f"{NEW}/outputs/back\\slash\n"),
    ],
)
def test_paths_of_the_three_folders_are_mapped(old: str, new: str) -> None:
    assert map_path(old, WORKDIR) == new


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/home/gem/user-data",
        "/home/gem/user-data/",
        "/home/gem/user-data/workspaces/x",
        "/home/gem/user-data/uploads2",
        "/home/gem/user-data/large_tool_results/x",
        "/home/gem/skills/pdf/SKILL.md",
        "/mnt/user-data/uploads/x",
        "home/gem/user-data/uploads/x",
        "/x/home/gem/user-data/uploads/x",
        "/home/gem/user-data/Uploads/x",
        f"{NEW}/uploads/x",
        "see /home/gem/user-data/outputs/x",
    ],
)
def test_any_other_text_is_the_same(path: str) -> None:
    assert map_path(path, WORKDIR) == path


def test_an_attachment_keeps_nine_fields_and_its_paths_are_mapped() -> None:
    kept = {
        "file_id": "f0",
        "file_name": "a.md",
        "file_type": "text/plain",
        "file_size": 1,
        "status": "parsed",
        "uploaded_at": "2026-01-01T00:00:00Z",
        "request_id": "r",
    }
    old = {
        "other": [1],
        "attachments": [
            {
                **kept,
                "path": "/home/gem/user-data/uploads/a.md",
                "original_path": "/home/gem/user-data/workspace/uploads/x",
                "host_path": "/srv/secret",
                "markdown": "# old",
                "artifact_url": "http://old/",
            }
        ],
    }
    before = copy.deepcopy(old)
    assert rewrite_metadata(old, WORKDIR) == {
        "other": [1],
        "attachments": [
            {
                **kept,
                "path": f"{NEW}/uploads/a.md",
                "original_path": "/home/gem/user-data/uploads/x",
            }
        ],
    }
    assert old == before


def test_a_path_that_is_null_stays_null() -> None:
    old = {"attachments": [{"path": None, "original_path": None, "extra": 1}]}
    assert rewrite_metadata(old, WORKDIR) == {
        "attachments": [{"path": None, "original_path": None}]
    }


def test_of_several_attachments_each_is_looked_at() -> None:
    clean = {"file_id": "f1"}
    old = {"attachments": [clean, {"file_id": "f2", "markdown": "x"}, "no object", None]}
    assert rewrite_metadata(old, WORKDIR) == {
        "attachments": [clean, {"file_id": "f2"}, "no object", None]
    }


NOTHING_TO_DO: list[Any] = [
    None,
    "text",
    3,
    [],
    {},
    {"attachments": None},
    {"attachments": {"path": "/home/gem/user-data/uploads/x"}},
    {"attachments": []},
    {"attachments": ["/home/gem/user-data/uploads/x", None]},
    {"attachments": [{"file_id": "f", "path": "/elsewhere"}]},
    {"filepaths": None},
    {"filepaths": "/home/gem/user-data/outputs/x"},
    {"filepaths": [1, None, "/elsewhere", {"path": "/home/gem/user-data/outputs/x"}]},
]


@pytest.mark.parametrize("value", NOTHING_TO_DO)
def test_what_needs_no_change_comes_back_as_the_same_object(value: Any) -> None:
    assert rewrite_metadata(value, WORKDIR) is value
    assert rewrite_tool_input(value, WORKDIR) is value


def test_artifacts_are_mapped_and_the_rest_of_the_input_kept() -> None:
    old = {"filepaths": ["/home/gem/user-data/outputs/a", "/elsewhere", 7], "title": "t"}
    assert rewrite_tool_input(old, WORKDIR) == {
        "filepaths": [f"{NEW}/outputs/a", "/elsewhere", 7],
        "title": "t",
    }


@given(st.text())
def test_what_is_mapped_lies_in_the_same_folder_with_the_same_tail(tail: str) -> None:
    assert map_path(f"/home/gem/user-data/uploads/{tail}", WORKDIR) == f"{NEW}/uploads/{tail}"
    assert map_path(f"/home/gem/user-data/workspace/{tail}", WORKDIR) == (
        f"/home/gem/user-data/{tail}"
    )
