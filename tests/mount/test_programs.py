"""Programs that people use, on the mount: each does there what it does on the disk.

Every test runs the same commands in a folder of the disk and in one of the mount, and compares what
they printed and what they left.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.mount.posix_mount import Mounted
from tests.mount.posix_tree import LIMIT, make_tree, sh, tree

Work = Callable[[Path], Any]


def same_on_both(mounted: Mounted, tmp_path: Path, name: str, work: Work) -> tuple[Path, Path]:
    """Does the work on the disk and on the mount, and compares its value and the trees it left."""
    native = tmp_path / "here"
    native.mkdir(mode=0o755)
    view, disk = mounted.folder(name)
    expected = work(native)
    assert work(view) == expected
    assert tree(view, times=False) == tree(native, times=False)
    assert tree(view) == tree(disk)
    return view, native


GIT = """
git init -q -b main .
git config gc.auto 0
git config core.symlinks false  # which it finds out by itself where links are refused
mkdir -p src/deep; seq 2000 > src/numbers; echo one > a; echo two > "src/deep/two words"
chmod +x a
git add . && git commit -qm first
git checkout -qb side; echo side >> a; git mv src/numbers src/moved; git commit -qam side
git checkout -q main; echo main > b; git add b; git commit -qm main
git merge -q -m merged side
git tag -a -m tagged v1
echo dirty >> b; echo new > untracked
git status --porcelain
git stash -q && git stash pop -q
git diff --stat
git commit -qam last
git rm -q --cached untracked 2>&1 || true
git log --format='%H %s' --stat
git gc -q
git fsck --full --strict
git count-objects -v | grep -v size
git status --porcelain
"""


@pytest.mark.slow
def test_git_makes_the_same_history(shared_mount: Mounted, tmp_path: Path) -> None:
    def work(folder: Path) -> str:
        (folder / "repo").mkdir()
        output = sh(GIT, folder / "repo")
        shutil.rmtree(folder / "repo" / ".git" / "hooks", ignore_errors=True)
        # The index holds inode numbers and times.
        output += sh("git ls-files --stage", folder / "repo")
        (folder / "repo" / ".git" / "index").unlink()
        return output

    same_on_both(shared_mount, tmp_path, "git", work)


@pytest.mark.slow
def test_git_clones_to_the_mount_within_it_and_back(shared_mount: Mounted, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    sh(GIT, origin)
    for number in range(200):
        (origin / f"file{number}").write_text(f"{number}\n" * number)
    sh("git add . && git commit -qm many", origin)
    head = sh("git rev-parse HEAD", origin)
    view, _ = shared_mount.folder("clones")
    for source, target in (
        (origin, view / "to"),
        (view / "to", view / "within"),
        (view / "within", tmp_path / "back"),
    ):
        sh(f"git clone -q --no-local '{source}' '{target}'", tmp_path)
        assert sh("git rev-parse HEAD; git status --porcelain", target) == head
        assert sh("git fsck --full 2>&1", target) == ""
    sh("git clone -q ./to hard", view)  # with hard links
    assert sh("git rev-parse HEAD; git status --porcelain; git fsck --full", view / "hard") == head
    sh(
        "git push -q origin HEAD:refs/heads/pushed && git -C ../to rev-parse pushed",
        view / "within",
    )


@pytest.mark.slow
def test_tar_extracts_compares_and_archives(shared_mount: Mounted, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    # No times but that of change, which alone is restored.
    pack = "tar -c --sort=name --xattrs --pax-option=delete=atime,delete=ctime -f"
    sh(f"{pack} whole.tar tree", tmp_path)

    def work(folder: Path) -> str:
        sh(f"tar -xp --xattrs -f '{tmp_path}/whole.tar'", folder)
        sh(f"{pack} again.tar tree && cmp again.tar '{tmp_path}/whole.tar'", folder)
        return sh(f"tar --compare -f '{tmp_path}/whole.tar'; tar -tvf again.tar", folder)

    same_on_both(shared_mount, tmp_path, "tar", work)


@pytest.mark.slow
def test_rsync_there_and_back_finds_no_difference(shared_mount: Mounted, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    view, disk = shared_mount.folder("rsync")
    # Owners are the view's: rsync as root would set those of its source.
    copy = "rsync -aHX --no-owner --no-group"
    for source, target in ((tmp_path / "tree", view / "to"), (view / "to", tmp_path / "back")):
        sh(f"{copy} '{source}/' '{target}'", tmp_path)
        check = f"{copy} -n --checksum --itemize-changes --delete '{source}/' '{target}'"
        assert sh(check, tmp_path) == ""
    assert tree(tmp_path / "tree") == tree(view / "to") == tree(disk / "to")
    assert tree(tmp_path / "back") == tree(tmp_path / "tree")
    (view / "to" / "part0" / "plain").write_bytes(b"changed")
    assert "part0/plain" in sh(
        f"{copy} -n --checksum --itemize-changes '{view}/to/' '{tmp_path}/back'", tmp_path
    )


TOOLS = (
    "cp -a tree copy && cp --sparse=always tree/holes thin && cp --reflink=auto thin t2",
    "touch -d @5 thin t2",
    r"find . -type f -printf '%P %m %n %s %T@\n' | sort",
    r"find . -type d -printf '%P %m %n\n' | sort",
    "find . -name '*[0-9]7*' -newermt 2001-01-01 | sort",
    "grep -rn 117 tree/text | sort",
    "grep -rlZ . tree/part* | sort -z | xargs -0 sha256sum",
    "du -ab --apparent-size tree/text | sort -k2 | grep -v 'text$'",
    "diff -r tree copy && cmp tree/holes thin && cmp thin t2",
    "mv tree/text moved && rm -r copy && ls -A | sort",
    "sort -R moved/* | sort -n | uniq -c | sha256sum",
    "sed -i s/7/seven/ moved/77 && cat moved/77 && ls moved | wc -l",
    "split -b 1000 -a 4 thin piece. && cat piece.* | cmp - thin && rm piece.*",
    "dd if=thin of=direct bs=64k oflag=direct conv=fsync status=none && cmp thin direct",
    "gzip -k direct && gzip -t direct.gz && rm direct.gz",
    "install -m 640 thin made && truncate -s +5 made && stat -c '%a %s' made",
)


@pytest.mark.slow
def test_cp_find_grep_du_and_sort_give_the_same(shared_mount: Mounted, tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    sh("mkdir tree/text; for n in $(seq 300); do seq $n $((n + 30)) > tree/text/$n; done", tmp_path)
    os.utime(tmp_path / "tree" / "text", (1, 1))

    def work(folder: Path) -> list[str]:
        sh(f"cp -a '{tmp_path}/tree' .", folder)
        return [sh(script, folder) for script in TOOLS]

    same_on_both(shared_mount, tmp_path, "tools", work)


MAKEFILE = """
all: hello
\t./hello
%.o: %.c greet.h
\t$(CC) -g -c -o $@ $<
hello: main.o greet.o
\t$(CC) -o $@ $^
"""


@pytest.mark.slow
def test_make_builds_runs_and_sees_what_changed(shared_mount: Mounted, tmp_path: Path) -> None:
    def work(folder: Path) -> list[str]:
        (folder / "Makefile").write_text(MAKEFILE)
        (folder / "greet.h").write_text("void greet(void);\n")
        (folder / "greet.c").write_text(
            '#include <stdio.h>\n#include "greet.h"\nvoid greet(void) { puts("hello"); }\n'
        )
        (folder / "main.c").write_text('#include "greet.h"\nint main() { greet(); return 0; }\n')
        outputs = [sh("make -j2 CC=gcc | sort; make -q hello", folder)]
        outputs.append(sh("touch -d '1 hour' greet.h; make -q hello", folder, status=1))
        outputs.append(sh("touch -d '1 hour ago' greet.h; touch main.c; make CC=gcc", folder))
        # What the compiler wrote names its folder.
        sh("rm hello *.o", folder)
        return outputs

    same_on_both(shared_mount, tmp_path, "make", work)


@pytest.mark.slow
def test_python_installs_compiles_and_imports(shared_mount: Mounted, tmp_path: Path) -> None:
    library = Path(os.__file__).parent

    def work(folder: Path) -> str:
        for package in ("json", "email", "unittest"):
            shutil.copytree(
                library / package, folder / package, ignore=shutil.ignore_patterns("__pycache__")
            )
        script = (
            "import compileall, sys\n"
            "assert compileall.compile_dir('.', quiet=1, invalidation_mode="
            "__import__('py_compile').PycInvalidationMode.CHECKED_HASH, stripdir='.')\n"
            "sys.path.insert(0, '.')\n"
            "for name in ('json', 'email', 'unittest'): sys.modules.pop(name, None)\n"
            "import json, email.message, unittest.mock\n"
            "print(json.__file__, json.__cached__, json.loads('[1]'))\n"
        )
        done = subprocess.run(
            [sys.executable, "-I", "-c", script],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.replace(str(folder), "HERE")

    same_on_both(shared_mount, tmp_path, "python", work)


# sqlite3.

WRITER = """
import sqlite3, sys
path, journal, number, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
base = sqlite3.connect(path, timeout=60, isolation_level=None)
base.execute(f"pragma journal_mode = {journal}")
base.execute("pragma mmap_size = 1048576")
print("ready", flush=True)
sys.stdin.readline()
for row in range(rows):
    base.execute("begin immediate")
    base.execute("insert into t values (?, ?, ?)", (number, row, bytes([row % 256]) * row))
    base.execute("update total set n = n + 1")
    base.execute("commit")
