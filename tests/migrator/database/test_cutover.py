"""The cut-over, on both databases."""

from __future__ import annotations

from migrator.database import Counts, Schema, connect
from tests.migrator import rows
from tests.migrator.database import old as samples


def test_everything_that_the_new_version_needs_is_there(old: str) -> None:
    change = samples.small(old)
    one, other = change.assignments[1], change.assignments[3]

    counts, _ = samples.cut(old, change)

    assert counts == Counts(
        projects=2,
        conversations=3,
        metadata=1,
        tool_calls=1,
        skills=1,
        options=2,
        unfit={"conversations.extra_metadata null": 1},
    )
    found = rows.read(old)
    assert found == rows.Rows(
        {"t1": one.project_id, "t2": one.project_id, "t3": other.project_id},
        {
            project.project_id: {
                "uid": project.uid,
                "workdir_path": project.workdir_path,
                "selection_status": "implicit",
                "directory_mode": "managed",
            }
            for project in (one, other)
        },
        {
            "t1": {
                "attachments": [
                    {
                        "file_id": "f",
                        "path": f"/home/gem/user-data/{one.workdir_path}/uploads/a.txt",
                    }
                ],
                "kept": [1, 2.5, "ü"],
            },
            "t2": {"attachments": []},
            "t3": None,
        },
        {
            10: {
                "filepaths": [
                    f"/home/gem/user-data/{one.workdir_path}/outputs/x",
                    "/elsewhere",
                ]
            },
            11: {"filepaths": []},
        },
        {"pdf": "shared/pdf", "own": "/opt/own"},
        {"default_model": "m1", "limit": 2.5},
    )
    with connect(old) as database:
        assert database.inspect() == Schema("migrated")
        assert database.differences(change) == []


def test_a_second_cut_over_changes_nothing(old: str) -> None:
    change = samples.small(old)
    samples.cut(old, change)
    before = rows.dump(old)

    counts, recorded = samples.cut(old, change)

    assert (counts, recorded) == (Counts(), [])
    assert rows.dump(old) == before
