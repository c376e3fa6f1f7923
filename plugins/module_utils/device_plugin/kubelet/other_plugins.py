# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether another plugin has a resource already. Private API of fleet.cdi.

The kubelet takes whoever registers last, without a word to either. Its podresources (from 1.21 on) tell what it hears;
plugins of others are asked nothing: a second ListAndWatch would steal an update from those that share one channel
between streams.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Callable

from . import podresources

PATIENCE = 1.0  # seconds that the kubelet has for an answer

Ours = Callable[[], Collection[str]]  # there may be tens of thousands, and few questions need them


async def rival(resource: str, pod_resources: str, ours: Ours, heard: bool) -> str:
    """What shows that another plugin serves `resource`; "" if nothing does.

    Asked while no other instance of ours serves it. `ours`: the device IDs that this instance offers, or a former one
    did. `heard`: a kubelet has a stream of this instance, so that one of these which is listed is no rival's.
    """
    try:
        listed = (await podresources.allocatable(pod_resources, PATIENCE)).get(resource, frozenset())
    except podresources.Unavailable:  # also of a kubelet that only starts: nobody is registered there
        return ""
    if not listed or (heard and not listed.isdisjoint(ours())):
        return ""
    return f"the kubelet lists {len(listed)} devices of it, {min(listed)} and so on, and no instance of ours serves it"
