# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices fail, recover, come and go under a kubelet."""

from __future__ import annotations

from node import wait
from product import ACCEL, ALL, seen

HEALTH = {ACCEL: {"health": {"hold_down": 1, "linger": 2}}}


def test_a_device_fails_and_recovers(product, cluster):
    product.configure(HEALTH)
    product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]
    since = cluster.now()
    product.unplug(held)
    cluster.await_allocatable(ACCEL, ALL - {held}, since)
    assert cluster.settled(cluster.create({ACCEL: 3}))["phase"] == "Failed"
    status = cluster.settled(name)
    assert status["phase"] == "Running"
    if "ResourceHealthStatus" in cluster.version.gates:
        wait("the pod's status to say so", lambda: health(cluster, name) == {held: "Unhealthy"})
    since = cluster.now()
    product.plug(held)
    cluster.await_allocatable(ACCEL, ALL, since)
    if "ResourceHealthStatus" in cluster.version.gates:
        wait("the pod's status to say so", lambda: health(cluster, name) == {held: "Healthy"})
    assert seen(cluster.output(cluster.create({ACCEL: 2})))[1] == ALL - {held}


def health(cluster, name):
    """What the kubelet says in the status of a pod about its devices."""
    (status,) = cluster.settled(name)["containerStatuses"]
    return {
        device["resourceID"]: device["health"]
        for resource in status.get("allocatedResourcesStatus", [])
        for device in resource["resources"]
    }


def test_a_device_that_is_plugged_is_offered(product, cluster, figure):
    product.serve(ALL)
    product.plug("accel3")
    since = cluster.now()
    product.describe(*sorted(ALL), "accel3")
    figure("hot plug seen by the kubelet", cluster.await_allocatable(ACCEL, ALL | {"accel3"}, since) - since)


def test_a_device_that_is_gone_for_good_is_no_longer_offered(product, cluster):
    product.configure(HEALTH)
    product.serve(ALL)
    since = cluster.now()
    product.unplug("accel2")
    product.describe("accel0", "accel1")
    cluster.await_allocatable(ACCEL, ALL - {"accel2"}, since)
    assert cluster.settled(cluster.create({ACCEL: 3}))["phase"] == "Failed"
    assert seen(cluster.output(cluster.create({ACCEL: 2})))[1] == {"accel0", "accel1"}


def test_a_broken_spec_costs_only_its_own_devices(product, cluster):
    product.node.path("/etc/cdi/broken.json").write_text('{"cdiVersion": "0.5.0", "kind": "vendor.com/')
    product.serve(ALL)
    assert len(seen(cluster.output(cluster.create({ACCEL: 1})))[1]) == 1
    product.node.path("/etc/cdi/broken.json").unlink()


def test_all_devices_gone_and_back(product, cluster):
    product.configure(HEALTH)
    product.serve(ALL)
    since = cluster.now()
    product.withdraw()
    cluster.await_allocatable(ACCEL, set(), since)
    since = cluster.now()
    product.describe(*sorted(ALL))
    cluster.await_allocatable(ACCEL, ALL, since)
    assert seen(cluster.output(cluster.create({ACCEL: 3})))[1] == ALL
