# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A younger instance that is broken, beside one that is well, while the kubelet restarts in every way.

tests/bench/device_plugin_restarts.py does the same hundreds of times and prints how long it took.
"""

from __future__ import annotations

import random

import pytest
from conftest import Start
from host import PATIENCE, Host
from kubelet import Kubelet
from restarts import BROKEN, RESOURCE, RESTARTS, back


@pytest.mark.parametrize("broken", BROKEN)
def test_no_broken_instance_keeps_the_devices_of_one_that_is_well(
    host: Host, newer: Kubelet, start: Start, broken: str
) -> None:
    chance = random.Random(broken)
    host.devices(7)
    well = start("a")
    assert newer.wait_for(RESOURCE, 7)
    with BROKEN[broken](host, start) as other:
        for kind, restart in RESTARTS.items():
            other.before()
            restart(newer, chance)
            assert back(newer, 7, PATIENCE), f"{kind}: {newer.counts(RESOURCE)}\n{well.text}\n{other.plugin.text}"
        assert not well.lines("conflict") and not other.plugin.lines("conflict"), "there is no other plugin"
    newer.run("p", **{RESOURCE: 7})
