# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell Kubernetes' Node Feature Discovery of the devices of this host, by a feature file of its source `local`.

The format: a line NAMESPACE/NAME=VALUE for each label, 64 KiB at most (NFD, "Customization guide", "Feature files").
A label's name and value have up to 63 letters, digits, "-", "_" and ".", and begin and end with a letter or digit
(Kubernetes, "Labels and Selectors"). The file has no comment, because older releases of NFD take one for a label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ..discovery import inventory
from ..manifest import Manifest
from ..records import Device
from .apply import apply
from .change import Change, Plan, plan_file

NAMESPACE = "feature.node.kubernetes.io"
PREFIX = "fleet-cdi-"  # of the names of our labels
ADVICE = "Move it away, or name another file (role: cdi_host_feature_file)."
LONGEST = 63  # letters of a name or value
LARGEST = 65536  # bytes of a file that NFD reads
BY = "node-features"  # the owner of the file, for the manifest

_OTHER = re.compile(r"[^A-Za-z0-9_.-]+")
_RENDERED = re.compile(rf"({re.escape(NAMESPACE)}/{PREFIX}[^\n]*\n)+".encode())


def label_value(text: str) -> str:
    """Return `text` as a valid value of a label; "" if nothing of it is left."""
    plain = _OTHER.sub("-", text).strip("-_.")
    return plain[:LONGEST].rstrip("-_.")


def feature_text(devices: Iterable[Device]) -> str:
    """Return the feature file for these devices; "" for none."""
    lines = list(_lines(devices))
    while sum(map(len, lines)) > LARGEST:
        lines.pop()
    return "".join(lines)


def _lines(devices: Iterable[Device]) -> Iterator[str]:
    kinds: dict[str, list[Device]] = {}
    for device in devices:
        kinds.setdefault(device.kind, []).append(device)
    for kind, mine in sorted(kinds.items()):
        values = {
            "count": str(len(mine)),
            "usable": str(sum(one.health.is_usable for one in mine)),
            "memory": str(min(one.capacity.get("memory", 0) for one in mine) or ""),
            "model": _model(mine),
        }
        name = f"{PREFIX}{_OTHER.sub('-', kind)}"
        if len(name) + len(".memory") <= LONGEST:
            yield from (f"{NAMESPACE}/{name}.{what}={value}\n" for what, value in values.items() if value)


def _model(devices: Sequence[Device]) -> str:
    """Return the model if all devices have the same one: udev's name, or the ids of PCI."""
    models = {label_value(one.properties.get("ID_MODEL_FROM_DATABASE", "") or _ids(one)) for one in devices}
    return models.pop() if len(models) == 1 else ""


def _ids(device: Device) -> str:
    return "_".join(one.removeprefix("0x") for one in (device.vendor_id, device.device_id) if one)


def keep_features(path: str, listing: str, state_dir: str, check: bool = False) -> tuple[Change, ...]:
    """Write the feature file at `path` for the devices of the inventory `listing`, and remove ours elsewhere.

    Removes the file if no device was found, or if `path` is "". undo removes it, too. Returns the changes; with `check`
    changes nothing. Raises CdiError.
    """

    def look_and_plan(manifest: Manifest) -> Plan:
        text = feature_text(inventory.read(listing, inventory.boot_id()).devices) if path else ""
        old = [one for one, record in manifest.files.items() if record["by"] == BY]
        found = [change for one in old if one != path or not text for change in plan_file(one, None, manifest, BY)]
        if text:
            found += plan_file(path, text.encode(), manifest, BY, has_our_form=_is_rendered)
        return Plan("", tuple(found), ())

    return apply(look_and_plan, state_dir, check).changes


def check_features(path: str, state_dir: str) -> None:
    """Raise CdiError where `keep_features` would on a host with devices, whichever these are. Changes nothing."""

    def look_and_plan(manifest: Manifest) -> Plan:
        return Plan("", plan_file(path, b"any", manifest, BY, advice=ADVICE, has_our_form=_is_rendered), ())

    apply(look_and_plan, state_dir, check=True)


def _is_rendered(content: bytes) -> bool:
    return _RENDERED.fullmatch(content) is not None
