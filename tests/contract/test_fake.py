# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake kubelet behaves as the real ones were measured to, and catches a bad plugin: it must be able to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from admission import Node, Pod, Rejected
from books import CHECKPOINT
from kubelet import Kubelet
from personality import IGNORED, NEW, OLD, REFUSED, SOCKET, Personality
from sample import Sample
from watcher import INFO

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet import api

RESOURCE = "vendor.com/thing"
WELL, ILL = api.HEALTHY, api.UNHEALTHY
Make = Callable[..., Sample]


@pytest.fixture
def make(kubelet: Kubelet) -> Iterator[Make]:
    """Makes plugins that serve in the kubelet's directory, two healthy devices unless told otherwise."""
    made: list[Sample] = []

    def one(socket: str = "sample.sock", directory: str = "", **changes: Any) -> Sample:
        plugin = Sample(directory or kubelet.directory, RESOURCE, {"a": WELL, "b": WELL}, socket)
        for name, value in changes.items():
            setattr(plugin, name, value)
        made.append(plugin.serve())
        return plugin

    yield one
    for plugin in made:
        plugin.stop()


@pytest.fixture
def only_new(personality: Personality) -> None:
    """For what the old personality doesn't have."""
    if personality.name != NEW.name:
        pytest.skip("the other personality has nothing of it")


def rejection(kubelet: Kubelet, uid: str, count: int, **node: Any) -> str:
    """Why a pod of so many is rejected."""
    with pytest.raises(Rejected) as caught:
        kubelet.admit(Pod(uid, {"main": {RESOURCE: count}}, **node))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "legal"),
    [
        ("vendor.com/thing", True),
        ("vendor.com/" + "a" * 63, True),
        ("vendor.com/" + "a" * 64, False),
        ("thing", False),
        ("kubernetes.io/thing", False),
        ("node.kubernetes.io/thing", False),
        ("requests.vendor.com/thing", False),
        ("Vendor.com/thing", False),
        ("vendor.com/-thing", False),
        ("vendor.com/a/b", False),
    ],
)
def test_register_checks_the_name(kubelet: Kubelet, make: Make, name: str, legal: bool) -> None:
    plugin = make(resource=name)
    if legal:
        plugin.register()
    else:
        with pytest.raises(grpc.RpcError, match="is invalid") as caught:
            plugin.register()
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert kubelet.books.seen("Register failed", name)


@pytest.mark.parametrize("version", ["", "v1alpha1", "v1"])
def test_register_checks_the_version(make: Make, version: str) -> None:
    with pytest.raises(grpc.RpcError, match="v1beta1") as caught:
        make().register(version=version)
    assert caught.value.code() is grpc.StatusCode.UNKNOWN


def test_register_before_serving(kubelet: Kubelet, personality: Personality) -> None:
    plugin = Sample(kubelet.directory, RESOURCE, {"a": WELL})
    kubelet.dial = 1.0
    if personality.dials_in_register:
        with pytest.raises(grpc.RpcError, match="failed to dial device plugin"):
            plugin.register()
    else:
        plugin.register()  # answered at once, which proves nothing
        assert kubelet.books.wait(lambda: kubelet.books.seen("dial failed"))
    assert kubelet.counts(RESOURCE) == (0, 0)


def test_register_an_absolute_path(kubelet: Kubelet, make: Make, personality: Personality) -> None:
    plugin = make()
    kubelet.dial = 1.0
    path = os.path.join(kubelet.directory, plugin.socket)
    if personality.dials_in_register:
        with pytest.raises(grpc.RpcError, match="failed to dial"):
            plugin.register(endpoint=path)
    else:
        plugin.register(endpoint=path)
        assert kubelet.books.wait(lambda: kubelet.books.seen("dial failed"))


def test_options_are_believed_from_one_place(kubelet: Kubelet, make: Make, personality: Personality) -> None:
    plugin = make(options=api.v1beta1.DevicePluginOptions(pre_start_required=True))
    plugin.register(options=api.v1beta1.DevicePluginOptions(get_preferred_allocation_available=True))
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 1})
    called = {name for name, _request in plugin.calls}
    if personality.asks_options:
        assert "PreStartContainer" in called and "GetPreferredAllocation" not in called
    else:
        assert "GetPreferredAllocation" in called and "GetDevicePluginOptions" not in called


@pytest.mark.usefixtures("only_new")
def test_failing_options_fail_the_registration(kubelet: Kubelet, make: Make) -> None:
    plugin = make(fail="GetDevicePluginOptions")
    with pytest.raises(grpc.RpcError, match="told to fail"):
        plugin.register()
    assert "ListAndWatch" not in {name for name, _request in plugin.calls}
    assert RESOURCE not in kubelet.books.capacity()[0]


