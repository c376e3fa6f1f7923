# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubelets and plugins that stop, die and lose their directory: the devices come back, pods keep theirs."""

from __future__ import annotations

import signal
import time

import pytest
from node import wait
from product import ACCEL, ALL, seen

from ansible_collections.fleet.cdi.plugins.module_utils.layout import kubelet_layout

TIMES = {"1.36": 20, "1.30-without-cdi": 5, "1.20": 5}  # restarts; the old ones take seconds


def sockets(product):
    """Those that plugins of ours have made, and not removed."""
    return set(product.node.path(kubelet_layout().plugin_dir).glob("fleet-cdi-*"))


@pytest.fixture
def holder(product, cluster):
    """A pod that holds one of the devices, and a check that it still runs and holds it, as the only one."""
    product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]
    container = cluster.containers(name)

    def check():
        assert cluster.containers(name) == container, "the container is another one"
        assert cluster.held(name, ACCEL) == {held}
        rest = cluster.create({ACCEL: 2})
        assert seen(cluster.output(rest))[1] == ALL - {held}
        assert cluster.settled(cluster.create({ACCEL: 1}))["phase"] == "Failed"

    return check


def test_a_killed_kubelet_has_the_devices_again_at_once(cluster, holder, version, figure):
    took = []
    for _time in range(TIMES[version]):
        cluster.stop_kubelet(signal.SIGKILL)
        since = cluster.now()
        cluster.launch_kubelet()
        took.append(cluster.await_allocatable(ACCEL, ALL, since) - cluster.socket_age())
    wait("the kubelet", cluster.pods)
    figure("allocatable after a new kubelet.sock", *took)
    holder()


def test_a_kubelet_that_was_stopped_in_order_has_the_devices_again(cluster, holder):
    cluster.stop_kubelet(signal.SIGTERM)
    since = cluster.now()
    cluster.start_kubelet()
    cluster.await_allocatable(ACCEL, ALL, since)
    holder()


def test_sockets_wiped_under_a_running_kubelet_are_made_anew(product, cluster, holder):
    (plugin,) = product.programs
    since, told = cluster.now(), plugin.tail(10**6).count("event=registered")
    for path in sockets(product):
        path.unlink()
    wait("another registration", lambda: plugin.tail(10**6).count("event=registered") > told)
    assert sockets(product)
    cluster.await_allocatable(ACCEL, ALL, since)
    holder()


def test_a_directory_that_is_removed_while_the_kubelet_is_down(product, cluster):
    """With it goes the kubelet's memory of what it gave, which is the kubelet's loss; the devices have to come back."""
    product.serve(ALL)
    cluster.stop_kubelet()
    product.node.run("rm", "-r", kubelet_layout().plugin_dir)
    since = cluster.now()
    cluster.start_kubelet()
    cluster.await_allocatable(ACCEL, ALL, since)
    assert seen(cluster.output(cluster.create({ACCEL: 3})))[1] == ALL


def test_a_plugin_that_is_there_before_the_kubelet(product, cluster):
    cluster.stop_kubelet()
    product.node.run("rm", "-r", kubelet_layout().plugin_dir)
    product.start()
    time.sleep(2)  # it fails to register for a while
    since = cluster.now()
    cluster.start_kubelet()
    cluster.await_allocatable(ACCEL, ALL, since)
    assert seen(cluster.output(cluster.create({ACCEL: 1})))[1]


def test_a_killed_plugin_that_is_started_again(product, cluster, holder, figure):
    (plugin,) = product.programs
    plugin.stop(signal.SIGKILL)
    if cluster.version.minor >= 21:
        cluster.await_allocatable(ACCEL, set())
    since = cluster.now()
    product.start()
    figure("allocatable after a start of the plugin", cluster.await_allocatable(ACCEL, ALL, since) - since)
    holder()


def test_a_plugin_that_ends_takes_its_resource_along_and_leaves_nothing(product, cluster):
    before = sockets(product)  # killed ones leave theirs
    plugin = product.serve(ALL)
    assert sockets(product) - before
    assert plugin.stop(signal.SIGTERM) == 0
    if cluster.version.minor >= 21:
        cluster.await_allocatable(ACCEL, set())
    assert sockets(product) <= before
    assert cluster.settled(cluster.create({ACCEL: 1}))["phase"] == "Failed"
