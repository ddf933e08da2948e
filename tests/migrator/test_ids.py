"""Ids of Workdirs and projects, and which conversation is whose root."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from migrator.findings import Finding
from migrator.ids import md5_uuid, project_id, roots, workdir_id, workdir_path


@dataclass(frozen=True)
class Conversation:
    id: int
    thread_id: str
    uid: str
    parent_id: int | None


def chain(*parents: int | None, uids: str = "") -> list[Conversation]:
    """Conversations 1, 2, …, each with its parent; all of user ``u`` unless `uids` says whose."""
    return [
        Conversation(n, f"t{n}", uids[n - 1] if uids else "u", parent)
        for n, parent in enumerate(parents, 1)
    ]


def test_workdir_and_project_are_those_of_existing_deployments() -> None:
    assert workdir_id("u1", "t1") == "98ffb52f-762f-d7e7-c332-06f81dcbc9cc"
    assert workdir_path("u1", "t1") == "projects/98ffb52f-762f-d7e7-c332-06f81dcbc9cc"
    assert project_id("u1", "t1") == "58d7ec80-a6c8-3c7c-d2a7-27500f2cda89"


def test_no_version_bits_are_set() -> None:
    assert md5_uuid("") == "d41d8cd9-8f00-b204-e980-0998ecf8427e"


def test_a_name_that_is_not_utf_8_counts_with_its_exact_bytes() -> None:
    assert md5_uuid(os.fsdecode(b"\xff")) == "00594fd4-f42b-a43f-c1ca-0427a0576295"


def test_each_conversation_without_parent_is_its_own_root() -> None:
    answer = roots(chain(None, None))
    assert (answer.root, answer.findings) == ({1: 1, 2: 2}, [])


def test_a_chain_is_followed_to_its_end_in_whatever_order_it_comes() -> None:
    conversations = chain(2, 3, 4, None, 2)
    expected = {1: 4, 2: 4, 3: 4, 4: 4, 5: 4}
    assert roots(conversations).root == expected
    assert roots(reversed(conversations)).root == expected


def test_a_chain_of_many_thousands_is_followed() -> None:
    count = 50_000
    answer = roots(chain(*range(2, count + 1), None))
    assert answer.root == dict.fromkeys(range(1, count + 1), count)


@pytest.mark.parametrize("parents", [(1,), (2, 1), (2, 3, 1), (2, 3, 2)])
def test_a_circle_and_what_hangs_on_it_is_a_conflict_and_the_rest_goes_on(
    parents: tuple[int, ...],
) -> None:
    conversations = [*chain(*parents), Conversation(9, "t9", "u", None)]
    answer = roots(conversations)
    assert answer.root == {9: 9}
    assert [(f.code, f.severity, f.subject) for f in answer.findings] == [
        ("conversation_chain_cycle", "conflict", f"t{n}") for n in range(1, len(parents) + 1)
    ]


def test_a_parent_of_another_user_is_not_followed() -> None:
    answer = roots(chain(None, 1, 2, uids="abb"))
    assert answer.root == {1: 1, 2: 2, 3: 2}
    assert answer.findings == [
        Finding(
            "parent_not_followed",
            "warning",
            "t2",
            "its parent conversation 1 belongs to another user, so it gets a Workdir of its own",
        )
    ]


def test_a_parent_that_is_gone_is_not_followed() -> None:
    answer = roots(chain(7))
    assert answer.root == {1: 1}
    assert [f.message for f in answer.findings] == [
        "its parent conversation 7 is gone, so it gets a Workdir of its own"
    ]