def test_start_wipes_what_that_version_wipes(kubelet: Kubelet, make: Make, personality: Personality) -> None:
    make().register()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.kill()
    here = Path(kubelet.directory)
    assert {"sample.sock", api.KUBELET_SOCKET, CHECKPOINT} <= {path.name for path in here.iterdir()}
    (here / "state.json").write_text("{}")
    (here / "sub").mkdir()
    kubelet.start()
    left = {"sub", CHECKPOINT, api.KUBELET_SOCKET} | ({"DEPRECATION"} if personality.marks_deprecated else set())
    assert {path.name for path in here.iterdir()} == left
    assert kubelet.books.capacity() == ({RESOURCE: 0}, {RESOURCE: 0})


def test_stream_end_keeps_the_capacity_for_a_while(kubelet: Kubelet, make: Make) -> None:
    plugin = make()
    plugin.register()
    assert kubelet.wait_for(RESOURCE, 2)
    plugin.stop()
    assert kubelet.wait_for(RESOURCE, 0)
    assert kubelet.counts(RESOURCE) == (2, 0)
    kubelet.books.grace = 0.0
    assert RESOURCE not in kubelet.books.capacity()[0]
    plugin.serve().register()
    assert kubelet.wait_for(RESOURCE, 2)


def test_health_is_the_exact_text_and_duplicates_count_twice(kubelet: Kubelet, make: Make) -> None:
    plugin = make(devices={"a": WELL, "b": "healthy", "c": "", "d": ILL})
    plugin.raw = [api.v1beta1.Device(ID="a", health=ILL)]
    plugin.register()
    assert kubelet.wait_for(RESOURCE, 1)
    assert kubelet.counts(RESOURCE) == (5, 1)


def test_a_message_over_the_limit_is_dropped(kubelet: Kubelet, make: Make) -> None:
    plugin = make(devices={f"{number:0>57}": WELL for number in range(80_000)})
    plugin.register()
    assert kubelet.books.wait(lambda: kubelet.books.seen("ended"))
    assert "RESOURCE_EXHAUSTED" in kubelet.books.seen("ended")[0].detail
    assert kubelet.counts(RESOURCE) == (0, 0)


@pytest.mark.parametrize("bookkeeping", ["resource", SOCKET])
def test_the_end_of_an_old_instance(short: Path, bookkeeping: str) -> None:
    kubelet = Kubelet(str(short / "p"), NEW._replace(wipe_after=0, bookkeeping=bookkeeping))
    kubelet.start()
    old = Sample(kubelet.directory, RESOURCE, {"a": WELL}, "old.sock").serve()
    old.register()
    assert kubelet.wait_for(RESOURCE, 1)
    new = Sample(kubelet.directory, RESOURCE, {"a": WELL, "b": WELL}, "new.sock").serve()
    new.register()
    assert kubelet.wait_for(RESOURCE, 2)
    old.stop()
    assert kubelet.books.wait(lambda: kubelet.books.seen("ended"))
    assert kubelet.counts(RESOURCE) == ((2, 2) if bookkeeping == SOCKET else (2, 0))
    kubelet.stop()
    new.stop()


def test_the_end_of_an_old_instance_on_the_oldest(short: Path) -> None:
    kubelet = Kubelet(str(short / "p"), OLD._replace(wipe_after=0))
    kubelet.start()
    old = Sample(kubelet.directory, RESOURCE, {"a": WELL}, "old.sock").serve()
    old.register()
    assert kubelet.wait_for(RESOURCE, 1)
    new = Sample(kubelet.directory, RESOURCE, {"a": WELL, "b": WELL}, "new.sock").serve()
    new.register()
    assert kubelet.wait_for(RESOURCE, 2)
    old.stop()
    assert kubelet.books.wait(lambda: kubelet.books.seen("ended"))
    assert kubelet.counts(RESOURCE) == (2, 2)
    kubelet.stop()
    new.stop()


@pytest.mark.parametrize(("repeats", "streams"), [("accepted", 2), (IGNORED, 1), (REFUSED, 1)])
def test_the_second_registration_of_a_live_socket(short: Path, repeats: str, streams: int) -> None:
    kubelet = Kubelet(str(short / "p"), NEW._replace(wipe_after=0, repeats=repeats))
    kubelet.start()
    plugin = Sample(kubelet.directory, RESOURCE, {"a": WELL}).serve()
    plugin.register()
    assert kubelet.wait_for(RESOURCE, 1)
    if repeats == REFUSED:
        with pytest.raises(grpc.RpcError, match="already connected"):
            plugin.register()
    else:
        plugin.register()
    assert len(kubelet.books.seen("ListAndWatch")) == streams
    kubelet.stop()
    plugin.stop()


