# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Allocate: what is refused and why, what is held when it answers."""

from __future__ import annotations

import json
import os
import stat
from functools import partial

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Key, hold_of
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import AllocateFailed
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.delivery import Delivery
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.held_elsewhere import read_ledger, taken
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled, render_disabled
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.plugins.module_utils.spec.same_nodes import SameNodes
from ansible_collections.fleet.cdi.plugins.module_utils.system.device_nodes import Numbers
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.device_plugin.units import NAME, Host

EXPANDED = Delivery(False, False, True)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def names(response):
    return [one.name for one in response.cdi_devices]


class TestAnswer:
    """What a container gets."""

    def test_names_in_one_order_and_holds(self, host):
        assert names(host.allocate("2", "0")) == ["vendor.com/gpu=0", "vendor.com/gpu=2"]
        assert [host.state_of(unit) for unit in "0123"] == ["active", "free", "active", "free"]
        assert host.part("0").owner == "kubernetes"
        assert host.part("0").holds[0].device == "node:/dev/gpu0"

    def test_spelled_out_with_what_all_of_the_kind_share(self, host):
        response = host.allocate("1", "0", ways=EXPANDED)
        assert [one.host_path for one in response.devices] == ["/dev/gpu0", "/dev/gpu1"]
        assert dict(response.envs) == {"GPU": "1"}
        assert not response.cdi_devices and not response.annotations

    @pytest.mark.parametrize("path", ["//dev/gpu0", "/dev/../dev/gpu0"])
    def test_spelled_out_however_its_path_is_written(self, host, path):
        host.write({"0": path})
        assert [one.host_path for one in host.allocate("0", ways=EXPANDED).devices] == [path]

    def test_replicas_of_one_device_have_one_hold_and_one_name(self, tmp_path):
        host = Host(tmp_path, 2, replicas=3)
        assert names(host.allocate("0::2", "0::0")) == ["vendor.com/gpu=0"]
        token = host.part("0").token
        assert names(host.allocate("0::1")) == ["vendor.com/gpu=0"]
        assert host.part("0").token != token  # so that who released the older does not free it

    def test_a_group_gives_all_its_members(self, tmp_path):
        members = {"members": ["vendor.com/gpu=0", "vendor.com/gpu=1"], "optional": ["vendor.com/gpu=9"]}
        host = Host(tmp_path, 3, groups={"pair": members})
        assert names(host.allocate("pair")) == ["vendor.com/gpu=0", "vendor.com/gpu=1"]
        held = set(host.part("pair").holds[0].locks())
        assert {"node:/dev/gpu0", "node:/dev/gpu1"} <= held

    def test_again_without_notice(self, host):
        """F9: the kubelet hands an ID out again as soon as its pod is gone."""
        host.allocate("0")
        first = host.part("0").token
        host.allocate("0", "1")
        assert host.part("0").token != first


class TestAbandoned:
    """A call that the kubelet was refused in the end, or that it ended: the next pod may have the device by now."""

    @pytest.mark.parametrize("command", [[], ["/bin/false"]], ids=["at once", "with commands"])
    def test_what_comes_too_late_takes_nothing_from_the_next(self, tmp_path, command):
        host = Host(tmp_path)
        host.allocate("0")
        token = host.part("0").token
        host.resource = host.resource._replace(settings=host.resource.settings._replace(teardown=tuple(command)))
        late = partial(host.allocator.allocate, host.resource, ["0", "1"], host.registry, EXPANDED)
        with pytest.raises(AllocateFailed, match="nobody waits"):
            late(abandoned=lambda: True)
        assert [host.state_of(unit) for unit in "01"] == ["active", "free"]
        assert host.part("0").token == token

    def test_what_is_given_up_while_a_setup_runs_is_undone(self, tmp_path, say):
        """It would stay held for as long as a kubelet may take to list it."""
        host = Host(tmp_path, setup=say, teardown=say)
        with pytest.raises(AllocateFailed, match="nobody waits"):
            host.allocator.allocate(host.resource, ["0"], host.registry, EXPANDED, abandoned=lambda: bool(host.ran()))
        assert host.state_of("0") == "free"
        assert host.ran() == ["ADD 0", "DEL 0"]

    def test_a_start_of_a_container(self, host):
        with pytest.raises(AllocateFailed, match="nobody waits"):
            host.allocator.start(host.resource, ["0"], lambda: True)
        assert host.state_of("0") == "free"


def test_a_claim_of_a_dra_driver_that_no_look_has_seen_yet(host):
    """The ledger does not know it, so an Allocate of the same moment looks at the spec that the driver has written."""
    uid = "55e9a6b0-0c0f-4f0e-8a44-0a1b2c3d4e5f"
    document = spec({f"{uid}-gpu-1": nodes("/dev/control", "/dev/gpu1")}, "k8s.gpu.vendor.com/gpu")
    (host.specs / f"k8s.gpu.vendor.com-gpu_{uid}.json").write_text(json.dumps(document))
    why = f"taken: claim uid:{uid} of DRA driver gpu.vendor.com has /dev/gpu1"
    assert host.refused("0", "1")[1] == {"1": why}
    assert names(host.allocate("0")) == ["vendor.com/gpu=0"]


