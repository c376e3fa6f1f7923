# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what still needs the release on a host: entries of the manifest, and specs that name the hook.

Refuse a state directory other than the one with these entries.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .. import documents
from ..layout import ledger_path
from ..manifest import read_manifest
from ..records import CdiError
from . import launcher, tree

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


def check_state_dir(state_dir: str, prefix: str) -> None:
    """Raise CdiError if the commands of the release below `prefix` have their records in another directory."""
    texts = tree.launchers_of(tree.at(prefix, "current"))
    old = str(launcher.defaults_of(texts.get(launcher.FLEET_CDI, "")).get("state_dir", state_dir))
    if old != state_dir and (os.path.lexists(ledger_path(old)) or needed_by(old, (), prefix)):
        raise CdiError(
            f"state_dir: found {state_dir}; expected {old}, where this host has its records: what was changed on it, "
            "and who holds which devices. Without them a device that is held would be granted again, and a removal "
            f"would leave the rest. Keep {old}, or take everything back first (playbook fleet.cdi.remove with {old})."
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
