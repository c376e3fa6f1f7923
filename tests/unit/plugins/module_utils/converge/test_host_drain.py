# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices a drain takes out of service, who holds devices, and which come back."""

from __future__ import annotations

import json
from functools import partial

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge import host_drain
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.device_state import listed_devices
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.memory import Memory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled, render_disabled
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, Health, Node
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.containers import Container, RunningContainers
from ansible_collections.fleet.cdi.plugins.module_utils.system.processes import Done
from ansible_collections.fleet.cdi.tests.unit.trees.specs import registry, spec

REASON = "upgrade"
SINCE = "2026-11-25T19:00:00Z"


def device(id_, state="healthy", part_of=()):
    return Device(
        id_, "drm", "x.org/gpu", (id_,), (Node(f"/dev/{id_}", "c", 1, 7),), part_of=part_of, health=Health(state)
    )


def options(tmp_path, state, **more):
    return {
        "state": state,
        "reason": REASON,
        "only_healthy": False,
        "allow_missing": False,
        "device_list": str(tmp_path / "inventory.json"),
        "state_dir": str(tmp_path / "state"),
        "prefix": str(tmp_path / "opt"),
        **more,
    }


@pytest.mark.parametrize(
    ("devices", "out", "taken"),
    [
        ([device("a"), device("b", "unknown")], {}, ["a", "b"]),
        ([device("a", "unhealthy"), device("b", "reserved")], {}, []),
        ([device("a"), device("b")], {"a": Disabled("broken", SINCE)}, ["b"]),  # the mark of an operator stays
        ([device("a"), device("b")], {"a": Disabled(REASON, SINCE)}, ["b"]),
        ([device("a"), device("a.1", part_of=("a",))], {}, ["a"]),
        ([device("a", "unhealthy"), device("a.1", part_of=("a",))], {}, ["a.1"]),
        ([device("a.1", part_of=("a",))], {"a": Disabled("broken", SINCE)}, []),
        ([device("a"), device("a")._replace(kind="y.org/gpu")], {}, ["a"]),  # a device of two kinds
    ],
)
def test_the_devices_to_take_out_of_service(devices, out, taken):
    assert host_drain.to_take(devices, out) == taken


def test_only_devices_with_our_reason_are_ours():
    out = {"b": Disabled(REASON, SINCE), "a": Disabled(REASON, SINCE), "c": Disabled(f"{REASON} by hand", SINCE)}
    assert host_drain.marked(out, REASON) == ["a", "b"]


def test_a_running_container_holds_its_device(tmp_path):
    def find(_names):
        return RunningContainers(
            (
                Container("podman", "job", "running", ("x.org/gpu=a",)),
                Container("podman", "old", "exited", ("x.org/gpu=b",)),
            ),
            ("docker: its containers can't be told: no",),
            may_run=False,  # docker has stopped, and left no process of a container
        )

    held, trouble = host_drain.held_devices([device("a"), device("b")], str(tmp_path), "boot", registry(), find)
    assert held == [host_drain.DrainHolder("a", "x.org/gpu=a", ("container job (podman, running)",))]
    assert trouble == ("docker: its containers can't be told: no",)


def test_an_engine_that_can_not_be_asked_holds_any_device(tmp_path):
    why = "docker: its containers can't be told: no answer in 30 s"
    held, trouble = host_drain.held_devices(
        [device("a")], str(tmp_path), "boot", registry(), lambda _names: RunningContainers((), (why,))
    )
    assert held == [host_drain.DrainHolder("", "any device", (f"a container, maybe ({why})",))]
    assert trouble == (why,)


def podman(name, nodes):
    devices = [{"PathOnHost": node} for node in nodes]
    config = {"CreateCommand": ["podman", "run", "--device", name, "image"]}
    return {"Name": "job", "State": {"Status": "running"}, "Config": config, "HostConfig": {"Devices": devices}}


def podman_api(_name, nodes):
    return {**podman("", nodes), "Config": {}}


