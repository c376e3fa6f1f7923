# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs of the kernel's Direct Rendering Manager, of any vendor: /dev/dri/*.

Options and roles are those of the CDI proposal of 2017 ("Configuration", drm.conf): one GPU has several nodes.
"""

from __future__ import annotations

from typing import Any

from ..select import PCI_IDS, Profile, Selection, SelectRule, globs, memory, select
from ..snapshot import Snapshot

# Documentation/gpu/drm-uapi.rst, "Primary Nodes" and "Render nodes"; control nodes are gone since Linux 4.16.
ROLES = {"primary": "card[0-9]*", "render": "renderD[0-9]*", "control": "controlD[0-9]*"}


def find(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each GPU, with the nodes of the roles that are wanted."""
    wanted = options.get("want_device_nodes", ROLES)
    roles = tuple((pattern, role) for role, pattern in ROLES.items() if role in wanted)
    vendors = globs(options.get("vendorid_whitelist"))
    found = select(SelectRule(subsystem=("drm",), pci_vendor=vendors, roles=roles, group_by_parent=True), snapshot)
    return found._replace(groups=tuple(memory(group) for group in found.groups))


PROFILE = Profile(
    kind="fleet.cdi/gpu",
    name_by=("index",),
    options={
        "want_device_nodes": {"type": "array", "items": {"enum": list(ROLES)}, "minItems": 1},
        "vendorid_whitelist": PCI_IDS,
    },
    find=find,
    opens=("render",),
)