print("done", flush=True)
sys.stdin.readline()
"""


def start_writer(path: Path, journal: str, number: int, rows: int) -> subprocess.Popen[str]:
    """A process that waits for a line, writes its rows one transaction each, and waits again."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), journal, str(number), str(rows)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


def make_base(path: Path, journal: str) -> None:
    base = sqlite3.connect(path, isolation_level=None)
    assert base.execute(f"pragma journal_mode = {journal}").fetchone() == (journal,)
    base.executescript(
        "create table t (writer int, row int, data blob, primary key (writer, row));"
        "create table total (n int); insert into total values (0);"
    )
    base.close()


def contents(path: Path) -> tuple[Any, ...]:
    """What a database holds, once it is known to be whole."""
    base = sqlite3.connect(path)
    try:
        assert base.execute("pragma integrity_check").fetchall() == [("ok",)]
        total = base.execute("select n from total").fetchone()[0]
        assert base.execute("select count(*) from t").fetchone()[0] == total
        return total, base.execute(
            "select writer, row, length(data) from t order by 1, 2"
        ).fetchall()
    finally:
        base.close()


@pytest.mark.slow
@pytest.mark.parametrize("journal", ["delete", "truncate", "persist", "wal"])
def test_sqlite_takes_two_writers_at_once(
    shared_mount: Mounted, tmp_path: Path, journal: str
) -> None:
    view, disk = shared_mount.folder(f"sqlite-{journal}")
    path = view / "base.db"
    make_base(path, journal)
    writers = [start_writer(path, journal, number, 40) for number in range(2)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate("\n", timeout=LIMIT)
        assert writer.returncode == 0
    rows = [(number, row, row) for number in range(2) for row in range(40)]
    assert contents(path) == (80, rows)
    for file in disk.iterdir():
        shutil.copy(file, tmp_path)
    assert contents(tmp_path / "base.db") == (80, rows)


@pytest.mark.slow
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_survives_a_writer_that_is_killed(shared_mount: Mounted, journal: str) -> None:
    view, _ = shared_mount.folder(f"killed-{journal}")
    path = view / "base.db"
    make_base(path, journal)
    writer = start_writer(path, journal, 0, 100_000)
    assert writer.stdin is not None
    writer.stdin.write("\n")
    writer.stdin.flush()
    reader = sqlite3.connect(path, timeout=60)
    while reader.execute("select n from total").fetchone()[0] < 20:
        assert writer.poll() is None
    reader.close()
    writer.send_signal(signal.SIGKILL)
    writer.communicate(timeout=LIMIT)
    total, rows = contents(path)
    assert rows == [(0, row, row) for row in range(total)]
    assert total >= 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        "--ioengine=psync --bsrange=512-40k --bs_unaligned",
        "--ioengine=mmap --bs=4k",
        "--ioengine=libaio --iodepth=8 --direct=1 --bs=4k",
        "--ioengine=psync --bs=64k --fsync=8",
    ],
    ids=["buffered", "mmap", "direct", "synced"],
)
def test_fio_reads_back_what_it_wrote(shared_mount: Mounted, engine: str) -> None:
    view, _ = shared_mount.folder("fio-" + hashlib.sha1(engine.encode()).hexdigest())
    # Of its whole size from the start: else fio lays a file out that it takes for too short.
    sh("truncate -s 8M data", view)
    common = "--name=verify --filename=data --size=8m --verify=crc32c --verify_fatal=1 --randseed=7"
    output = sh(f"fio {common} {engine} --rw=randwrite --verify_backlog=64 --numjobs=1", view)
    assert "err= 0" in output
    # Once more from the disk and not from what the mount has cached.
    output = sh(f"fio {common} {engine} --rw=randwrite --verify_only", view)
    assert "err= 0" in output
