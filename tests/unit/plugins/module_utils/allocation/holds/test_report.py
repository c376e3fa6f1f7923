# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CHECK of a grant, and INFO of a store that has grants of two boots."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.report import check_grant, info
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import (
    ACTIVE,
    PENDING,
    WITHHELD,
    Grant,
    GrantPart,
    Hold,
    Key,
)
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger

KEY = Key("gpu", "drm", "job-1")
PRESENT = {"pci:1": "card-1", "pci:2": ""}


@pytest.mark.parametrize(
    ("part", "present", "problems"),
    [
        ({}, PRESENT, []),
        ({"state": PENDING}, PRESENT, [(PENDING, "", "request job-1: is pending: its setup is not finished")]),
        (
            {"state": WITHHELD, "reasons": {"pci:1": "stuck"}},
            PRESENT,
            [(WITHHELD, "", "request job-1: is withheld: stuck")],
        ),
        ({"boot_id": "boot-0"}, PRESENT, [("boot", "", "request job-1: was granted in boot boot-0")]),
        ({"boot_id": "boot-2"}, PRESENT, [("boot", "", "request job-1: was granted in boot boot-2")]),
        ({}, {"pci:2": ""}, [("missing", "pci:1", "pci:1: is not in the inventory")]),
        ({}, {**PRESENT, "pci:1": "card-3"}, [("swapped", "pci:1", "pci:1: is card-3; granted was card-1")]),
        ({}, {**PRESENT, "pci:1": ""}, []),
    ],
)
def test_a_grant_is_checked(part: Mapping[str, Any], present: Mapping[str, str], problems: list[Any]) -> None:
    holds = (Hold("pci:1", "nvidia.com/gpu", "card-1"), Hold("pci:2", "nvidia.com/gpu"))
    usual = GrantPart("t", "claims", ACTIVE, {"gpu": 2}, holds, "boot-1", 0.0, 0.0)
    found = check_grant(Grant(KEY, (usual._replace(**part),)), "boot-1", present)
    assert [tuple(one) for one in found] == problems


def test_grants_of_other_boots_are_told_earlier_and_later_ones(volatile: Path) -> None:
    for boot in ("boot-1", "boot-2", "boot-3"):
        ledger = Ledger(str(volatile / "cdi"), boot)
        hold = Hold(f"pci:{boot}", "nvidia.com/gpu")
        ledger.add(KEY._replace(request_id=boot), {"gpu": 1}, lambda _tables, hold=hold: [hold], "claims")
    found = info(Ledger(str(volatile / "cdi"), "boot-2"))
    assert {key.request_id for key in found.other_boots} == {"boot-1", "boot-3"}
    assert (found.grants, found.pending, found.withheld, found.unproved) == (3, (), {}, ())
    assert found.devices == {("nvidia.com/gpu", "claims", ACTIVE): 3}
