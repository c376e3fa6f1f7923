# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any device with a device node, chosen by what sysfs says of it: for families without a profile of their own."""

from __future__ import annotations

from typing import Any

from ...schema import END
from ..select import GLOBS, PCI_CLASSES, PCI_IDS, Profile, Selection, SelectRule, globs, select
from ..snapshot import Snapshot

MATCH: dict[str, dict[str, Any]] = {
    "subsystem": GLOBS,
    "node": GLOBS,
    "driver": GLOBS,
    "pci_vendor": PCI_IDS,
    "pci_device": PCI_IDS,
    "pci_class": PCI_CLASSES,
    "attributes": {
        "type": "object",
        "propertyNames": {"pattern": r"^(?!.*\.\.)[^/].*" + END, "description": "a path below the device's directory"},
        "additionalProperties": GLOBS,
        "minProperties": 1,
    },
}


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each device that fulfils every condition of `match`."""
    match: dict[str, Any] = {name: globs(value) for name, value in options["match"].items() if name != "attributes"}
    attributes = sorted(options["match"].get("attributes", {}).items())
    match["attributes"] = tuple((name, globs(value)) for name, value in attributes)
    return select(SelectRule(**match, group_by_parent=options.get("group_by", "parent") == "parent"), snapshot)


PROFILE = Profile(
    kind="",
    name_by=("index",),
    options={
        "match": {"type": "object", "properties": MATCH, "additionalProperties": False, "minProperties": 1},
        "group_by": {"enum": ["parent", "none"]},
    },
    find=find,
    required=("match",),
)
