# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who a process works for, by the texts of control groups in control_groups.yml."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.system import control_group

ID, OTHER = "3f" * 32, "ab" * 32
CASES = yaml.safe_load((Path(__file__).parent / "control_groups.yml").read_text())


def filled(text):
    return text.replace("IDENT", ID[:12]).replace("OTHER", OTHER).replace("ID", ID)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_it_says(case):
    found = control_group.parse(filled(case["text"]))
    assert str(found) == filled(case["says"])
    if "unit" in case:
        assert found.unit == filled(case["unit"])


@given(st.text(alphabet="0:/\n.-_abcpod1scopeservice", max_size=200))
def test_any_text_is_read(text):
    str(control_group.parse(text))
