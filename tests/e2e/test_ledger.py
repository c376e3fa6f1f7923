# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ledger between a kubelet and the executables of 2017 on one host: who holds what, and nothing twice."""

from __future__ import annotations

import json
import signal
import threading
import time

import pytest
from cluster import Pod
from node import wait
from product import ACCEL, ALL, CONSOLES, FLEET_CDI, TTY, call

ADD = "/opt/cdi/bin/generic-tty"
NAMES = {f"tty{number}" for number in CONSOLES}


pytestmark = pytest.mark.usefixtures("bystander")


def test_a_device_is_held_while_its_pod_runs_and_free_after_it(product, cluster, figure):
    product.configure(grace=2)
    product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    (held,) = cluster.held(name, ACCEL)
    (keys,) = product.holds().values()
    assert [key[:2] for key in keys] == [("kubernetes", ACCEL)]
    time.sleep(2)  # so that the plugin sees it listed, too: what never was is believed ten times later
    since = cluster.now()
    cluster.delete(name)
    wait("the ledger without holds", lambda: not product.holds())
    figure(f"released after the pod of {held} was taken away, with a grace of 2 s", cluster.now() - since)


def test_holds_survive_a_restart_of_the_plugin(product, cluster):
    product.configure(grace=2)
    plugin = product.serve(ALL)
    name = cluster.create({ACCEL: 2})
    cluster.output(name)
    before = product.holds()
    assert len(before) == 2
    plugin.stop(9)
    since = cluster.now()
    product.start()
    cluster.await_allocatable(ACCEL, ALL, since)
    reclaims = 5  # looks at podresources, a third of the grace each
    time.sleep(reclaims)
    assert product.holds() == before
    cluster.delete(name)
    wait("the ledger without holds", lambda: not product.holds())


@pytest.mark.parametrize("version", ["1.36"])
def test_what_a_container_has_that_is_listed_nowhere_is_held(product, cluster):
    """Of one that ends before the others start podresources says nothing."""
    product.configure(grace=1)
    product.serve(ALL)
    name = cluster.create({ACCEL: 1}, first={ACCEL: 3}, takes=8)
    wait("holds on all", lambda: len(product.holds()) == 3)
    time.sleep(5)
    assert len(cluster.held(name, ACCEL)) == 1 and len(product.holds()) == 3


PLACE = "http://127.0.0.1:8123/pod.json"  # of pods that a kubelet does not know while nobody answers there


@pytest.fixture
def server(product, cluster):
    """Gives pods to a kubelet, as an API server does: start and stop it."""
    product.node.path("/run/pods").mkdir(exist_ok=True)
    yield lambda: product.run(
        "pods", "/usr/bin/python3", "-m", "http.server", "--bind=127.0.0.1", "--directory=/run/pods", "8123"
    )
    cluster.restart_kubelet()


@pytest.mark.parametrize("version", ["1.36"])
def test_pods_that_a_kubelet_does_not_know_yet_keep_their_devices(product, cluster, server):
    """One that restarts while its API server can't be reached lists its static pods, and ends no others."""
    product.configure(grace=1)
    product.serve(ALL)
    answers = server()
    since = cluster.now()
    cluster.restart_kubelet(staticPodURL=PLACE, httpCheckFrequency="1s")
    cluster.await_allocatable(ACCEL, ALL, since)
    pod = Pod("of-the-server", {ACCEL: 1})
    product.node.path("/run/pods/pod.json").write_text(json.dumps(pod.manifest()))
    cluster.output(pod.name)
    before = product.holds()
    assert len(before) == 1
    answers.stop(9)
    since = cluster.now()
    cluster.restart_kubelet(staticPodURL=PLACE, httpCheckFrequency="1s")
    cluster.await_allocatable(ACCEL, ALL, since)
    time.sleep(5)
    assert pod.name not in cluster.pods() and cluster.containers(pod.name)
    assert product.holds() == before


@pytest.fixture
def shared(product):
    """Consoles belong to the kubelet and to the executables."""
    product.node.run(FLEET_CDI, "grants", "give", TTY, "kubernetes", "claims")
    product.configure([TTY], grace=2)
    return product


