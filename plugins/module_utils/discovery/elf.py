# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name by which programs ask for a shared library: its DT_SONAME.

System V ABI, chapters 4 and 5 (ELF header, program header, dynamic section). Of a library that may have 100 MB only a
few pages are read.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple, Optional

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_STRTAB, DT_SONAME = 0, 5, 14
MOST = 65536  # bytes of a header table or a dynamic section; those of real libraries stay below 4 KiB
NAME = 256  # bytes of a file's name


class ElfLayout(NamedTuple):
    """Where the fields of a 64-bit or a 32-bit file stand, as formats of struct."""

    header: str  # after e_ident: ..., e_phoff, ..., e_phentsize, e_phnum
    program: str
    order: tuple[int, int, int, int]  # of p_type, p_offset, p_vaddr, p_filesz in it
    dynamic: str


LAYOUTS = {
    2: ElfLayout("HHIQQQIHHH", "IIQQQQQQ", (0, 2, 3, 5), "qQ"),
    1: ElfLayout("HHIIIIIHHH", "IIIIIIII", (0, 1, 2, 4), "iI"),
}


def soname(path: str) -> Optional[str]:
    """Return the DT_SONAME of the file at `path`, "" without one, None for an unreadable file or another format."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _soname(handle) if stat.S_ISREG(os.fstat(handle).st_mode) else None
    except (OSError, struct.error, IndexError, KeyError, OverflowError):
        return None
    finally:
        os.close(handle)


def _soname(handle: int) -> Optional[str]:
    ident = os.pread(handle, 16, 0)
    if ident[:4] != b"\x7fELF":
        return None
    layout, order = LAYOUTS[ident[4]], {1: "<", 2: ">"}[ident[5]]
    header = _unpack(handle, order + layout.header, 16)
    programs = []
    for fields in _table(
        handle, header[4], header[9] * struct.calcsize(order + layout.program), order + layout.program
    ):
        programs.append(tuple(fields[index] for index in layout.order))
    for type_, offset, _address, size in programs:
        if type_ == PT_DYNAMIC:
            tags: dict[int, int] = {}
            for tag, value in _table(handle, offset, size, order + layout.dynamic):
                if tag == DT_NULL:
                    break
                tags.setdefault(tag, value)
            if DT_SONAME not in tags:
                return ""
            return _text(handle, tags[DT_STRTAB] + tags[DT_SONAME], programs)
    return ""


def _text(handle: int, address: int, programs: list[tuple[int, ...]]) -> str:
    """The text at a virtual address. Raises KeyError for one that no segment has."""
    for type_, offset, start, size in programs:
        if type_ == PT_LOAD and start <= address < start + size:
            return os.pread(handle, NAME, offset + address - start).partition(b"\0")[0].decode("utf-8", "replace")
    raise KeyError(address)


def _unpack(handle: int, form: str, offset: int) -> tuple[int, ...]:
    return struct.unpack(form, os.pread(handle, struct.calcsize(form), offset))


def _table(handle: int, offset: int, size: int, form: str) -> Iterator[tuple[int, ...]]:
    content = os.pread(handle, min(size, MOST), offset)
    step = struct.calcsize(form)
    return struct.iter_unpack(form, content[: len(content) // step * step])
