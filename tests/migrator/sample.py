"""Old saves of several kinds, each with its answer: minimal, normal, hostile, of each layout.

A database is named by its URL: an empty one on PostgreSQL, or a file that is made on SQLite.
Without one the saves come with a file of owners.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.migrator.saves import Layout, Saves

Sample = Callable[..., Saves]

NAMES: tuple[bytes, ...] = (
    b"back\\slash",
    b"new\nline",
    b"-rf",
    b" spaces at both ends ",
    b"\xff\xfe not utf-8",
    "结果 ünïcode".encode(),
    b"x" * 255,
    "é".encode() * 127,
    b"...",
    b"*",
    b"\x1b[31mred",
    b"quote'\"",
    b".hidden",
)
"""Names that programs stumble over."""

SETTINGS = 'default_model = "m1"\nenable_content_guard = true\nunknown_key = 1\n'
KNOWN = {"default_model": "m1", "enable_content_guard": True}


def sqlite(folder: Path) -> str:
    """The URL of a database file beside the saves."""
    return f"sqlite:///{folder / 'saves.db'}"


def minimal(folder: Path, url: str | None = None, *, in_place: bool = False) -> Saves:
    """Six files of one user in layout A, each kind of unit once: for running it many times."""
    saves = Saves(folder, "yuxi", url or sqlite(folder), in_place=in_place)
    old = saves.user("alice")
    saves.file(f"{old}/agents/AGENTS.md")
    where = saves.thread(
        "t1",
        "alice",
        metadata=_metadata("/home/gem/user-data/uploads/a.txt"),
        inputs=[("present_artifacts", {"filepaths": ["/home/gem/user-data/outputs/run.sh"]})],
    )
    one = saves.file(f"{where}/uploads/a.txt", 300)
    saves.file(f"{where}/outputs/run.sh", 40, mode=0o755)
    os.link(one, saves.path(f"{where}/outputs/twin"))
    saves.link(f"{where}/outputs/link", "run.sh")
    saves.skill("chart")
    saves.settings(SETTINGS, KNOWN)
    return saves.finish()


def _metadata(*paths: str) -> dict[str, object]:
    """A conversation's extra_metadata with attachments at these paths."""
    return {
        "pinned_by": "somebody",
        "attachments": [
            {
                "file_id": f"f{number}",
                "file_name": path.rpartition("/")[2],
                "file_size": 1,
                "status": "parsed",
                "path": path,
                "original_path": "/home/gem/user-data/workspace/uploads/x",
                "host_path": "/srv/secret",
                "markdown": "# old",
                "artifact_url": "http://old/",
            }
            for number, path in enumerate(paths)
        ],
    }


def _fill(saves: Saves, where: str, names: tuple[str, ...] = ("uploads", "outputs")) -> None:
    """A few files of every plain kind below each of the names."""
    for name in names:
        saves.file(f"{where}/{name}/report.md", 900)
        saves.file(f"{where}/{name}/数据 汇总.csv", 0)
        saves.file(f"{where}/{name}/deep/er/tool", 5000, mode=0o777)
        saves.link(f"{where}/{name}/deep/link", "../report.md")
        saves.link(f"{where}/{name}/outside", "/etc/passwd")
        saves.directory(f"{where}/{name}/empty")


def normal(folder: Path, url: str | None = None, *, in_place: bool = False) -> Saves:
    """Three users, sub-agents, rows of every kind, all that is left alone; no conflict."""
    saves = Saves(folder, "yuxi", url or sqlite(folder), in_place=in_place)
    for uid in ("alice", "li.wei"):
        old = saves.user(uid)
        for name in ("AGENTS.md", "USER.md", "MEMORY.md"):
            saves.file(f"{old}/agents/{name}")
        saves.file(f"{old}/notes/kept in place.md", 900)
        saves.link(f"{old}/notes/link", "kept in place.md")
    saves.user("bob_2", workspace=False)
    _threads(saves)
    saves.skill("pdf-tools")
    saves.skill("chart", "builtin")
    saves.settings(SETTINGS, KNOWN)
    _left_alone(saves)
    return saves.finish(owner=(1001, 1002))


