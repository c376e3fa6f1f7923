# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many names a message has."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.faults import some


@pytest.mark.parametrize(
    ("names", "text"),
    [("", ""), ("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c and 1 more"), ("abcdefgh", "a, b, c and 5 more")],
)
def test_a_message_has_three_names_and_the_number_of_the_others(names: str, text: str) -> None:
    assert some(list(names)) == text
