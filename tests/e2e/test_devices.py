# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods get exactly their devices: by the field cdi_devices, or by annotations where the kubelet doesn't read it."""

from __future__ import annotations

import re
import signal

import pytest
from node import wait
from product import ACCEL, ALL, seen
from versions import CONTAINERD

OTHER = "vendor.com/other"


def test_containers_see_exactly_the_devices_that_the_kubelet_allocated(product, cluster):
    product.serve(ALL)
    one, two = cluster.create({ACCEL: 1}), cluster.create({ACCEL: 2})
    for name, number in ((one, 1), (two, 2)):
        anything, whole = seen(cluster.output(name))
        assert anything == whole == cluster.held(name, ACCEL) and len(whole) == number
    without = cluster.create({})
    assert seen(cluster.output(without)) == (set(), set())


def test_a_container_sees_its_devices_of_two_resources(product, cluster):
    """A kubelet passes on the first annotation of a key, and drops the second."""
    product.configure(
        {ACCEL: {"match": {"names": ["accel0"]}}, OTHER: {"kinds": [ACCEL], "exclude": {"names": ["accel0"]}}}
    )
    plugin = product.serve({"accel0"})
    cluster.await_allocatable(OTHER, {"accel1", "accel2"}, needs=plugin)
    assert seen(cluster.output(cluster.create({ACCEL: 1, OTHER: 2})))[1] == ALL


def test_a_container_goes_on_with_the_devices_of_the_one_before_it(product, cluster):
    """Both ask for all that there are: the kubelet asks for the same devices twice, with no word between."""
    product.serve(ALL)
    name = cluster.create({ACCEL: 3}, first={ACCEL: 3})
    assert seen(cluster.output(name))[1] == ALL
    assert product.holds().keys() == {f"node:/dev/{one}" for one in ALL}


def test_a_pod_that_asks_for_more_than_there_is_is_refused(product, cluster):
    product.serve(ALL)
    status = cluster.settled(cluster.create({ACCEL: 4}))
    assert status["phase"] == "Failed" and status["reason"] == "UnexpectedAdmissionError"
    assert cluster.output(cluster.create({ACCEL: 3}))  # and nothing is lost by it
    assert product.holds().keys() == {f"node:/dev/{name}" for name in ALL}


def test_devices_come_back_when_a_pod_is_gone(product, cluster):
    product.serve(ALL)
    for _turn in range(2):
        name = cluster.create({ACCEL: 3})
        assert seen(cluster.output(name))[1] == ALL
        cluster.delete(name)


def test_a_name_that_no_spec_has_any_more_is_refused_before_a_container_is_made(product, cluster):
    """The kubelet's known failure (KEP-4009): a container that can't be created, tried again for ever."""
    plugin = product.serve(ALL)
    plugin.send(signal.SIGSTOP)  # it can't have noticed when the kubelet asks
    try:
        product.withdraw()
        with cluster.allocation_asked():
            name = cluster.create({ACCEL: 1})
    finally:
        plugin.send(signal.SIGCONT)
    status = cluster.settled(name)
    assert status["phase"] == "Failed" and status["reason"] == "UnexpectedAdmissionError"
    # By the name, or because the plugin saw the spec go before it was asked.
    assert re.search("vendor.com/accel=accel|expected one that this resource has now", status["message"])


def test_a_container_that_restarts_keeps_its_device(product, cluster):
    product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    first = seen(cluster.output(name))[1]
    cluster.crash(name)
    assert seen(cluster.output(name))[1] == first == cluster.held(name, ACCEL)
    assert product.holds().keys() == {f"node:/dev/{one}" for one in first}


def test_replicas_of_one_device_serve_several_pods(product, cluster):
    product.configure({ACCEL: {"match": {"names": ["accel0"]}, "replicas": 2}})
    product.serve({"accel0::0", "accel0::1"})
    for _pod in range(2):
        assert seen(cluster.output(cluster.create({ACCEL: 1})))[1] == {"accel0"}
    assert cluster.settled(cluster.create({ACCEL: 1}))["phase"] == "Failed"


@pytest.mark.parametrize("delivery", ["cdi", "annotations", "expanded"])
@pytest.mark.parametrize("version", ["1.36"])
def test_each_way_to_deliver_a_device_works_alone(product, cluster, delivery):
    product.configure(delivery=delivery)
    product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    assert seen(cluster.output(name))[1] == cluster.held(name, ACCEL)


@pytest.mark.parametrize("version", ["1.30-without-cdi", "1.20"])
def test_the_field_alone_is_lost_on_kubelets_that_do_not_read_it(product, cluster):
    """So `auto`, with which the other tests run, is not idle."""
    product.configure(delivery="cdi")
    product.serve(ALL)
    assert seen(cluster.output(cluster.create({ACCEL: 1}))) == (set(), set())


@pytest.mark.parametrize("version", ["1.20"])
def test_devices_are_spelled_out_while_the_runtime_reads_no_cdi(product, cluster):
    """It is asked at each registration; what runs goes on."""
    plugin = product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]
    before = cluster.containers(name)

    def registered_again(delivery):
        told = plugin.tail(10**6).count(delivery)
        cluster.restart_kubelet()
        wait(delivery, lambda: plugin.tail(10**6).count(delivery) > told)
        other = cluster.create({ACCEL: 2})
        assert seen(cluster.output(other))[1] == ALL - {held}
        cluster.delete(other)

    with_cdi = CONTAINERD[cluster.version.suite]
    assert "enable_cdi = true" in with_cdi
    cluster.start_containerd(with_cdi.replace("enable_cdi = true", "enable_cdi = false"))
    try:
        registered_again("event=delivery resource=vendor.com/accel expanded=true")
    finally:
        cluster.start_containerd(with_cdi)
    registered_again("event=delivery resource=vendor.com/accel cdi=true annotations=true")
    assert cluster.containers(name) == before
