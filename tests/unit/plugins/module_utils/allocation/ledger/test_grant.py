# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a device is by the nodes in its spec, where no inventory has it."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import PARTS, WHOLE, is_item_taken
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device


@pytest.mark.parametrize(
    ("id_", "mode", "taken"),
    [
        ("pci:0000:41:00.0", WHOLE, True),
        ("pci:0000:41:00.0", PARTS, True),
        ("pci:0000:41:00.0#mig:7:0", WHOLE, True),
        ("pci:0000:41:00.0#mig:7:0", PARTS, False),  # its control node may be held for another partition
    ],
)
def test_a_partition_shares_the_nodes_of_its_whole(id_: str, mode: str, taken: bool) -> None:
    device = Device(id_, "nvidia", "nvidia.com/gpu", ("0",), ())
    assert is_item_taken(device, mode) == taken
