# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What podresources of the kubelet say to the daemon: a stream that is doubted, and when they are asked."""

from __future__ import annotations

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import PluginSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon import served_node as module
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.served_node import ServedNode
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.device_list import Advertised
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.podresources import InUse
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process.log import Log

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


def test_a_stream_that_ended_while_the_kubelet_answered_is_not_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter([instance_status.REGISTERED, instance_status.RETRYING])
    reasons: list[str] = []

    async def scene() -> None:
        node, _peers = beside(tmp_path, instance_status.REGISTERED, {"d0": True}, reasons.append)
        one: Any = node.served[NAME]

        async def allocatable(_path: str) -> dict[str, list[str]]:
            one.state = next(states)
            return {}

        monkeypatch.setattr(module, "allocatable", allocatable)
        node.look()
        for _time in range(2):
            await node.doubt()
        assert one.missed == module.DOUBTS

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


def test_the_host_is_looked_at_again_when_pods_have_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [["d1"], ["d1"], ["d0"], ["d0", "d1"], ["d0", "d1"], []]
    answer = iter(answers)

    async def listed(_path: str) -> InUse:
        return InUse(1, frozenset((NAME, one) for one in next(answer)))

    monkeypatch.setattr(module, "in_use", listed)
    site: Any = SimpleNamespace(settings=PluginSettings(), log=Log(io.StringIO()))
    reclaimer: Any = SimpleNamespace(step=lambda *_given: [])
    node = ServedNode(site, SimpleNamespace(), SimpleNamespace(keeper=None), reclaimer)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool:
        news = [asyncio.run(node.reclaim(pool)) for _time in answers]
    assert news == [True, False, True, True, False, True]


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
