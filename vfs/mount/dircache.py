"""When the kernel may list a directory from its own cache (FOPEN_CACHE_DIR), without asking.

A listing in the kernel's cache spares the requests, but also the attributes that come with them: an
`ls -l` of a listing whose attributes have expired would ask for each file alone, at several times
the cost of listing anew. So the cache is allowed for as long as the attributes given with the whole
listing are good, and no longer; until then it is as true as they are. The kernel itself drops a
cached listing once the directory was changed through the mount, or its mtime is seen to be another.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from vfs.mount.wire import Fopen

MAX_LISTED = 65536
"""Directories remembered at most, of about 150 bytes; beyond, the oldest listing is made anew."""


class _Reading:
    """One handle's way through a directory."""

    __slots__ = ("attributed", "node", "started")

    def __init__(self, node: int) -> None:
        self.node = node
        self.started = 0.0
        self.attributed = False
        """Whether every entry so far went out with its attributes."""


class DirectoryCache:
    """The directories whose listings the kernel was given whole, and when."""

    def __init__(self, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`timeout`: seconds for which attributes are valid in the kernel."""
        self._timeout = timeout
        self._clock = clock
        self._readings: dict[int, _Reading] = {}
        self._listed: OrderedDict[int, float] = OrderedDict()

    def opened(self, node: int, dh: int) -> int:
        """Notes the handle `dh` of a directory; the flags for the reply to OPENDIR."""
        oldest = self._clock() - self._timeout
        listed = self._listed
        while listed and next(iter(listed.values())) <= oldest:
            listed.popitem(last=False)
        if node in listed:
            return Fopen.CACHE_DIR | Fopen.KEEP_CACHE
        self._readings[dh] = _Reading(node)
        return Fopen.CACHE_DIR

    def asked(self, dh: int, offset: int) -> None:
        """Notes a request for the entries after `offset`, before they are read."""
        reading = self._readings.get(dh)
        if reading is not None and offset == 0:
            reading.started = self._clock()
            reading.attributed = True

    def given(self, dh: int, count: int, *, attributed: bool) -> None:
        """Notes that `count` entries were given, none at the end."""
        reading = self._readings.get(dh)
        if reading is None:
            return
        if count:
            reading.attributed = reading.attributed and attributed
        elif reading.attributed:
            self._listed[reading.node] = reading.started
            self._listed.move_to_end(reading.node)
            if len(self._listed) > MAX_LISTED:
                self._listed.popitem(last=False)

    def closed(self, dh: int) -> None:
        """Forgets a handle."""
        self._readings.pop(dh, None)
