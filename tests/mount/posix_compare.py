"""Compares what a scenario did on the mount with what it did beneath it, and knows what may differ.

Everything is compared: each call's value or errno, each fact of each entry that it changed, the
times that moved, and what lies in the storage at the end. `DIFFERENCES` is the whole list of what
may differ, each with its reason.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.mount.posix_calls import Step
from tests.mount.posix_run import Scenario

LIBFUSE = "pyfuse3"
"""The transport that speaks through libfuse, by its name on the command line."""

STORAGE_OWNER = 1000
WHITEOUT = 4
LARGEST = 1 << 44
"""The size that no file reaches on ext4 with blocks of 4 KiB."""

SEEKS = (os.SEEK_DATA, os.SEEK_HOLE)
FALLOCATE_MODES = (0, 1, 1 | 2, 16, 16 | 1)
"""Plain, KEEP_SIZE, PUNCH_HOLE with it, ZERO_RANGE without and with it."""


@dataclass(frozen=True)
class Seen:
    """One thing that was compared, as it went on the file system and on the mount."""

    step: Step
    native: Any
    mounted: Any
    through_link: bool = False
    """Whether one of the step's paths has a component that is a symbolic link."""
    special: bool = False
    """Whether one of its paths names a FIFO, a socket or a device."""
    fact: str = ""
    """The fact of an entry that is compared; empty for the value or errno of the call."""
    facts: dict[str, Any] = field(default_factory=dict)
    """All that the mount tells of the entry."""

    @property
    def call(self) -> str:
        return "" if self.fact else str(self.step[1])

    @property
    def flags(self) -> int:
        """The flags of an open."""
        return int(self.step[3]) if self.call == "open" else 0

    @property
    def made_type(self) -> int:
        """The type that a mknod makes."""
        return stat.S_IFMT(self.step[3]) if self.call == "mknod" else 0


@dataclass(frozen=True)
class Difference:
    """Something that the mount does otherwise, but for a fact's value without changing anything."""

    reason: str
    applies: Callable[[Seen], bool]
    transport: str = ""
    """The only transport that it is of; empty for both."""


DIFFERENCES = (
    # Links are refused.
    Difference(
        "no link is made",
        lambda seen: (
            seen.mounted == "EPERM"
            and (seen.call == "symlink" or (seen.call == "link" and seen.through_link))
        ),
    ),
    Difference(
        "no link is followed or read",
        lambda seen: not seen.fact and seen.mounted == "ELOOP" and seen.through_link,
    ),
    # Special files are refused.
    Difference(
        "no special file is made",
        lambda seen: (
            seen.mounted == "EPERM"
            and (
                seen.call in ("mkfifo", "bind")
                or seen.made_type not in (0, stat.S_IFREG)
                or (seen.call == "link" and seen.special)
            )
        ),
    ),
    Difference(
        "no whiteout is left behind",
        lambda seen: (
            seen.mounted == "EINVAL"
            and seen.call == "rename"
            and bool(seen.step[4:] and seen.step[4] & WHITEOUT)
        ),
    ),
    Difference(
        "no special file is opened",  # EACCES is the kernel's answer for a device on `nodev`
        lambda seen: (
            seen.mounted in ("ENXIO", "EACCES")
            and seen.call == "open"
            and seen.special
            and not seen.flags & os.O_PATH
        ),
    ),
    Difference(
        "a FIFO is shown as a socket, which the kernel does not open by itself",
        lambda seen: seen.fact == "type" and (seen.native, seen.mounted) == ("fifo", "socket"),
    ),
    # Owners.
    Difference(
        "what root makes is the storage's",
        lambda seen: (
            seen.fact in ("uid", "gid")
            and seen.mounted == STORAGE_OWNER
            and (seen.native == 0 or (seen.fact == "gid" and seen.facts["uid"] == STORAGE_OWNER))
        ),
    ),
    # What the kernel's FUSE, or the way to it, does not pass on.
    Difference(
        "no unnamed file is made",
        lambda seen: seen.mounted == "ENOTSUP" and seen.flags & os.O_TMPFILE == os.O_TMPFILE,
    ),
    Difference(
        "only the user's own extended attributes are spoken of",
        lambda seen: (
            seen.mounted == "ENOTSUP"
            and "xattr" in seen.call
            and not seen.step[3].startswith(b"user.")
        ),
    ),
    Difference(
        "the kernel's FUSE passes on no other modes of fallocate",
        lambda seen: (
            seen.mounted == "ENOTSUP"
            and seen.call == "fallocate"
            and seen.step[3] not in FALLOCATE_MODES
        ),
    ),
    Difference(
        "pyfuse3 passes on no fallocate, and libc writes instead",
        lambda seen: (
            (seen.call == "fallocate" and seen.mounted == "ENOTSUP")
            or (seen.call == "posix_fallocate" and seen.mounted in (None, "EBADF"))
        ),
        LIBFUSE,
    ),
    Difference(
        "pyfuse3 asks for no holes: all of a file is data",
        lambda seen: seen.call == "data_map" or (seen.call == "lseek" and seen.step[4] in SEEKS),
        LIBFUSE,
    ),
    Difference(
        "the kernel seeks by itself, without the file system's largest size",
        lambda seen: seen.call == "lseek" and seen.native == "EINVAL" and seen.mounted >= LARGEST,
    ),
)


