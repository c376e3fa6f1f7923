# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Since when the containers of a claim are gone, for `fleet-cdi claim gc --idle-for`.

Nothing reports the end of a container, so the first look that finds no container counts. A file has the results of the
last look, in seconds of CLOCK_BOOTTIME: changes of the clock do not shorten the time, and a reboot begins it again.
They are one line of JSON behind its checksum, so that damage is noticed.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Optional

from ... import documents, files
from ...records import CdiError

LARGEST = 64 << 20  # bytes: some hundred thousand claims
LENGTH = 9  # bytes of the checksum, with a space behind it


def unused_for(
    path: str, boot_id: str, unused: Mapping[str, Collection[str]], now: float, note: bool = True
) -> tuple[dict[str, float], str]:
    """Return for each unused claim (token -> its containers) the seconds since the first look that found it so.

    And why this look could not be noted; "" if it was. A claim that had another container meanwhile begins again, and
    each claim in another boot. The file `path` has the last look; a damaged file counts as none. This look is noted
    there if `note` is set. `now`: seconds since the boot.
    """
    try:
        before = _read(path)
    except CdiError:
        before = None
    noted = {
        token: _noted((before or {}).get(token), [boot_id, *sorted(containers)], now)
        for token, containers in unused.items()
    }
    failed = ""
    if note and noted != before:
        text = json.dumps(noted, sort_keys=True).encode("ascii") + b"\n"
        try:
            files.replace(path, _checksum(text) + text, 0o600)
        except CdiError as error:
            failed = str(error)
    return {token: now - since for token, (since, _containers) in noted.items()}, failed


def damage(path: str) -> str:
    """Return why the content of the file `path` is not what a look noted; "" if it is, or can't be read."""
    try:
        found = _read(path)
    except CdiError:  # each call that writes it says why it fails
        return ""
    return f"{path}: is not what a look at the claims noted, by its checksum" if found is None else ""


def _read(path: str) -> Optional[dict[str, Any]]:
    """Return the results of the last look; {} without a file, None for a damaged one. Raises CdiError."""
    live = files.read(path, LARGEST)
    if live is None:
        return {}
    line = live.content[LENGTH:]
    if live.content[:LENGTH] != _checksum(line):
        return None
    found = documents.parse(line, path)
    return found if isinstance(found, dict) else None


def _checksum(line: bytes) -> bytes:
    return f"{zlib.crc32(line):08x} ".encode("ascii")


def _noted(before: Any, seen: Sequence[str], now: float) -> list[Any]:
    """Return [since, digest of what was seen], as of the look `before` if that saw the same boot and containers."""
    digest = hashlib.sha256(" ".join(seen).encode()).hexdigest()
    if isinstance(before, list) and before[1:] == [digest] and isinstance(before[0], (int, float)):
        return [min(before[0], now), digest]
    return [now, digest]