def _threads(saves: Saves) -> None:
    home = "/home/gem/user-data"
    where = saves.thread(
        "alice.v0:legacy",
        "alice",
        metadata=_metadata(
            f"{home}/uploads/report.md",
            f"{home}/uploads/attachments/report.md",
            f"{home}/workspace/notes/kept in place.md",
            "/elsewhere/x",
        ),
        inputs=[
            (
                "present_artifacts",
                {"filepaths": [f"{home}/outputs/report.md", f"{home}/workspace", "/x", 1]},
            ),
            ("read_file", {"filepaths": [f"{home}/outputs/report.md"]}),
            ("present_artifacts", {"filepaths": "not a list"}),
            ("present_artifacts", None),
        ],
    )
    _fill(saves, where)
    saves.file(f"{where}/uploads/attachments/report.md", 50)
    os.link(
        saves.file(f"{where}/uploads/twin", 700), saves.path(f"{where}/outputs/the same as twin")
    )
    saves.file(f"threads/{saves_thread(where)}/skills/local/SKILL.md")
    # Sub-agents, and one of a sub-agent: all of them work in the Workdir of the first.
    _fill(saves, saves.thread("alice-2", "alice", metadata={"attachments": []}))
    where = saves.thread(
        "alice-2-sub",
        "alice",
        parent="alice-2",
        metadata=_metadata(f"{home}/outputs/of sub"),
        inputs=[("present_artifacts", {"filepaths": [f"{home}/outputs/of sub"]})],
    )
    saves.file(f"{where}/outputs/of sub", 10)
    where = saves.thread("alice-2-sub-sub", "alice", parent="alice-2-sub")
    saves.file(f"{where}/outputs/of sub of sub", 10)
    saves.thread("alice-3", "alice", status="archived")
    _fill(saves, saves.thread("bob", "bob_2", status="deleted", metadata=[1, 2]))
    _fill(saves, saves.thread("wei", "li.wei", metadata={"attachments": "none"}))


def saves_thread(where: str) -> str:
    """The thread of which `where` is the user-data."""
    return where.split("/")[-2]


def _left_alone(saves: Saves) -> None:
    saves.file("threads/without a row/user-data/uploads/orphan.md")
    saves.file("skills/stray.txt")
    saves.skill("no-row", row=False)
    saves.file("skill_import_drafts/draft/SKILL.md")
    for name in ("uploads", "agents", "knowledge_base_data", "logs"):
        saves.file(f"{name}/not ours")
    where = saves.thread("of nobody", "nobody", migrated=False)
    saves.file(f"{where}/uploads/of nobody.md")


def hostile(folder: Path, url: str | None = None, *, in_place: bool = False) -> Saves:
    """What programs stumble over: names, links where directories should be, special files.

    Users `file` and `link` have something else where `projects` should be: a conflict, and theirs
    alone.
    """
    saves = Saves(folder, "yuxi", url or sqlite(folder), in_place=in_place)
    old = saves.user("alice")
    saves.user("eve")
    where = saves.thread("t1", "alice", metadata=_metadata("/home/gem/user-data/uploads/"))
    for number, name in enumerate(NAMES):
        saves.file(f"{where}/uploads/".encode() + name, number * 37)
        saves.link(f"{old}/links/".encode() + name, name)
        saves.file(f"{where}/outputs/".encode() + name + b"/" + name, 5)
    _special(saves, where)
    _twins(saves, where, saves.thread("t2", "alice"), saves.thread("e1", "eve"), old)
    # A thread, and an `uploads`, that is a link: nothing is taken by way of it.
    outside = saves.folder / "outside"
    (outside / "user-data" / "uploads").mkdir(parents=True)
    (outside / "user-data" / "uploads" / "secret").write_bytes(b"secret")
    saves.thread("linked", "alice")
    saves.link("threads/linked", outside)
    where = saves.thread("half", "alice")
    saves.link(f"{where}/uploads", outside / "user-data" / "uploads")
    saves.file(f"{where}/outputs/kept", 10)
    _collisions(saves)
    _cycle(saves)
    _conflicts(saves)
    saves.skill("gone", files=False)
    saves.settings("not = toml = at all\n", {})
    saves.rows.options = None
    return saves.finish()


