# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PreStartContainer: what is not set up in this boot is, and what a failure leaves behind."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import settle
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import INTERRUPTED
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import AllocateFailed
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.reclaim import Reclaimer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.podresources import InUse
from ansible_collections.fleet.cdi.tests.unit.builders import program
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.units import NAME, Host


class TestStart:
    """PreStartContainer: at each start of a container, restarts too."""

    @pytest.fixture
    def host(self, tmp_path, say):
        return Host(tmp_path, setup=say, teardown=say)

    def test_a_restart_changes_nothing(self, host):
        host.allocate("0")
        part = host.part("0")
        host.allocator.start(host.resource, ["0"])
        assert host.ran() == ["ADD 0"]
        assert host.part("0") == part

    def test_after_a_reboot_the_same_holder_is_set_up_again(self, host):
        host.allocate("0", "1")
        host.log.unlink()
        host.reboot("boot-2")
        host.allocator.start(host.resource, ["0", "1"])
        host.allocator.start(host.resource, ["0", "1"])
        assert host.ran() == ["ADD 0", "ADD 1"]
        assert (host.part("0").boot_id, host.state_of("0")) == ("boot-2", "active")

    def test_also_where_it_was_seen_in_use_before(self, host):
        """podresources shows the pod before its container starts."""
        host.allocate("0")
        host.log.unlink()
        host.reboot("boot-2")
        shown = InUse(1, frozenset({(NAME, "0")}))
        reclaimer = Reclaimer(host.ledger, 30.0, {})
        assert [reclaimer.step([host.resource], shown, now) for now in (0.0, 10.0)] == [[], []]
        host.allocator.start(host.resource, ["0"])
        assert host.ran() == ["ADD 0"]

    def test_also_where_the_store_is_gone_with_the_boot_and_it_was_seen_in_use_before(self, tmp_path, say):
        host = Host(tmp_path, setup=say, pre_start=True)
        shown = InUse(1, frozenset({(NAME, "0")}))
        Reclaimer(host.ledger, 30.0, {}).step([host.resource], shown, 0.0)
        assert host.state_of("0") == "active"
        host.allocator.start(host.resource, ["0"])
        assert host.ran() == ["ADD 0"]

    def test_without_a_hold(self, host):
        host.allocator.start(host.resource, ["2"])
        assert host.ran() == ["ADD 2"]
        assert host.state_of("2") == "active"

    def test_an_unhealthy_device_is_no_reason_to_stop_its_container(self, host):
        host.allocate("0")
        host.unplug(0)
        host.allocator.start(host.resource, ["0"])

    def test_what_fails_stops_the_container(self, host, trusted):
        host.allocate("0")
        host.reboot("boot-2")
        fails = program(trusted, "fails", "exit 1")
        host.resource = host.resource._replace(settings=host.resource.settings._replace(setup=tuple(fails)))
        with pytest.raises(AllocateFailed) as refused:
            host.allocator.start(host.resource, ["0"])
        assert list(refused.value.troubles) == ["0"]
        assert host.state_of("0") == "withheld"

    def test_what_fails_costs_the_container_none_of_its_other_devices(self, host, trusted):
        """The kubelet tries again, and has given them to nobody else."""
        host.allocate("0", "1")
        host.reboot("boot-2")
        ready = host.resource
        fails = program(trusted, "fails", "test $CDI_REQUEST_ID != 1")
        host.resource = ready._replace(settings=ready.settings._replace(setup=tuple(fails)))
        with pytest.raises(AllocateFailed, match="setup: "):
            host.allocator.start(host.resource, ["0", "1"])
        assert [host.state_of(unit) for unit in "01"] == ["pending", "withheld"]
        host.ledger.release(ready.units[1].device.id)
        host.log.unlink()
        host.allocator.start(ready, ["0", "1"])
        assert (host.ran(), host.state_of("0"), host.state_of("1")) == (["ADD 0", "ADD 1"], "active", "active")

    @pytest.mark.parametrize(("why", "refused"), [("scrub failed", True), (INTERRUPTED, False)])
    def test_what_is_not_all_there(self, host, why, refused):
        """A hold of this boot, which is no container's as it is."""
        host.allocate("0")
        settle(host.ledger, NAME, {"0": host.part("0").token}, withheld={"0": why})
        host.log.unlink()
        if refused:
            with pytest.raises(AllocateFailed, match="scrub failed"):
                host.allocator.start(host.resource, ["0"])
            assert host.state_of("0") == "withheld"
        else:
            host.allocator.start(host.resource, ["0"])
            assert (host.ran(), host.state_of("0")) == (["ADD 0"], "active")

    def test_unknown(self, host):
        with pytest.raises(AllocateFailed, match="found the device '9'"):
            host.allocator.start(host.resource, ["9"])

    def test_a_shared_device_in_use_since_a_reboot_is_set_up_for_the_next_replica(self, tmp_path, say):
        """Nobody calls before the start of a container unless `pre_start` says so."""
        host = Host(tmp_path, replicas=2, setup=say, teardown=say)
        host.allocate("0::0")
        host.log.unlink()
        host.reboot("boot-2")
        shown = InUse(1, frozenset({(NAME, "0::0")}))
        Reclaimer(host.ledger, 30.0, {}).step([host.resource], shown, 0.0)
        host.allocate("0::1")
        assert host.ran() == ["ADD 0"]
