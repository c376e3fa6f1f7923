# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The libraries in a cache of the dynamic linker, /etc/ld.so.cache, which may be any bytes.

The format is glibc's (sysdeps/generic/dl-cache.h: struct cache_file, cache_file_new and file_entry_new), as ldconfig
writes it on machines of little byte order since glibc 2.2.
"""

from __future__ import annotations

import os
import struct

PATH = "/etc/ld.so.cache"
LIMIT = 4 << 20  # bytes of the file; one of 5,000 libraries has half a megabyte
LONGEST = 4096  # bytes of a path (PATH_MAX)

# A file for glibc before 2.2, too, begins with its table: 16 bytes, and 12 for each library.
OLD_MAGIC, OLD_HEADER, OLD_ENTRY = b"ld.so-1.7.0\0", struct.Struct("<12sI"), 12
ALIGNED = 8  # bytes; where the new table begins
MAGIC = b"glibc-ld.so.cache1.1"
HEADER = struct.Struct("<20sI24x")  # number of libraries
ENTRY = struct.Struct("<iI I 12x")  # flags; where name and path begin, in bytes from the start of the new table

ELF = 0x0001  # bit of the flags: a library for ELF programs
ARCHITECTURE = 0xFF00
SIXTY_FOUR_BITS = frozenset({0x0300, 0x0500, 0x0A00})  # x86-64, POWER, AArch64


def libraries(content: bytes) -> list[str]:
    """The paths of the libraries of 64 bits, in the order of the cache, each once.

    A path that is not absolute or not printable text is left out. Raises ValueError for bytes that are not a cache.
    """
    start = 0
    if content.startswith(OLD_MAGIC) and len(content) >= OLD_HEADER.size:
        _magic, count = OLD_HEADER.unpack_from(content)
        start = -(-(OLD_HEADER.size + count * OLD_ENTRY) // ALIGNED) * ALIGNED
    if not content.startswith(MAGIC, start) or len(content) < start + HEADER.size:
        raise ValueError("the file is not a cache of the dynamic linker")
    _magic, count = HEADER.unpack_from(content, start)
    first = start + HEADER.size
    if first + count * ENTRY.size > len(content):
        raise ValueError(f"the file is too short for the {count} libraries that it should have")
    found: dict[str, None] = {}
    room = 4 * len(content)  # paths may share bytes, but those of a real cache hardly do
    for flags, _name, path in ENTRY.iter_unpack(content[first : first + count * ENTRY.size]):
        if not flags & ELF or flags & ARCHITECTURE not in SIXTY_FOUR_BITS:
            continue
        end = content.find(b"\0", start + path, start + path + LONGEST)
        text = os.fsdecode(content[start + path : end]) if end >= 0 else ""
        room -= len(text)
        if room < 0:
            raise ValueError("the paths are longer than the file")
        if text.startswith("/") and text.isprintable():
            found[text] = None
    return list(found)
