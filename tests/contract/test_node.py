# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""C26 to C31: topology, what survives crashes and reboots, and being found by the watcher."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from admission import Node, Rejected
from books import CHECKPOINT
from conftest import QUICK, Start, make_kubelet
from host import Host
from kubelet import Kubelet
from personality import NEW

RESOURCE = "vendor.com/thing"


@pytest.mark.parametrize(
    ("numa", "told"),
    [
        ({"d0": 0, "d1": 1}, {"d0": [0], "d1": [1]}),
        ({"d0": -1, "d1": -1}, {"d0": [], "d1": []}),
        ({"d0": 7, "d1": 7}, {"d0": [], "d1": []}),  # which this host doesn't have
        ({"d0": None, "d1": None}, {"d0": [], "d1": []}),
    ],
)
def test_c26_an_empty_topology_instead_of_a_node_that_is_not_there(
    host: Host, newer: Kubelet, start: Start, numa: dict[str, int], told: dict[str, list[int]]
) -> None:
    """Pods of either would be rejected with TopologyAffinityError, see test_fake.py."""
    host.numa_nodes("0-1")
    host.devices(2)
    host.inventory(numa)
    newer.node = Node("single-numa-node", (0, 1))
    newer.restart()
    start()
    assert newer.wait_for(RESOURCE, 2)
    devices = newer.books.endpoints[RESOURCE].last.devices
    assert {device.ID: [node.ID for node in device.topology.nodes] for device in devices} == told
    newer.run("p", **{RESOURCE: 1})
    if not any(told.values()):
        newer.delete("p")
        newer.run("q", **{RESOURCE: 2})


def test_c27_the_preference_weighs_what_the_hint_does_not(host: Host, newer: Kubelet, start: Start) -> None:
    """Two of a pair's four are left on each node; the kubelet's hint takes whichever, the plugin what stays whole."""
    host.numa_nodes("0-1")
    host.devices(4)
    host.inventory({"d0": 0, "d1": 0, "d2": 1, "d3": 1})
    start()
    assert newer.wait_for(RESOURCE, 4)
    newer.run("p", **{RESOURCE: 1})
    newer.run("q", **{RESOURCE: 1})
    ones = newer.holds("p")[RESOURCE] | newer.holds("q")[RESOURCE]
    assert ones in ({"d0", "d1"}, {"d2", "d3"})  # the second single takes the rest of the broken pair
    newer.run("r", **{RESOURCE: 2})
    assert len(newer.books.seen("GetPreferredAllocation")) == 3


def test_c28_the_answer_in_the_checkpoint_needs_no_plugin(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(2)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    told = kubelet.run("p", **{RESOURCE: 2})
    assert json.loads((host.plugins / CHECKPOINT).read_text())["Data"]["PodDeviceEntries"]
    plugin.kill()
    kubelet.restart()
    assert kubelet.restart_container("p") == told
    start()
    assert kubelet.wait_for(RESOURCE, 2)
    with pytest.raises(Rejected):
        kubelet.run("q", **{RESOURCE: 1})


def test_c28_a_lost_checkpoint(host: Host, kubelet: Kubelet, start: Start) -> None:
    """The kubelet forgets who has what, and hands devices out anew; the plugin serves on."""
    host.devices(1)
    start()
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.run("p", **{RESOURCE: 1})
    kubelet.stop()
    (host.plugins / CHECKPOINT).write_text("{")
    (host.plugins / CHECKPOINT).unlink()
    kubelet.pods.clear()
    kubelet.start()
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.run("q", **{RESOURCE: 1})


def test_c29_a_pod_before_the_first_registration_has_no_device(host: Host, kubelet: Kubelet, start: Start) -> None:
    """It starts without, silently: nobody can prevent that but a plugin that is there first. It holds nothing later."""
    assert not any(kubelet.run("early", **{RESOURCE: 1}).values())
    host.devices(1)
    start()
    assert kubelet.wait_for(RESOURCE, 1)
    assert kubelet.run("p", **{RESOURCE: 1})["annotations"]
    assert kubelet.holds("early") == {}


def test_c30_after_a_reboot_it_is_there_when_kubelet_sock_is(host: Host, short: Path, start: Start) -> None:
    """Started before the kubelet, it registers once kubelet.sock appears; the pods of before get their devices back."""
    kubelet = make_kubelet(short, NEW._replace(wipe_after=QUICK))
    kubelet.start()
    host.devices(2)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 1})
    held = kubelet.holds("p")
    plugin.kill()
    kubelet.stop()
    for path in (host.base / "run").iterdir():  # a tmpfs
        path.unlink()
    plugin = start()
    plugin.said("waiting", resource=RESOURCE)
    kubelet.start()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.admit(kubelet.pods["p"])
    assert kubelet.holds("p") == held
    kubelet.stop()


