# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All rules of the doctor: each has a next step of its own."""

from __future__ import annotations

from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES


class TestRules:
    def test_every_rule_has_a_command_that_repairs(self):
        for one in RULES:
            assert one.next.count("`") >= 2 and not one.next.endswith("."), one.name
            assert not one.theirs or one.theirs.count("`") >= 2, one.name

    def test_no_two_rules_say_the_same(self):
        names = [(one.name, one.next) for one in RULES]
        assert len(set(names)) == len(names)
