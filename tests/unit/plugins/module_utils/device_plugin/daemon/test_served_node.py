# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the daemon hears from outside besides files: the kubelet's podresources, udev; and looks that fail."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import Want, take
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import PluginSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import served_node as module
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.observer import Viewer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.served_node import ServedNode
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.device_list import Advertised
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import udev_events
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit, Resource
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.log import Log
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, NetDevice

NAME = "acme.com/widget"
DEADLINE = 30  # seconds, for what takes one at most

DOUBTS = [
    # state of the resource, what we say, what the kubelet lists each time -> how often the stream is doubted
    (instance_status.REGISTERED, {"d0": True, "d1": True}, [["d0", "d1"], ["d0", "d1"]], 0),
    (instance_status.REGISTERED, {"d0": True, "d1": True}, [["d1"], ["d1"], ["d1"]], 0),
    (instance_status.REGISTERED, {"d0": True}, [[], ["d0"], [], ["d0"]], 0),
    (instance_status.REGISTERED, {"d0": True}, [[], []], 1),
    (instance_status.REGISTERED, {"d0": True}, [["theirs"], ["theirs"]], 1),
    (instance_status.REGISTERED, {"d0": False}, [[], [], []], 0),
    (instance_status.REGISTERED, {}, [[], [], []], 0),
    (instance_status.STANDBY, {"d0": True}, [[], [], []], 0),
]


def beside(directory: Path, state: str, said: dict[str, bool], doubt: Any) -> tuple[ServedNode, set[str]]:
    """A node with one resource, and the resources that another instance of ours serves."""
    peers: set[str] = set()
    settings = PluginSettings(pod_resources=str(directory / "pods.sock"))
    site: Any = SimpleNamespace(settings=settings, peers=SimpleNamespace(serve=peers.__contains__))
    nothing: Any = None
    node = ServedNode(site, nothing, nothing, nothing)
    served: Any = SimpleNamespace(
        name=NAME,
        state=state,
        missed=0,
        roster=SimpleNamespace(advertised=[Advertised(name, healthy) for name, healthy in said.items()]),
        registrar=SimpleNamespace(doubt=doubt, look=lambda: None, server=None),
    )
    node.served[NAME] = served
    return node, peers


