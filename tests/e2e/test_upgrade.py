# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two plugins for one resource: an upgrade with the new instance beside the old one, and somebody else's plugin."""

from __future__ import annotations

import signal
import threading
import time

import pytest
from node import wait
from product import ACCEL, ALL, HERE, seen

RELEASE = "/opt/cdi/lib/current"


class Watch(threading.Thread):
    """Looks what is allocatable, all the time, until it is told to stop."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.seen, self.ended = cluster, [], threading.Event()

    def run(self):
        while not self.ended.wait(0.015):  # a kubelet answers no more than 100 in a second
            found = self.cluster.allocatable(ACCEL)
            if found is not None:
                self.seen.append((time.monotonic(), found))

    def without(self, wanted):
        """Stop; the seconds in which it was not this that was allocatable."""
        self.ended.set()
        self.join()
        pairs = zip(self.seen, self.seen[1:])
        return sum(later - now for (now, found), (later, _next) in pairs if found != wanted)


@pytest.fixture
def watch(cluster):
    """A Watch that runs."""
    if cluster.version.minor < 21:
        pytest.skip("a kubelet before 1.21 doesn't say what is allocatable")
    found = Watch(cluster)
    found.start()
    yield found
    found.ended.set()


@pytest.fixture
def tells(cluster):
    """The kubelet says what it lists."""
    if cluster.version.minor < 21:
        pytest.skip("a kubelet before 1.21 doesn't say what is allocatable, and nothing else shows another plugin")


def rival(product, *idents):
    """Somebody else's plugin."""
    return product.run("rival", "/usr/bin/python3", HERE / "rival.py", ACCEL, *idents, PYTHONPATH=RELEASE)


def arrived(product):
    """How many instances that live have a stream from the kubelet for the resource."""
    instances = product.fleet_cdi("plugin", "status")["instances"]
    return sum(one["resources"].get(ACCEL, {}).get("stream", False) for one in instances)


def test_an_upgrade_beside_the_old_instance(product, cluster, watch, figure):
    old = product.serve(ALL)
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]
    watch.seen.clear()
    product.start()
    wait("the new instance's stream", lambda: arrived(product) == 2)
    assert old.stop(signal.SIGTERM) == 0
    time.sleep(5)  # what an old kubelet does then comes late
    gap = watch.without(ALL)
    figure("without the resource in an upgrade", gap)
    cluster.await_allocatable(ACCEL, ALL)
    assert cluster.held(name, ACCEL) == {held}
    assert seen(cluster.output(cluster.create({ACCEL: 2})))[1] == ALL - {held}


def admitted(cluster):
    """Whether a pod gets all devices now; it is taken away again."""
    name = cluster.create({ACCEL: len(ALL)})
    found = cluster.settled(name)["phase"] == "Running" and seen(cluster.output(name))[1] == ALL
    cluster.delete(name)
    return found


def test_upgrades_one_after_the_other_on_each_kubelet(product, cluster):
    old = product.serve(ALL)
    for _turn in range(3):
        new = product.start()
        # A kubelet before 1.27 ends the old one's stream when it takes the new one.
        wait("the new instance's stream", lambda new=new: "event=registered" in new.tail())
        assert old.stop(signal.SIGTERM) == 0
        wait("a pod that is admitted", lambda: admitted(cluster))
        old = new


@pytest.mark.usefixtures("tells")
def test_a_rival_that_lives_is_left_alone(product, cluster):
    rival(product, "theirs")
    cluster.await_allocatable(ACCEL, {"theirs"})
    plugin = product.start()
    wait("a refusal in the log", lambda: "rival" in plugin.tail() or "takeover" in plugin.tail())
    assert cluster.allocatable(ACCEL) == {"theirs"}
    assert "RIVAL=1" in cluster.output(cluster.create({ACCEL: 1}))


def test_a_rival_is_taken_over_from_where_that_is_asked_for(product, cluster):
    rival(product, "theirs")
    cluster.await_allocatable(ACCEL, {"theirs"})
    product.configure(takeover=True)
    product.serve(ALL)
    assert len(seen(cluster.output(cluster.create({ACCEL: 1})))[1]) == 1


@pytest.mark.usefixtures("tells")
def test_the_resource_comes_back_from_a_rival_that_came_and_went(product, cluster, figure):
    """Then a kubelet drops the plugin's stream, or that of the rival closes the connection of both."""
    product.serve(ALL)
    other = rival(product, "theirs")
    cluster.await_allocatable(ACCEL, {"theirs"})
    since = cluster.now()
    other.stop(signal.SIGKILL)
    took = cluster.await_allocatable(ACCEL, ALL, since) - since
    figure("allocatable after a rival's end", took)
    assert seen(cluster.output(cluster.create({ACCEL: 3})))[1] == ALL
