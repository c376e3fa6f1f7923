# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA's forward compatibility: use a newer libcuda of the container instead of the driver's.

An image may have such a libcuda, with an ELF note that names the drivers that it works with. If the host's driver is
one of them, the container must find the image's libcuda, as NVIDIA's enable-cuda-compat decides (1.20.1,
cmd/nvidia-cdi-hook/cudacompat).
"""

from __future__ import annotations

import os

from . import ldcache
from .container_root import ContainerRoot
from .state import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

PREFIX = "libcuda.so."
SECTION = b".note.cuda.fwd_compatibility"
OWNER = b"NVIDIA Corporation"
MOST = 1 << 16  # bytes of section headers, their names, or the note; libcuda.so.570 has 2.5, 0.4 and 0.2 KiB of them
FARTHEST = 1 << 62  # a position in a file
Version = tuple[int, ...]


def enable(container: ContainerRoot, folder: str, driver: str, cuda: str) -> list[str]:
    """Let the linker search `folder` first if its libcuda is for the host's driver. Return warnings.

    `driver` and `cuda` are the host's versions, "" if unknown. Raises HookError and OSError.
    """
    names = [name for name in container.names(folder, PREFIX) if "." in name[len(PREFIX) :]]
    found = [name for name in names if _is_file(container, f"{folder}/{name}")]
    if len(found) != 1:
        several = f"{folder} has {', '.join(found)}; which one is meant nobody knows, so none is preferred"
        return [several] if found else []
    handle = container.open(f"{folder}/{found[0]}")
    try:
        note = read_note(handle)
    finally:
        os.close(handle)
    if is_for(note, version(found[0][len(PREFIX) :]), version(driver), version(cuda)):
        ldcache.add(container, ldcache.COMPAT, [folder])
    return []


def is_for(note: Optional[dict[str, Any]], own: Version, driver: Version, cuda: Version) -> bool:
    """Return True if a libcuda of version `own` with this note is for such a host; () is an unknown version."""
    if note is None:  # from before about CUDA 12.5
        return bool(not cuda and own and driver and own[0] > driver[0])
    if own and driver:
        return driver[0] in _list(note.get("Driver")) and own > driver
    named = note.get("CUDA Version")
    return bool(cuda) and isinstance(named, str) and version(named) > cuda


def version(text: str) -> Version:
    """Return 550.54.15 as (550, 54, 15), with up to three numbers; () for anything else."""
    parts = text.split(".")
    if len(parts) > 3 or not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in parts):
        return ()
    return tuple(int(part) for part in (*parts, "0", "0")[:3])


def read_note(handle: int) -> Optional[dict[str, Any]]:
    """Return the JSON in the note of a 64-bit ELF file, or None (elf(5))."""
    header = os.pread(handle, 64, 0)
    if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
        return None
    size, count, names_at = (_number(header, at, 2) for at in (58, 60, 62))
    table = _part(handle, size * count, _number(header, 40, 8))
    if size < 64 or names_at >= count or len(table) < size * count:
        return None
    sections = [table[at : at + size] for at in range(0, size * count, size)]
    names = _content(handle, sections[names_at])
    for section in sections:
        start = _number(section, 0, 4)
        if names[start : start + len(SECTION) + 1] == SECTION + b"\0":
            return _document(_content(handle, section), max(_number(section, 48, 8), 1))
    return None


def _document(note: bytes, align: int) -> Optional[dict[str, Any]]:
    """Return the content of NVIDIA's note: sizes of owner and text, a type, the owner, the text, each aligned."""
    owner, text = _number(note, 0, 4), _number(note, 4, 4)
    start = 12 + -(-owner // align) * align
    if note[12 : 12 + owner].strip(b"\0") != OWNER:
        return None
    try:
        found = loads(note[start : start + text].strip(b"\0").decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _content(handle: int, section: bytes) -> bytes:
    return _part(handle, _number(section, 32, 8), _number(section, 24, 8))


def _part(handle: int, size: int, at: int) -> bytes:
    """Read at most MOST bytes. The file gives `size` and `at`, which may be any number."""
    return os.pread(handle, min(size, MOST), min(at, FARTHEST))


def _number(content: bytes, at: int, size: int) -> int:
    return int.from_bytes(content[at : at + size], "little")


def _list(found: object) -> list[object]:
    return found if isinstance(found, list) else []


def _is_file(container: ContainerRoot, path: str) -> bool:
    """Return True for a regular file itself; libcuda.so.1 is a link to it."""
    directory, name = container.locate(path)
    try:
        return os.lstat(name, dir_fd=directory).st_mode & 0o170000 == 0o100000
    finally:
        os.close(directory)
