# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Somebody else's device plugin, as small as they come: registers once, and serves until it is killed.

rival.py RESOURCE ID...    with the release in PYTHONPATH
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api
from ansible_collections.fleet.cdi.plugins.module_utils.layout import kubelet_layout

V1BETA1 = api.v1beta1


def main(resource, *idents):
    """Serve and register."""
    forever = threading.Event()
    options = V1BETA1.DevicePluginOptions()

    def list_and_watch(_request, _context):
        yield V1BETA1.ListAndWatchResponse(devices=[V1BETA1.Device(ID=ident, health=api.HEALTHY) for ident in idents])
        forever.wait()

    def allocate(request, _context):
        answers = [V1BETA1.ContainerAllocateResponse(envs={"RIVAL": "1"}) for _one in request.container_requests]
        return V1BETA1.AllocateResponse(container_responses=answers)

    server = grpc.server(ThreadPoolExecutor(8))
    methods = {
        "GetDevicePluginOptions": lambda _request, _context: options,
        "ListAndWatch": list_and_watch,
        "Allocate": allocate,
    }
    server.add_generic_rpc_handlers((api.handler("v1beta1.DevicePlugin", methods),))
    name = f"rival-{time.time_ns()}.sock"
    server.add_insecure_port(f"unix:{kubelet_layout().plugin_dir}/{name}")
    server.start()
    registry = api.stub(
        grpc.insecure_channel(f"unix:{kubelet_layout().plugin_dir}/{api.KUBELET_SOCKET}"), "v1beta1.Registration"
    )
    asked = V1BETA1.RegisterRequest(version=api.VERSION, endpoint=name, resource_name=resource, options=options)
    registry.Register(asked, timeout=20)
    forever.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
