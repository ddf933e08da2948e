"""The owners file and --owner: whose thread is whose. On a fake file system: plain paths alone."""

from __future__ import annotations

import os

import pytest
from pyfakefs.fake_filesystem import FakeFilesystem

from migrator.errors import Precondition, Usage
from migrator.owners import Owners, read


def test_nobody_owns_anything_unless_somebody_says_so() -> None:
    assert read(None, None).of("t") is None


def test_one_owner_has_every_thread() -> None:
    assert read(None, "alice").of("t") == "alice"


@pytest.mark.parametrize(
    "text",
    [
        b"thread_id,uid\nt1,alice\nt2,li.wei\n",
        b"t1,alice\nt2,li.wei",
        b"\xef\xbb\xbfthread_id,uid\r\nt1,alice\r\n\r\nt2,li.wei\r\n",
        b'"t1","alice"\n"t2","li.wei"\n',
    ],
)
def test_csv_comes_with_and_without_a_heading(fs: FakeFilesystem, text: bytes) -> None:
    fs.create_file("/o.csv", contents=text)
    assert read(b"/o.csv", None) == Owners({"t1": "alice", "t2": "li.wei"})


@pytest.mark.parametrize(
    "text",
    [
        b'{"t1": "alice", "t2": "li.wei"}',
        b'[{"thread_id": "t1", "uid": "alice"}, {"uid": "li.wei", "thread_id": "t2"}]',
    ],
)
def test_json_is_an_object_or_a_list_of_them(fs: FakeFilesystem, text: bytes) -> None:
    fs.create_file("/o.json", contents=text)
    assert read(b"/o.json", None) == Owners({"t1": "alice", "t2": "li.wei"})


def test_who_is_not_in_the_file_belongs_to_the_one_owner(fs: FakeFilesystem) -> None:
    fs.create_file("/o.csv", contents="t1,alice\n")
    owners = read(b"/o.csv", "bob")
    assert (owners.of("t1"), owners.of("t2")) == ("alice", "bob")


def test_names_are_exact(fs: FakeFilesystem) -> None:
    fs.create_file("/o.csv", contents=b' t ,alice\n\xff,bob\n"new\nline, comma",eve\n')
    assert read(b"/o.csv", None).by_thread == {
        " t ": "alice",
        os.fsdecode(b"\xff"): "bob",
        "new\nline, comma": "eve",
    }


def test_the_same_pair_twice_is_no_contradiction(fs: FakeFilesystem) -> None:
    fs.create_file("/o.csv", contents="t,alice\nt,alice\n")
    assert read(b"/o.csv", None).by_thread == {"t": "alice"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("/o.csv", b"t1\n", "line 1 of /o.csv: it is not thread_id,uid"),
        ("/o.csv", b"t1,a\nt2,b,c\n", "line 2 of /o.csv: it is not thread_id,uid"),
        ("/o.csv", b"t1,\n", "line 1 of /o.csv: the user id is empty"),
        ("/o.csv", b"t1,\xff\n", "line 1 of /o.csv: the user id cannot be written as UTF-8: \\xff"),
        ("/o.csv", b't1,"a\n', "line 1 of /o.csv: unexpected end of data"),
        (
            "/o.csv",
            b"t,alice\nt,bob\n",
            "line 2 of /o.csv: the thread t has two owners, alice and bob",
        ),
        (
            "/o.json",
            b'{"t": "alice", "t": "bob"}',
            "entry 2 of /o.json: the thread t has two owners, alice and bob",
        ),
        ("/o.json", b"3", "/o.json: it is neither an object nor a list"),
        ("/o.json", b"{", "/o.json: it is no JSON: "),
        ("/o.json", b"[" * 100_000, "/o.json: it is no JSON: "),
        ("/o.json", b'["t", "alice"]', "entry 1 of /o.json: it is neither "),
        ("/o.json", b'{"t": 1}', "entry 1 of /o.json: it is neither "),
        ("/o.json", b'{"t": {"uid": "alice"}}', "entry 1 of /o.json: it is neither "),
        ("/o.json", b'[{"thread_id": "t"}]', "entry 1 of /o.json: it is neither "),
        ("/o.json", b'[["thread_id", "uid"]]', "entry 1 of /o.json: it is neither "),
    ],
)
def test_what_is_no_owners_file_is_refused_with_its_place(
    fs: FakeFilesystem, name: str, text: bytes, message: str
) -> None:
    fs.create_file(name, contents=text)
    with pytest.raises(Usage) as refused:
        read(name.encode(), None)
    assert refused.value.message.startswith(message)
    assert refused.value.fix


def test_an_owner_that_is_no_uid_is_refused() -> None:
    with pytest.raises(Usage, match="--owner: the user id is empty"):
        read(None, "")


@pytest.mark.parametrize("name", [b"/missing.csv", b"/"])
def test_a_file_that_cannot_be_read_is_told(fs: FakeFilesystem, name: bytes) -> None:
    with pytest.raises(Precondition, match="cannot read the owners file /"):
        read(name, None)