def watched(host: Host, short: Path) -> Kubelet:
    """A running kubelet and a configuration for being found."""
    kubelet = make_kubelet(short, NEW._replace(wipe_after=QUICK))
    kubelet.start()
    host.configure(registration="watcher")
    return kubelet


def test_c31_the_watcher_finds_it(host: Host, short: Path, start: Start) -> None:
    kubelet = watched(host, short)
    host.devices(2)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    (socket,) = host.registry.iterdir()
    assert not socket.name.startswith(".")
    assert not [path for path in host.plugins.iterdir() if path.name.startswith("fleet-cdi-")]
    assert not kubelet.books.seen("Register")  # never both for one resource
    assert not kubelet.books.seen("watcher")  # GetInfo in time, the first time
    kubelet.run("p", **{RESOURCE: 1})
    for _restart in range(2):
        kubelet.restart()
        assert kubelet.wait_for(RESOURCE, 2)
    assert plugin.runs
    plugin.stop()
    assert kubelet.wait_for(RESOURCE, 0)
    assert not list(host.registry.iterdir())
    kubelet.stop()


def test_c31_a_dropped_stream_needs_a_new_socket(host: Host, short: Path, start: Start) -> None:
    kubelet = watched(host, short)
    host.devices(2)
    start()
    assert kubelet.wait_for(RESOURCE, 2)
    before = {path.name for path in host.registry.iterdir()}
    kubelet.drop(RESOURCE)
    assert kubelet.books.wait(lambda: len(kubelet.books.seen("GetInfo")) == 2)
    assert kubelet.wait_for(RESOURCE, 2)
    assert before.isdisjoint(path.name for path in host.registry.iterdir())
    kubelet.stop()


def test_c31_its_socket_is_unlinked(host: Host, short: Path, start: Start) -> None:
    kubelet = watched(host, short)
    host.devices(1)
    start()
    assert kubelet.wait_for(RESOURCE, 1)
    for path in host.registry.iterdir():
        path.unlink()
    assert kubelet.books.wait(lambda: kubelet.books.seen("DeRegister"))
    assert kubelet.books.wait(lambda: len(kubelet.books.seen("list")) > 1)
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.stop()


def test_c31_what_the_kubelet_says_of_a_failure_is_heard(
    host: Host, short: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("legal.is_extended", lambda name: name != RESOURCE)
    kubelet = watched(host, short)
    host.devices(1)
    host.devices(2, "vendor.com/other")
    plugin = start()
    assert kubelet.wait_for("vendor.com/other", 2)
    assert "invalid" in plugin.said("refused", resource=RESOURCE)[0]["reason"]
    kubelet.stop()


def test_c31_auto_registers_where_it_can_and_is_never_there_twice(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(1)
    start()
    assert newer.wait_for(RESOURCE, 1)
    assert newer.books.seen("Register") and not newer.books.seen("GetInfo")
    assert not list(host.registry.iterdir())


def test_c31_auto_is_found_where_there_is_no_kubelet_sock(host: Host, newer: Kubelet, start: Start) -> None:
    newer.front.close(unlink=True)
    host.devices(1)
    start()
    assert newer.wait_for(RESOURCE, 1)
    assert newer.books.seen("GetInfo") and not newer.books.seen("Register")
