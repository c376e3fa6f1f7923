# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out whether another plugin already serves a resource.

The kubelet keeps the plugin that registers last and tells neither plugin. Its podresources (from 1.21 on) show the
devices that it knows. Never ask plugins of others: a second ListAndWatch would take an update away from a plugin that
shares one channel between its streams.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Callable

from . import podresources

Ours = Callable[[], Collection[str]]  # a function: there may be tens of thousands, and it is rarely called


async def rival(resource: str, pod_resources: str, ours: Ours, heard: bool) -> str:
    """Return the evidence that another plugin serves `resource`, "" without any.

    Call it while no other instance of ours serves the resource. `ours`: the device IDs that this instance offers, or a
    former one offered. `heard`: a kubelet has a stream of this instance, so a listed ID of `ours` comes from us.
    """
    try:
        listed = (await podresources.allocatable(pod_resources)).get(resource, frozenset())
    except podresources.Unavailable:  # also while a kubelet starts, when no plugin is registered
        return ""
    if not listed or (heard and not listed.isdisjoint(ours())):
        return ""
    return f"the kubelet lists {len(listed)} devices of it, {min(listed)} and so on, and no instance of ours serves it"
