# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bad input: what is broken costs its own devices, and nothing else."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from functools import partial
from typing import Any

import pytest
from conftest import Start
from host import PATIENCE, Host, Plugin, command, until
from kubelet import Kubelet
from sample import Sample

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import lock_file
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health import held_elsewhere
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory

RESOURCE = "vendor.com/thing"

# Files in the spec directory, none of which may cost more than its own devices.
BROKEN: dict[str, Any] = {
    "empty.json": "",
    "half.json": '{"cdiVersion": "0.5.0", "kind": "vendor.com/ha',
    "list.json": "[]",
    "nul.json": "\0",
    "binary.json": b"\xff\xfe\x00\x01",
    "deep.json": "[" * 100_000,
    "number.json": json.dumps({"cdiVersion": 5, "kind": "a.com/b", "devices": []}),
    "no-kind.json": json.dumps({"cdiVersion": "0.5.0", "devices": [{"name": "x", "containerEdits": {}}]}),
    "no-version.json": json.dumps({"kind": "vendor.com/old", "devices": []}),
    "future.json": json.dumps({"cdiVersion": "99.0.0", "kind": "vendor.com/future", "devices": []}),
    "bad-name.json": json.dumps(
        {"cdiVersion": "0.5.0", "kind": "vendor.com/bad", "devices": [{"name": "a b", "containerEdits": {}}]}
    ),
    "no-edits.json": json.dumps({"cdiVersion": "0.5.0", "kind": "vendor.com/none", "devices": [{"name": "x"}]}),
    "anchors.yaml": "a: &a [*a]\n",
    "tabs.yaml": "\tcdiVersion: 0.5.0\n",
}


def registered(kubelet: Kubelet) -> set[str]:
    """The resources that anybody ever registered."""
    return {event.resource for event in kubelet.books.seen("Register")}


def test_broken_specs_cost_their_own_devices(host: Host, newer: Kubelet, start: Start) -> None:
    for name, content in BROKEN.items():
        (host.specs / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (host.specs / "loop.json").symlink_to("loop.json")
    (host.specs / "dangling.json").symlink_to("nowhere")
    (host.specs / "dir.json").mkdir()
    os.mkfifo(host.specs / "fifo.json")
    host.devices(2)
    plugin = start()
    assert newer.wait_for(RESOURCE, 2)
    assert registered(newer) == {RESOURCE}
    for name in ("half.json", "binary.json", "future.json", "bad-name.json"):
        assert name in plugin.text  # said, each of them
    done = command(host, "status")
    assert done.returncode == 1 and "half.json" in done.stdout
    host.spec("vendor.com/half", {"h0": ["thing0"]}, file="half.json")  # and mended
    assert newer.wait_for("vendor.com/half", 1)


def test_names_in_conflict_are_not_offered(host: Host, newer: Kubelet, start: Start) -> None:
    host.devices(2)
    host.spec(RESOURCE, {"d1": ["thing7"]}, file="other.json")
    start()
    assert newer.wait_for(RESOURCE, 1)
    assert set(newer.books.devices[RESOURCE]) == {"d0"}
    (host.specs / "other.json").unlink()
    assert newer.wait_for(RESOURCE, 2)


def test_kinds_that_make_no_legal_resource_name(host: Host, newer: Kubelet, start: Start) -> None:
    host.plug("thing0")
    illegal = ["Vendor.com/thing", "vendor.com/" + "a" * 64, "requests.x.com/thing", "x.kubernetes.io/thing"]
    for number, kind in enumerate([*illegal, "vendor/thing"]):
        host.spec(kind, {"d0": ["thing0"]}, file=f"{number}.json")
    host.spec(RESOURCE, {"d0": ["thing0"]}, file="good.json")
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    assert registered(newer) - {"vendor/thing"} == {RESOURCE}  # one label is a domain
    assert all(kind in plugin.text for kind in illegal)


def test_a_long_resource_name_has_a_socket_of_its_own(host: Host, newer: Kubelet, start: Start) -> None:
    """253 characters of domain and 63 of name don't fit into a path of 107."""
    domain = ".".join(["d" * 60] * 4)[:200]
    names = [f"{domain}/{'n' * 62}{number}" for number in (1, 2)]
    host.devices(1)
    host.configure(resources={name: {"kinds": [RESOURCE]} for name in names})
    start()
    assert all(newer.wait_for(name, 1) for name in names)


def test_sockets_of_others_stay(host: Host, newer: Kubelet, start: Start) -> None:
    """Those that live, those that are dead, and what only looks like ours."""
    other = Sample(newer.directory, "other.com/thing", {"x": api.HEALTHY}, "other.sock").serve()
    other.register()
    dead, ours = host.plugins / "dead.sock", host.plugins / "fleet-cdi-vendor.com-thing-000000-00000000-1.sock"
    for path in (dead, ours):
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(path))
        os.utime(path, (1, 1))
    (host.plugins / "fleet-cdi-notes.txt").write_text("not a socket")
    host.devices(1)
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    plugin.said("removed-stale-socket", path=str(ours))
    assert dead.exists() and not ours.exists() and (host.plugins / "fleet-cdi-notes.txt").exists()
    assert newer.counts("other.com/thing") == (1, 1)
    other.stop()


def test_a_kubelet_of_another_version_after_one_that_was_well(host: Host, kubelet: Kubelet, start: Start) -> None:
    host.devices(1)
    plugin = start()
    assert kubelet.wait_for(RESOURCE, 1)
    kubelet.stop()
    kubelet.versions = ("v1",)
    kubelet.start()
    plugin.said("refused", resource=RESOURCE)
    kubelet.stop()
    kubelet.versions = ("v1beta1",)
    kubelet.start()
    assert kubelet.wait_for(RESOURCE, 1)


