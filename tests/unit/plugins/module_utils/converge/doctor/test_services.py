# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor in the units that fleet.cdi installs."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import (
    told,
)

UNIT = "fleet-cdi-refresh.timer"
WELL = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", "NeedDaemonReload": "no"}


class TestUnits:
    def test_units_that_are_well(self, host):
        assert host.diagnose(units={UNIT: WELL}) == ()

    @pytest.mark.parametrize(
        ("state", "rules"),
        [
            ({"LoadState": "masked", "ActiveState": "inactive", "UnitFileState": "masked"}, ["unit-masked"]),
            ({"LoadState": "not-found", "ActiveState": "inactive"}, ["unit-unknown"]),
            ({"LoadState": "error"}, ["unit-unknown"]),
            ({"ActiveState": "failed", "Result": "exit-code"}, ["unit-failed"]),
            ({"NeedDaemonReload": "yes"}, ["unit-outdated"]),
            ({"UnitFileState": "disabled"}, ["unit-disabled"]),
            ({"ActiveState": "inactive"}, ["unit-stopped"]),
        ],
    )
    def test_what_systemd_says(self, host, state, rules):
        assert told(host.diagnose(units={UNIT: {**WELL, **state}})) == [(name, UNIT) for name in rules]

    @pytest.mark.parametrize("b", [{"ActiveState": "inactive", "UnitFileState": "disabled"}, {}])
    def test_of_the_device_plugin_one_instance_is_enough(self, host, b):
        units = {"fleet-cdi-device-plugin@a.service": WELL, "fleet-cdi-device-plugin@b.service": {**WELL, **b}}
        assert host.diagnose(units=units) == ()

    def test_a_device_plugin_of_which_nothing_runs(self, host):
        off = {**WELL, "ActiveState": "inactive", "UnitFileState": "disabled"}
        units = {f"fleet-cdi-device-plugin@{name}.service": off for name in "ab"}
        assert told(host.diagnose(units=units)) == [("unit-disabled", "fleet-cdi-device-plugin@a.service")]

    @pytest.mark.parametrize(
        ("state", "rule_name"),
        [({"UnitFileState": "disabled"}, "unit-disabled"), ({"ActiveState": "inactive"}, "unit-stopped")],
    )
    def test_the_socket_of_who_looks_at_processes(self, host, state, rule_name):
        unit = "fleet-cdi-openers.socket"
        assert told(host.diagnose(units={unit: {**WELL, **state}})) == [(rule_name, unit)]