def test_what_an_executable_granted_is_not_allocatable(shared, cluster):
    status, reply = call(cluster.node, ADD, CDI_COMMAND="ADD", CDI_REQUEST="tty:2", CDI_REQUEST_ID="job")
    assert status == 0, reply
    granted = {path.rpartition("/")[2] for path in reply["devices"]}
    shared.serve(NAMES - granted, TTY)
    since = cluster.now()
    assert call(cluster.node, ADD, CDI_COMMAND="DEL", CDI_REQUEST_ID="job") == (0, {})
    cluster.await_allocatable(TTY, NAMES, since)
    since = cluster.now()
    assert call(cluster.node, ADD, CDI_COMMAND="ADD", CDI_REQUEST="tty:1", CDI_REQUEST_ID="late")[0] == 0
    wait("one less", lambda: len(cluster.allocatable(TTY, since) or NAMES) == len(NAMES) - 1)


def test_what_a_pod_holds_is_not_granted(shared, cluster):
    shared.serve(NAMES, TTY)
    cluster.output(cluster.create({TTY: len(NAMES) - 1}))
    status, reply = call(cluster.node, ADD, CDI_COMMAND="ADD", CDI_REQUEST="tty:1", CDI_REQUEST_ID="one")
    assert (
        status == 0
        and {path.rpartition("/")[2] for path in reply["devices"]}
        | {name for held in cluster.in_use().values() for name in held[TTY]}
        == NAMES
    )
    status, reply = call(cluster.node, ADD, CDI_COMMAND="ADD", CDI_REQUEST="tty:1", CDI_REQUEST_ID="two")
    assert status == 1 and reply["error"] == 100


def test_what_an_executable_took_before_the_plugin_could_say_so_is_refused_to_a_pod(shared, cluster):
    plugin = shared.serve(NAMES, TTY)
    plugin.send(signal.SIGSTOP)
    try:
        status, reply = call(cluster.node, ADD, CDI_COMMAND="ADD", CDI_REQUEST="tty:1", CDI_REQUEST_ID="late")
        assert status == 0, reply
        with cluster.allocation_asked():
            name = cluster.create({TTY: len(NAMES)})
    finally:
        plugin.send(signal.SIGCONT)
    refused = cluster.settled(name)
    assert refused["reason"] == "UnexpectedAdmissionError" and "request late of tty/generic-tty" in refused["message"]
    (path,) = reply["devices"]
    assert shared.holds() == {f"tty:{path.rpartition('/')[2]}": {("tty", "generic-tty", "late")}}


def test_executables_and_pods_that_race_for_the_devices_never_share_one(shared, cluster):
    shared.serve(NAMES, TTY)
    pods, granted, lock = [], {}, threading.Lock()

    def add(ident):
        status, reply = call(cluster.node, ADD, CDI_COMMAND="ADD", CDI_REQUEST="tty:1", CDI_REQUEST_ID=f"job-{ident}")
        with lock:
            granted[ident] = {path.rpartition("/")[2] for path in reply["devices"]} if status == 0 else set()

    for turn in range(3):
        callers = [threading.Thread(target=add, args=(f"{turn}-{number}",)) for number in range(6)]
        for number, caller in enumerate(callers):
            caller.start()
            if number % 2:
                pods.append(cluster.create({TTY: 1}))
        for caller in callers:
            caller.join()
        running = [name for name in pods if cluster.settled(name)["phase"] == "Running"]
        held = [cluster.held(name, TTY) for name in running] + [names for names in granted.values() if names]
        everything = [name for names in held for name in names]
        assert len(everything) == len(set(everything)) <= len(NAMES), "one device was handed out twice"
        assert all(len(names) == 1 for names in held)
        assert {device: len(keys) for device, keys in shared.holds().items()} == {
            f"tty:{name}": 1 for name in everything
        }
        if turn == 0:
            assert running and any(granted.values()), "there was no race"
        for ident in [ident for ident, names in granted.items() if names][::2]:
            assert call(cluster.node, ADD, CDI_COMMAND="DEL", CDI_REQUEST_ID=f"job-{ident}") == (0, {})
            granted[ident] = set()
