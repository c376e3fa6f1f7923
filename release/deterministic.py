# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives whose bytes follow from names, modes and contents alone, not from time, user, umask, locale or library.

Nothing is compressed. Distributions have different versions of zlib, and they compress to different bytes, or split
data that they only store into different blocks. So the blocks of gzip are made here.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zlib
from collections.abc import Iterable
from typing import NamedTuple

BLOCK = 65535  # bytes; the largest stored block of RFC 1951
DIRECTORY, FILE, LINK = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE


class Member(NamedTuple):
    """One entry of an archive. `name` is relative, with slashes."""

    name: str
    content: bytes = b""
    mode: int = 0o644
    type: bytes = FILE
    target: str = ""  # of a LINK


def tar(members: Iterable[Member], epoch: int) -> bytes:
    """Return a tar of the members in this order, all of them root's and of the time `epoch` (seconds since 1970)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            head = tarfile.TarInfo(member.name)
            head.mode, head.type, head.linkname, head.mtime = member.mode, member.type, member.target, epoch
            head.size = len(member.content)
            archive.addfile(head, io.BytesIO(member.content))
    return buffer.getvalue()


def gzip(content: bytes) -> bytes:
    """Return `content` in the format of gzip (RFC 1952), stored and not compressed."""
    parts = [b"\x1f\x8b\x08\0\0\0\0\0\0\xff"]  # no flags, no time, unknown system
    starts = range(0, len(content), BLOCK) or range(1)
    for start in starts:
        block = content[start : start + BLOCK]
        last = start + BLOCK >= len(content)
        parts += [struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF), block]
    parts.append(struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFFFFFF))
    return b"".join(parts)
