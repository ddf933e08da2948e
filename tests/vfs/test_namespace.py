"""A path has one meaning, and it is inside."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vfs.errors import InvalidPath, NotFound, VfsError
from vfs.namespace import (
    HOME,
    SKILLS,
    SKILLS_ALIASES,
    USER_DATA,
    WORKDIR_ALIASES,
    Location,
    WorkdirPath,
    resolve,
    scope_parts,
    virtual,
    workdir_path,
)

ID = "0190abcd-1234-7abc-8def-0123456789ab"
MANAGED = WorkdirPath(f"projects/{ID}", "managed")
LINKED = WorkdirPath("notes/2024", "linked")

# Any name a directory can hold, the awkward ones often.
PART = st.one_of(
    st.binary(min_size=1, max_size=12),
    st.sampled_from(
        [b"home", b"gem", b"user-data", b"skills", b"workspace", b"uploads", b"mnt", b"...", b" "]
    ),
    st.sampled_from([b"a\nb", b"\xff\xfe", b"-rf", b"\\", b"c:\\x", b"\x1b[2J", "é中".encode()]),
).filter(lambda part: part not in (b".", b"..") and not set(part) & {0, ord("/")})
PARTS = st.lists(PART, max_size=5).map(tuple)
LOCATION = st.one_of(
    st.builds(Location, st.sampled_from(["user-data", "skills"]), PARTS, st.just(False)),
    st.just(Location("home", (), alias=False)),
)
WORKDIR = st.sampled_from([MANAGED, LINKED, None])
ANY_PATH = st.one_of(
    st.binary(),
    st.text(),
    st.builds(
        lambda head, tail: head + tail,
        st.sampled_from([HOME, USER_DATA, SKILLS, *WORKDIR_ALIASES, *SKILLS_ALIASES, ""]),
        st.text(alphabet="/.a\0\\\n ~", max_size=8),
    ),
)


# --- runtime paths


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/home/gem", Location("home", (), alias=False)),
        ("/home/gem/", Location("home", (), alias=False)),
        ("/home/gem/user-data", Location("user-data", (), alias=False)),
        ("/home/gem/user-data/", Location("user-data", (), alias=False)),
        ("/home/gem/user-data/a/b", Location("user-data", (b"a", b"b"), alias=False)),
        ("/home/gem/user-data/a/b/", Location("user-data", (b"a", b"b"), alias=False)),
        (
            "/home/gem/user-data/agents/AGENTS.md",
            Location("user-data", (b"agents", b"AGENTS.md"), alias=False),
        ),
        ("/home/gem/user-data/workspace", Location("user-data", (b"workspace",), alias=False)),
        ("/home/gem/user-data/mnt/skills", Location("user-data", (b"mnt", b"skills"), alias=False)),
        ("/home/gem/skills", Location("skills", (), alias=False)),
        ("/home/gem/skills/pdf/SKILL.md", Location("skills", (b"pdf", b"SKILL.md"), alias=False)),
        ("/workspace", Location("user-data", (b"notes", b"2024"), alias=True)),
        ("/workspace/", Location("user-data", (b"notes", b"2024"), alias=True)),
        ("/workspace/a", Location("user-data", (b"notes", b"2024", b"a"), alias=True)),
        ("/uploads", Location("user-data", (b"notes", b"2024", b"uploads"), alias=True)),
        ("/uploads/a", Location("user-data", (b"notes", b"2024", b"uploads", b"a"), alias=True)),
        ("/outputs/a", Location("user-data", (b"notes", b"2024", b"outputs", b"a"), alias=True)),
        (
            "/attachments/a",
            Location(
                "user-data", (b"notes", b"2024", b"uploads", b"attachments", b"a"), alias=True
            ),
        ),
        ("/home", Location("user-data", (b"notes", b"2024"), alias=True)),
        ("/home/a", Location("user-data", (b"notes", b"2024", b"a"), alias=True)),
        ("/home/gemini", Location("user-data", (b"notes", b"2024", b"gemini"), alias=True)),
        ("/skills/pdf", Location("skills", (b"pdf",), alias=True)),
        ("/mnt/skills/pdf", Location("skills", (b"pdf",), alias=True)),
        (
            "/mnt/user-data/workspace/a",
            Location("user-data", (b"notes", b"2024", b"a"), alias=True),
        ),
        (
            "/mnt/user-data/uploads/a",
            Location("user-data", (b"notes", b"2024", b"uploads", b"a"), alias=True),
        ),
        (
            "/mnt/user-data/outputs",
            Location("user-data", (b"notes", b"2024", b"outputs"), alias=True),
        ),
        (
            "/mnt/user-data/large_tool_results/1",
            Location("user-data", (b"notes", b"2024", b"large_tool_results", b"1"), alias=True),
        ),
        (
            "/uploads/uploads/home/gem",
            Location(
                "user-data",
                (b"notes", b"2024", b"uploads", b"uploads", b"home", b"gem"),
                alias=True,
            ),
        ),
        (
            "/workspace/ a\n\\.. /-rf",
            Location("user-data", (b"notes", b"2024", b" a\n\\.. ", b"-rf"), alias=True),
        ),
    ],
)
def test_meaning_of_runtime_paths(path: str, location: Location) -> None:
    assert resolve(path, LINKED) == location
    assert resolve(path.encode(), LINKED) == location


def test_an_alias_follows_the_current_workdir() -> None:
    assert virtual(resolve("/uploads/a", MANAGED)) == f"/home/gem/user-data/projects/{ID}/uploads/a"
    assert virtual(resolve("/uploads/a", LINKED)) == "/home/gem/user-data/notes/2024/uploads/a"


def test_without_a_workdir_its_aliases_are_refused_and_the_rest_works() -> None:
    for alias in WORKDIR_ALIASES:
        with pytest.raises(InvalidPath):
            resolve(alias, None)
    for alias in SKILLS_ALIASES:
        assert resolve(alias, None) == Location("skills", (), alias=True)
    assert resolve(f"{USER_DATA}/a", None) == Location("user-data", (b"a",), alias=False)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc/passwd",
        "/x",
        "/mnt",
        "/mnt/user-data",
        "/mnt/user-data/other",
        "/mnt/user-dataworkspace",
        "/workspaces",
        "/uploads2/a",
        "/skills-old",
        "/Home",
        "/ home/gem",
        "/tmp",
    ],
)
def test_what_is_outside_the_namespace_is_refused(path: str) -> None:
    with pytest.raises(InvalidPath) as refusal:
        resolve(path, LINKED)
    assert str(refusal.value) == (
        f"outside the workspace: {path}; give a path below /home/gem/user-data or /home/gem/skills"
    )


@pytest.mark.parametrize(
    "path", ["/home/gem/x", "/home/gem/.bashrc", "/home/gem/user-data2", "/home/gem/Skills/a"]
)
def test_the_namespace_itself_holds_two_names(path: str) -> None:
    with pytest.raises(NotFound, match=r"^no such place: /home/gem/"):
        resolve(path, LINKED)


BROKEN = [
    ("", "the path is empty; give one that begins with /"),
    ("a", "not an absolute path: a; begin it with /"),
    ("./a", "not an absolute path: ./a; begin it with /"),
    ("~/a", "not an absolute path: ~/a; begin it with /"),
    (" /a", "not an absolute path:  /a; begin it with /"),
    ("//", "an empty part in it: //; write the path out, name by name"),
    ("///", "an empty part in it: ///; write the path out, name by name"),
    ("//a", "an empty part in it: //a; write the path out, name by name"),
    ("/a//b", "an empty part in it: /a//b; write the path out, name by name"),
    ("/a//", "an empty part in it: /a//; write the path out, name by name"),
    ("/.", "a . or .. in it: /.; write the path out, name by name"),
    ("/a/./b", "a . or .. in it: /a/./b; write the path out, name by name"),
    ("/..", "a . or .. in it: /..; write the path out, name by name"),
    ("/../", "a . or .. in it: /../; write the path out, name by name"),
    ("/a/..", "a . or .. in it: /a/..; write the path out, name by name"),
    ("/a\0", "a NUL character in it: /a\\x00; write the path out, name by name"),
    ("/\ud800", "the path cannot be written as bytes: /\\ud800; give it as valid Unicode text"),
]


@pytest.mark.parametrize(("path", "message"), BROKEN)
@pytest.mark.parametrize("door", [scope_parts, lambda path: resolve(path, LINKED)])
def test_what_is_no_path_is_refused(path: str, message: str, door: Callable[[str], object]) -> None:
    with pytest.raises(InvalidPath) as refusal:
        door(path)
    assert str(refusal.value) == message
    assert refusal.value.path == path


@pytest.mark.parametrize("below", ["/..", "/a/../../x", "/.", "//x", "/x\0"])
@pytest.mark.parametrize("head", [HOME, USER_DATA, SKILLS, *WORKDIR_ALIASES, *SKILLS_ALIASES])
def test_no_root_and_no_alias_can_be_left(head: str, below: str) -> None:
    with pytest.raises(InvalidPath):
        resolve(head + below, LINKED)


@given(LOCATION, WORKDIR)
def test_a_place_has_one_canonical_path_that_means_it(
    location: Location, workdir: WorkdirPath | None
) -> None:
    path = virtual(location)
    assert resolve(path, workdir) == location
    assert resolve(path + "/", workdir) == location
    assert resolve(path.encode("utf-8", "surrogateescape"), workdir) == location


@given(st.sampled_from(sorted(WORKDIR_ALIASES)), PARTS, st.sampled_from([MANAGED, LINKED]))
def test_an_alias_and_its_canonical_path_are_one_place(
    alias: str, parts: tuple[bytes, ...], workdir: WorkdirPath
) -> None:
    path = b"/".join([alias.encode(), *parts])
    if path.startswith(b"/home/gem") and path[9:10] in (b"", b"/"):
        return  # no alias, whatever follows
    location = resolve(path, workdir)
    assert location.alias
    assert resolve(virtual(location), workdir) == dataclasses.replace(location, alias=False)


@given(ANY_PATH, WORKDIR)
def test_whatever_is_given_leads_inside_or_is_refused(
    path: str | bytes, workdir: WorkdirPath | None
) -> None:
    try:
        location = resolve(path, workdir)
    except VfsError as refusal:
        assert str(refusal).isprintable()
        return
    assert not {b"", b".", b".."} & set(location.parts)
    assert not any(b"/" in part or b"\0" in part for part in location.parts)
    assert resolve(virtual(location), workdir) == dataclasses.replace(location, alias=False)


# --- scope paths


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/", ()),
        ("/x", (b"x",)),
        ("/x/", (b"x",)),
        ("/a/b c/\n", (b"a", b"b c", b"\n")),
        ("/home", (b"home",)),
        ("/home/gemini/x", (b"home", b"gemini", b"x")),
        ("/uploads/a", (b"uploads", b"a")),
        ("/etc/passwd", (b"etc", b"passwd")),
        ("/a\\..\\b", (b"a\\..\\b",)),
        ("/\udcff", (b"\xff",)),
        (b"/\xff ", (b"\xff ",)),
        ("/...", (b"...",)),
    ],
)
def test_meaning_of_scope_paths(path: str | bytes, parts: tuple[bytes, ...]) -> None:
    assert scope_parts(path) == parts


@pytest.mark.parametrize(
    "path", [HOME, f"{HOME}/", USER_DATA, SKILLS, f"{USER_DATA}/a", f"{HOME}/x"]
)
def test_a_runtime_path_is_no_scope_path(path: str) -> None:
    with pytest.raises(InvalidPath, match=r"^a runtime path, where one inside the Workdir belongs"):
        scope_parts(path)


def test_a_scope_path_is_no_runtime_path() -> None:
    assert scope_parts("/src/a.py") == (b"src", b"a.py")
    with pytest.raises(InvalidPath, match=r"^outside the workspace: /src/a\.py"):
        resolve("/src/a.py", LINKED)


@given(PARTS)
def test_a_scope_path_is_exact(parts: tuple[bytes, ...]) -> None:
    path = b"/" + b"/".join(parts)
    if parts[:2] == (b"home", b"gem"):
        with pytest.raises(InvalidPath):
            scope_parts(path)
    else:
        assert scope_parts(path) == parts
        assert scope_parts(path.decode("utf-8", "surrogateescape")) == parts


# --- Workdir paths


@pytest.mark.parametrize(
    ("text", "workdir"),
    [
        (f"projects/{ID}", MANAGED),
        (f"projects/{ID.upper()}", MANAGED),
        (f"projects/{ID}".encode(), MANAGED),
        (f"projects/{ID}/src", WorkdirPath(f"projects/{ID}/src", "linked")),
        (f"Projects/{ID}", WorkdirPath(f"Projects/{ID}", "linked")),
        (f"{ID}", WorkdirPath(ID, "linked")),
        ("projects", WorkdirPath("projects", "linked")),
        (
            "projects/" + ID.replace("-", ""),
            WorkdirPath("projects/0190abcd12347abc8def0123456789ab", "linked"),
        ),
        ("projects/{" + ID + "}", WorkdirPath("projects/{" + ID + "}", "linked")),
        (f"projects/{ID} ", WorkdirPath(f"projects/{ID} ", "linked")),
        (
            f"projects/{ID.replace('0', '٠')}",
            WorkdirPath(f"projects/{ID.replace('0', '٠')}", "linked"),
        ),
        ("notes/2024", LINKED),
        ("Agents", WorkdirPath("Agents", "linked")),
        ("x/agents", WorkdirPath("x/agents", "linked")),
        ("agents2", WorkdirPath("agents2", "linked")),
        (" a b ", WorkdirPath(" a b ", "linked")),
        ("中文/é", WorkdirPath("中文/é", "linked")),
        (b"\xff", WorkdirPath("\udcff", "linked")),
        ("-rf", WorkdirPath("-rf", "linked")),
        ("a:/b", WorkdirPath("a:/b", "linked")),
        ("...", WorkdirPath("...", "linked")),
    ],
)
def test_kinds_of_workdir(text: str | bytes, workdir: WorkdirPath) -> None:
    assert workdir_path(text) == workdir


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("/", "it begins with a slash"),
        ("/home/gem/user-data/a", "it begins with a slash"),
        ("a\\b", "it holds a backslash"),
        ("file://a", "it is a URL"),
        ("a/b://c", "it is a URL"),
        ("a\0", "it holds a control character"),
        ("a\n", "it holds a control character"),
        (f"projects/{ID}\n", "it holds a control character"),
        ("a\x7f", "it holds a control character"),
        ("a\x85", "it holds a control character"),
        ("a\x1b[2J", "it holds a control character"),
        (".", "it holds an empty, . or .. part"),
        ("..", "it holds an empty, . or .. part"),
        ("a/../b", "it holds an empty, . or .. part"),
        ("./a", "it holds an empty, . or .. part"),
        ("a//b", "it holds an empty, . or .. part"),
        ("a/", "it holds an empty, . or .. part"),
        (f"projects/{ID}/", "it holds an empty, . or .. part"),
        ("agents", "agents/ is reserved"),
        ("agents/skills", "agents/ is reserved"),
    ],
)
def test_what_no_workdir_can_be(text: str, reason: str) -> None:
    with pytest.raises(InvalidPath) as refusal:
        workdir_path(text)
    assert str(refusal.value).isprintable()
    assert refusal.value.message.endswith(f": {reason}")
    assert (
        refusal.value.fix == "give it relative to the workspace, as projects/<uuid> or notes/2024"
    )


def test_a_workdir_path_that_stands_for_no_bytes_is_refused() -> None:
    with pytest.raises(InvalidPath, match="cannot be written as bytes"):
        workdir_path("a\ud800")


@given(st.uuids(), st.booleans())
def test_every_uuid_names_one_managed_workdir(number: uuid.UUID, upper: bool) -> None:
    text = str(number).upper() if upper else str(number)
    workdir = workdir_path(f"projects/{text}")
    assert workdir == WorkdirPath(f"projects/{number}", "managed")
    assert workdir.parts == (b"projects", str(number).encode())


@given(st.one_of(st.binary(), st.text(), st.text(alphabet="/.a\\:\n", max_size=8)))
@example("\udcc3\udca9")
def test_a_workdir_path_is_inside_and_is_kept_exactly(text: str | bytes) -> None:
    try:
        workdir = workdir_path(text)
    except InvalidPath:
        return
    exact = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    assert b"/".join(workdir.parts) == exact
    assert not {b"", b".", b".."} & set(workdir.parts)
    assert workdir.parts[0] != b"agents"
    assert workdir_path(workdir.text) == workdir
    assert workdir_path(exact) == workdir
