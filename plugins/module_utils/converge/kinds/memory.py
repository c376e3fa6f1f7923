# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of a kind, a record of the manifest's `kinds`: with it a refresh needs no controller.

It holds the settings of the kind, the devices that its spec offers, and since when some of them are gone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

DROPPED = "the settings dropped it while it was held"  # of a device that is leaving: nobody else is to get it


class GoneSince(NamedTuple):
    """Since when a device is gone: for people, and in seconds of a boot (CLOCK_BOOTTIME), because clocks change."""

    since: str  # "2026-11-21 15:04:05 UTC"
    boot_id: str
    seconds: float


def gone_now(boot_id: str) -> GoneSince:
    """Return the note for a device that is found missing now, in this boot."""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return GoneSince(since, boot_id, round(time.clock_gettime(time.CLOCK_BOOTTIME)))


class Memory(NamedTuple):
    """The last request to module spec, and its result."""

    wanted: dict[str, Any]  # the fields of `WantedKind`, except kind and content
    directory: str
    inventory: str  # "" for none
    offered: Mapping[str, tuple[str, ...]] = {}  # id of each device that the spec offers -> its names
    gone: Mapping[str, GoneSince] = {}  # id of each offered device that is missing or leaving -> since when

    @property
    def leaving(self) -> frozenset[str]:
        """Return the ids of the devices that the settings dropped while they were held (leaving.py)."""
        return frozenset(self.wanted.get("leaving", ()))

    def document(self) -> dict[str, Any]:
        """Return the record for JSON."""
        return {
            **self._asdict(),
            "offered": {id_: list(names) for id_, names in self.offered.items()},
            "gone": {id_: gone._asdict() for id_, gone in self.gone.items()},
        }


def memory_of(document: Optional[Mapping[str, Any]]) -> Optional[Memory]:
    """Return the memory from a record that `document` made; None for None. Fields of a newer release don't count."""
    if document is None:
        return None
    offered = {id_: tuple(names) for id_, names in document["offered"].items()}
    gone = {id_: GoneSince(*map(fields.get, GoneSince._fields)) for id_, fields in document["gone"].items()}
    return Memory(document["wanted"], document["directory"], document["inventory"], offered, gone)