@pytest.mark.parametrize(("state", "said", "listed", "doubts"), DOUBTS)
def test_a_stream_is_doubted_when_twice_nothing_of_it_is_listed(
    tmp_path: Path, state: str, said: dict[str, bool], listed: list[list[str]], doubts: int
) -> None:
    reasons: list[str] = []
    answers = iter(listed)

    async def allocatable(_request: Any, _context: Any) -> Any:
        devices = [api.podresources.ContainerDevices(resource_name=NAME, device_ids=next(answers))]
        return api.podresources.AllocatableResourcesResponse(devices=devices)

    async def scene() -> None:
        path = str(tmp_path / "pods.sock")
        server = grpc.aio.server()
        methods = {"GetAllocatableResources": allocatable}
        server.add_generic_rpc_handlers((api.handler("v1.PodResourcesLister", methods),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        node, _peers = beside(tmp_path, state, said, reasons.append)
        node.look()
        for _time in listed:
            await node.doubt()
        await server.stop(0)

    asyncio.run(scene())
    assert len(reasons) == doubts


def test_a_kubelet_that_can_not_be_asked_is_no_reason_for_doubt(tmp_path: Path) -> None:
    reasons: list[str] = []

    async def scene() -> None:
        node, _peers = beside(tmp_path, instance_status.REGISTERED, {"d0": True}, reasons.append)
        node.look()
        for _time in range(3):
            await node.doubt()
        assert node.served[NAME].missed == 0

    asyncio.run(scene())
    assert not reasons


def test_a_kubelet_is_asked_for_what_it_lists_only_after_others_came_or_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer names every device of the node: it is not asked for it all day."""
    asked = []

    async def allocatable(_path: str) -> dict[str, list[str]]:
        asked.append(1)
        return {NAME: ["d0"]}

    monkeypatch.setattr(module, "allocatable", allocatable)

    async def scene() -> None:
        node, peers = beside(tmp_path, instance_status.REGISTERED, {"d0": True}, None)

        async def doubts() -> int:
            asked.clear()
            await node.doubt()
            return len(asked)

        assert await doubts() == 0
        node.look()
        assert await doubts() == await doubts() == 1
        monkeypatch.setattr(module, "WARY", 0)
        node.look()
        assert await doubts() == 0, "that was long ago"
        monkeypatch.setattr(module, "WARY", 60)
        peers.add(NAME)
        assert await doubts() == 0
        peers.clear()
        assert await doubts() == 1, "another instance of ours went, perhaps without a word"

    asyncio.run(scene())


def test_podresources_that_can_not_be_asked_are_said_once_and_not_for_a_kubelet_that_starts(tmp_path: Path) -> None:
    stream, nothing, viewer = io.StringIO(), SimpleNamespace(), SimpleNamespace(keeper=None)
    settings = PluginSettings(pod_resources=str(tmp_path / "none.sock"))
    site: Any = SimpleNamespace(settings=settings, log=Log(stream))
    reclaimer: Any = SimpleNamespace(step=lambda *_given: [])
    node = ServedNode(site, nothing, viewer, reclaimer)  # type: ignore[arg-type]
    served: Any = SimpleNamespace(state=instance_status.REGISTERED, resource=None)
    node.served[NAME] = served
    lines = []
    with ThreadPoolExecutor(1) as pool:
        for state in (
            instance_status.WAITING,
            instance_status.WAITING,
            instance_status.REGISTERED,
            instance_status.REGISTERED,
            instance_status.REGISTERED,
        ):
            served.state = state
            asyncio.run(node.reclaim(pool))
            lines.append(stream.getvalue().count("event=no-podresources"))
    assert lines == [0, 0, 0, 1, 1]


class Monitor:
    """pyudev.Monitor, with events that a test puts into it."""

    def __init__(self) -> None:
        self.reader, self.writer = socket.socketpair()
        self.events: list[str | OSError] = []

    def put(self, *events: str | OSError) -> None:
        self.events += events
        self.writer.send(b"x" * len(events))

    def set_receive_buffer_size(self, _size: int) -> None:
        raise PermissionError("needs CAP_NET_ADMIN")

    def start(self) -> None:
        self.reader.setblocking(False)

    def fileno(self) -> int:
        return self.reader.fileno()

    def poll(self, timeout: float) -> Any:
        assert timeout == 0, "the loop must not wait here"
        if not self.events:
            return None
        self.reader.recv(1)
        event = self.events.pop(0)
        if isinstance(event, OSError):
            raise event
        return SimpleNamespace(subsystem=event)


@pytest.fixture
def monitor(monkeypatch: pytest.MonkeyPatch) -> Monitor:
    found = Monitor()
    module = SimpleNamespace(
        Context=lambda: None,
        Monitor=SimpleNamespace(from_netlink=lambda _context, source: found if source == "udev" else None),
    )
    monkeypatch.setitem(sys.modules, "pyudev", module)
    return found


EVENTS = [
    (["drm"], (), 1),
    (["net", "queues", "bdi"], (), 0),
    (["net"], (NetDevice("eth7"),), 1),
    (["net", "drm", "net"], (), 1),
    ([OSError("ENOBUFS")], (), 1),
    (["usb"] * 300, (), 2),
]


@pytest.mark.parametrize(("events", "moves", "calls"), EVENTS)
def test_events_of_devices_that_may_matter(monitor: Monitor, events: Any, moves: Any, calls: int) -> None:
    told = []

    async def scene() -> None:
        found = udev_events.Events(lambda: told.append(1))
        assert found.start() == ""
        device = Device("d", "", NAME, ("d",), (), net_devices=moves)
        found.noise = udev_events.noise([Resource(NAME, (OfferedUnit("d", (f"{NAME}=d",), device),))])
        monitor.put(*events)
        for _turn in range(DEADLINE * 100):
            await asyncio.sleep(0.01)
            if not monitor.events:
                break
        await asyncio.sleep(0.05)
        found.stop()

    asyncio.run(scene())
    assert len(told) == calls


def test_without_pyudev_there_are_no_events_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyudev", None)

    async def scene() -> str:
        found = udev_events.Events(lambda: None)
        reason = found.start()
        found.stop()
        return reason

    assert "pyudev" in asyncio.run(scene())


@pytest.mark.skipif(not os.path.isdir("/sys/devices"), reason="no sysfs here")
def test_the_real_monitor_opens() -> None:
    pytest.importorskip("pyudev")

    async def scene() -> str:
        found = udev_events.Events(lambda: None)
        reason = found.start()
        found.stop()
        return reason

    assert asyncio.run(scene()) == ""


def test_what_the_daemon_holds_itself_wakes_no_look_and_what_others_hold_does(tmp_path: Path) -> None:
    """Each Allocate would have a look at the host at its heels, which the next one has to share the machine with."""
    ours, theirs = (Ledger(str(tmp_path / "state"), "boot-1") for _time in range(2))
    found = PluginSettings(spec_dirs=(str(tmp_path),), state_dir=str(tmp_path / "state"), inventory=str(tmp_path / "i"))
    subjects = Viewer(found, ours).subjects()

    def states() -> list[Any]:
        return [subject.look(subject.path) for subject in subjects]

    def hold(ledger: Ledger, name: str) -> None:
        take(ledger, NAME, [Want(name, Device(f"tty:{name}", "rule", NAME, (name,), ()))])

    hold(ours, "d0")
    before = states()
    hold(ours, "d1")
    hold(ours, "d1")
    assert states() == before
    hold(theirs, "d2")
    assert states() != before
