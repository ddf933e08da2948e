"""What holds descriptors, and gives them back when its block ends."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """A context manager that closes."""

    __slots__ = ()

    def close(self) -> None:
        """Releases what is held; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