def test_a_claim_that_came_and_can_not_be_read_may_have_the_device(host):
    """A disk error at the spec of a claim: the container got the device of the claim (world, seed 15 of a control)."""
    path = host.specs / "k8s.gpu.vendor.com-gpu_55e9a6b0-0c0f-4f0e-8a44-0a1b2c3d4e5f.json"
    path.write_text("{")
    why, troubles = host.refused("0")
    assert str(path) in why and "what this claim of a DRA driver has is not known" in why and troubles == {}
    host.registry = registry.load(host.registry.directories)  # the next look reports it
    assert names(host.allocate("0")) == ["vendor.com/gpu=0"]


def test_a_claim_that_could_not_be_read_and_can_be_is_no_reason(host):
    path = host.specs / "k8s.gpu.vendor.com-gpu_55e9a6b0-0c0f-4f0e-8a44-0a1b2c3d4e5f.json"
    path.write_text("{")
    host.registry = registry.load(host.registry.directories)
    path.write_text(json.dumps(spec({"x": nodes("/dev/gpu1")}, "k8s.gpu.vendor.com/gpu")))
    assert list(host.refused("0", "1")[1]) == ["1"]
    assert names(host.allocate("0")) == ["vendor.com/gpu=0"]


class TestRefused:
    """F8: IDs that can't be asked for."""

    @pytest.mark.parametrize(
        ("ids", "text"),
        [
            ((), "vendor.com/gpu: found no device; expected one or more"),
            (("9",), "found the device '9'; expected one that this resource has now (0, 1, 2, 3)"),
            (("0", "other.com/nic=1"), "found the device 'other.com/nic=1'"),
            (("0::0",), "found the device '0::0'"),
            (("",), "found the device ''"),
            (("0\n",), "found the device '0\\n'"),
            (("0", "1", "0"), "found the device '0' twice; expected each once"),
        ],
    )
    def test_unknown_foreign_duplicate(self, host, ids, text):
        said, troubles = host.refused(*ids)
        assert text in said
        assert troubles == {}  # nothing is wrong with any unit
        assert not host.ledger.grants()

    def test_replicas_that_there_are_not(self, tmp_path):
        host = Host(tmp_path, 1, replicas=2)
        assert "'0::2'" in host.refused("0::2")[0]
        assert "'0'; expected one that this resource has now (0::0, 0::1)" in host.refused("0")[0]

    @pytest.mark.parametrize("name", ["0::1", "0"], ids=["by device ID", "by unit"])
    def test_unhealthy(self, tmp_path, name):
        host = Host(tmp_path, 1, replicas=2)
        assert host.refused("0::1", unhealthy={name: "device: too hot"})[1] == {"0": "device: too hot"}
        assert not host.ledger.grants()

    def test_many_devices_are_not_all_listed(self, tmp_path):
        host = Host(tmp_path, 3, replicas=4)
        assert "(0::0, 0::1, 1::0, 1::1, 2::0 and 7 more)" in host.refused("x")[0]


