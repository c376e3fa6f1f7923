# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The registry as the runtimes of a host have it, and when these are asked."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.tests.unit.trees import host_cases


@pytest.mark.parametrize("case", host_cases.CASES.values(), ids=list(host_cases.CASES))
def test_case(tmp_path, case):
    asked = []

    def ask():
        asked.append(True)
        return host_cases.linked(case)

    found = registry.on_host(registry.load(host_cases.put(tmp_path, case)), ask)
    assert host_cases.told(tmp_path, found) == host_cases.expected(case)
    assert bool(asked) == case.get("asked", False)
