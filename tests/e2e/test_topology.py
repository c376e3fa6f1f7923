# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The newest kubelet's own device and topology managers, on a host with as many NUMA nodes as a test needs.

Four devices, two at each of two NUMA nodes; nothing else of a kubelet, and no container.
"""

from __future__ import annotations

import itertools
import os
import signal

import kubelets
import pytest
from manager import Manager
from node import Node as Place
from node import wait
from product import ACCEL, Product

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import kubelet_layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node

DEVICES = ("accel0", "accel1", "accel2", "accel3")
LEFT, RIGHT = {"accel0", "accel1"}, {"accel2", "accel3"}
NUMA = {name: 0 if name in LEFT else 1 for name in DEVICES}


@pytest.fixture(scope="module")
def board(nodes):
    """The release on a node that has two NUMA nodes."""
    if os.geteuid() != 0 or not (kubelets.BUILT / kubelets.DRIVER).exists():
        pytest.skip("needs root and the driver of the device manager: `make e2e` builds it, or says why not")
    place = Place(nodes.place / "managers")
    try:
        place.run("mount", "-t", "tmpfs", "tmpfs", "/sys/devices/system/node")
        place.path("/sys/devices/system/node/online").write_text("0-1\n")
        yield Product(place)
    finally:
        place.close()


@pytest.fixture
def host(board):
    """Product and managers; the devices are plugged, the plugin does not run yet."""
    board.configure()
    board.plug(*DEVICES)
    board.describe(*DEVICES)
    where(board, NUMA)
    managers = Manager(board.node)
    yield board, managers
    managers.close()
    board.reset()
    board.node.run("rm", "-rf", kubelet_layout().plugin_dir, kubelet_layout().registry_dir)


def where(product, numa):
    """Have the inventory say at which NUMA node each device is; None: the host doesn't say."""
    devices = tuple(
        Device(
            f"test:{name}", "test", ACCEL, (name,), (Node(f"/dev/{name}", "c", *product.number(name)),), numa_node=node
        )
        for name, node in numa.items()
    )
    written = inventory.render(inventory.Inventory(devices), inventory.boot_id())
    product.node.path("/run/cdi-inventory.json").write_bytes(written)


def serve(host, policy, scope="container"):
    """Start managers and plugin; returns how to ask for a pod: pod(2) -> its devices, or the reason of its refusal."""
    product, managers = host
    managers.start(policy, scope)
    product.start()
    managers.await_allocatable(ACCEL, len(DEVICES))
    count = iter(range(100))

    def pod(*amounts):
        wanted = {f"c{index}": {ACCEL: amount} for index, amount in enumerate(amounts)}
        answer = managers.ask("admit", pod=f"pod-{next(count)}", containers=wanted)
        if not answer["admitted"]:
            return answer["reason"]
        held = [set(answer["devices"][name][ACCEL]) for name in wanted]
        assert [set(answer["cdi"][name]) for name in wanted] == [{f"{ACCEL}={one}" for one in some} for some in held]
        return set().union(*held)

    return pod


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_two_devices_are_of_one_numa_node_under_each_policy(host, policy):
    pod = serve(host, policy)
    first = pod(2)
    assert first in (LEFT, RIGHT)
    assert pod(2) == set(DEVICES) - first
    assert pod(1) in ("UnexpectedAdmissionError", "TopologyAffinityError")


@pytest.mark.parametrize("policy", ["none", "best-effort"])
def test_single_devices_leave_pairs_whole(host, policy):
    """A kubelet without the preference of a plugin takes any two."""
    pod = serve(host, policy)
    assert pod(1) | pod(1) in (LEFT, RIGHT)
    assert pod(2) in (LEFT, RIGHT)


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [("best-effort", ""), ("restricted", ""), ("single-numa-node", "TopologyAffinityError")],
)
def test_three_devices_are_of_two_numa_nodes(host, policy, outcome):
    pod = serve(host, policy)
    found = pod(3)
    assert found == outcome if outcome else len(found) == 3


@pytest.mark.parametrize(("policy", "outcome"), [("best-effort", ""), ("restricted", "TopologyAffinityError")])
def test_a_pair_that_is_left_at_two_numa_nodes(host, policy, outcome):
    pod = serve(host, policy)
    held = [pod(1) for _turn in DEVICES]
    for number in (0, 3):  # one of the first pair, one of the other
        host[1].ask("delete", pod=f"pod-{number}")
    found = pod(2)
    assert found == (outcome or held[0] | held[3])


def test_containers_of_a_pod_come_together_where_the_scope_is_the_pod(host):
    pod = serve(host, "single-numa-node", "pod")
    assert pod(1, 1) in (LEFT, RIGHT)
    assert pod(1, 2) == "TopologyAffinityError"


@pytest.mark.parametrize("node", [None, -1, 7])
@pytest.mark.parametrize("policy", ["restricted", "single-numa-node"])
def test_devices_whose_numa_node_is_not_known_or_not_there_are_admitted(host, policy, node):
    product, _managers = host
    where(product, dict.fromkeys(DEVICES, node))
    pod = serve(host, policy)
    assert len(pod(3)) == 3


def test_pods_keep_their_devices_when_the_managers_start_again(host):
    pod = serve(host, "none")
    first = pod(2)
    _product, managers = host
    managers.ask("stop")
    managers.start()
    managers.await_allocatable(ACCEL, len(DEVICES))
    assert pod(2) == set(DEVICES) - first
    assert pod(1) == "UnexpectedAdmissionError"


def test_a_device_in_use_that_fails_is_told_to_the_pod(host):
    product, managers = host
    product.configure({ACCEL: {"health": {"hold_down": 1}}})
    pod = serve(host, "none")
    held = sorted(pod(2))
    product.unplug(held[0])
    state = wait("an unhealthy device", lambda: (said := managers.ask("state")).get("unhealthy") and said)
    assert state["unhealthy"] == {"pod-0": [held[0]]} and state["updates"] > 0
    assert state["capacity"] == {ACCEL: 4} and held[0] not in state["allocatable"][ACCEL]
    product.plug(held[0])
    managers.await_allocatable(ACCEL, len(DEVICES))
    assert not managers.ask("state").get("unhealthy")


def test_watcher_mode_needs_no_register_and_no_restart(host):
    product, managers = host
    product.configure(registration="watcher")
    managers.start()
    plugin = product.start()
    managers.await_allocatable(ACCEL, len(DEVICES))
    assert not list(product.node.path(kubelet_layout().plugin_dir).glob("fleet-cdi-*"))
    for _turn in range(2):
        managers.ask("stop")
        managers.start()
        managers.await_allocatable(ACCEL, len(DEVICES))
    # A manager that is back within milliseconds finds the socket of before as well, and takes the resource away, by its
    # name, when that one goes.
    pods = (f"pod-{number}" for number in itertools.count())
    wait("an admitted pod", lambda: managers.admit(next(pods), **{ACCEL: 1})["admitted"])
    assert plugin.stop(signal.SIGTERM) == 0
    wait("no resource", lambda: not managers.ask("state").get("allocatable", {}).get(ACCEL))
    assert not list(product.node.path(kubelet_layout().registry_dir).glob("fleet-cdi-*"))
