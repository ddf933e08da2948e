"""Random operations on one file, each checked against a copy of its bytes in memory.

Run as a program: `posix_fsx VIEW DISK SEED STEPS [--flip STEP]`. VIEW and DISK are a folder as the
mount shows it and as it is; they are one for a run without a mount. It prints how often each
operation ran, or ends with 1 after the seed, the last operations and where the bytes differ.
`--flip` spoils a byte behind the back of the model, which must then be found.

The idea is that of Apple's fsx: no operation alone is hard, their sequences are.
"""

from __future__ import annotations

import argparse
import errno
import mmap
import os
import random
import sys
from collections import Counter, deque
from collections.abc import Callable

from tests.mount.posix_calls import checked, libc

LIMIT = 300_000
"""Bytes that the file never exceeds: many pages, and more than one request of 128 KiB."""
PAGE = mmap.PAGESIZE
DESCRIPTORS = (os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_RDONLY)
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16


class Mismatch(Exception):
    """The file is not what the model says."""


class Fsx:
    """The file, open in several ways, and its model."""

    def __init__(self, view: str, disk: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.view, self.disk = view, disk
        self.name = "file"
        self.model = bytearray(LIMIT)
        self.last: deque[str] = deque(maxlen=25)
        self.done: Counter[str] = Counter()
        self.source = self.random.randbytes(LIMIT)
        with open(os.path.join(view, "source"), "wb") as file:
            file.write(self.source)
        self.source_fd = os.open(os.path.join(view, "source"), os.O_RDONLY)
        self.fds: list[int] = []
        self.make("file")
        self.operations: dict[Callable[[], object], int] = {
            self.read: 12, self.write: 12, self.append: 3, self.truncate: 4,
            self.map_write: 4, self.map_read: 4, self.kept_write: 6, self.kept_read: 6,
            self.punch: 3, self.zero: 3, self.reserve: 2, self.copy_within: 3, self.copy_in: 3,
            self.reopen: 4, self.empty: 1, self.rename: 2, self.link: 1, self.replace: 1,
            self.direct: 3, self.sync: 2, self.drop_cache: 2, self.sizes: 4, self.data: 3,
            self.whole: 1, self.on_disk: 1,
        }  # fmt: skip

    # Helpers.

    def path(self, name: str) -> str:
        return os.path.join(self.view, name)

    def make(self, name: str) -> None:
        """A new file with the model's bytes, opened in every way."""
        with open(self.path(name), "xb") as file:
            file.write(self.model)
            file.truncate(LIMIT)  # as long as the mapping that is kept; it may shrink below
        fds = [os.open(self.path(name), flags) for flags in DESCRIPTORS]
        self.kept = mmap.mmap(fds[0], LIMIT)
        os.ftruncate(fds[0], len(self.model))
        for old in self.fds:
            os.close(old)
        self.fds = fds

    def writer(self) -> int:
        return self.random.choice(self.fds[:2])

    def span(self, limit: int) -> tuple[int, int]:
        """A range that begins below `limit`: small, large, or along pages; empty if limit is 0."""
        offset = self.random.randrange(limit) if limit else 0
        length = self.random.choice((1, 5, 100, PAGE, 3 * PAGE + 1, 140_000))
        if self.random.random() < 0.3:
            offset -= offset % PAGE
        return offset, self.random.randint(1, length)

    def check(self, found: bytes | bytearray, offset: int, length: int) -> None:
        wanted = self.model[offset : offset + length]
        if found == wanted:
            return
        place = next(
            (n for n, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other),
            min(len(found), len(wanted)),
        )
        raise Mismatch(
            f"{len(found)} bytes at {offset}, expected {len(wanted)}; differs at {offset + place}: "
            f"{bytes(found[place : place + 16])!r} is not {bytes(wanted[place : place + 16])!r}"
        )

    def put(self, offset: int, data: bytes) -> None:
        """What a write does to the model."""
        if data and offset > len(self.model):
            self.model.extend(bytes(offset - len(self.model)))
        self.model[offset : offset + len(data)] = data

    def note(self, text: str) -> None:
        self.last.append(text)

    # Operations.

    def read(self) -> None:
        offset, length = self.span(len(self.model) + 100)
        self.note(f"read {length} at {offset}")
        self.check(os.pread(self.random.choice(self.fds[::2]), length, offset), offset, length)

    def write(self) -> None:
        offset, length = self.span(min(len(self.model) + 3 * PAGE, LIMIT - 150_000))
        data = self.random.randbytes(length)
        self.note(f"write {length} at {offset}")
        if os.pwrite(self.fds[0], data, offset) != length:
            raise Mismatch("a write was short")
        self.put(offset, data)

    def append(self) -> None:
        _, length = self.span(1)
        length = min(length, LIMIT - len(self.model))
        self.note(f"append {length} to {len(self.model)}")
        data = self.random.randbytes(length)
        if os.pwrite(self.fds[1], data, 0) != length:
            raise Mismatch("an append was short")
        self.model += data

    def truncate(self) -> None:
        size = self.random.randrange(LIMIT) if self.random.random() < 0.5 else len(self.model) // 2
        self.note(f"truncate to {size}")
        if self.random.random() < 0.5:
            os.truncate(self.path(self.name), size)
        else:
            os.ftruncate(self.writer(), size)
        del self.model[size:]
        self.model.extend(bytes(size - len(self.model)))

    def map_write(self) -> None:
        if not self.model:
            return
        offset, length = self.span(len(self.model))
        length = min(length, len(self.model) - offset)
        data = self.random.randbytes(length)
        self.note(f"map_write {length} at {offset}")
        with mmap.mmap(self.fds[0], len(self.model)) as memory:
            memory[offset : offset + length] = data
        self.put(offset, data)

    def map_read(self) -> None:
        if not self.model:
            return
        offset, length = self.span(len(self.model))
        self.note(f"map_read {length} at {offset}")
        with mmap.mmap(self.fds[2], len(self.model), prot=mmap.PROT_READ) as memory:
            self.check(memory[offset : offset + length], offset, length)

    def kept_write(self) -> None:
        if not self.model:
            return
        offset, length = self.span(len(self.model))
        length = min(length, len(self.model) - offset)
        data = self.random.randbytes(length)
        self.note(f"kept_write {length} at {offset}")
        self.kept[offset : offset + length] = data
        self.put(offset, data)

    def kept_read(self) -> None:
        offset, length = self.span(len(self.model))
        length = min(length, len(self.model) - offset)
        self.note(f"kept_read {length} at {offset}")
        self.check(self.kept[offset : offset + length], offset, length)

    def _allocate(self, mode: int, name: str) -> None:
        limit = min(len(self.model) + PAGE, LIMIT)
        offset, length = self.span(limit)
        length = min(length, LIMIT - offset)
        self.note(f"{name} {length} at {offset}")
        try:
            checked(libc.fallocate(self.writer(), mode, offset, length))
        except OSError as exc:
            if exc.errno != errno.EOPNOTSUPP:
                raise
            self.done[f"{name} refused"] += 1
            return
        if mode:
            kept = min(offset + length, len(self.model))
            self.model[offset:kept] = bytes(max(kept - offset, 0))
        if not mode & KEEP_SIZE:
            self.model.extend(bytes(max(offset + length - len(self.model), 0)))

    def punch(self) -> None:
        self._allocate(PUNCH_HOLE | KEEP_SIZE, "punch")

    def zero(self) -> None:
        self._allocate(ZERO_RANGE | self.random.choice((0, KEEP_SIZE)), "zero")

    def reserve(self) -> None:
        self._allocate(0, "reserve")

    def copy_within(self) -> None:
        half = len(self.model) // 2
        if half < 2:
            return
        length = self.random.randint(1, half - 1)
        source = self.random.randrange(half - length)
        target = half + self.random.randrange(half - length)
        self.note(f"copy_within {length} from {source} to {target}")
        done = os.copy_file_range(self.fds[2], self.fds[0], length, source, target)
        self.put(target, bytes(self.model[source : source + done]))

    def copy_in(self) -> None:
        source, length = self.span(LIMIT)
        target = self.random.randrange(min(len(self.model) + PAGE, LIMIT - 150_000))
        self.note(f"copy_in {length} from {source} to {target}")
        done = os.copy_file_range(self.source_fd, self.fds[0], length, source, target)
        if done != min(length, LIMIT - source):
            raise Mismatch("a copy was short")
        self.put(target, self.source[source : source + done])

    def reopen(self) -> None:
        number = self.random.randrange(len(DESCRIPTORS))
        self.note(f"reopen {number}")
        os.close(self.fds[number])
        self.fds[number] = os.open(self.path(self.name), DESCRIPTORS[number])

    def empty(self) -> None:
        self.note("open with O_TRUNC")
        os.close(os.open(self.path(self.name), os.O_WRONLY | os.O_TRUNC))
        self.model.clear()

    def rename(self) -> None:
        new = "file" if self.name != "file" else "renamed"
        self.note(f"rename to {new}")
        os.rename(self.path(self.name), self.path(new))
        self.name = new

    def link(self) -> None:
        new = "file" if self.name != "file" else "linked"
        self.note(f"link to {new}")
        os.link(self.path(self.name), self.path(new))
        os.unlink(self.path(self.name))
        self.name = new

    def replace(self) -> None:
        self.note("replace by a new file")
        self.make("new")
        os.rename(self.path("new"), self.path(self.name))

    def direct(self) -> None:
        """Whole pages without a cache; the buffer is a mapping, for it must be aligned."""
        if len(self.model) < 2 * PAGE:
            return
        pages = len(self.model) // PAGE
        first = self.random.randrange(pages)
        count = self.random.randint(1, min(pages - first, 20))
        offset, length = first * PAGE, count * PAGE
        fd = os.open(self.path(self.name), os.O_RDWR | os.O_DIRECT)
        try:
            with mmap.mmap(-1, length) as buffer:
                if self.random.random() < 0.5:
                    self.note(f"direct read {length} at {offset}")
                    done = os.preadv(fd, [buffer], offset)
                    self.check(buffer[:done], offset, length)
                else:
                    self.note(f"direct write {length} at {offset}")
                    buffer[:] = self.random.randbytes(length)
                    if os.pwritev(fd, [buffer], offset) != length:
                        raise Mismatch("a direct write was short")
                    self.put(offset, buffer[:])
        finally:
            os.close(fd)

    def sync(self) -> None:
        self.note("sync")
        (os.fsync if self.random.random() < 0.5 else os.fdatasync)(self.writer())

    def drop_cache(self) -> None:
        self.note("drop the cache")
        os.fsync(self.fds[0])
        os.posix_fadvise(self.fds[2], 0, 0, os.POSIX_FADV_DONTNEED)

    def sizes(self) -> None:
        self.note("sizes")
        found = {os.fstat(fd).st_size for fd in self.fds}
        found.add(os.stat(self.path(self.name)).st_size)
        found.add(os.lseek(self.fds[2], 0, os.SEEK_END))
        if found != {len(self.model)}:
            raise Mismatch(f"sizes {found}, expected {len(self.model)}")

    def data(self) -> None:
        """Nothing that is not zero lies in a hole; once it is written, that is."""
        self.note("data")
        os.fsync(self.fds[0])
        position = 0
        while position < len(self.model):
            try:
                start = os.lseek(self.fds[2], position, os.SEEK_DATA)
            except OSError as exc:
                if exc.errno != errno.ENXIO:
                    raise
                start = len(self.model)
            if any(self.model[position:start]):
                raise Mismatch(f"data in the hole from {position} to {start}")
            if start == len(self.model):
                break
            position = os.lseek(self.fds[2], start, os.SEEK_HOLE)

    def whole(self) -> None:
        self.note("whole")
        self.check(os.pread(self.fds[2], LIMIT + 1, 0), 0, LIMIT + 1)

    def on_disk(self) -> None:
        self.note("on disk")
        os.fsync(self.fds[0])
        with open(os.path.join(self.disk, self.name), "rb") as file:
            self.check(file.read(), 0, LIMIT + 1)

    # The run.

    def flip(self) -> None:
        """Changes a byte of which the model learns nothing."""
        self.on_disk()
        self.note("(flip)")
        if not self.model:
            self.truncate()
        place = len(self.model) // 2
        data = bytes([self.model[place] ^ 0xFF]) if place < len(self.model) else b"!"
        os.pwrite(self.fds[0], data, place)

    def run(self, steps: int, flip: int | None) -> None:
        calls = list(self.operations)
        weights = list(self.operations.values())
        for step in range(steps):
            if step == flip:
                self.flip()
            call = self.random.choices(calls, weights)[0]
            self.done[getattr(call, "__name__", "")] += 1
            call()
        self.whole()
        self.on_disk()


def main() -> int:
    """Runs the operations; 0 if every byte was right."""
    parser = argparse.ArgumentParser()
    parser.add_argument("view")
    parser.add_argument("disk")
    parser.add_argument("seed", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--flip", type=int)
    arguments = parser.parse_args()
    fsx = Fsx(arguments.view, arguments.disk, arguments.seed)
    try:
        fsx.run(arguments.steps, arguments.flip)
    except (Mismatch, OSError) as exc:
        print(f"seed {arguments.seed}, after {sum(fsx.done.values())} operations: {exc}")
        print("\n".join(fsx.last))
        return 1
    print(sorted(fsx.done.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
