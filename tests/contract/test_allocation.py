# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""C19 to C25, F8 to F11: who gets what, and what containers are told."""

from __future__ import annotations

import re
import signal
import threading
import time
from typing import Optional

import grpc
import pytest
from admission import Node, Pod, Rejected
from conftest import Start
from endpoint import Endpoint
from host import PATIENCE, Host, command, until
from kubelet import Kubelet
from personality import Personality

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health import held_elsewhere
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory

RESOURCE = "vendor.com/thing"
OTHER = "vendor.com/other"


def held(host: Host) -> set[str]:
    """What the ledger says that pods hold, as unit ids."""
    grants = held_elsewhere.read_ledger(Ledger(str(host.base / "state"), inventory.boot_id())).grants
    return {grant.key.request_id for grant in grants}


def asked(kubelet: Kubelet, resource: str = RESOURCE) -> Endpoint:
    """Its endpoint, to ask what no kubelet would."""
    return kubelet.books.endpoints[resource]


def test_c19_the_kubelet_follows_the_preference_within_what_is_aligned(
    host: Host, kubelet: Kubelet, start: Start
) -> None:
    host.numa_nodes("0-1")
    host.devices(4)
    host.inventory({"d0": 0, "d1": 0, "d2": 1, "d3": 1})
    kubelet.node = Node("best-effort", (0, 1))
    kubelet.restart()
    start()
    assert kubelet.wait_for(RESOURCE, 4)
    kubelet.run("p", **{RESOURCE: 1})
    available, _must, size, preferred = kubelet.books.seen("GetPreferredAllocation")[0].detail
    assert len(available) == 2 and size == 1
    assert kubelet.holds("p")[RESOURCE] == set(preferred) <= set(available)
    kubelet.run("q", **{RESOURCE: 2})  # the other node's, not one of each
    assert kubelet.holds("q")[RESOURCE] in ({"d0", "d1"}, {"d2", "d3"})


# Available, to be included, how many; how many are answered (None: whatever there is).
PREFERENCES: list[tuple[list[str], list[str], int, Optional[int]]] = [
    (["d0", "d1", "d2"], [], 2, 2),
    (["d0", "d1", "d2"], ["d2"], 2, 2),
    (["d0", "d1", "d2"], ["d0", "d1", "d2"], 3, 3),
    (["d0", "nobody"], [], 1, 1),
    (["nobody", "either"], [], 1, None),
    (["d0"], [], 3, None),
    ([], [], 1, 0),
    (["d0", "d1"], ["nobody"], 2, None),
    (["d0"], [], 0, 0),
    (["d0"], [], -1, 0),
    (["d0", "d0", "d1"], [], 2, 2),
]


def test_c20_a_preference_is_always_answered(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(3)
    start()
    assert newer.wait_for(RESOURCE, 3)
    for available, must, size, count in PREFERENCES:
        found = asked(newer).prefer(available, must, size)
        case = (available, must, size, found)
        first = [one for one in must if one != "nobody"]
        assert set(found) <= {*available, *must} and len(set(found)) == len(found), case
        assert found[: len(first)] == first, case
        assert count is None or len(found) == count, case


def test_c21_allocate_once_and_the_answer_is_kept(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(4)
    start()
    assert kubelet.wait_for(RESOURCE, 4)
    told = kubelet.admit(Pod("p", {"one": {RESOURCE: 1}, "two": {RESOURCE: 2}}))
    assert len(kubelet.books.seen("Allocate")) == 2  # for each container
    assert kubelet.restart_container("p", "two") == told["two"]
    kubelet.restart()
    assert kubelet.wait_for(RESOURCE, 4)
    assert kubelet.restart_container("p", "two") == told["two"]
    assert not kubelet.books.seen("Allocate")
    kubelet.run("q", **{RESOURCE: 1})
    assert kubelet.holds("q")[RESOURCE].isdisjoint(kubelet.holds("p")[RESOURCE])


def test_c21_a_refusal_frees_what_it_took(host: Host, kubelet: Kubelet, start: Start) -> None:
    """All of the request or nothing of it; the list says what was wrong."""
    host.devices(3)
    host.resource(RESOURCE)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 3)
    plugin.process.send_signal(signal.SIGSTOP)
    host.unplug("thing1")
    caught: list[Rejected] = []

    def admit() -> None:
        try:
            kubelet.run("p", **{RESOURCE: 3})
        except Rejected as rejected:
            caught.append(rejected)

    pod = threading.Thread(target=admit)
    pod.start()
    until(lambda: kubelet.books.seen("choosing"))  # before it hears of the device that is gone
    plugin.process.send_signal(signal.SIGCONT)
    pod.join(PATIENCE)
    assert caught and "d1" in str(caught[0]) and "/dev/thing1" in str(caught[0])
    assert kubelet.wait_for(RESOURCE, 2)
    assert held(host) == set()
    kubelet.run("q", **{RESOURCE: 2})
    assert held(host) == {"d0", "d2"}


def test_c22_what_a_pod_leaves_is_seen_in_podresources(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(2)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 1})
    kubelet.run("q", **{RESOURCE: 1})
    assert held(host) == {"d0", "d1"}
    (kept,) = kubelet.holds("q")[RESOURCE]
    kubelet.delete("p")
    until(lambda: held(host) == {kept})
    assert plugin.runs and kubelet.counts(RESOURCE) == (2, 2)


