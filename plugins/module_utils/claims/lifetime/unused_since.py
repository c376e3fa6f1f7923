# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Since when the containers of a claim are gone, for `fleet-cdi claim gc --idle-for`.

Nothing reports the end of a container, so the first look that finds no container counts. A file has the results of the
last look, in seconds of CLOCK_BOOTTIME: changes of the clock do not shorten the time, and a reboot begins it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ... import documents, files
from ...records import CdiError

LARGEST = 64 << 20  # bytes: some hundred thousand claims


def unused_for(
    path: str, boot_id: str, unused: Mapping[str, Collection[str]], now: float, note: bool = True
) -> dict[str, float]:
    """Return for each unused claim (token -> its containers) the seconds since the first look that found it so.

    A claim that had another container meanwhile begins again, and each claim in another boot. The file `path` has
    the last look; a damaged file counts as none. This look is noted there if `note` is set. `now`: seconds since the
    boot. Raises CdiError if the file can't be written.
    """
    before = _read(path)
    noted = {
        token: _noted(before.get(token), [boot_id, *sorted(containers)], now) for token, containers in unused.items()
    }
    if note and noted != before:
        files.replace(path, json.dumps(noted, sort_keys=True).encode("ascii"), 0o600)
    return {token: now - since for token, (since, _containers) in noted.items()}


def _read(path: str) -> dict[str, Any]:
    with suppress(CdiError):
        live = files.read(path, LARGEST)
        found = documents.parse(live.content, path) if live else {}
        return found if isinstance(found, dict) else {}
    return {}


def _noted(before: Any, seen: Sequence[str], now: float) -> list[Any]:
    """Return [since, digest of what was seen], as of the look `before` if that saw the same boot and containers."""
    digest = hashlib.sha256(" ".join(seen).encode()).hexdigest()
    if isinstance(before, list) and before[1:] == [digest] and isinstance(before[0], (int, float)):
        return [min(before[0], now), digest]
    return [now, digest]
