# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Note when the last refresh ended, how long it took and how it ended, for those who watch the host.

The note lies beside the inventory, so a reboot removes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import NamedTuple, Optional

from .. import documents, files
from ..manifest import Manifest
from ..records import CdiError

LARGEST = 10_000  # bytes


class LastRefresh(NamedTuple):
    """The last refresh of this boot."""

    finished: int  # seconds since the epoch
    seconds: float
    ok: bool  # False: a part failed
    missing: int  # devices that are gone and stay in their specs


def note_refresh(listing: str, last: LastRefresh) -> None:
    """Write the note. Does nothing on a host without the inventory `listing`. Raises CdiError."""
    if listing and os.path.lexists(listing):
        files.replace(note_path(listing), (json.dumps(last._asdict()) + "\n").encode())


def last_refresh(listing: str) -> Optional[LastRefresh]:
    """Return the note; None for a missing or damaged one."""
    try:
        content = documents.content(note_path(listing), LARGEST)
        found = json.loads(content or b"")
        return LastRefresh(int(found["finished"]), float(found["seconds"]), found["ok"] is True, int(found["missing"]))
    except (CdiError, OSError, ValueError, TypeError, KeyError):
        return None


def inventories(manifest: Manifest) -> set[str]:
    """Return the paths of the inventories of this host."""
    return {str(entry["inventory"]) for entry in manifest.kinds.values()} - {""}


def forget_notes(beside: Iterable[str]) -> list[tuple[str, str]]:
    """Remove the notes beside these files; return (path, why) of each note that stays."""
    kept = []
    for path in sorted(set(map(note_path, beside))):
        try:
            files.remove(path)
        except CdiError as error:
            kept.append((path, str(error)))
    return kept


def note_path(listing: str) -> str:
    """Return the path of the note of the inventory `listing`."""
    return os.path.join(os.path.dirname(listing), "cdi-refresh.last")
