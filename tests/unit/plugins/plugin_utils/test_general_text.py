# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts of many hosts are compared without the words of one host."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.plugin_utils.general_text import OwnWords, general

CASES = yaml.safe_load(Path(__file__).with_name("general_text.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["text"])
def test_the_hosts_own_words_are_left_out(case):
    assert general(case["text"], OwnWords({case["host"]: "HOST"})) == case["general"]
