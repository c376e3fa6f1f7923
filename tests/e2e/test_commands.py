# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an operator has done to devices that change hands, and before containers start."""

from __future__ import annotations

import pytest
from node import wait
from product import ACCEL, ALL, seen

pytestmark = pytest.mark.usefixtures("bystander")


def test_setup_and_teardown_when_a_device_changes_hands_and_only_then(product, cluster):
    log = product.node.path("/run/commands")

    def done():
        return log.read_text().split() if log.exists() else []

    commands = {what: ["/bin/sh", "-c", f"echo {what} >> /run/commands"] for what in ("setup", "teardown")}
    product.configure({ACCEL: commands}, grace=2)
    product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]
    cluster.crash(name)
    since = cluster.now()
    cluster.restart_kubelet()
    cluster.await_allocatable(ACCEL, ALL, since)
    cluster.crash(name)
    assert done() == ["setup"] and seen(cluster.output(name))[1] == {held}
    cluster.delete(name)
    wait("the teardown", lambda: done() == ["setup", "teardown"])
    log.unlink()


def test_a_device_whose_setup_fails_is_refused_and_unhealthy(product, cluster):
    fails = ["/bin/sh", "-c", 'case $CDI_DEVICE_NODES in *accel1) echo "stays dirty" >&2; exit 3; esac']
    product.configure({ACCEL: {"setup": fails, "health": {"hold_down": 3600}}})
    product.serve(ALL)
    since = cluster.now()
    status = cluster.settled(cluster.create({ACCEL: 3}))
    assert status["reason"] == "UnexpectedAdmissionError" and "stays dirty" in status["message"]
    cluster.await_allocatable(ACCEL, ALL - {"accel1"}, since)
    assert seen(cluster.output(cluster.create({ACCEL: 2})))[1] == ALL - {"accel1"}


def test_a_container_does_not_start_on_a_device_that_is_gone(product, cluster):
    """The kubelet asks at each start where it was told to."""
    product.configure({ACCEL: {"pre_start": True, "health": {"hold_down": 0}}})
    product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]
    product.unplug(held)
    cluster.kill(name)

    def refused():
        (status,) = cluster.pods()[name]["status"]["containerStatuses"]
        message = status["state"].get("waiting", {}).get("message", "")
        return "PreStartContainer" in message and f"/dev/{held}" in message

    wait("a container that is not started", refused)
    product.plug(held)
    wait("a container", lambda: cluster.containers(name))
    assert seen(cluster.output(name))[1] == {held}