class Comparison:
    """Compares records, and counts what was compared and which differences were needed."""

    def __init__(self, transport: str, *, owners: bool = True) -> None:
        """`owners` says whether the mount shows whose an entry is, and not all as the caller's."""
        self.transport = transport
        self._unseen = {"set-ids"} if owners else {"set-ids", "uid", "gid"}
        self.compared = 0
        """Values, errnos and facts that were looked at."""
        self.needed: Counter[str] = Counter()
        """Reason of a difference to how often it was met."""

    def differences(
        self, scenario: Scenario, native: list[Any], mounted: list[Any]
    ) -> Iterator[str]:
        """What differs and may not, the first of each scenario."""
        name, plants, steps = scenario
        special = {plant[2] for plant in plants if plant[1] in ("mkfifo", "mknod", "bind")}
        for step, one, other in zip(steps, native[:-1], mounted[:-1], strict=True):
            seen = Seen(
                step, one[0], other[0], one[2],
                any(word in special for word in step[2:]),
            )  # fmt: skip
            if self._same(seen.native, seen.mounted, step) and self._same(one[1], other[1], step):
                continue
            if other[1] or not self._may_differ(seen):
                yield f"{name}: {step}\n    natively  {one}\n    mounted   {other}"
                return
            if one[1] or any(isinstance(word, str) for word in step[2:]):
                return  # the next steps stand on this one: what it made or has opened
        if not self._same(native[-1], mounted[-1], ()):
            yield f"{name}: left\n    natively  {native[-1]}\n    mounted   {mounted[-1]}"

    def _may_differ(self, seen: Seen) -> bool:
        for difference in DIFFERENCES:
            if difference.transport in ("", self.transport) and difference.applies(seen):
                self.needed[difference.reason] += 1
                return True
        return False

    def _same(self, native: Any, mounted: Any, step: Step) -> bool:
        """Whether values are the same, facts by facts."""
        if not (isinstance(native, dict) and isinstance(mounted, dict)):
            self.compared += 1
            return bool(native == mounted)
        # Set-user-id and set-group-id bits are not kept on files; `test_outside` has when they go.
        names = (native.keys() | mounted.keys()) - self._unseen
        return all(
            name in native
            and name in mounted
            and (
                self._same(native[name], mounted[name], step)
                or self._fact_may_differ(name, native, mounted)
            )
            for name in names
        )

    def _fact_may_differ(self, name: Any, native: Any, mounted: Any) -> bool:
        return isinstance(name, str) and self._may_differ(
            Seen((), native[name], mounted[name], fact=name, facts=mounted)
        )