def docker(name, _nodes):
    requests = [{"Driver": "cdi", "DeviceIDs": [name]}]
    return {"Name": "/job", "State": {"Status": "running"}, "HostConfig": {"DeviceRequests": requests}}


HOST = (device("a"), device("b"), device("a")._replace(kind="y.org/card"), device("c")._replace(kind="y.org/card"))
VENDOR = [
    spec("z.org/gpu", {"0": ["/dev/a"], "pair": ["/dev/a", "/dev/c"], "other": ["/dev/null"]}),
    spec("w.org/gpu", {"0": ["env:A=b"]}, ["/dev/b"]),  # the edits of the whole spec bring the device
]


@pytest.mark.parametrize("engine", [podman, podman_api, docker])
@pytest.mark.parametrize(
    ("name", "nodes", "specs", "held"),
    [
        ("x.org/gpu=b", ["b"], (), ["b"]),
        ("x.org/gpu=all", ["a", "b"], (), ["a", "b"]),  # after the drain, no spec has these names
        ("y.org/card=a", ["a"], (), ["a"]),
        ("y.org/card=all", ["a", "c"], (), ["a", "c"]),
        ("z.org/gpu=0", ["a"], VENDOR, ["a"]),
        ("z.org/gpu=pair", ["a", "c"], VENDOR, ["a", "c"]),
        ("z.org/gpu=other", ["null"], VENDOR, []),
        ("w.org/gpu=0", ["b"], VENDOR, ["b"]),
    ],
)
def test_a_container_holds_its_devices_by_whatever_name(tmp_path, engine, name, nodes, specs, held):
    document = engine(name, [f"/dev/{node}" for node in nodes])
    find = partial(containers.find_containers, engines={"engine": lambda: [document]})
    found, _trouble = host_drain.held_devices(HOST, str(tmp_path), "boot", registry(*specs), find)
    assert [one.device for one in found] == held
    assert {one.by for one in found} <= {("container job (engine, running)",)}


def test_the_drain_reads_the_specs_of_the_host(tmp_path, monkeypatch):
    boot = inventory.boot_id()
    (tmp_path / "inventory.json").write_bytes(inventory.render(Inventory((device("a"),)), boot))
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/vendor.json").write_text(json.dumps(spec("z.org/gpu", {"0": ["/dev/a"]})))
    monkeypatch.setattr(host_drain, "host_spec_dirs", lambda _prefix: (str(tmp_path / "cdi"),))
    monkeypatch.setitem(containers.ENGINES, "podman", list)
    monkeypatch.setitem(containers.ENGINES, "docker", lambda: [docker("z.org/gpu=0", ())])
    held = host_drain.answer(options(tmp_path, "drained"), True)[0]["held"]
    assert held == [{"device": "a", "name": "x.org/gpu=a", "by": ("container job (docker, running)",)}]


def test_a_damaged_ledger_is_no_empty_ledger(tmp_path):
    (tmp_path / "ledger.db").write_bytes(b"damage")
    nobody = RunningContainers(())
    with pytest.raises(CdiError, match="nobody can tell who holds devices"):
        host_drain.held_devices([device("a")], str(tmp_path), "boot", registry(), lambda _names: nobody)


def test_a_host_whose_devices_are_not_listed_is_not_drained(tmp_path):
    """After a reboot whose refresh failed, say: the devices are in the spec, and nothing would go out of service."""
    (tmp_path / "opt/lib").mkdir(parents=True)
    (tmp_path / "opt/lib/current").symlink_to("0.1.0-0123456789ab")
    assert host_drain.answer(options(tmp_path, "drained"), True)[0]["devices"] == []  # it gives no devices
    with locked_manifest(str(tmp_path / "state")) as manifest:
        manifest.remember({"x.org/gpu": Memory({"entries": {}}, "/etc/cdi", "").document()})
    with pytest.raises(CdiError, match=f"{tmp_path}/inventory.json: does not exist; .*nobody can tell which devices"):
        host_drain.answer(options(tmp_path, "drained"), False)


