# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podresources over real sockets: what it says, and the ways in which it can't be asked, told apart."""

from __future__ import annotations

import asyncio
import os
import socket
import threading

import grpc
import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api, podresources

GPU = "nvidia.com/gpu"


def served(path, methods, scene):
    """What `scene` returns while a kubelet with `methods` listens at `path`."""

    async def run():
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((api.handler("v1.PodResourcesLister", methods),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        try:
            return await scene()
        finally:
            await server.stop(None)

    return asyncio.run(run())


async def listing(_request, _context):
    answer = api.podresources.ListPodResourcesResponse()
    answer.pod_resources.add(name="idle")
    pod = answer.pod_resources.add(name="job", namespace="default")
    pod.containers.add(name="init")
    container = pod.containers.add(name="main")
    container.devices.add(resource_name=GPU, device_ids=["GPU-1::0", "GPU-2::1"])
    container.devices.add(resource_name="intel.com/qat", device_ids=["GPU-1"])
    return answer


async def allocatable(_request, _context):
    answer = api.podresources.AllocatableResourcesResponse()
    answer.devices.add(resource_name=GPU, device_ids=["GPU-1", "GPU-2"])
    return answer


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "kubelet.sock")


def test_what_is_in_use(path):
    found = served(path, {"List": listing}, lambda: podresources.in_use(path))
    assert found[:2] == (2, frozenset({(GPU, "GPU-1::0"), (GPU, "GPU-2::1"), ("intel.com/qat", "GPU-1")}))


def test_what_claims_have(path):
    """Each once, whichever containers have it; an older kubelet says nothing of them."""

    async def listing_claims(_request, _context):
        answer = api.podresources.ListPodResourcesResponse()
        for pod in ("a", "b"):
            container = answer.pod_resources.add(name=pod, namespace="ml").containers.add(name="c")
            for driver, name in (("gpu.amd.com", "x"), ("gpu.amd.com", "y"), ("net.amd.com", "z")):
                claim = container.dynamic_resources.add(claim_name="train", claim_namespace="ml")
                one = claim.claim_resources.add(driver_name=driver, pool_name="node", device_name=name)
                one.cdi_devices.add(name=f"v.com/c={name}{pod}")
        return answer

    found = served(path, {"List": listing_claims}, lambda: podresources.in_use(path))
    assert found.claims == (
        podresources.ListedClaim("gpu.amd.com", "ml/train", ("v.com/c=xa", "v.com/c=xb", "v.com/c=ya", "v.com/c=yb")),
        podresources.ListedClaim("net.amd.com", "ml/train", ("v.com/c=za", "v.com/c=zb")),
    )
    assert served(path, {"List": listing}, lambda: podresources.in_use(path)).claims == ()


def test_a_claim_as_a_kubelet_sends_it():
    """Bytes of ContainerResources as k8s.io/kubelet 0.36 numbers them: name 1, dynamic_resources 5, and within these
    claim_name 2, claim_namespace 3, claim_resources 4 with cdi_devices 1, driver_name 2, pool_name 3, device_name 4,
    share_id 5."""
    device = b"\x0a\x03\x0a\x01d\x12\x01e\x1a\x01p\x22\x01g\x2a\x01s"
    claim = b"\x12\x01c\x1a\x01n\x22" + bytes([len(device)]) + device
    container = api.podresources.ContainerResources.FromString(b"\x0a\x01m\x2a" + bytes([len(claim)]) + claim)
    (found,) = container.dynamic_resources
    (one,) = found.claim_resources
    assert (container.name, found.claim_name, found.claim_namespace, one.driver_name) == ("m", "c", "n", "e")
    assert [device.name for device in one.cdi_devices] == ["d"]


def test_which_kubelet_says_so(path):
    """Each one that starts makes the socket anew."""

    async def twice():
        return await podresources.in_use(path), await podresources.in_use(path)

    (one, same), (other, _again) = (served(path, {"List": listing}, twice) for _start in range(2))
    assert one == same
    assert one.kubelet and other == one._replace(kubelet=other.kubelet) != one


def test_what_is_allocatable(path):
    found = served(path, {"GetAllocatableResources": allocatable}, lambda: podresources.allocatable(path))
    assert found == {GPU: {"GPU-1", "GPU-2"}}


def test_an_answer_of_many_megabytes(path):
    """The default of gRPC is 4 MiB."""

    async def many(_request, _context):
        answer = api.podresources.ListPodResourcesResponse()
        for number in range(100):
            container = answer.pod_resources.add(name=f"pod-{number}").containers.add(name="c")
            container.devices.add(resource_name=GPU, device_ids=[f"{'x' * 50}{number}-{one}" for one in range(1000)])
        assert answer.ByteSize() > 5 << 20
        return answer

    found = served(path, {"List": many}, lambda: podresources.in_use(path, 60.0))
    assert (found.pods, len(found.devices)) == (100, 100_000)


@pytest.mark.parametrize(
    ("call", "methods", "read"),
    [
        (podresources.in_use, {"List": listing}, "_in_use"),
        (podresources.allocatable, {"GetAllocatableResources": allocatable}, "_allocatable"),
    ],
)
def test_an_answer_is_read_in_a_thread_of_its_own(path, monkeypatch, call, methods, read):
    """One of 60,000 devices would hold up the event loop for most of a second."""
    threads, real = [], getattr(podresources, read)
    monkeypatch.setattr(podresources, read, lambda answer: threads.append(threading.current_thread()) or real(answer))
    assert served(path, methods, lambda: call(path))
    assert threads and threading.main_thread() not in threads


def refused(path, methods, call):
    with pytest.raises(podresources.Unavailable) as error:
        served(path, methods, call)
    assert "\n" not in str(error.value)
    return error.value.cause, str(error.value)


def test_an_older_kubelet(path):
    cause, text = refused(path, {"List": listing}, lambda: podresources.allocatable(path))
    assert cause == "unsupported"
    assert "has no GetAllocatableResources of podresources v1" in text


def test_no_answer_in_time(path):
    async def hangs(_request, _context):
        await asyncio.sleep(60)

    assert refused(path, {"List": hangs}, lambda: podresources.in_use(path, 0.2))[0] == "time"


def test_an_error(path):
    async def fails(_request, context):
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    assert refused(path, {"List": fails}, lambda: podresources.in_use(path)) == (
        "failed",
        f"{path}: List: the kubelet answers RESOURCE_EXHAUSTED: rejected by rate limit",
    )


@pytest.mark.parametrize("what", ["nothing", "a file", "a socket that nobody listens at", "no directory"])
def test_nobody_is_there(tmp_path, path, what):
    if what == "a file":
        (tmp_path / "kubelet.sock").write_text("")
    elif what == "a socket that nobody listens at":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
        assert os.path.exists(path)
    elif what == "no directory":
        path = f"{path}/kubelet.sock"
    with pytest.raises(podresources.Unavailable) as error:
        asyncio.run(podresources.in_use(path, 2.0))
    assert error.value.cause == "absent"
