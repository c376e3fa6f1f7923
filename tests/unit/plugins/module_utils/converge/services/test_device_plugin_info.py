# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module device_plugin_info: what follows from what instances and a kubelet say; and a host that has neither."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_info as module
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status

GPU = "vendor.com/gpu"


def resource(state="registered", ill=(), **changes):
    """The status of a resource with the devices gpu0 to gpu3."""
    names = [f"gpu{number}" for number in range(4)]
    devices = {name: {"healthy": name not in ill, "reason": "gone" if name in ill else ""} for name in names}
    return {
        "state": state,
        "stream": state == "registered",
        "error": None,
        "healthy": 4 - len(ill),
        "unhealthy": len(ill),
        "devices": devices,
        "delivery": {"cdi": True, "annotations": True, "expanded": False, "why": ""},
        "warnings": [],
        **changes,
    }


def instance(found, name="a", error=None, ready=True):
    """The status of an instance that serves this resource."""
    return {
        "instance": name,
        "ready": ready,
        "config": {"path": "/etc/x", "sha256": "1", "error": error},
        "resources": {GPU: found} if found else {},
        "warnings": [],
    }


def kubelet(*devices, state=module.UP, asked=True, drivers=()):
    """A kubelet that lists these devices."""
    return module.Kubelet(state, {GPU: frozenset(devices)} if asked else None, "", drivers)


ALL = ("gpu0", "gpu1", "gpu2", "gpu3")

READY = {
    "the kubelet lists all": (instance(resource()), kubelet(*ALL)),
    "but not what is ill": (instance(resource(ill=["gpu1"])), kubelet("gpu0", "gpu2", "gpu3")),
    "an older kubelet watches": (instance(resource()), kubelet(asked=False)),
    "there is no kubelet": (instance(resource("waiting")), kubelet(state=module.ABSENT, asked=False)),
    "there are no devices": (instance(resource("idle", ill=ALL)), kubelet()),
    "another plugin has it": (instance(resource("conflict", error="theirs")), kubelet("theirs")),
    "nothing is offered": (instance(None), kubelet()),
    "more devices than the status names": (instance(resource(healthy=9, devices={})), kubelet(*map(str, range(9)))),
}

PENDING = {
    "no instance of the device plugin runs": (None, kubelet()),
    "its configuration was not taken: wrong": (instance(None, error="wrong"), kubelet()),
    "it is still looking at the devices": (instance(None, ready=False), kubelet()),
    f"{GPU}: is registering": (instance(resource("registering")), kubelet()),
    f"{GPU}: is refused (wrong version)": (instance(resource("refused", error="wrong version")), kubelet()),
    f"{GPU}: is registered": (instance(resource(stream=False)), kubelet(*ALL)),
    f"{GPU}: the kubelet lists 2 devices of 4 that are healthy, gpu2 not among them": (
        instance(resource()), kubelet("gpu0", "gpu1"),
    ),
    f"{GPU}: the kubelet lists 4 devices of 4 that are healthy, gpu3 not among them": (
        instance(resource()), kubelet("gpu0", "gpu1", "gpu2", "theirs"),
    ),
    f"{GPU}: the kubelet lists 1 devices of 9 that are healthy": (
        instance(resource(healthy=9, devices={})), kubelet("0"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READY.values(), ids=READY)
def test_what_is_ready(case):
    assert module.judged([case[0]], case[1])[1] == []


@pytest.mark.parametrize(("said", "case"), PENDING.items(), ids=PENDING)
def test_what_is_not(said, case):
    assert module.judged([case[0]] if case[0] else [], case[1])[1] == [said]


def test_the_youngest_instance_counts():
    resources, pending, _warnings = module.judged([instance(resource()), instance(None, "b")], kubelet(*ALL))
    assert resources == [] and pending == []


def test_a_resource_in_numbers():
    (found,), _pending, _warnings = module.judged([instance(resource(ill=["gpu1"]))], kubelet("gpu0", "gpu2", "gpu3"))
    assert (found["devices"], found["healthy"], found["listed"]) == (4, 3, 3)
    assert found["unhealthy"] == {"gpu1": "gone"}
    (found,), _pending, _warnings = module.judged([instance(resource())], kubelet(asked=False))
    assert found["listed"] is None


@pytest.mark.parametrize(
    ("changes", "drivers", "says"),
    [
        ({}, ("gpu.vendor.com",), "DeviceClass has extendedResourceName vendor.com/gpu"),
        ({}, ("vendor.com",), "extendedResourceName"),
        ({}, ("gpu.othervendor.com", "x.org"), None),
        ({"state": "conflict", "error": "another plugin has it"}, (), "vendor.com/gpu: another plugin has it"),
        ({"state": "waiting", "error": "no such directory"}, (), None),
        ({"delivery": {"why": "containerd reads no CDI"}}, (), "vendor.com/gpu: containerd reads no CDI"),
        ({"delivery": None}, (), None),
        ({"warnings": ["/etc/cdi/x.json: broken"]}, (), "vendor.com/gpu: /etc/cdi/x.json: broken"),
    ],
)
def test_warnings(changes, drivers, says):
    _found, _pending, warnings = module.judged([instance(resource(**changes))], kubelet(*ALL, drivers=drivers))
    assert [one for one in warnings if says and says in one] == warnings
    assert len(warnings) == (1 if says else 0)


@pytest.mark.parametrize("state", [module.ABSENT, module.DOWN])
def test_a_plugin_without_a_kubelet_is_a_warning(state):
    alone = kubelet(state=state, asked=False)._replace(why="kubelet.sock: nobody listens")
    _found, pending, warnings = module.judged([instance(resource("waiting"))], alone)
    expected = f"No kubelet runs on this host (kubelet.sock: nobody listens). The device plugin offers {GPU} once"
    assert pending == [] and len(warnings) == 1 and warnings[0].startswith(expected)
    assert module.judged([], alone)[2] == []


def test_a_host_without_anything(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RUN_DIR", str(tmp_path / "run"))
    options = {
        "config_file": str(tmp_path / "x.json"),
        "kubelet_dir": str(tmp_path / "k"),
        "state_dir": str(tmp_path / "s"),
    }
    result, warnings = module.answer(options, False)
    assert warnings == [] and result["ready"] is False
    assert result["kubelet"]["state"] == "absent" and result["resources"] == result["instances"] == []
    assert result["config"] == {"path": options["config_file"], "exists": False, "managed": False}


def test_an_instance_that_hangs_is_named_and_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RUN_DIR", str(tmp_path / "run"))
    options = {
        "config_file": str(tmp_path / "x.json"),
        "kubelet_dir": str(tmp_path / "k"),
        "state_dir": str(tmp_path / "s"),
    }
    one = instance_status.InstanceEntry(str(tmp_path / "run"), "b")
    one.enter()
    one.write({"since_boot": 1.0, "pid": 7, "release": "", "started": "", **instance(resource()), "instance": "b"})
    result, (warning,) = module.answer(options, False)
    assert result["ready"] and warning.startswith("No kubelet runs on this host")
    monkeypatch.setattr(instance_status, "STALE", 0.0)
    result, warnings = module.answer(options, False)
    assert not result["ready"] and not result["resources"] and [one["pid"] for one in result["instances"]] == [7]
    assert len(warnings) == 1 and "instance b: process 7 has given no sign of life" in warnings[0]
    one.leave()
