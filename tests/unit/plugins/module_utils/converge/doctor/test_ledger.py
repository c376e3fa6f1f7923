# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor in the ledger: grants of hardware that is gone."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import (
    KIND,
    device,
)


class TestLost:
    """Grants of hardware that neither an inventory nor a spec has any more."""

    @pytest.fixture
    def take(self, host):
        ledger = Ledger(str(host.root / "state"), inventory.boot_id())

        def hold(device, resource="acme.com/gpu"):
            pod_holds.take(ledger, resource, [pod_holds.Want(device.id, device)])

        return hold

    @staticmethod
    def found(host):
        return [one for one in host.diagnose() if one.rule == "grant-lost"]

    def test_the_device_and_its_holder_are_named(self, host, take):
        take(device("gone"))
        host.list_devices(device("other"))
        (finding,) = self.found(host)
        assert finding.subject == "id:gone"
        assert "acme.com/gpu" in finding.problem and "no inventory and no spec has it" in finding.problem

    def test_not_what_the_inventory_has_or_what_consists_of_it(self, host, take):
        take(device("there"))
        take(device("group")._replace(consists_of=("id:part",)))
        host.list_devices(device("there"), device("part"))
        assert self.found(host) == []

    def test_a_partition_that_is_gone_from_a_gpu_that_is_there(self, host, take):
        take(device("mig")._replace(part_of=("id:gpu",)))
        host.list_devices(device("gpu"))
        assert [one.subject for one in self.found(host)] == ["id:mig"]

    def test_a_device_that_only_a_spec_had(self, host, take):
        take(Device("node:/dev/x", "", KIND, ("x",), ()))
        take(Device("mount:/x", "", KIND, ("m",), ()))  # of what has no nodes nothing is said
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/x"}])
        assert self.found(host) == []
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/null"}])
        assert [one.subject for one in self.found(host)] == ["node:/dev/x"]

    def test_nothing_is_said_where_it_can_not_be_told(self, host, take):
        take(device("gone"))
        assert self.found(host) == [], "nobody discovered anything in this boot"
        host.list_devices(device("other"), boot_id="another")
        assert self.found(host) == [], "the inventory is of another boot"
        host.list_devices(device("other"))
        (host.root / "etc/bad.json").write_text("{")
        assert self.found(host) == [], "a spec can't be read"
