# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a node: hot plug, reload, sharing, setup and teardown, other holders, the other gRPC."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from admission import Rejected
from conftest import Start
from host import DEBIAN, Host, command, until
from kubelet import Kubelet

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

RESOURCE = "vendor.com/thing"


def test_hot_plug_and_unplug(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(1)
    host.resource(RESOURCE)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 1)
    host.devices(3)
    assert kubelet.wait_for(RESOURCE, 3)
    host.unplug("thing1")
    assert kubelet.wait_for(RESOURCE, 2)
    assert "thing1" in plugin.said("unhealthy", device="d1")[0]["reason"]
    host.plug("thing1")
    assert kubelet.wait_for(RESOURCE, 3)
    assert plugin.said("healthy", device="d1", before="unhealthy")
    assert len(kubelet.books.seen("Register")) == 1


def test_a_node_becomes_another_device(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(2)
    host.inventory({"d0": None, "d1": None})
    host.resource(RESOURCE)
    plugin = start()
    assert newer.wait_for(RESOURCE, 2)
    host.plug("thing9")
    (host.root / "dev" / "thing9").rename(host.root / "dev" / "thing0")  # in one step: it is never missing
    assert newer.wait_for(RESOURCE, 1)
    assert "minor 9, expected 0" in plugin.said("unhealthy", device="d0")[0]["reason"]


def test_hold_down_of_a_device_that_flaps(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(2)
    host.resource(RESOURCE, health={"hold_down": 3600})
    start()
    assert newer.wait_for(RESOURCE, 2)
    host.unplug("thing0")
    assert newer.wait_for(RESOURCE, 1)
    lists = len(newer.books.seen("list"))
    host.plug("thing0")
    host.unplug("thing0")
    host.plug("thing0")
    host.devices(3)
    assert newer.wait_for(RESOURCE, 2)  # the third, not the one that flaps
    assert newer.books.devices[RESOURCE]["d0"].health == api.UNHEALTHY
    assert len(newer.books.seen("list")) - lists < 4


def test_no_devices_costs_nothing_and_nothing_is_registered(host: Host, newer: Kubelet, start: Start) -> None:
    plugin = start()
    plugin.said("started")
    until(lambda: command(host, "status").returncode == 0)
    assert not newer.books.seen("Register") and not list(host.plugins.glob("fleet-cdi-*"))
    host.devices(1)  # and is seen when it comes
    assert newer.wait_for(RESOURCE, 1)


def test_spec_files_that_go_and_return(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(2)
    host.resource(RESOURCE)
    start()
    assert kubelet.wait_for(RESOURCE, 2)
    spec = host.specs / "vendor.com-thing.json"
    spec.rename(host.base / "away")
    assert kubelet.wait_for(RESOURCE, 0)
    (host.base / "away").rename(spec)
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 2})


def test_the_last_partitions_of_a_profile_are_unhealthy_before_they_go(
    host: Host, newer: Kubelet, start: Start
) -> None:
    small, large = ("vendor.com/mig-1g.5gb", "vendor.com/mig-7g.40gb")
    host.devices(2)
    host.inventory(dict.fromkeys(("d0", "d1")), profile="1g.5gb")
    host.resource("vendor.com/mig-{profile}", kinds=[RESOURCE])
    start()
    assert newer.wait_for(small, 2)
    host.inventory(dict.fromkeys(("d0", "d1")), profile="7g.40gb")
    assert newer.wait_for(large, 2)

    def lists() -> list[Any]:
        return [event.detail for event in newer.books.seen("list", small)]

    assert newer.books.wait(lambda: len(lists()) > 2)
    assert lists() == [*(dict.fromkeys(("d0", "d1"), health) for health in (api.HEALTHY, api.UNHEALTHY)), {}]


def test_reload_without_the_loss_of_a_stream(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(3)
    host.devices(1, "vendor.com/other")
    host.configure(resources={RESOURCE: {}})
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 3)
    host.configure(resources={RESOURCE: {"replicas": 2}, "vendor.com/other": {}})
    plugin.hang_up()
    assert kubelet.wait_for(RESOURCE, 6) and kubelet.wait_for("vendor.com/other", 1)
    host.configure(resources={RESOURCE: {"replicas": 2, "match": {"names": ["d0"]}, "health": {"linger": 1}}})
    plugin.hang_up()
    assert kubelet.wait_for(RESOURCE, 2) and kubelet.wait_for("vendor.com/other", 0)
    assert len(kubelet.books.seen("Register", RESOURCE)) == 1
    assert not plugin.lines("lost")


def test_replicas_are_spread_fairly(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(2)
    host.resource(RESOURCE, replicas=3)
    start()
    assert newer.wait_for(RESOURCE, 6)
    names = [newer.run(f"p{number}", **{RESOURCE: 1})["cdi_devices"] for number in range(4)]
    assert Counter(map(tuple, names)) == {(f"{RESOURCE}=d0",): 2, (f"{RESOURCE}=d1",): 2}
    assert sorted(newer.run("q", **{RESOURCE: 2})["cdi_devices"]) == [f"{RESOURCE}=d0", f"{RESOURCE}=d1"]


@pytest.mark.parametrize("restarted", [False, True], ids=["reload", "restart"])
def test_replicas_that_pods_have_count_for_another_number(
    host: Host, newer: Kubelet, start: Start, restarted: bool
) -> None:
    host.devices(1)
    host.resource(RESOURCE, replicas=4)
    plugin = start()
    assert newer.wait_for(RESOURCE, 4)
    for number in range(4):
        newer.run(f"p{number}", **{RESOURCE: 1})
    ends = {one: pod for pod in ("p0", "p1", "p2", "p3") for one in newer.holds(pod)[RESOURCE]}
    for replica in ("d0::0", "d0::1"):
        newer.delete(ends[replica])
    lists = len(newer.books.seen("list", RESOURCE))
    if restarted:
        plugin.stop()
    host.resource(RESOURCE, replicas=2)
    if restarted:
        start()
    else:
        plugin.hang_up()
    until(lambda: len(newer.books.seen("list", RESOURCE)) > lists)
    assert newer.wait_for(RESOURCE, 0)
    newer.delete(ends["d0::3"])
    assert newer.wait_for(RESOURCE, 1)
    said = [event.detail for event in newer.books.seen("list", RESOURCE)[lists:]]
    assert [sum(health == api.HEALTHY for health in one.values()) for one in said] == [0, 1]
    newer.run("q", **{RESOURCE: 1})
    with pytest.raises(Rejected):
        newer.run("r", **{RESOURCE: 1})


def test_setup_and_teardown_when_the_holder_changes(host: Host, newer: Kubelet, start: Start) -> None:
    log = host.base / "commands"
    host.devices(1)
    host.resource(
        RESOURCE, setup=["/bin/sh", "-c", f"echo setup >> {log}"], teardown=["/bin/sh", "-c", f"echo teardown >> {log}"]
    )
    start()
    assert newer.wait_for(RESOURCE, 1)
    newer.run("bystander")  # where no pod at all is listed the plugin waits ten times as long
    newer.run("p", **{RESOURCE: 1})
    newer.restart_container("p")
    assert log.read_text().split() == ["setup"]  # not at a container's restart
    newer.delete("p")
    until(lambda: log.read_text().split() == ["setup", "teardown"])
    newer.run("q", **{RESOURCE: 1})
    newer.delete("q")
    newer.run("r", **{RESOURCE: 1})  # without notice: the old holder's teardown comes first
    newer.restart()  # and not at a kubelet's
    assert newer.wait_for(RESOURCE, 1)
    assert log.read_text().split() == ["setup", "teardown", "setup", "teardown", "setup"]


@pytest.mark.parametrize("bad", [["/bin/false"], ["/bin/sleep", "60"]], ids=["fails", "hangs"])
def test_a_setup_that_fails_makes_the_device_unhealthy(
    host: Host, newer: Kubelet, start: Start, bad: list[str]
) -> None:
    host.devices(1)
    host.resource(RESOURCE, setup=bad, time_limit=0.5, health={"hold_down": 3600})
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    with pytest.raises(Rejected, match="setup"):
        newer.run("p", **{RESOURCE: 1})
    assert newer.wait_for(RESOURCE, 0)
    assert plugin.said("unhealthy", device="d0")[0]["reason"].startswith("setup: ")


def test_devices_that_others_hold_are_unhealthy_until_they_give_them_back(
    host: Host, newer: Kubelet, start: Start
) -> None:
    """The ledger is the only arbiter: here another resource of the same hardware takes it."""
    host.plug("thing0", "thing1")
    host.spec(RESOURCE, {"d0": ["thing0"], "d1": ["thing1"]}, file="a.json")
    host.spec("vendor.com/alias", {"x0": ["thing0"]}, file="b.json")
    start()
    assert newer.wait_for(RESOURCE, 2) and newer.wait_for("vendor.com/alias", 1)
    newer.run("p", **{"vendor.com/alias": 1})
    assert newer.wait_for(RESOURCE, 1)
    assert newer.books.devices[RESOURCE]["d0"].health == api.UNHEALTHY
    newer.run("q", **{RESOURCE: 1})
    assert newer.holds("q") == {RESOURCE: {"d1"}}
    newer.delete("p")
    assert newer.wait_for(RESOURCE, 2)


def test_metrics(host: Host, newer: Kubelet, start: Start) -> None:
    import socket
    import urllib.request

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    host.devices(2)
    host.unplug("thing1")
    host.configure(metrics=f"127.0.0.1:{port}")
    start()
    assert newer.wait_for(RESOURCE, 1)
    newer.run("p", **{RESOURCE: 1})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    lines = [line for line in text.splitlines() if RESOURCE in line]
    for word in ("allocations_total", "registrations_total", "allocate_seconds"):
        assert any(word in line for line in lines), text


@pytest.mark.counterpart("python3-grpcio")
def test_the_distributions_python_and_grpc(host: Host, kubelet: Kubelet, start: Start) -> None:
    """All of the contract once, with grpcio and protobuf as Debian has them."""
    host.devices(3)
    host.resource(RESOURCE, pre_start=True)
    plugin = start(python=DEBIAN)
    assert kubelet.wait_for(RESOURCE, 3)
    told = kubelet.run("p", **{RESOURCE: 2})
    assert len(told["annotations"]) == 1 and kubelet.books.seen("PreStartContainer")
    host.unplug("thing2")
    assert kubelet.wait_for(RESOURCE, 2)
    host.plug("thing2")
    assert kubelet.wait_for(RESOURCE, 3)
    kubelet.drop(RESOURCE)
    assert kubelet.books.wait(lambda: len(kubelet.books.seen("ListAndWatch")) == 2)
    kubelet.restart()
    assert kubelet.wait_for(RESOURCE, 3)
    with pytest.raises(Rejected):
        kubelet.run("q", **{RESOURCE: 2})

    def registered() -> bool:
        document = json.loads(command(host, "status", "--json", python=DEBIAN).stdout)
        return bool(document["instances"][0]["resources"][RESOURCE]["state"] == "registered")

    assert until(registered)
    assert plugin.stop() == 0
    assert kubelet.wait_for(RESOURCE, 0)


@pytest.mark.counterpart("python3-grpcio")
def test_the_distributions_grpc_found_by_the_watcher(host: Host, newer: Kubelet, start: Start) -> None:
    host.configure(registration="watcher")
    host.devices(2)
    start(python=DEBIAN)
    assert newer.wait_for(RESOURCE, 2)
    newer.drop(RESOURCE)
    assert newer.books.wait(lambda: len(newer.books.seen("GetInfo")) == 2)
    assert newer.wait_for(RESOURCE, 2)
    newer.run("p", **{RESOURCE: 1})
    newer.restart()
    assert newer.wait_for(RESOURCE, 2)