class TestLook:
    """What is checked before the answer."""

    def test_a_node_that_is_gone(self, host):
        host.unplug(1)
        said, troubles = host.refused("0", "1")
        assert list(troubles) == ["1"]
        assert troubles["1"].startswith("node-missing: ")
        assert "/dev/gpu1" in said
        assert not host.ledger.grants()

    def test_what_an_operator_has_just_taken_out_of_service(self, host):
        """No look has seen it yet."""
        out = {host.resource.units[1].device.id: Disabled("it smells", "2026-01-01T00:00:00Z")}
        host.state.mkdir()
        (host.state / "device-state.json").write_bytes(render_disabled(out))
        assert host.refused("0", "1")[1] == {
            "1": "reserved: out of service since 2026-01-01T00:00:00Z, until it is enabled: it smells"
        }
        (host.state / "device-state.json").write_text("{")
        host.allocate("0")

    def test_what_the_settings_ignore(self, tmp_path):
        """The kubelet is told that the device is Healthy, so it has to be had."""
        host = Host(tmp_path, health={"ignore": ["library-missing"]}, setup=["/bin/true"])
        hurt = {"mounts": [{"hostPath": "/usr/lib/libx.so.1", "containerPath": "/libx.so.1"}]}
        host.write({"0": "/dev/gpu0"}, hurt)
        host.allocate("0")
        host.unplug(0)
        assert host.refused("0")[1]["0"].startswith("node-missing")

    def test_a_name_that_no_spec_has_any_more(self, host):
        """KEP-4009's known failure: nobody has looked since, and the runtime would find out."""
        host.replace({"0": "/dev/gpu0"})
        assert host.refused("0", "1")[1] == {"1": "unresolved: no spec gives vendor.com/gpu=1 any more, or several do"}
        host.allocate("0")

    def test_a_spec_that_is_gone_or_broken(self, host):
        (host.specs / "gpu.json").write_text("{")
        assert list(host.refused("0")[1]) == ["0"]
        (host.specs / "gpu.json").unlink()
        assert list(host.refused("0")[1]) == ["0"]

    def test_a_second_spec_with_the_same_name(self, host):
        host.replace({"0": "/dev/gpu3"}, name="other.json")
        assert list(host.refused("0")[1]) == ["0"]
        host.allocate("1")

    def test_a_name_that_means_another_device_now(self, host):
        """It would not be the one that is held."""
        host.replace({"0": "/dev/gpu1", "1": "/dev/gpu0", "2": "/dev/gpu2"})
        assert host.refused("0")[1] == {"0": "unresolved: vendor.com/gpu=0 gives other device nodes than a moment ago"}
        assert names(host.allocate("2")) == ["vendor.com/gpu=2"]

    def test_a_path_that_leads_to_another_device_now(self, host):
        """Specs and inventory are as they were; since the last look another process changed what is at the path."""
        seen = {"/dev/gpu0": Numbers("c", 1, 4), "/dev/gpu1": None, "/dev/gpu2": Numbers("c", 1, 5)}
        host.registry = host.registry._replace(same=SameNodes(seen=seen))
        why = "unresolved: {} is not the device of a moment ago"
        assert host.refused("0", "1", "2")[1] == {"0": why.format("/dev/gpu0"), "1": why.format("/dev/gpu1")}
        host.allocate("2", "3")

    @pytest.mark.parametrize("node", [{"path": "/dev/second"}, {"path": "/dev/x", "type": "c", "major": 1, "minor": 3}])
    def test_a_claim_that_came_since_the_last_look_has_it_under_another_path(self, host, node):
        os.mknod(host.root / "dev/second", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        uid = "3b0e3f4c-8ed5-4b0a-9d2a-6f3a1c2d4e5f"
        made = spec({"x": {"deviceNodes": [node]}}, "k8s.gpu.nvidia.com/claim")
        (host.specs / f"k8s.gpu.nvidia.com-claim_{uid}.json").write_text(json.dumps(made))
        said = f"taken: claim uid:{uid} of DRA driver gpu.nvidia.com has /dev/gpu0"
        assert host.refused("0", "1")[1] == {"0": said}
        host.allocate("1")

    def test_edits_of_the_new_spec_are_those_that_count(self, host):
        host.replace({str(index): f"/dev/gpu{index}" for index in range(4)}, {"env": ["GPU=2"]})
        assert dict(host.allocate("0", ways=EXPANDED).envs) == {"GPU": "2"}

    def test_nothing_of_it_can_be_given_without_cdi(self, tmp_path):
        """What comes with all of its kind is not the device."""
        host = Host(tmp_path)
        (host.root / "sys/class/net/eth1").mkdir(parents=True)
        edits = {"a": {"netDevices": [{"hostInterfaceName": "eth1", "name": "eth1"}]}}
        host.write({}, {"env": ["NIC=1"], "deviceNodes": [{"path": "/dev/gpu0"}]}, more=edits)
        said, _troubles = host.refused("a", ways=EXPANDED)
        assert "a: a container gets nothing of it" in said and "netDevices can't be given without" in said
        assert not host.ledger.grants()
        assert names(host.allocate("a")) == ["vendor.com/gpu=a"]


class TestTaken:
    """The ledger is the only arbiter."""

    def external(self, host, index):
        device = host.resource.units[index].device
        host.ledger.set_owners(NAME, ["kubernetes", "claims"])
        host.ledger.add(Key("gpu", "drm", "job-42"), {"gpu": 1}, lambda _held: [hold_of(device)], "claims")

    def test_what_others_hold(self, host):
        self.external(host, 1)
        said, troubles = host.refused("0", "1", "2")
        assert troubles == {"1": "taken: node:/dev/gpu1: request job-42 of gpu/drm (claims) holds node:/dev/gpu1"}
        assert "vendor.com/gpu: 1: taken" in said
        assert [host.state_of(unit) for unit in "012"] == ["free"] * 3

    def test_what_the_kubelet_is_told_of_before(self, host):
        """Each unit that Allocate would refuse is in trouble, and no other."""
        self.external(host, 1)
        host.allocate("0")
        assert taken(host.resource, read_ledger(host.ledger)) == {
            "1": "taken: request job-42 of gpu/drm (claims) holds node:/dev/gpu1"
        }

    def test_a_store_that_can_not_be_used(self, host):
        (host.state).mkdir(mode=0o777)
        os.chmod(host.state, 0o777)
        said, troubles = host.refused("0")
        assert "that nobody else can write to" in said
        assert troubles == {}
