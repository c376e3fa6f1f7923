# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what still needs the release on a host: entries of the manifest, and specs that name the hook."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .. import documents
from ..manifest import read_manifest
from ..records import CdiError

FILE, KIND, KEYS, LINK, RECORD, HOOK = "file", "kind", "keys", "link", "record", "hook"

LARGEST = 1 << 24  # bytes of a spec
SHOWN = 5  # needs that a message names


class Need(NamedTuple):
    """One thing that does not work, or that can't be undone, without the release."""

    name: str  # a path, or a kind of devices
    reason: str  # FILE and KEYS that we wrote, a KIND that a refresh updates, ..., a spec with our HOOK
    by: str  # who asked for it, "" if unknown


def needed_by(state_dir: str, spec_dirs: Sequence[str], prefix: str) -> tuple[Need, ...]:
    """Return everything that needs the release below `prefix`. Raises CdiError for a manifest that can't be read."""
    manifest = read_manifest(state_dir)
    return (
        *(Need(path, FILE, record["by"]) for path, record in sorted(manifest.files.items())),
        *(Need(kind, KIND, str(entry["wanted"].get("by", ""))) for kind, entry in sorted(manifest.kinds.items())),
        *(Need(path, KEYS, record["by"]) for path, record in sorted(manifest.edits.items())),
        *(Need(path, LINK, "") for path in sorted(manifest.links)),
        *(Need(name, RECORD, "") for name in sorted(manifest.others)),
        *_hooked(spec_dirs, f"{prefix}/bin/cdi-hook"),
    )


def said(needs: Sequence[Need]) -> str:
    """Return the needs as a message names them."""
    names = list(dict.fromkeys(need.name for need in needs))
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _hooked(spec_dirs: Sequence[str], hook: str) -> Iterator[Need]:
    """Yield the specs with the text `hook`. Unreadable files are skipped: runtimes can't read them either."""
    for directory in spec_dirs:
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            continue
        for name in names:
            if not name.endswith((".json", ".yaml")):
                continue
            path = os.path.join(directory, name)
            try:
                text = documents.content(path, LARGEST) or b""
            except CdiError:
                continue
            if hook.encode() in text.replace(b"\\/", b"/"):
                yield Need(path, HOOK, "")
