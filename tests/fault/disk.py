# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model of a disk that loses power, after ALICE (Pillai and others, OSDI 2014).

The recorded operations on one directory are replayed up to a point. What was synced by then is on disk: a file's data
and size with fsync or fdatasync of that file, names (create, rename, unlink) with fsync of the directory. Everything
else is there, or not, or in part: each write independently whole, lost, a hole of zeros in a file that grew, or torn at
a multiple of 512 bytes or 4 KiB; each change of a name independently done or not. That is more than any one file
system does; a store that survives all of it survives each of them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import NamedTuple, Optional, Union

SECTORS = (512, 4096)
Files = dict[str, bytes]


class Write(NamedTuple):
    """Data at an offset of file number `file`."""

    file: int
    offset: int
    data: bytes


class Resize(NamedTuple):
    """ftruncate, or O_TRUNC."""

    file: int
    size: int


class Name(NamedTuple):
    """`name` now leads to `file`; None: it is gone. A rename is two of them in one `Names`."""

    name: str
    file: Optional[int]


class Names(NamedTuple):
    """Changes of names that happen at once."""

    changes: tuple[Name, ...]


class Made(NamedTuple):
    """The directory itself was made: without it there are no files."""


class Sync(NamedTuple):
    """fsync or fdatasync of a file, or of `DIRECTORY` or `PARENT`."""

    file: int


DIRECTORY, PARENT = -1, -2
Operation = Union[Write, Resize, Names, Made, Sync]


class Loss(NamedTuple):
    """What became of one operation that was not synced. `kind`: "done", "lost", "zeros" or "torn" (after `bytes`)."""

    kind: str
    bytes: int = 0


DONE, LOST, ZEROS = Loss("done"), Loss("lost"), Loss("zeros")


def apply(content: bytes, operation: Operation, loss: Loss) -> bytes:
    """A file's content after one operation of which `loss` is left."""
    if loss == LOST:
        return content
    if isinstance(operation, Resize):
        return content[: operation.size].ljust(operation.size, b"\0")
    assert isinstance(operation, Write)
    end = operation.offset + len(operation.data)
    if loss == ZEROS:
        return content.ljust(end, b"\0")
    data = operation.data[: loss.bytes] if loss.kind == "torn" else operation.data
    content = content.ljust(operation.offset, b"\0")
    return content[: operation.offset] + data + content[operation.offset + len(data) :]


def choices(operation: Operation, durable: int) -> list[Loss]:
    """What can become of an unsynced operation. `durable`: bytes of its file that are certainly there."""
    if not isinstance(operation, Write):
        return [DONE, LOST]
    start, length = operation.offset, len(operation.data)
    cuts = set()
    for sector in SECTORS:
        aligned = list(range(sector - start % sector, length, sector))
        cuts |= set(aligned if len(aligned) <= 2 else (aligned[0], aligned[-1]))
    grown = [ZEROS] if start + length > durable else []
    return [DONE, LOST, *grown, *(Loss("torn", cut) for cut in sorted(cuts))]


def synced(operation: Operation) -> int:
    """The file, or the directory, whose sync makes this operation durable."""
    if isinstance(operation, Names):
        return DIRECTORY
    return PARENT if isinstance(operation, Made) else operation.file


def pending(operations: list[Operation]) -> list[int]:
    """Numbers of the operations that no later sync made durable."""
    left: list[int] = []
    for number, operation in enumerate(operations):
        if isinstance(operation, Sync):
            left = [index for index in left if synced(operations[index]) != operation.file]
        else:
            left.append(number)
    return left


class Image(NamedTuple):
    """A directory: what each file holds, and which names lead where."""

    contents: dict[int, bytes]
    names: dict[str, int]

    def after(self, operations: list[Operation], losses: dict[int, Loss]) -> Image:
        """After these operations, of which `losses` are left (by number; the others are done)."""
        contents, names = dict(self.contents), dict(self.names)
        for number, operation in enumerate(operations):
            loss = losses.get(number, DONE)
            if isinstance(operation, Names):
                for change in operation.changes if loss == DONE else ():
                    if change.file is None:
                        names.pop(change.name, None)
                    else:
                        names[change.name] = change.file
            elif isinstance(operation, Made) and loss == LOST:
                return Image({}, {})
            elif isinstance(operation, (Write, Resize)):
                contents[operation.file] = apply(contents.get(operation.file, b""), operation, loss)
        return Image(contents, names)

    def files(self) -> Files:
        """Names and contents."""
        return {name: self.contents.get(file, b"") for name, file in sorted(self.names.items())}


def image(base: Files) -> Image:
    """A directory with these files, numbered in their order."""
    return Image(dict(enumerate(base.values())), {name: number for number, name in enumerate(base)})


def selections(options: list[list[Loss]], most: int, chance: random.Random) -> Iterator[tuple[Loss, ...]]:
    """All combinations if there are at most `most`; else nothing lost, all lost, and `most` others.

    Half of those have one operation that differs from all others, or are prefixes: that is where stores break.
    """
    if math.prod(map(len, options)) <= most:
        yield from itertools.product(*options)
        return
    everything, nothing = [DONE] * len(options), [LOST] * len(options)
    yield tuple(everything)
    yield tuple(nothing)
    telling = [(*everything[:index], *nothing[index:]) for index in range(1, len(options))]
    for index, losses in enumerate(options):
        telling += [(*rest[:index], loss, *rest[index + 1 :]) for loss in losses for rest in (everything, nothing)]
    yield from chance.sample(telling, min(most - most // 2, len(telling)))
    for _number in range(most // 2):
        yield tuple(chance.choice(losses) for losses in options)


def states(base: Files, operations: list[Operation], most: int, seed: int) -> Iterator[Files]:
    """The directories that a power cut after all of `operations` can leave; may repeat itself."""
    left = pending(operations)
    first = left[0] if left else len(operations)
    certain, rest = image(base).after(operations[:first], {}), operations[first:]
    options = [
        choices(operation, len(certain.contents.get(synced(operation), b"")))
        for operation in (operations[number] for number in left)
    ]
    for losses in selections(options, most, random.Random(seed)):
        yield certain.after(rest, {number - first: loss for number, loss in zip(left, losses)}).files()
