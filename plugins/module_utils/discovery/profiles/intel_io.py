# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Intel's accelerators for data: virtual functions of QAT, work queues of DSA and IAA.

Kind and names of QAT are those of Intel's resource driver (intel/intel-resource-drivers-for-kubernetes, pkg/qat);
which work queues count is the rule of its device plugin (intel/intel-device-plugins-for-kubernetes, pkg/idxd).
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any, Optional

from ...records import ContainerEdits, Health
from ..functions import functions, physical_function, unusable
from ..select import DeviceGroup, Profile, Selection, SelectRule, globs, nearest, select
from ..snapshot import Snapshot, SysDevice
from . import vfio
from .intel import VENDOR

COPROCESSOR = ("0x0b40",)
SERVICES = ("sym", "asym", "dc", "dcc", "decomp")  # Documentation/ABI/testing/sysfs-driver-qat, cfg_services


def find_qat(options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """One group for each virtual function of a QAT that is bound to a VFIO driver; then those that can't be used.

    The physical function knows which services its virtual ones offer, and whether they are up.
    """
    everyone = functions(snapshot, VENDOR, COPROCESSOR)
    wanted = set(globs(options.get("services")))
    parents = {f"pci:{function.name}": function for function in everyone}
    virtual = [
        (function, parents.get(parent[0]))
        for function in everyone
        for parent in (physical_function(function),)
        if parent and wanted <= _services(parents.get(parent[0]))
    ]
    groups = []
    for function, parent in virtual:
        if function.bound not in vfio.DRIVERS:
            continue
        group = vfio.with_node(DeviceGroup(function, ((function, ""),)), function, snapshot)
        state = parent.attribute("qat/state") if parent else None
        if state not in (None, "up"):
            reason = f"{function.name}: the state of its physical function is {state!r}"
            group = group._replace(fields={**group.fields, "health": Health("unhealthy", reason)})
        groups.append(_qat(group))
    candidates = [function for function, _parent in virtual]
    last = unusable(candidates, {group.members[0][0] for group in groups}, vfio.DRIVERS, "")
    why = "this host has no virtual function of a QAT"
    return Selection(
        (*groups, *map(_qat, last)),
        f"{why} whose cfg_services has {' and '.join(sorted(wanted))}" if wanted else why,
        edits=vfio.SHARED if groups else ContainerEdits(),
    )


def _services(parent: Optional[SysDevice]) -> set[str]:
    return set((parent.attribute("qat/cfg_services") or "").split(";")) if parent else set()


def _qat(group: DeviceGroup) -> DeviceGroup:
    function = group.members[0][0]
    uid = "qatvf-" + re.sub("[:.]", "-", function.name)
    return group._replace(names={"uuid": uid})


def _find_queues(prefix: str, options: dict[str, Any], snapshot: Snapshot) -> Selection:
    """Return one group for each work queue for programs: a queue that is enabled with type user has a node.

    Linux, drivers/dma/idxd/cdev.c: the node's device is called dsa!wq0.1 and sits on the queue wq0.1, that on dsa0.
    """
    modes = globs(options.get("mode"))
    attributes = (("type", ("user",)), *((("mode", modes),) if modes else ()))
    found = select(SelectRule(subsystem=("dsa",), node=(f"{prefix}/wq*",), attributes=attributes), snapshot)
    return found._replace(groups=tuple(map(_queue, found.groups)))


def _queue(group: DeviceGroup) -> DeviceGroup:
    head = group.members[0][0]
    name = head.sysname.rpartition("/")[2]
    state = nearest(head, ("state",)) or ""
    fields: dict[str, Any] = {}
    if state != "enabled":
        fields["health"] = Health("unhealthy", f"{name}: the state of the work queue is {state!r}")
    if head.pci:  # the first number of wq0.1 follows the order of probing
        fields["id"] = f"pci:{head.pci.name}#wq{name.rpartition('.')[2]}"
    return group._replace(names={"sysname": name}, fields=fields)


MODE = {"mode": {"enum": ["dedicated", "shared"]}}
QAT = Profile(
    kind="intel.com/qat",
    name_by=("index", "uuid"),
    options={"services": {"type": "array", "items": {"enum": list(SERVICES)}, "minItems": 1}},
    find=find_qat,
)
DSA = Profile(kind="intel.com/dsa", name_by=("sysname",), options=MODE, find=partial(_find_queues, "dsa"))
IAA = Profile(kind="intel.com/iaa", name_by=("sysname",), options=MODE, find=partial(_find_queues, "iax"))
