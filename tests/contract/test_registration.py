# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""C1 to C7, F1, F2, and what becomes of registrations that fail: the plugin against a kubelet."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import QUICK, Start, make_kubelet
from host import Host, command, until
from kubelet import DEPRECATION, Kubelet
from personality import NEW
from sample import Sample

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api, registration
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError

RESOURCE = "vendor.com/thing"
OTHER = "vendor.com/other"


def requests(kubelet: Kubelet, resource: str = RESOURCE) -> list[Any]:
    """What was sent to Register."""
    return [event.detail for event in kubelet.books.seen("Register", resource)]


def state(host: Host, resource: str = RESOURCE) -> str:
    """What `plugin status` says of a resource's registration; a moment later than it is so."""
    document = json.loads(command(host, "status", "--json").stdout)
    return next((str(one["resources"].get(resource, {}).get("state", "")) for one in document["instances"]), "")


def test_c01_serves_before_it_registers(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(2)
    start()
    assert kubelet.wait_for(RESOURCE, 2)
    assert len(requests(kubelet)) == 1  # the first try was good: a kubelet that dials back finds it serving
    assert not kubelet.books.seen("Register failed") and not kubelet.books.seen("dial failed")


def test_c02_one_bare_socket_name_for_each_resource(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(1)
    host.devices(2, OTHER)
    start()
    assert kubelet.wait_for(RESOURCE, 1) and kubelet.wait_for(OTHER, 2)
    names = [requests(kubelet, resource)[0].endpoint for resource in (RESOURCE, OTHER)]
    assert len(set(names)) == 2
    assert all(name == os.path.basename(name) and (host.plugins / name).is_socket() for name in names)


ILLEGAL = (
    "thing",
    "kubernetes.io/thing",
    "node.kubernetes.io/thing",
    "requests.vendor.com/thing",
    "Vendor.com/thing",
    "vendor.com/-thing",
    "vendor.com/a/b",
    "vendor.com/" + "a" * 64,
)


@pytest.mark.parametrize("name", ILLEGAL)
def test_c03_names_are_checked_in_the_configuration(host: Host, name: str) -> None:
    host.configure(resources={RESOURCE: {}, name: {"kinds": [RESOURCE]}})
    with pytest.raises(CdiError, match=re.escape(name[:40])):  # a message shows the begin of a long one
        configuration.read(str(host.config))


def test_c03_and_before_anything_registers(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(1)
    host.configure(resources={RESOURCE: {}, ILLEGAL[0]: {"kinds": [RESOURCE]}})
    done = command(host, "check")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and str(host.config) in done.stderr
    plugin = start()
    assert ILLEGAL[0] in plugin.said("config-error")[0]["reason"]
    assert not newer.books.seen("Register")


def test_c03_a_name_of_63_characters_passes(host: Host, newer: Kubelet, start: Start) -> None:
    name = "vendor.com/" + "a" * 63
    host.devices(1)
    host.resource(name, kinds=[RESOURCE])
    start()
    assert newer.wait_for(name, 1)


def test_c04_another_api_version_stops_that_resource_only_and_visibly(
    host: Host, kubelet: Kubelet, start: Start
) -> None:
    kubelet.versions = ("v1",)
    host.devices(1)
    plugin = start()
    refused = plugin.said("refused", resource=RESOURCE)[0]
    assert "v1" in refused["reason"]
    assert requests(kubelet)[0].version == "v1beta1"
    assert until(lambda: state(host) == "refused")
    assert plugin.runs and len(requests(kubelet)) == 1  # asked once: it would not get better
    kubelet.stop()
    kubelet.versions = ("v1", "v1beta1")  # another kubelet may
    kubelet.start()
    assert kubelet.wait_for(RESOURCE, 1)


def test_a_name_that_the_kubelet_refuses_stops_that_resource_only(
    host: Host, kubelet: Kubelet, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kubelet would with a rule that we don't know."""
    monkeypatch.setattr("legal.is_extended", lambda name: name != RESOURCE)
    host.devices(1)
    host.devices(2, OTHER)
    plugin = start()
    assert kubelet.wait_for(OTHER, 2)
    assert "invalid" in plugin.said("refused", resource=RESOURCE)[0]["reason"]
    assert until(lambda: state(host) == "refused" and state(host, OTHER) == "registered")


@pytest.mark.parametrize("pre_start", [False, True])
def test_c05_the_same_options_in_both_places(host: Host, kubelet: Kubelet, start: Start, pre_start: bool) -> None:
    host.devices(1)
    host.resource(RESOURCE, pre_start=pre_start)
    start()
    assert kubelet.wait_for(RESOURCE, 1)
    endpoint = kubelet.books.endpoints[RESOURCE]
    sent = requests(kubelet)[0].options
    endpoint.ask_options()
    assert sent == endpoint.options
    assert sent.get_preferred_allocation_available and sent.pre_start_required == pre_start


def test_c06_a_register_of_12_seconds_is_waited_for(host: Host, newer: Kubelet, start: Start) -> None:
    newer.slow = 12.0  # as one whose GetDevicePluginOptions is slow was measured to take
    host.devices(1)
    start()
    assert newer.wait_for(RESOURCE, 1)
    assert len(requests(newer)) == 1


def test_c07_counts_as_registered_when_list_and_watch_arrives(host: Host, newer: Kubelet, start: Start) -> None:
    newer.silent = 1  # success, and nobody comes
    host.devices(1)
    plugin = start()
    assert newer.books.wait(lambda: requests(newer))
    assert not plugin.lines("registered")
    assert newer.wait_for(RESOURCE, 1)
    assert len(requests(newer)) == 2
    assert plugin.said("registered", resource=RESOURCE)


def test_f01_no_kubelet_at_start(host: Host, short: Path, start: Start) -> None:
    host.plugins.rmdir()
    host.devices(1)
    plugin = start()
    assert "no such directory" in plugin.said("waiting", resource=RESOURCE)[0]["reason"]
    kubelet = make_kubelet(short, NEW._replace(wipe_after=QUICK))
    kubelet.start()
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.stop()


def test_f01_connection_refused(host: Host, short: Path, start: Start) -> None:
    kubelet = make_kubelet(short, NEW._replace(wipe_after=QUICK))
    kubelet.start()
    kubelet.kill()  # leaves its socket
    host.devices(1)
    plugin = start()
    assert plugin.said("retrying", resource=RESOURCE)
    kubelet.start()
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.stop()


def test_f01_unavailable(host: Host, kubelet: Kubelet, start: Start) -> None:
    kubelet.unavailable = 3
    host.devices(1)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 1)
    assert len(requests(kubelet)) == 4
    assert "UNAVAILABLE" in plugin.lines("retrying", resource=RESOURCE)[0]["reason"]
    waits = [event.time for event in kubelet.books.seen("Register", RESOURCE)]
    for number, pause in enumerate((1, 2, 4)):  # it backs off, and a busy machine only adds to that
        assert waits[number + 1] - waits[number] >= 0.75 * pause * registration.FIRST


def test_f01_a_kubelet_that_does_not_answer_takes_no_other_resource_along(
    host: Host, newer: Kubelet, start: Start
) -> None:
    host.devices(1)
    start()
    assert newer.wait_for(RESOURCE, 1)
    newer.front.stalled = True
    host.devices(1, OTHER)
    assert newer.books.wait(lambda: newer.front.ignored)  # it was asked, and says nothing
    host.unplug("thing0")
    assert newer.wait_for(RESOURCE, 0)  # health goes on


def test_f02_the_file_deprecation_means_nothing(host: Host, kubelet: Kubelet, start: Start) -> None:
    (host.plugins / DEPRECATION).touch()
    host.devices(1)
    start()
    assert kubelet.wait_for(RESOURCE, 1)


def test_another_live_plugin_is_detected_before_register(host: Host, newer: Kubelet, start: Start) -> None:
    """By what the kubelet lists, from 1.21 on."""
    other = Sample(newer.directory, RESOURCE, {"theirs": api.HEALTHY}).serve()
    other.register()
    assert newer.wait_for(RESOURCE, 1)
    host.devices(3)
    plugin = start()
    assert "takeover" in plugin.said("conflict", resource=RESOURCE)[0]["reason"]
    assert len(requests(newer)) == 1  # that of the other one
    assert until(lambda: state(host) == "conflict")
    host.configure(takeover=True)
    assert newer.wait_for(RESOURCE, 3)
    other.stop()


def test_another_live_plugin_keeps_its_resource_when_the_kubelet_restarts(
    host: Host, newer: Kubelet, start: Start
) -> None:
    """Though it is not as quick to register: whoever comes last has it."""
    other = Sample(newer.directory, RESOURCE, {"theirs": api.HEALTHY}).serve()
    other.register()
    host.devices(3)
    plugin = start()
    assert "takeover" in plugin.said("conflict", resource=RESOURCE)[0]["reason"]
    for restart in range(2):
        newer.restart()
        other.stop()
        time.sleep(1)
        other = Sample(newer.directory, RESOURCE, {"theirs": api.HEALTHY}, f"other{restart}.sock").serve()
        other.register()
        assert newer.wait_for(RESOURCE, 1)
    time.sleep(1)
    assert newer.counts(RESOURCE) == (1, 1) and not plugin.lines("registered")
    other.stop()
    assert newer.wait_for(RESOURCE, 3)


def test_a_plugin_that_is_gone_is_no_rival(host: Host, kubelet: Kubelet, start: Start) -> None:
    other = Sample(kubelet.directory, RESOURCE, {"theirs": api.HEALTHY}).serve()
    other.register()
    assert kubelet.wait_for(RESOURCE, 1)
    other.stop()
    assert kubelet.wait_for(RESOURCE, 0)
    host.devices(3)
    start()
    assert kubelet.wait_for(RESOURCE, 3)
