# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""C12 to C18, F5 to F7: what the stream says, and when."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from admission import Rejected
from conftest import QUICK, Start, make_kubelet
from endpoint import Endpoint
from host import Host, until
from kubelet import Kubelet
from personality import IGNORED, NEW, OLD, REFUSED, SOCKET, Personality
from sample import Sample

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api
from ansible_collections.fleet.cdi.tests.unit.builders import spec

RESOURCE = "vendor.com/thing"
WELL, ILL = api.HEALTHY, api.UNHEALTHY


def lists(kubelet: Kubelet, resource: str = RESOURCE) -> list[dict[str, str]]:
    """Every list that came: device -> health."""
    return [event.detail for event in kubelet.books.seen("list", resource)]


def last(kubelet: Kubelet) -> list[Any]:
    """The last message as it was, with duplicates if it had any."""
    return list(kubelet.books.endpoints[RESOURCE].last.devices)


def test_c12_the_first_message_is_the_complete_list(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(50)
    start()
    assert kubelet.wait_for(RESOURCE, 50)
    assert [len(told) for told in lists(kubelet)] == [50]


def test_c12_every_later_message_replaces_all_and_the_last_may_be_empty(
    host: Host, kubelet: Kubelet, start: Start
) -> None:
    host.devices(2)
    host.resource(RESOURCE)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    (host.specs / "vendor.com-thing.json").unlink()
    assert kubelet.books.wait(lambda: kubelet.counts(RESOURCE) == (0, 0))
    assert lists(kubelet)[-1] == {}
    host.devices(2)
    assert kubelet.wait_for(RESOURCE, 2)
    assert len(plugin.lines("registered")) == 1  # all of it on one stream


def test_c13_the_end_of_the_plugin_keeps_the_capacity_and_the_next_one_has_it_back(
    host: Host, kubelet: Kubelet, start: Start
) -> None:
    host.devices(2)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    assert plugin.stop() == 0
    assert kubelet.wait_for(RESOURCE, 0)
    assert kubelet.counts(RESOURCE) == (2, 0)
    assert not [path for path in host.plugins.iterdir() if path.name.startswith("fleet-cdi-")]
    start()
    assert kubelet.wait_for(RESOURCE, 2)


def test_c13_a_killed_plugin(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(2)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 2)
    plugin.kill()
    assert kubelet.wait_for(RESOURCE, 0)
    left = {path.name for path in host.plugins.iterdir() if path.name.startswith("fleet-cdi-")}
    start()
    assert kubelet.wait_for(RESOURCE, 2)
    assert Path(kubelet.books.endpoints[RESOURCE].socket).name not in left


def test_c14_health_is_one_of_two_exact_texts(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(3)
    host.resource(RESOURCE)
    start()
    assert kubelet.wait_for(RESOURCE, 3)
    host.unplug("thing1")
    assert kubelet.wait_for(RESOURCE, 2)
    assert kubelet.counts(RESOURCE) == (3, 2)
    assert lists(kubelet)[-1] == {"d0": WELL, "d1": ILL, "d2": WELL}
    host.plug("thing1")
    assert kubelet.wait_for(RESOURCE, 3)


def test_c15_no_id_twice_whatever_the_specs_say(host: Host, newer: Kubelet, start: Start) -> None:
    """A device by index, by uuid and in `all`; the same in a second file of another kind's name."""
    host.plug("thing0", "thing1", "ctl")
    uuid = "GPU-00000000-0000-0000-0000-00000000000{}"
    names = {"0": ["thing0"], "1": ["thing1"], uuid.format(0): ["thing0"], uuid.format(1): ["thing1"]}
    host.spec(RESOURCE, {**names, "all": ["thing0", "thing1"]}, containerEdits={"deviceNodes": [{"path": "/dev/ctl"}]})
    host.resource(RESOURCE, replicas=2)
    start()
    assert newer.wait_for(RESOURCE, 4)
    ids = [device.ID for device in last(newer)]
    assert sorted(ids) == sorted(f"{uuid.format(card)}::{number}" for card in (0, 1) for number in (0, 1))
    host.unplug("thing0")
    assert newer.wait_for(RESOURCE, 2)
    assert newer.counts(RESOURCE) == (4, 2)
    assert len({device.ID for device in last(newer)}) == len(last(newer)) == 4


def test_c16_unhealthy_first_then_off_the_list_and_never_while_a_pod_has_it(
    host: Host, kubelet: Kubelet, start: Start
) -> None:
    host.devices(2)
    host.resource(RESOURCE)
    start()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("bystander")  # where no pod at all is listed the plugin waits ten times as long
    kubelet.run("p", **{RESOURCE: 1})
    (held,) = kubelet.holds("p")[RESOURCE]
    (free,) = {"d0", "d1"} - {held}
    assert kubelet.books.wait(lambda: kubelet.books.seen("List"))  # the plugin knows what pods have
    host.spec(RESOURCE, {"d7": ["thing7"]}, file="vendor.com-thing.json")
    assert kubelet.books.wait(lambda: lists(kubelet)[-1].keys() >= {held} and free not in lists(kubelet)[-1])
    assert lists(kubelet)[-1][held] == ILL
    assert {"d0": ILL, "d1": ILL}.items() <= next(told for told in lists(kubelet) if told.get(free) == ILL).items()
    kubelet.delete("p")
    assert kubelet.books.wait(lambda: held not in lists(kubelet)[-1])


def test_c17_the_next_plugin_says_what_the_kubelet_did_not_hear(host: Host, newer: Kubelet, start: Start) -> None:
    """While the plugin is away the pod's device counts as healthy, whatever becomes of it."""
    host.devices(1)
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    newer.run("p", **{RESOURCE: 1})
    plugin.kill()
    host.unplug("thing0")
    assert newer.books.status("p") == {RESOURCE: {"d0": WELL}}
    start()
    assert newer.books.wait(lambda: newer.books.status("p") == {RESOURCE: {"d0": ILL}})
    assert "p" in newer.books.updates


def test_c18_bursts_are_one_message(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(20)
    host.resource(RESOURCE)
    start()
    assert newer.wait_for(RESOURCE, 20)
    before = len(lists(newer))
    for number in range(20):
        host.unplug(f"thing{number}")
    assert newer.wait_for(RESOURCE, 0)
    assert len(lists(newer)) - before < 20


def test_c18_60000_devices_pass(host: Host, newer: Kubelet, start: Start) -> None:
    names = [f"{number:05d}-{'x' * 24}" for number in range(6_000)]
    document = spec(
        {name: {"mounts": [{"hostPath": f"/dev/{name}", "containerPath": "/x"}]} for name in names}, RESOURCE
    )
    (host.specs / "many.json").write_text(json.dumps(document))
    for name in names:
        (host.root / "dev" / name).touch()
    host.resource(RESOURCE, replicas=10)
    start()
    assert newer.wait_for(RESOURCE, 60_000, 300)
    assert newer.books.endpoints[RESOURCE].last.ByteSize() < api.LONGEST


def test_c18_more_than_a_message_holds_is_refused_clearly(host: Host, newer: Kubelet, start: Start) -> None:
    host.plug(*(f"thing{number}" for number in range(64)))
    host.spec(RESOURCE, {f"{number:0>48}": [f"thing{number}"] for number in range(64)})
    host.devices(1, "vendor.com/other")
    host.configure(resources={RESOURCE: {"replicas": 1024}, "vendor.com/other": {}})
    plugin = start()
    assert newer.wait_for("vendor.com/other", 1)
    reason = plugin.said("refused", resource=RESOURCE)[0]["reason"]
    assert "65536" in reason.replace(",", "") and "bytes" in reason
    assert not newer.books.seen("Register", RESOURCE)


def test_f05_two_streams_hear_the_same(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(2)
    start()
    assert kubelet.wait_for(RESOURCE, 2)
    first = kubelet.books.endpoints[RESOURCE]
    second = Endpoint(RESOURCE, first.socket)
    second.dial()
    second.watch(lambda _endpoint, _message: None, lambda _endpoint, _reason: None)
    until(lambda: second.last is not None)
    host.unplug("thing0")
    for stream in (first, second):
        until(partial(_tells, stream, [ILL, WELL]))
    second.close()


def _tells(stream: Endpoint, health: list[str]) -> bool:
    return [device.health for device in stream.last.devices] == health


@pytest.mark.parametrize("repeats", [IGNORED, REFUSED])
def test_f05_a_kubelet_that_takes_a_second_registration_for_nothing_new(
    host: Host, short: Path, start: Start, repeats: str
) -> None:
    """kubernetes#139765. A restarted plugin, and one whose stream was dropped, still come back."""
    kubelet = make_kubelet(short, NEW._replace(wipe_after=QUICK, repeats=repeats))
    kubelet.start()
    host.devices(2)
    first = start()
    assert kubelet.wait_for(RESOURCE, 2)
    first.kill()
    start()
    assert kubelet.books.wait(lambda: len(kubelet.books.seen("ListAndWatch", RESOURCE)) == 2)
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.drop(RESOURCE)
    assert kubelet.books.wait(lambda: len(kubelet.books.seen("ListAndWatch", RESOURCE)) == 3)
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.stop()


@pytest.mark.parametrize(
    "personality", [OLD, NEW, NEW._replace(bookkeeping=SOCKET)], ids=["identity", "resource", "socket"]
)
def test_f06_an_upgrade_with_two_instances(host: Host, short: Path, start: Start, personality: Personality) -> None:
    """By resource the kubelet closes the new one's connection with the old one's stream (kubernetes#135437)."""
    kubelet = make_kubelet(short, personality._replace(wipe_after=QUICK))
    kubelet.start()
    host.devices(2)
    old = start("a")
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 1})
    new = start("b")
    new.said("registered", resource=RESOURCE)
    assert all("is younger" in line["reason"] for line in old.lines("lost", resource=RESOURCE))  # by itself, if it did
    before = len(kubelet.books.events)
    assert old.stop() == 0
    assert kubelet.books.wait(lambda: kubelet.books.seen("ended"))
    if personality.bookkeeping == "resource":
        new.said("lost", resource=RESOURCE)
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("q", **{RESOURCE: 1})
    assert kubelet.holds("q")[RESOURCE].isdisjoint(kubelet.holds("p")[RESOURCE])
    if personality.bookkeeping != "resource":  # never without it
        told = [event for event in kubelet.books.events[before:] if event.what == "Register"]
        assert told == [] and not new.lines("lost")
    kubelet.stop()


def test_f06_the_instance_that_was_there_stands_by_and_takes_over(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(2)
    old = start("a", constants={"kubelet.registration.HEAD_START": 3600.0})  # of the younger one
    assert kubelet.wait_for(RESOURCE, 2)
    new = start("b")
    new.said("registered", resource=RESOURCE)
    kubelet.restart()
    assert kubelet.wait_for(RESOURCE, 2)
    assert old.said("standby", resource=RESOURCE)
    assert len(kubelet.books.seen("Register", RESOURCE)) == 1  # the younger one's alone
    new.kill()
    assert kubelet.books.wait(lambda: len(kubelet.books.seen("Register", RESOURCE)) == 2)
    assert kubelet.wait_for(RESOURCE, 2)


def test_f06_a_foreign_plugin_that_came_and_went(host: Host, newer: Kubelet, start: Start) -> None:
    """Our stream lives on, and nothing of it counts any more: only podresources shows it."""
    host.devices(2)
    plugin = start()
    assert newer.wait_for(RESOURCE, 2)
    plugin.said("registered", resource=RESOURCE)
    other = Sample(newer.directory, RESOURCE, {"theirs": WELL}, "other.sock").serve()
    other.register()
    assert newer.books.wait(lambda: newer.counts(RESOURCE) == (1, 1))
    other.stop()
    assert newer.wait_for(RESOURCE, 2)
    newer.run("p", **{RESOURCE: 2})
    assert plugin.lines("lost", resource=RESOURCE)


def test_f07_open_streams_starve_no_call(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(2)
    start()
    assert newer.wait_for(RESOURCE, 2)
    streams = [Endpoint(RESOURCE, newer.books.endpoints[RESOURCE].socket) for _number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda stream: stream.dial(), streams))
    for stream in streams:
        stream.watch(lambda _endpoint, _message: None, lambda _endpoint, _reason: None)
    until(lambda: all(stream.last is not None for stream in streams))
    newer.run("p", **{RESOURCE: 2})
    with pytest.raises(Rejected):
        newer.run("q", **{RESOURCE: 1})
    for stream in streams:
        stream.close()