@pytest.mark.parametrize("allowed", [False, True])
def test_a_device_that_is_gone_is_not_put_back_without_a_word(tmp_path, allowed):
    (tmp_path / "opt/lib").mkdir(parents=True)
    (tmp_path / "opt/lib/current").symlink_to("0.1.0-0123456789ab")
    (tmp_path / "inventory.json").write_bytes(inventory.render(Inventory((device("a"),)), inventory.boot_id()))
    out = {"a": Disabled(REASON, SINCE), "b": Disabled(REASON, SINCE), "c": Disabled("broken", SINCE)}
    (tmp_path / "state").mkdir()
    (tmp_path / "state/device-state.json").write_bytes(render_disabled(out))
    asked = options(tmp_path, "in_service", only_healthy=True, allow_missing=allowed)
    if allowed:
        assert host_drain.answer(asked, True)[0]["devices"] == ["a", "b"]
        return
    with pytest.raises(CdiError, match="does not have these devices any more, or its settings leave them out: b[.]"):
        host_drain.answer(asked, True)


def test_one_command_of_the_active_release_makes_all_changes():
    """It refreshes all specs, which takes as long for eight devices as for one."""
    ran = []

    def run(command, _limit):
        ran.append(list(command))
        return Done(2 if "c" in command else 0, b"", b"device: found 'c'\n")

    host_drain.change("/opt/cdi", "drained", ["a", "b"], REASON, run)
    host_drain.change("/opt/cdi", "in_service", ["a", "b"], REASON, run)
    host_drain.change("/opt/cdi", "in_service", [], REASON, run)
    with pytest.raises(CdiError, match=r"/opt/cdi/bin/fleet-cdi device enable -- c d: device: found 'c'$"):
        host_drain.change("/opt/cdi", "in_service", ["c", "d"], REASON, run)
    assert ran == [
        ["/opt/cdi/bin/fleet-cdi", "device", "disable", "--reason", REASON, "--", "a", "b"],
        ["/opt/cdi/bin/fleet-cdi", "device", "enable", "--", "a", "b"],
        ["/opt/cdi/bin/fleet-cdi", "device", "enable", "--", "c", "d"],
    ]


def test_a_host_without_a_release_has_nothing_to_drain(tmp_path):
    result, _warnings = host_drain.answer(options(tmp_path, "drained"), False)
    assert (result["changed"], result["release"], result["devices"], result["held"]) == (False, None, [], [])
    assert host_drain.answer(options(tmp_path, "in_service"), False)[0]["changed"] is False


def test_a_drain_needs_a_reason(tmp_path):
    with pytest.raises(CdiError, match="reason: found none"):
        host_drain.answer(options(tmp_path, "drained", reason=" \n"), False)


def test_devices_of_the_pools_are_listed_too(tmp_path):
    listing = tmp_path / "inventory.json"
    pool = tmp_path / "inventory.d/gpu.drm.0.json"
    pool.parent.mkdir()
    boot = inventory.boot_id()
    second = device("a")._replace(kind="y.org/gpu")
    listing.write_bytes(inventory.render(Inventory((device("a"), second)), boot))
    pool.write_bytes(inventory.render(Inventory((device("a", "unhealthy"), device("b"))), boot))
    devices, why = listed_devices(str(listing))
    assert devices == (device("a"), second, device("b")) and why == ""
    listing.unlink()
    devices, why = listed_devices(str(listing))
    assert [one.id for one in devices] == ["a", "b"] and str(listing) in why


def test_the_defaults_are_those_of_a_host():
    pytest.importorskip("ansible")  # hosts don't have it
    from ansible_collections.fleet.cdi.plugins.modules.host_drain import MODULE

    spec, usual = MODULE["argument_spec"], Layout()
    assert (spec["device_list"]["default"], spec["state_dir"]["default"]) == (usual.inventory, usual.state_dir)
