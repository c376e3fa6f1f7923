# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find what still needs the release on a host: entries of the manifest, and specs that name the hook.

Refuse a state directory other than the one with these entries, and a second release beside the one that uses it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from .. import documents
from ..layout import REFRESH_SERVICE, UNIT_DIR, USUAL, ledger_lock, ledger_log, ledger_path
from ..manifest import read_manifest
from ..records import CdiError
from . import guard, launcher, tree

FILE, KIND, KEYS, LINK, RECORD, HOOK = "file", "kind", "keys", "link", "record", "hook"

LARGEST = 1 << 24  # bytes of a spec
SHOWN = 5  # needs that a message names

UNIT = os.path.join(UNIT_DIR, REFRESH_SERVICE)
_COMMAND = re.compile(r'^Exec\w+=[-+]*"(/[^"\\%]*)/bin/fleet-cdi"', re.MULTILINE)  # in a unit of ours


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


def check_host(options: Mapping[str, Any], check: bool) -> list[str]:
    """Return warnings about the release of a host, for a module that changes the host by these `options`.

    Raises CdiError if another release is active, as guard.check does, and as check_state_dir does.
    """
    if options.get("root", "/") == "/":  # an image has its own records
        check_state_dir(options["state_dir"], options["prefix"], options.get("device_list") or "")
    return guard.check(options["prefix"], options["release"], check)


def check_state_dir(state_dir: str, prefix: str, listing: str = "") -> None:
    """Raise CdiError if the commands of the release below `prefix` have their records in another directory.

    The release that the host uses counts too, if its device list is `listing`.
    """
    for one in dict.fromkeys((prefix, host_prefix())):
        defaults = _defaults(one)
        old = str(defaults.get("state_dir", state_dir))
        if old != state_dir and (one == prefix or defaults.get("inventory") == listing) and _has_records(old, one):
            raise CdiError(
                f"state_dir: found {state_dir}; expected {old}, where this host has its records: what was changed on "
                "it, and who holds which devices. Without them a device that is held would be granted again, and a "
                f"removal would leave the rest. Keep {old}, or take everything back first (playbook fleet.cdi.remove "
                f"with {old})."
            )


def check_prefix(prefix: str, state_dir: str) -> None:
    """Raise CdiError if the host uses a release below another prefix, with the records in `state_dir`."""
    other = host_prefix()
    if other != prefix and _defaults(other).get("state_dir") == state_dir and _has_records(state_dir, other):
        raise CdiError(
            f"prefix: found {prefix}; expected {other}, where this host has its release: containers, specs and units "
            "name programs there. A second release would leave the first one on the host, also after a removal. Keep "
            f"{other}, or take everything back first (playbook fleet.cdi.remove with {other})."
        )


def host_prefix() -> str:
    """Return where this host has its release: below the prefix of the refresh, and without a refresh the usual one."""
    text = b""
    with suppress(CdiError):
        text = documents.content(UNIT, LARGEST) or b""
    found = _COMMAND.search(text.decode("utf-8", "replace"))
    return found[1] if found else USUAL.prefix


def host_spec_dirs(prefix: str) -> tuple[str, ...]:
    """Return the spec directories of the commands below `prefix`, lowest priority first."""
    return tuple(_defaults(prefix).get("spec_dirs") or USUAL.spec_dirs)


def _defaults(prefix: str) -> dict[str, Any]:
    """Return the defaults of the active release below `prefix`; {} without one of this user."""
    current = tree.at(prefix, "current")
    with suppress(OSError, CdiError):
        if os.lstat(current).st_uid == os.geteuid():
            text = documents.content(os.path.join(current, "bin", launcher.FLEET_CDI), tree.LARGEST)
            return launcher.defaults_of((text or b"").decode("utf-8", "replace"))
    return {}


def _has_records(state_dir: str, prefix: str) -> bool:
    ledger = ledger_path(state_dir)
    beside = (ledger_log(ledger), ledger_lock(ledger))  # the store can be gone, and the grants be known by its log
    return any(map(os.path.lexists, (ledger, *beside))) or bool(needed_by(state_dir, (), prefix))


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
