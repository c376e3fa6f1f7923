# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which fields of a device node are compared, and which are reported."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.system.device_nodes import Numbers, differences

CASES = [
    ("equal", Numbers("c", 4, 61), Numbers("c", 4, 61), {}),
    ("another minor", Numbers("c", 4, 61), Numbers("c", 4, 62), {"minor": ("61", "62")}),
    ("another number", Numbers("b", 7, 0), Numbers("b", 8, 1), {"major": ("7", "8"), "minor": ("0", "1")}),
    ("numbers of another type mean nothing", Numbers("b", 7, 0), Numbers("c", 4, 61), {"type": ("b", "c")}),
    ("a FIFO has no numbers", Numbers("p", 0, 0), Numbers("p", 4, 61), {}),
]


@pytest.mark.parametrize(
    ("found", "expected", "reported"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_differences(found: Numbers, expected: Numbers, reported: dict[str, tuple[str, str]]) -> None:
    assert differences(found, expected) == reported
