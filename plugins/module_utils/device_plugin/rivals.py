# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether another plugin has a resource already. Private API of fleet.cdi.

The kubelet takes whoever registers last, without a word to either. Plugins of others are asked nothing but
GetDevicePluginOptions: a second ListAndWatch would steal an update from those that share one channel between streams.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from typing import Any, Callable

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import dial, pods
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

CHECKPOINT = "kubelet_internal_checkpoint"
PATIENCE = 1.0  # seconds that the kubelet, or another plugin, has for an answer

Ours = Callable[[], Collection[str]]  # there may be tens of thousands, and few questions need them


async def rival(resource: str, pod_resources: str, directory: str, ours: Ours, heard: bool) -> str:
    """What shows that another plugin serves `resource`; "" if nothing does.

    Asked while no other instance of ours serves it. `ours`: the device IDs that this instance offers, or a former one
    did. `heard`: a kubelet has a stream of this instance, so that one of these which is listed is no rival's.
    """
    try:
        listed = (await pods.allocatable(pod_resources, PATIENCE)).get(resource, frozenset())
    except pods.Unavailable:  # kubelets before 1.21, and those that only start
        return await _in_directory(resource, directory, ours)
    if not listed or (heard and not listed.isdisjoint(ours())):
        return ""
    return f"the kubelet lists {len(listed)} devices of it, {min(listed)} and so on, and no instance of ours serves it"


async def _in_directory(resource: str, directory: str, ours: Ours) -> str:
    """The same from what the kubelet wrote down and who listens beside it: both have to speak for a rival.

    The kubelet's list alone may be one of long ago, and who listens may serve anything else.
    """
    foreign = registered(directory).get(resource, frozenset()).difference(ours())
    if not foreign:
        return ""
    for path in dial.sockets(directory):
        if not dial.is_own(path) and await _is_plugin(path):
            return (
                f"the kubelet has {min(foreign)} of it on record, which is not ours, and {path} is a plugin that lives"
            )
    return ""


def registered(directory: str) -> dict[str, frozenset[str]]:
    """Resource -> device IDs, as the kubelet's checkpoint has them; empty where there is none that can be read."""
    try:
        live = files.read(os.path.join(directory, CHECKPOINT))
        document: Any = json.loads(live.content) if live else {}
        found = document.get("Data", {}).get("RegisteredDevices") or {}
        return {str(name): frozenset(map(str, ids or ())) for name, ids in found.items()}
    except (CdiError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


async def _is_plugin(path: str) -> bool:
    import grpc

    if not await dial.heard(path):
        return False
    try:
        await dial.options(path, PATIENCE)
    except grpc.RpcError as error:
        return error.code() == grpc.StatusCode.UNIMPLEMENTED
    return True
