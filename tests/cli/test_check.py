"""`vfs check`: its lines, its document and its status; what it finds is `vfs.check`'s matter."""

from __future__ import annotations

import base64
import os
from collections import Counter
from pathlib import Path

from tests.cli.program import Vfs
from vfs.check import Finding, check
from vfs.workspace import Storage


def workspace(vfs: Vfs) -> Path:
    return vfs.storage / "user-data" / "shared" / "alice" / "workspace"


def findings(vfs: Vfs) -> list[Finding]:
    with Storage.open(vfs.storage) as storage:
        return list(check(storage))


def test_a_storage_in_order_has_status_0(alice: Vfs) -> None:
    alice.good("put", "alice", "/d/f", "-", "--mkdirs")
    assert alice.good("check") == b"nothing is wrong\n"
    assert alice("check", "--json").json == {"findings": [], "counts": {}, "faults": 0}


def test_links_that_lead_nowhere_outside_are_counted_and_no_fault(alice: Vfs) -> None:
    alice.good("put", "alice", "/f", "-")
    os.symlink("f", workspace(alice) / "l")
    os.chown(workspace(alice) / "l", 1000, 1000, follow_symlinks=False)
    (finding,) = findings(alice)
    assert alice.good("check").decode() == (
        f"links alice {finding.path}: {finding.detail}; {finding.fix}\nnothing is wrong\n"
    )
    assert alice("check", "--json").json["faults"] == 0


def test_what_is_wrong_is_told_by_kind_with_the_fix_and_status_1(alice: Vfs) -> None:
    (alice.storage / "user-data" / "stray\x1b").touch()
    (workspace(alice) / "roots").touch()
    (workspace(alice) / "open").touch()
    os.chown(workspace(alice) / "open", 1000, 1000)
    (workspace(alice) / "open").chmod(0o666)
    os.symlink("/etc/passwd", workspace(alice) / os.fsdecode(b"\xff\n"))
    os.mkfifo(workspace(alice) / "p")
    found = findings(alice)
    kinds = Counter(finding.kind for finding in found)
    assert {"stray", "owner", "mode", "links", "link", "special"} <= set(kinds)

    done = alice("check")
    assert (done.status, done.err) == (1, b"")
    lines = done.out.decode().splitlines()
    assert len(lines) == len(found)
    for line, finding in zip(lines, found, strict=True):
        user = "" if finding.user is None else f"{finding.user} "
        assert line.startswith(f"{finding.kind} {user}")
        assert line.endswith(f": {finding.detail}; {finding.fix}")
        assert line.isprintable()

    done = alice("check", "--json")
    assert (done.status, done.err, done.json["counts"]) == (1, b"", kinds)
    assert done.json["faults"] == sum(not finding.harmless for finding in found)
    assert [entry["detail"] for entry in done.json["findings"]] == [f.detail for f in found]
    (link,) = [entry for entry in done.json["findings"] if entry["kind"] == "link"]
    assert (link["user"], link["path"]) == ("alice", r"/home/gem/user-data/\xff\x0a")
    exact = base64.urlsafe_b64decode(link["path_bytes"])
    assert exact == b"/home/gem/user-data/\xff\n"


def test_a_storage_that_is_not_there_is_an_error(vfs: Vfs) -> None:
    done = vfs("check")
    assert (done.status, done.out) == (3, b"")