def test_files_from_the_future_and_from_1970(host: Host, newer: Kubelet, start: Start) -> None:
    """A clock that jumps shows in a process only as times of files and of the log: none decides anything."""
    host.devices(2)
    host.resource(RESOURCE)
    start()
    assert newer.wait_for(RESOURCE, 2)
    spec = host.specs / "vendor.com-thing.json"
    for when in (4_000_000_000, 0):
        os.utime(spec, (when, when))
        os.utime(host.config, (when, when))
        os.utime(host.plugins, (when, when))
    host.unplug("thing0")
    assert newer.wait_for(RESOURCE, 1)
    host.plug("thing0")
    assert newer.wait_for(RESOURCE, 2)
    newer.run("p", **{RESOURCE: 1})


def test_a_clock_that_jumps(host: Host, newer: Kubelet, start: Start) -> None:
    """The wall clock, by a day forth and by a week back, between and in the middle of everything that waits."""
    clock = host.base / "clock"

    def jump_to(seconds: int) -> None:
        unfinished = host.base / "clock.unfinished"
        unfinished.write_text(str(seconds))
        unfinished.rename(clock)

    jump_to(-86400)
    host.devices(2)
    host.resource(RESOURCE)
    plugin = start(clock=clock)
    assert newer.wait_for(RESOURCE, 2)
    newer.run("bystander")  # where no pod at all is listed the plugin waits ten times as long
    for jump in (0, 86400, -604800):
        jump_to(jump)
        newer.run("p", **{RESOURCE: 1})
        host.unplug("thing0")
        assert newer.wait_for(RESOURCE, 1)
        host.plug("thing0")
        assert newer.wait_for(RESOURCE, 2)
        newer.restart()
        assert newer.wait_for(RESOURCE, 2)
        newer.delete("p")
    until(lambda: plugin.lines("released"))


def test_clocks_since_boot_that_differ(host: Host, newer: Kubelet, start: Start) -> None:
    """In a time namespace, as of a container that was moved there: CLOCK_MONOTONIC and CLOCK_BOOTTIME are others."""
    wrapper = ["unshare", "--time", "--monotonic", "100000", "--boottime", "100000"]
    probe = subprocess.run([*wrapper, "cat", "/proc/uptime"], check=False, capture_output=True, text=True)
    if probe.returncode != 0 or float(probe.stdout.split()[0]) - time.clock_gettime(time.CLOCK_BOOTTIME) < 90_000:
        pytest.skip("this machine lets nobody make time namespaces")
    host.devices(2)
    host.resource(RESOURCE)
    start("ahead", wrapper=wrapper)
    assert newer.wait_for(RESOURCE, 2)
    newer.drop(RESOURCE)
    assert newer.books.wait(lambda: len(newer.books.seen("ListAndWatch")) == 2)
    host.unplug("thing0")
    assert newer.wait_for(RESOURCE, 1)


# A configuration that is wrong -> what is said of it.
WRONG = {
    "": "JSON",
    "[]": "a mapping",
    '{"version": 2}': "version",
    '{"version": 1, "resource": {}}': "did you mean 'resources'?",
    '{"version": 1, "grace": 5, "grace": 6}': "twice",
    '{"version": 1, "resources": {"vendor.com/thing": {"replicas": 0}}}': "replicas",
}


def test_a_configuration_that_is_wrong(host: Host, newer: Kubelet, start: Start) -> None:
    """The daemon says so and keeps the one in force; one that has none yet waits for a good one."""
    host.devices(1)
    good = host.config.read_text()
    plugin = start()
    assert newer.wait_for(RESOURCE, 1)
    for number, (text, expected) in enumerate(WRONG.items(), 1):
        host.config.write_text(text)
        lines = until(partial(_complaints, plugin, number))
        assert expected in lines[-1]["reason"]
    assert newer.counts(RESOURCE) == (1, 1) and len(newer.books.seen("Register")) == 1
    assert command(host, "check").returncode == 2
    plugin.stop()
    host.config.write_text(json.dumps({**json.loads(good), "resource": {}}))  # its run_dir can be read all the same
    plugin = start()
    plugin.said("config-error")
    assert newer.counts(RESOURCE) == (1, 0)
    host.config.write_text(good)
    assert newer.wait_for(RESOURCE, 1)


def _complaints(plugin: Plugin, number: int) -> list[dict[str, str]]:
    lines = plugin.lines("config-error")
    return lines if len(lines) == number else []


def test_a_damaged_ledger(host: Host, newer: Kubelet, start: Start) -> None:
    """Nothing is handed out by a store that lost what others hold; one that its log knows lost nothing."""
    host.devices(3)
    plugin = start()
    assert newer.wait_for(RESOURCE, 3)
    newer.run("p", **{RESOURCE: 1})
    store, lock = host.base / "state/ledger.db", str(host.base / "state/ledger.lock")
    with lock_file.gate(lock, time.monotonic() + PATIENCE):
        store.write_bytes(b"not a database" * 1000)
    newer.run("q", **{RESOURCE: 1})
    assert len(held_elsewhere.read_ledger(Ledger(str(host.base / "state"), inventory.boot_id())).grants) == 2
    with lock_file.gate(lock, time.monotonic() + PATIENCE):  # nobody rebuilds the one before the other is gone
        store.write_bytes(b"not a database" * 1000)
        (host.base / "state/ledger.log").unlink()
    with pytest.raises(Exception, match="ledger.db"):
        newer.run("r", **{RESOURCE: 1})
    assert plugin.runs