def test_allocation(kubelet: Kubelet, make: Make) -> None:
    plugin = make(preferred=["b", "foreign"])
    plugin.register(options=plugin.options)
    assert kubelet.wait_for(RESOURCE, 2)
    assert kubelet.run("p", **{RESOURCE: 1, "nobodys.com/x": 3})["envs"] == {"DEVICES": "b"}
    assert "Requested: 2, Available: 1" in rejection(kubelet, "q", 2)
    assert kubelet.run("q", **{RESOURCE: 1})["envs"] == {"DEVICES": "a"}
    calls = len(plugin.calls)
    assert kubelet.restart_container("p")["envs"] == {"DEVICES": "b"}
    kubelet.restart()
    assert kubelet.holds("p") == {RESOURCE: {"b"}}
    assert len(plugin.calls) == calls  # neither a container's restart nor a kubelet's allocates again
    kubelet.delete("p")
    kubelet.books.collect()
    assert kubelet.holds("p") == {}


def test_an_init_containers_devices_are_used_again(kubelet: Kubelet, make: Make) -> None:
    make().register()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.admit(Pod("p", {"main": {RESOURCE: 2}}, {"prepare": {RESOURCE: 1}}))
    assert kubelet.holds("p") == {RESOURCE: {"a", "b"}}
    kubelet.delete("p")
    side = Pod("s", {"main": {RESOURCE: 1}}, {"side": {RESOURCE: 1}}, frozenset({"side"}))
    kubelet.admit(side)
    assert kubelet.holds("s") == {RESOURCE: {"a", "b"}}


@pytest.mark.parametrize("fail", ["GetPreferredAllocation", "Allocate"])
def test_a_failing_call_rejects_the_pod_and_frees_the_devices(kubelet: Kubelet, make: Make, fail: str) -> None:
    plugin = make(fail=fail)
    plugin.register(options=plugin.options)
    assert kubelet.wait_for(RESOURCE, 2)
    assert "UnexpectedAdmissionError: Allocate failed due to" in rejection(kubelet, "p", 1)
    plugin.fail = ""
    kubelet.run("q", **{RESOURCE: 2})


def test_no_answer_for_the_container_rejects_the_pod(kubelet: Kubelet, make: Make) -> None:
    plugin = make(answers=0)
    plugin.register()
    assert kubelet.wait_for(RESOURCE, 2)
    assert "no containers return" in rejection(kubelet, "p", 1)


@pytest.mark.parametrize(
    ("nodes", "policy", "count", "admitted"),
    [
        ({"a": [0], "b": [1]}, "restricted", 1, True),
        ({"a": [0], "b": [1]}, "restricted", 2, True),
        ({"a": [0], "b": [1]}, "single-numa-node", 2, False),
        ({"a": [0], "b": [1]}, "best-effort", 2, True),
        ({}, "single-numa-node", 2, True),
        ({"a": [-1], "b": [-1]}, "restricted", 1, False),
        ({"a": [-1], "b": [-1]}, "best-effort", 1, True),
        ({"a": [7], "b": [7]}, "single-numa-node", 1, False),
        ({"a": [0]}, "restricted", 2, False),
        ({"a": [0, 1], "b": [1]}, "single-numa-node", 2, True),
    ],
)
def test_topology(
    kubelet: Kubelet, make: Make, nodes: dict[str, list[int]], policy: str, count: int, admitted: bool
) -> None:
    kubelet.node = Node(policy, (0, 1))
    kubelet.restart()
    make(nodes=nodes).register()
    assert kubelet.wait_for(RESOURCE, 2)
    if admitted:
        kubelet.run("p", **{RESOURCE: count})
    else:
        assert "TopologyAffinityError" in rejection(kubelet, "p", count)


def test_preference_sees_the_aligned_devices_only(kubelet: Kubelet, make: Make) -> None:
    kubelet.node = Node("best-effort", (0, 1))
    kubelet.restart()
    plugin = make(devices=dict.fromkeys("abcd", WELL), nodes={"a": [0], "b": [0], "c": [1], "d": [1]})
    plugin.register(options=plugin.options)
    assert kubelet.wait_for(RESOURCE, 4)
    kubelet.run("p", **{RESOURCE: 1})
    asked = kubelet.books.seen("GetPreferredAllocation")
    assert len(asked[0].detail[0]) == 2  # of four
    kubelet.delete("p")
    kubelet.run("q", **{RESOURCE: 2})
    assert len(kubelet.books.seen("GetPreferredAllocation")) == 1  # what is aligned is just enough: no call


