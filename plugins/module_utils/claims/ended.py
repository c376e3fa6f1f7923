# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of claims that ended in this boot. They are not used again, because a container may still know one.

A file in /run with a line for each. It needs no sync: after a crash of the host there is another boot.
"""

from __future__ import annotations

import os

from .. import directories, documents, files
from ..discovery import inventory
from ..layout import Layout
from .device_name import device_name

LARGEST = 256 << 20  # bytes: some million names


def this_boot(places: Layout) -> str:
    """Return the id of this boot."""
    return inventory.boot_id(places.root) or inventory.boot_id()


def note_ended(path: str, boot_id: str, id_: str) -> None:
    """Note in the file `path` that the claim ended. Raises CdiError."""
    folder, name = os.path.split(path)
    files.make_directory(folder)
    try:
        at = directories.opened(folder)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            handle = os.open(name, flags, 0o600, dir_fd=at)
            try:
                os.write(handle, _line(boot_id, id_))
            finally:
                os.close(handle)
        finally:
            os.close(at)
    except OSError as error:
        raise documents.failed("write", path, error) from None


def has_ended(path: str, boot_id: str, id_: str) -> bool:
    """Tell if a claim with this id ended in this boot. Raises CdiError if the file can't be read."""
    live = files.read(path, LARGEST)
    return live is not None and _line(boot_id, id_) in live.content


def _line(boot_id: str, id_: str) -> bytes:
    """Return a line with its line break. It is a part of no other line, because neither word has a space."""
    return f"{boot_id} {device_name(id_)}\n".encode("ascii")