def test_c22_nothing_is_released_while_podresources_cant_be_asked(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(1)
    start()
    assert newer.wait_for(RESOURCE, 1)
    newer.run("p", **{RESOURCE: 1})
    until(lambda: newer.books.seen("List"))
    newer.stop()
    time.sleep(2.5)  # more than twice the grace period, of a second here
    assert held(host) == {"d0"}
    newer.start()
    assert newer.wait_for(RESOURCE, 1)
    until(lambda: len(newer.books.seen("List")) > 4)
    assert held(host) == {"d0"}  # the pod runs


def test_c23_two_resources_of_one_container_do_not_hide_each_other(
    host: Host, kubelet: Kubelet, personality: Personality, start: Start
) -> None:
    host.devices(2)
    host.devices(2, OTHER)
    start()
    assert kubelet.wait_for(RESOURCE, 2) and kubelet.wait_for(OTHER, 2)
    told = kubelet.run("p", **{RESOURCE: 2, OTHER: 1})
    names = {f"{resource}={name}" for resource, ids in kubelet.holds("p").items() for name in ids}
    said = [name for value in told["annotations"].values() for name in value.split(",")]
    assert sorted(said) == sorted(names) and len(names) == 3
    assert all(key.startswith("cdi.k8s.io/") for key in told["annotations"])
    assert set(told["cdi_devices"]) == (names if personality.takes_cdi_field else set())


@pytest.mark.parametrize(
    ("mode", "cdi", "annotations", "devices"),
    [("auto", 1, 1, 0), ("cdi", 1, 0, 0), ("annotations", 0, 1, 0), ("expanded", 0, 0, 1)],
)
def test_delivery(
    host: Host, newer: Kubelet, start: Start, mode: str, cdi: int, annotations: int, devices: int
) -> None:
    host.plug("thing0")
    host.spec(
        RESOURCE,
        {"d0": ["thing0"]},
        containerEdits={
            "env": ["KIND=thing"],
            "mounts": [{"hostPath": "/etc", "containerPath": "/x", "options": ["ro"]}],
        },
    )
    (host.root / "etc").mkdir()
    host.configure(delivery=mode)
    start()
    assert newer.wait_for(RESOURCE, 1)
    told = newer.run("p", **{RESOURCE: 1})
    assert [len(told[key]) for key in ("cdi_devices", "annotations", "devices")] == [cdi, annotations, devices]
    if devices:
        assert told["devices"] == {"/dev/thing0": ("/dev/thing0", "rwm")}
        assert told["envs"] == {"KIND": "thing"} and told["mounts"] == {"/x": ("/etc", True)}


def test_c24_the_name_is_looked_up_before_the_answer(host: Host, newer: Kubelet, start: Start) -> None:
    """The runtime would find out late, and try for ever: CreateContainerError, unresolvable CDI devices."""
    host.devices(2)
    plugin = start()
    assert newer.wait_for(RESOURCE, 2)
    plugin.process.send_signal(signal.SIGSTOP)
    host.spec(RESOURCE, {"d1": ["thing1"]}, file="vendor.com-thing.json")
    pods: dict[str, str] = {}

    def admit(uid: str) -> None:
        try:
            newer.run(uid, **{RESOURCE: 2})
            pods[uid] = "admitted"
        except Rejected as rejected:
            pods[uid] = str(rejected)

    thread = threading.Thread(target=admit, args=("p",))
    thread.start()
    until(lambda: newer.books.seen("choosing"))
    plugin.process.send_signal(signal.SIGCONT)
    thread.join(PATIENCE)
    # The call may come before the news of the spec, or after it: then the resource has no d0 any more.
    assert "vendor.com/thing=d0" in pods["p"] or "found the device 'd0'; expected one" in pods["p"]
    assert held(host) == set()


def test_c25_pre_start_at_every_start_of_a_container(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(1)
    host.resource(RESOURCE, pre_start=True)
    start()
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.run("p", **{RESOURCE: 1})
    kubelet.restart_container("p")
    assert len(kubelet.books.seen("PreStartContainer")) == 2
    host.unplug("thing0")
    assert kubelet.wait_for(RESOURCE, 0)
    with pytest.raises(grpc.RpcError, match="thing0"):
        kubelet.restart_container("p")  # blocks the start, the pod stays
    assert kubelet.holds("p") == {RESOURCE: {"d0"}}


def test_c25_not_called_where_it_was_not_announced(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(1)
    start()
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.run("p", **{RESOURCE: 1})
    assert not kubelet.books.seen("PreStartContainer")


# What no kubelet should ask for -> what the refusal names.
FOREIGN = {
    ("nobody",): "nobody",
    ("d1",): "/dev/thing1",  # unhealthy
    ("d0", "nobody"): "nobody",
    ("o0",): "o0",  # of another resource
    ("d0::0",): "d0::0",  # a replica, where there are none
    ("../../etc/passwd",): "etc/passwd",
    ("\u202egpu",): "gpu",
    ("",): "",
    (): "",
}


def test_f08_ids_that_are_unknown_unhealthy_or_foreign(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(3)
    host.plug("other0")
    host.spec(OTHER, {"o0": ["other0"]}, file="o.json")
    plugin = start()
    assert newer.wait_for(RESOURCE, 3)
    host.unplug("thing1")
    assert newer.wait_for(RESOURCE, 2)
    for ids, expected in FOREIGN.items():
        with pytest.raises(grpc.RpcError) as caught:
            asked(newer).allocate(ids)
        assert expected in caught.value.details() and "\n" not in caught.value.details(), ids
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION, ids
        assert held(host) == set(), ids  # not the ones beside it either
    assert len(plugin.lines("refused", resource=RESOURCE)) == len(FOREIGN)
    newer.run("p", **{RESOURCE: 2})  # and nothing is broken by it


def test_containers_of_one_request_get_all_or_nothing(host: Host, newer: Kubelet, start: Start) -> None:
    """No kubelet asks for several containers at once; the API lets it."""
    host.devices(4)
    plugin = start()
    assert newer.wait_for(RESOURCE, 4)
    host.unplug("thing3")
    assert newer.wait_for(RESOURCE, 3)
    refused = {
        (("d0", "d1"), ("d2", "d3")): "/dev/thing3",
        (("d0",), ("nobody",)): "nobody",
        (("d0",), ()): "container 2 of the request",
        (("d0", "d1"), ("d2",), ("d1",)): "the device 'd1' in the containers 1 and 3 of the request",
        (("d0",), ("d1", "d2", "d1")): "the device 'd1' twice",
    }
    for containers, expected in refused.items():
        with pytest.raises(grpc.RpcError) as caught:
            asked(newer).allocate_all(containers)
        assert expected in caught.value.details(), containers
        assert held(host) == set(), containers
    replies = asked(newer).allocate_all([["d2", "d0"], ["d1"]])
    assert [[one.name for one in reply.cdi_devices] for reply in replies] == [
        [f"{RESOURCE}=d0", f"{RESOURCE}=d2"],
        [f"{RESOURCE}=d1"],
    ]
    assert held(host) == {"d0", "d1", "d2"}
    assert plugin.lines("allocated")[-1]["devices"] == "d2,d0,d1"


def test_a_refusal_of_very_many_devices_names_three(host: Host, newer: Kubelet, start: Start) -> None:
    """gRPC drops a call whose error text is longer than 16 KiB: the pod's event would say nothing of the reason."""
    names = [f"d{number}" for number in range(2000)]
    host.plug("thing0")
    host.spec(RESOURCE, {name: [f"thing{name[1:]}"] for name in names})
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    for ids, expected in ((names, "/dev/thing1"), ([f"x{name}" for name in names], "'xd1'")):
        with pytest.raises(grpc.RpcError) as caught:
            asked(newer).allocate(ids)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        text = caught.value.details()
        assert expected in text and len(text) < 1000, text
        assert re.search(r"and 199[67] more", text), text
    with pytest.raises(grpc.RpcError) as caught:
        asked(newer).allocate(["x" * 100_000])
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert all(len(line["devices"]) + len(line["reason"]) < 3000 for line in plugin.lines("refused"))


def test_what_one_resource_hands_out_is_unhealthy_in_the_other(host: Host, newer: Kubelet, start: Start) -> None:
    """What the daemon writes into the ledger itself is news only where it takes a device from another resource."""
    host.devices(2)
    host.configure(resources={RESOURCE: {}, OTHER: {"kinds": [RESOURCE]}}, grace=3600)
    start(constants={"daemon.daemon.PODS": 3600.0, "daemon.daemon.PERIOD": 3600.0})
    assert newer.wait_for(RESOURCE, 2) and newer.wait_for(OTHER, 2)
    for left, pod in ((1, "p"), (0, "q")):
        newer.run(pod, **{RESOURCE: 1})
        assert newer.wait_for(OTHER, left)
    assert newer.counts(RESOURCE)[1] == 2


def test_what_the_inventory_says_later_of_a_device_that_a_pod_has(host: Host, newer: Kubelet, start: Start) -> None:
    """By that others would ask for it: the hold is on it as soon as it is known, and not when pods are asked about."""
    host.devices(1)
    host.configure(grace=3600)
    start(constants={"daemon.daemon.PODS": 3600.0})
    assert newer.wait_for(RESOURCE, 1)
    newer.run("p", **{RESOURCE: 1})
    ledger = Ledger(str(host.base / "state"), inventory.boot_id())
    (grant,) = ledger.grants()
    assert [*grant.holds[0].locks()] == ["node:/dev/thing0"]
    host.inventory({"d0": 0})
    until(lambda: "pci:0000:00:00.0" in ledger.grants()[0].holds[0].locks())
    assert ledger.grants()[0].tokens == grant.tokens


def test_f09_the_same_id_again_without_notice(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(1)
    host.configure(grace=3600)
    start()
    assert kubelet.wait_for(RESOURCE, 1)
    for pod in ("p", "q", "r"):
        kubelet.run(pod, **{RESOURCE: 1})
        kubelet.delete(pod)
    assert held(host) == {"d0"}


def test_f10_allocate_at_once_after_a_restart(host: Host, kubelet: Kubelet, start: Start) -> None:
    """The first list is told when the host has been looked at, so that what a kubelet asks for is known."""
    host.devices(200)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 200)
    kubelet.run("p", **{RESOURCE: 1})
    plugin.kill()
    assert kubelet.wait_for(RESOURCE, 0)
    start()
    assert kubelet.books.wait(lambda: kubelet.counts(RESOURCE)[1])
    kubelet.run("q", **{RESOURCE: 199})
    assert len(held(host)) == 200


def test_f11_allocate_during_the_shutdown(host: Host, newer: Kubelet, start: Start) -> None:
    """It is answered, and the kubelet hears it before the stream ends; what takes too long is given back later."""
    began, go = host.base / "began", host.base / "go"
    host.devices(1)
    host.resource(RESOURCE, setup=["/bin/sh", "-c", f"touch {began}; while [ ! -e {go} ]; do sleep 0.05; done"])
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    outcome: list[str] = []

    def admit() -> None:
        try:
            newer.run("p", **{RESOURCE: 1})
            outcome.append("admitted")
        except Rejected as rejected:
            outcome.append(str(rejected))

    pod = threading.Thread(target=admit)
    pod.start()
    until(began.exists)
    plugin.process.terminate()
    go.touch()
    pod.join(PATIENCE)
    plugin.process.wait(PATIENCE)
    if outcome == ["admitted"]:
        assert held(host) == {"d0"}
    else:
        newer.run("bystander")
        start()
        until(lambda: not held(host))


def test_no_call_after_the_end(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(1)
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    plugin.stop()
    with pytest.raises(Rejected):
        newer.run("p", **{RESOURCE: 1})
    assert held(host) == set()


def test_status_says_what_is_so(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(2)
    host.unplug("thing1")
    start()
    assert newer.wait_for(RESOURCE, 1)
    done = until(lambda: _line(host))
    assert done[:5] == [RESOURCE, done[1], "registered", "1", "1"]


def _line(host: Host) -> list[str]:
    text = command(host, "status").stdout
    return next((line.split() for line in text.splitlines() if "registered" in line), [])
