# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From traced system calls to the operations that the disk model knows."""

from __future__ import annotations

import os
import re
from pathlib import Path

from disk import DIRECTORY, PARENT, Files, Made, Name, Names, Operation, Resize, Sync, Write
from strace import QUOTED, Traced, unhex

NUMBER = re.compile(r"^(\d+)")


class Recorder:
    """Follows names and descriptors over the calls of several processes, one after the other."""

    def __init__(self, state: Path, base: Files) -> None:
        self.state = str(state)
        self.names: dict[str, int] = {name: number for number, name in enumerate(base)}
        self.sizes = {number: len(content) for number, content in enumerate(base.values())}
        self.next = len(base)
        self.open: dict[int, tuple[int, int, bool]] = {}  # descriptor -> file, offset, at the end
        self.operations: list[Operation] = []

    def process(self, traced: list[Traced]) -> list[Operation]:
        """All operations so far, after one more process that made these calls."""
        self.open = {}
        for row in traced:
            step = getattr(self, f"_{row.name}", None)
            if step is not None and not row.result.startswith("-"):
                step(row)
        return list(self.operations)

    def _file(self, row: Traced) -> int:
        return self.open[self._descriptor(row)][0]

    def _descriptor(self, row: Traced) -> int:
        match = NUMBER.match(row.arguments)
        assert match is not None, row
        return int(match[1])

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self.state)

    def _strings(self, row: Traced) -> list[bytes]:
        return [unhex(text) for text in QUOTED.findall(row.arguments)]

    def _openat(self, row: Traced) -> None:
        name, descriptor = self._name(row.path), int(row.result)
        if name in (".", ".."):
            self.open[descriptor] = (DIRECTORY if name == "." else PARENT, 0, False)
            return
        if name not in self.names:
            assert "O_CREAT" in row.arguments, row
            self.names[name] = self.next
            self.sizes[self.next] = 0
            self.next += 1
            self.operations.append(Names((Name(name, self.names[name]),)))
        file = self.names[name]
        if "O_TRUNC" in row.arguments and self.sizes[file]:
            self._resize(file, 0)
        self.open[descriptor] = (file, 0, "O_APPEND" in row.arguments)

    def _resize(self, file: int, size: int) -> None:
        self.operations.append(Resize(file, size))
        self.sizes[file] = size

    def _store(self, file: int, offset: int, data: bytes) -> None:
        self.operations.append(Write(file, offset, data))
        self.sizes[file] = max(self.sizes[file], offset + len(data))

    def _write(self, row: Traced) -> None:
        file, offset, append = self.open[self._descriptor(row)]
        data = self._strings(row)[-1][: int(row.result)]
        offset = self.sizes[file] if append else offset
        self._store(file, offset, data)
        self.open[self._descriptor(row)] = (file, offset + len(data), append)

    def _pwrite64(self, row: Traced) -> None:
        data = self._strings(row)[-1][: int(row.result)]
        self._store(self._file(row), int(row.arguments.rpartition(", ")[2]), data)

    def _lseek(self, row: Traced) -> None:
        file, _offset, append = self.open[self._descriptor(row)]
        self.open[self._descriptor(row)] = (file, int(row.result), append)

    def _read(self, row: Traced) -> None:
        file, offset, append = self.open[self._descriptor(row)]
        self.open[self._descriptor(row)] = (file, offset + int(row.result), append)

    def _ftruncate(self, row: Traced) -> None:
        self._resize(self._file(row), int(row.arguments.rpartition(", ")[2]))

    def _fsync(self, row: Traced) -> None:
        self.operations.append(Sync(self._file(row)))

    _fdatasync = _fsync

    def _mkdir(self, row: Traced) -> None:
        if self._name(row.path) == ".":
            self.operations.append(Made())

    _mkdirat = _mkdir

    def _unlink(self, row: Traced) -> None:
        name = self._name(row.path)
        del self.names[name]
        self.operations.append(Names((Name(name, None),)))

    _unlinkat = _unlink

    def _rename(self, row: Traced) -> None:
        old, new = (self._name(os.path.join(self.state, os.fsdecode(text))) for text in self._strings(row)[-2:])
        file = self.names.pop(old)
        self.names[new] = file
        self.operations.append(Names((Name(new, file), Name(old, None))))

    _renameat = _renameat2 = _rename

    def _link(self, row: Traced) -> None:
        old, new = (self._name(os.path.join(self.state, os.fsdecode(text))) for text in self._strings(row)[-2:])
        self.names[new] = self.names[old]
        self.operations.append(Names((Name(new, self.names[old]),)))

    _linkat = _link


def refused(traced: list[Traced]) -> list[str]:
    """Calls that change files and that the recorder doesn't know: a model without them would be wrong."""
    known = ("writev", "pwritev", "fallocate", "truncate", "symlink", "symlinkat", "mmap")
    shared = [row for row in traced if row.name in known and not row.result.startswith("-")]
    return [f"{row.name} on {row.path}" for row in shared if row.name != "mmap" or "MAP_SHARED" in row.arguments]