def _told(plugin: Sample) -> list[Any]:
    """What the kubelet said of a plugin that it found."""
    return [request for name, request in plugin.calls if name == "NotifyRegistrationStatus"]


def test_the_watcher(kubelet: Kubelet, make: Make) -> None:
    hidden = make(".hidden.sock", kubelet.registry_dir)
    plugin = make(directory=kubelet.registry_dir)
    assert kubelet.wait_for(RESOURCE, 2)
    assert kubelet.books.wait(lambda: _told(plugin))
    assert _told(plugin)[0].plugin_registered
    assert hidden.calls == []
    kubelet.restart()  # needs nothing from the plugin
    assert kubelet.wait_for(RESOURCE, 2)
    os.rename(f"{kubelet.registry_dir}/sample.sock", f"{kubelet.registry_dir}/other.sock")
    assert kubelet.books.wait(lambda: len(kubelet.books.seen("GetInfo")) > 1)
    assert kubelet.wait_for(RESOURCE, 2)
    os.unlink(f"{kubelet.registry_dir}/other.sock")
    assert kubelet.wait_for(RESOURCE, 0)


def test_the_watcher_has_no_patience(kubelet: Kubelet, make: Make) -> None:
    kubelet.info = INFO
    kubelet.restart()
    plugin = make(directory=kubelet.registry_dir, slow={"GetInfo": 1.5})
    assert kubelet.books.wait(lambda: kubelet.books.seen("watcher"))
    assert "DEADLINE_EXCEEDED" in kubelet.books.seen("watcher")[0].detail
    plugin.slow = {}
    assert kubelet.wait_for(RESOURCE, 2)


def test_pod_resources(kubelet: Kubelet, make: Make, personality: Personality) -> None:
    make().register()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 1})
    with grpc.insecure_channel(f"unix:{kubelet.pod_resources}") as channel:
        stub = api.stub(channel, "v1.PodResourcesLister")
        pods = stub.List(api.podresources.ListPodResourcesRequest()).pod_resources
        assert [(pod.name, pod.containers[0].devices[0].resource_name) for pod in pods] == [("p", RESOURCE)]
        kubelet.delete("p")
        assert not stub.List(api.podresources.ListPodResourcesRequest()).pod_resources
        if personality.lists_allocatable:
            assert len(stub.GetAllocatableResources(api.podresources.AllocatableResourcesRequest()).devices) == 2
        else:
            with pytest.raises(grpc.RpcError) as caught:
                stub.GetAllocatableResources(api.podresources.AllocatableResourcesRequest())
            assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_health_of_a_pods_device(kubelet: Kubelet, make: Make, personality: Personality) -> None:
    plugin = make()
    plugin.register()
    assert kubelet.wait_for(RESOURCE, 2)
    kubelet.run("p", **{RESOURCE: 2})
    plugin.change(a=ILL, b=WELL)
    assert kubelet.wait_for(RESOURCE, 1)
    assert kubelet.books.status("p") == {RESOURCE: {"a": ILL, "b": WELL}}
    assert bool(kubelet.books.updates) == personality.tracks_health
    plugin.change(b=WELL)
    assert kubelet.books.wait(lambda: kubelet.counts(RESOURCE) == (1, 1))
    assert kubelet.books.status("p") == {RESOURCE: {"a": WELL, "b": WELL}}  # of what is unknown it says Healthy


def test_the_program(short: Path) -> None:
    program = Path(__file__).with_name("kubelet.py")
    command = [sys.executable, str(program), "--dir", str(short / "p"), "--set", "wipe_after=0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None

        def ask(**request: Any) -> Any:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            return json.loads(stdout.readline())

        assert "started" in json.loads(stdout.readline())
        plugin = Sample(str(short / "p"), RESOURCE, {"a": WELL}).serve()
        plugin.register()
        assert ask(do="wait", resource=RESOURCE, allocatable=1)["ok"]
        assert ask(do="admit", pod="p", resources={RESOURCE: 1})["containers"]["main"]["envs"] == {"DEVICES": "a"}
        assert ask(do="admit", pod="q", resources={RESOURCE: 1})["reason"] == "UnexpectedAdmissionError"
        assert ask(do="holds", pod="p")["holds"] == {RESOURCE: ["a"]}
        assert ask(do="restart")["ok"]
        assert ask(do="capacity") == {"ok": True, "capacity": {RESOURCE: 0}, "allocatable": {RESOURCE: 0}}
        assert ask(do="dance")["message"].startswith("do: found 'dance'")
        assert [what for _time, what, *_rest in ask(do="events")["events"]] == []
        stdin.close()
    assert process.returncode == 0
    plugin.stop()
