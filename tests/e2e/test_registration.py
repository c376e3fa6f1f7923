# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two ways to a kubelet, what it refuses, and how much it takes."""

from __future__ import annotations

import asyncio
import itertools
import queue
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest
from node import wait
from product import ACCEL, ALL, seen

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api, register_call
from ansible_collections.fleet.cdi.plugins.module_utils.layout import kubelet_layout

REFUSED = [("no-domain", api.VERSION), (ACCEL, "v2")]  # a resource's name, an API version


@pytest.mark.parametrize(("resource", "api_version"), REFUSED)
def test_what_is_refused_for_good_is_told_from_what_may_pass(cluster, monkeypatch, resource, api_version):
    """By the words, as the status is UNKNOWN for everything."""
    monkeypatch.setattr(api, "VERSION", api_version)
    server = SimpleNamespace(path="/a.sock", resource=resource, options=api.v1beta1.DevicePluginOptions(), heard=False)
    with pytest.raises(register_call.RegisterRefused):
        asyncio.run(
            register_call.call(str(cluster.node.path(kubelet_layout().plugin_dir) / api.KUBELET_SOCKET), server)
        )


@pytest.mark.parametrize(("resource", "api_version"), REFUSED)
def test_so_is_what_the_watcher_refuses(cluster, resource, api_version):
    said = queue.Queue()
    info = api.registration.PluginInfo(type="DevicePlugin", name=resource, supported_versions=[api_version])

    def notified(request, _context):
        said.put(request.error)
        return api.registration.RegistrationStatusResponse()

    methods = {"GetInfo": lambda _request, _context: info, "NotifyRegistrationStatus": notified}
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((api.handler("pluginregistration.Registration", methods),))
    server.add_insecure_port(f"unix:{cluster.node.path(kubelet_layout().registry_dir)}/refused.sock")
    server.start()
    try:
        assert register_call.FINAL.search(said.get(timeout=30))
    finally:
        server.stop(None).wait()


def test_a_plugin_that_the_kubelet_finds(product, cluster, figure):
    product.configure(registration="watcher")
    old = product.serve(ALL)
    assert not list(product.node.path(kubelet_layout().plugin_dir).glob("fleet-cdi-*"))
    name = cluster.create({ACCEL: 1})
    (held,) = seen(cluster.output(name))[1]

    cluster.stop_kubelet(signal.SIGKILL)
    since = cluster.now()
    cluster.start_kubelet()
    figure("a kubelet that restarts finds it again", cluster.await_allocatable(ACCEL, ALL, since) - since)
    wait("the old instance's word of it", lambda: old.tail().count("event=registered") == 2)

    new = product.start()
    wait("the new instance's stream", lambda: "event=registered" in new.tail())
    since = cluster.now()
    assert old.stop(signal.SIGTERM) == 0
    figure("a kubelet finds a younger instance again", cluster.await_allocatable(ACCEL, ALL, since) - since)
    assert cluster.held(name, ACCEL) == {held}
    assert seen(cluster.output(cluster.create({ACCEL: 2})))[1] == ALL - {held}


def test_60000_devices(product, cluster):
    """59 with 1024 replicas each; a message of 4 MiB would be dropped without a word."""
    names = [f"accel{number}" for number in range(59)]
    product.configure({ACCEL: {"replicas": 1024}})
    product.plug(*names)
    product.describe(*names)
    product.serve(f"{name}::{number}" for name, number in itertools.product(names, range(1024)))
    name = cluster.create({ACCEL: 1})
    (ident,) = cluster.held(name, ACCEL)
    nodes = {line.split()[-1] for line in cluster.output(name).splitlines() if line.startswith("c")}
    assert nodes & {*names} == {ident.partition("::")[0]}