def _special(saves: Saves, where: str) -> None:
    os.mkfifo(saves.path(f"{where}/uploads/a fifo"))
    path = saves.file(f"{where}/uploads/sparse", b"begin")
    with open(path, "r+b") as file:
        file.truncate(1 << 20)
        file.seek((1 << 20) - (1 << 12))
        file.write(b"e" * (1 << 12))
    os.utime(path, ns=(10**18, 10**18))
    path = saves.file(f"{where}/uploads/all hole", b"")
    os.truncate(path, 1 << 16)
    os.utime(path, ns=(10**18, 10**18))
    saves.file(f"{where}/uploads/attributes", 10, xattrs={"user.a": b"1", "user.b": b"\0\xff"})
    os.setxattr(saves.directory(f"{where}/uploads/empty one"), "user.of", b"directory")
    saves.file(f"{where}/uploads/old", 10, mtime=-1000)
    saves.file(f"{where}/uploads/set-id", 10, mode=0o6755)
    saves.file(f"{where}/uploads/no rights", 10, mode=0)


def _twins(saves: Saves, one: str, two: str, other: str, workspace: str) -> None:
    """Hard links in one thread, to another of the same user, to the workspace, to another user."""
    path = saves.file(f"{one}/uploads/twin a", 64)
    for place in (f"{one}/outputs/twin b", f"{two}/uploads/twin c", f"{workspace}/twin d"):
        os.link(path, saves.path(place))
    path = saves.file(f"{one}/uploads/shared", 64)
    os.link(path, saves.path(f"{other}/uploads/shared"))
    os.link(saves.link(f"{one}/uploads/link a", "shared"), saves.path(f"{one}/uploads/link b"))


def _collisions(saves: Saves) -> None:
    """Sub-agents that wrote what their parent wrote, of each kind."""
    top = saves.thread("c1", "eve")
    sub = saves.thread("c2", "eve", parent="c1")
    for where, content in ((top, b"old"), (sub, b"new")):
        saves.file(f"{where}/outputs/the same", b"same")
        saves.file(f"{where}/outputs/newer wins", content)
        saves.file(f"{where}/outputs/later wins", content, mtime=1_600_000_000)
        saves.file(f"{where}/outputs/merged/{content.decode()}", content)
    saves.file(f"{top}/outputs/older stays", b"newest", mtime=1_800_000_000)
    saves.file(f"{sub}/outputs/older stays", b"older")
    saves.file(f"{top}/outputs/file and directory", b"file")
    saves.file(f"{sub}/outputs/file and directory/in it", b"file")
    saves.file(f"{top}/outputs/directory and file/in it", b"file")
    saves.file(f"{sub}/outputs/directory and file", b"file")


def _cycle(saves: Saves) -> None:
    """Two conversations that are each other's sub-agents: neither has a root."""
    for thread in ("y1", "y2"):
        where = saves.thread(thread, "eve", migrated=False)
        saves.file(f"{where}/outputs/in a circle", 10)
    saves.child("y1", "y2")
    saves.child("y2", "y1")


def _conflicts(saves: Saves) -> None:
    """Two users that cannot have Workdirs, for what stands where `projects` should be."""
    for uid in ("file", "link"):
        old = saves.user(uid)
        where = saves.thread(f"of-{uid}", uid, migrated=False)
        saves.file(f"{where}/uploads/stays", 10)
        if uid == "file":
            saves.file(f"{old}/projects", b"a file")
        else:
            saves.link(f"{old}/projects", "/tmp")


def of_layout(folder: Path, layout: Layout) -> Saves:
    """Two users' threads in one of the layouts, without a database."""
    saves = Saves(folder, layout)
    names = ("uploads", "outputs") if layout == "yuxi" else ("workspace", "uploads", "outputs")
    if layout == "thread-local":
        names = (*names, "large_tool_results")
    for uid in ("alice", "li.wei"):
        saves.user(uid)
        for number in range(2):
            where = saves.thread(f"{uid}-{number}", uid, names=names, row=False)
            _fill(saves, where, names)
            saves.file(f"{where}/uploads/attachments/parsed.md")
    # The older form: no user in the path.
    if layout == "deerflow":
        saves.layout = "thread-local"
        _fill(saves, saves.thread("older", "alice", names=names, row=False), names)
        saves.layout = layout
    saves.file(f"{saves.user_data_of('unowned', '')}/uploads/left.md")
    return saves.finish()
