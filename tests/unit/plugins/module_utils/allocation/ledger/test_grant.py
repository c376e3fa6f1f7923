# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a device is by the nodes in its spec, where no inventory has it; why a hold can't be granted."""

from __future__ import annotations

from typing import Optional

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import (
    PARTS,
    SHARE,
    WHOLE,
    Hold,
    Lock,
    is_item_taken,
    why_not,
)
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


@pytest.mark.parametrize(
    ("used", "why"),
    [
        (None, ""),
        (56, ""),
        (60, "pci:1 has 20 memory left, 24 asked"),
    ],
)
def test_a_share_is_what_is_left_of_the_capacity(used: Optional[int], why: str) -> None:
    hold = Hold("".join(("pci", ":1")), "nvidia.com/gpu", amounts={"memory": 24}, capacity={"memory": 80})
    locks = {} if used is None else {"pci:1": Lock(SHARE, {"memory": used})}
    assert why_not(hold, locks) == why


@pytest.mark.parametrize(("mode", "why"), [(PARTS, ""), (WHOLE, "pci:0 is held (whole)")])
def test_a_partition_is_granted_beside_others_and_not_beside_the_whole(mode: str, why: str) -> None:
    hold = Hold("pci:0#mig:7:0", "nvidia.com/gpu", part_of=("pci:0",))
    assert why_not(hold, {"pci:0": Lock(mode)}) == why
