# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What module device_plugin_info asks a kubelet and its other plugins, over real sockets."""

from __future__ import annotations

import socket
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_info
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api


@pytest.fixture
def kubelet():
    """A kubelet's directory, and what makes somebody listen in it."""
    with tempfile.TemporaryDirectory(prefix="k") as root:
        servers = []

        def listen(path, service, **methods):
            target = Path(root, path)
            target.parent.mkdir(exist_ok=True)
            server = grpc.server(ThreadPoolExecutor(2))
            server.add_generic_rpc_handlers((api.handler(service, methods),))
            server.add_insecure_port(f"unix:{target}")
            server.start()
            servers.append(server)

        listen.root = root
        yield listen
        for server in servers:
            server.stop(0)


def plugin(kind, name):
    """GetInfo of a plugin that a kubelet finds by its socket."""
    return lambda _request, _context: api.registration.PluginInfo(type=kind, name=name)


def lists(_request, _context):
    answer = api.podresources.AllocatableResourcesResponse()
    answer.devices.add(resource_name="vendor.com/gpu", device_ids=["gpu0", "gpu1"])
    return answer


def ask(kubelet):
    return device_plugin_info._ask(kubelet.root)


def test_a_kubelet_with_all_there_can_be(kubelet):
    kubelet("device-plugins/kubelet.sock", "v1beta1.Registration")
    kubelet("pod-resources/kubelet.sock", "v1.PodResourcesLister", GetAllocatableResources=lists)
    service = "pluginregistration.Registration"
    kubelet("plugins_registry/gpu-reg.sock", service, GetInfo=plugin("DRAPlugin", "gpu.vendor.com"))
    kubelet("plugins_registry/csi-reg.sock", service, GetInfo=plugin("CSIPlugin", "csi.vendor.com"))
    kubelet("plugins_registry/fleet-cdi-x.sock", service, GetInfo=plugin("DRAPlugin", "not.asked"))
    kubelet("plugins_registry/other.sock", "v1beta1.Registration")
    found = ask(kubelet)
    assert found.state == "up" and found.drivers == ("gpu.vendor.com",)
    assert found.listed == {"vendor.com/gpu": frozenset({"gpu0", "gpu1"})}


def test_a_kubelet_before_1_21(kubelet):
    kubelet("device-plugins/kubelet.sock", "v1beta1.Registration")
    kubelet("pod-resources/kubelet.sock", "v1.PodResourcesLister")
    found = ask(kubelet)
    assert (found.state, found.listed, found.drivers) == ("up", None, ()) and found.why


def test_one_that_has_ended(kubelet):
    directory = Path(kubelet.root, "device-plugins")
    directory.mkdir()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(directory / "kubelet.sock"))
    found = ask(kubelet)
    assert (found.state, found.listed) == ("down", None) and "nobody listens" in found.why


def test_one_that_finds_plugins_and_has_no_socket_to_register_at(kubelet):
    """The daemon waits to be found by it (`registration: auto`), so it is one that has to list the resources."""
    kubelet("pod-resources/kubelet.sock", "v1.PodResourcesLister", GetAllocatableResources=lists)
    found = ask(kubelet)
    assert (found.state, found.why) == ("up", "")
    assert found.listed == {"vendor.com/gpu": frozenset({"gpu0", "gpu1"})}


def test_without_grpc(kubelet, monkeypatch):
    kubelet("device-plugins/kubelet.sock", "v1beta1.Registration")
    kubelet("pod-resources/kubelet.sock", "v1.PodResourcesLister", GetAllocatableResources=lists)
    for name in ("grpc", "grpc.aio"):
        monkeypatch.setitem(sys.modules, name, None)
    found = ask(kubelet)
    assert (found.state, found.listed) == ("up", None) and "python3-grpcio is missing" in found.why


def test_none(kubelet):
    assert ask(kubelet).state == "absent"
