# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at the units of a resource on a host that is a directory; nodes there are FIFOs, which anybody can make."""

from __future__ import annotations

import os

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.build_spec import spec_of
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.faults import (
    CLASSES,
    class_of,
    is_ignored,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health import probe
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import resources
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.out_of_service import Disabled
from ansible_collections.fleet.cdi.tests.unit.trees import specs

GPUS = {"0": ["/dev/g0"], "1": ["/dev/g1"], "2": ["/dev/g2"]}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "usr").mkdir()
    for name in ("g0", "g1", "g2"):
        os.mkfifo(tmp_path / "dev" / name)
    return tmp_path


def offered(*some, inventory=None):
    registry = specs.registry(*some)
    (resource,) = resources.offer(configuration.PluginSettings(), registry, inventory).resources
    return resource, registry


def test_nothing_is_wrong(root):
    (root / "usr/lib.so").touch()
    resource, registry = offered(specs.spec("acme.com/gpu", GPUS, ["mount:/usr/lib.so"]))
    assert probe.look(resource, registry, str(root)) == {}
    assert probe.look(resource, registry, f"{root}/") == {}


def test_a_link_of_the_host_stays_in_the_host(root):
    """A pod has the host at a directory: `/usr/lib.so -> /usr/lib/1/lib.so` means the host's, and so does `..`."""
    resource, registry = offered(specs.spec("acme.com/gpu", GPUS, ["mount:/usr/lib.so"]))
    (root / "usr/lib.so").symlink_to("/usr/lib/1/lib.so")
    missing = probe.look(resource, registry, str(root))
    assert all(why.startswith("library-missing: ") for why in missing.values()) and missing
    (root / "usr/lib").symlink_to("../../../opt")
    (root / "opt/1").mkdir(parents=True)
    (root / "opt/1/lib.so").touch()
    assert probe.look(resource, registry, str(root)) == {}


def test_a_node_that_is_gone_costs_its_own_unit(root):
    resource, registry = offered(specs.spec("acme.com/gpu", GPUS))
    (root / "dev/g1").unlink()
    found = {"1": "node-missing: acme.com/gpu=1: needs /dev/g1, found nothing"}
    assert probe.look(resource, registry, str(root)) == found
    assert probe.look(resource, registry, str(root), units=resource.units[:1]) == {}
    assert probe.look(resource, registry, str(root), units=resource.units[1:]) == found


def test_a_file_that_is_no_node(root):
    resource, registry = offered(specs.spec("acme.com/gpu", GPUS))
    (root / "dev/g2").unlink()
    (root / "dev/g2").touch()
    assert probe.look(resource, registry, str(root))["2"].startswith("node-missing: acme.com/gpu=2: needs /dev/g2")


def test_what_all_of_a_spec_need(root):
    resource, registry = offered(
        specs.spec("acme.com/gpu", GPUS, ["mount:/usr/lib/libx.so.1"]), specs.spec("acme.com/gpu", {"3": ["/dev/g3"]})
    )
    os.mkfifo(root / "dev/g3")
    why = "library-missing: /etc/cdi/0.json: needs /usr/lib/libx.so.1, found nothing"
    assert probe.look(resource, registry, str(root)) == dict.fromkeys("012", why)  # 3 is in another file
    hook = specs.spec("acme.com/gpu", GPUS)
    hook["containerEdits"] = {"hooks": [{"hookName": "createContainer", "path": "/usr/hook"}]}
    assert set(probe.look(*offered(hook), str(root)).values()) == {
        "hook-missing: /etc/cdi/0.json: needs /usr/hook, found nothing"
    }
    (root / "usr/hook").touch()
    assert all(why.startswith("hook-not-executable: ") for why in probe.look(*offered(hook), str(root)).values())


def test_a_name_that_no_spec_gives_any_more(root):
    resource, _registry = offered(specs.spec("acme.com/gpu", GPUS))
    other = specs.registry(
        specs.spec("acme.com/gpu", {"0": ["/dev/g0"]}), specs.spec("acme.com/gpu", {"0": ["/dev/g0"]})
    )
    assert {why.partition(":")[0] for why in probe.look(resource, other, str(root)).values()} == {"unresolved"}


def test_an_interface_that_is_gone(root):
    resource, registry = offered(specs.spec("acme.com/nic", {"a": ["net:eth1"], "b": ["net:eth2"]}))
    (root / "sys/class/net/eth1").mkdir(parents=True)
    assert probe.look(resource, registry, str(root)) == {
        "b": "interface-missing: acme.com/nic=b: needs eth2, found no such interface"
    }


def test_a_node_that_is_another_one_than_discovery_saw():
    known = specs.inventory([{"id": "mem:null", "nodes": [["/dev/null", "c", 1, 4]]}])
    resource, registry = offered(specs.spec("acme.com/null", {"0": ["/dev/null"], "1": ["/dev/zero"]}), inventory=known)
    assert probe.look(resource, registry) == {
        "0": "node-number: /dev/null: has minor 3, expected 4",
    }


def test_numbers_that_a_spec_itself_says():
    some = specs.spec("acme.com/null", {"0": ["/dev/null"], "1": ["/dev/zero"]})
    some["devices"][0]["containerEdits"]["deviceNodes"][0].update(type="c", major=1, minor=5)
    some["devices"][1]["containerEdits"]["deviceNodes"][0].update(type="b")
    assert probe.look(*offered(some)) == {
        "0": "node-number: acme.com/null=0: needs 5, found 3",
        "1": "node-type: acme.com/null=1: needs b, found c",
    }


def test_what_discovery_and_an_operator_say_of_the_hardware(root):
    known = specs.inventory(
        [
            {
                "id": "pci:0",
                "names": ["0"],
                "nodes": [["/dev/g0", "c", 1, 1]],
                "health": ["unhealthy", "fell off\nthe bus"],
            },
            {
                "id": "pci:1",
                "names": ["1"],
                "nodes": [],
                "kind": "acme.com/gpu",
                "health": ["reserved", "a mounted disk"],
            },
            {"id": "pci:2", "names": ["2"], "nodes": [], "kind": "acme.com/gpu", "part_of": ["pci:9"]},
        ]
    )
    resource, registry = offered(
        specs.spec("acme.com/gpu", {"0": ["/dev/g0"], "1": ["mount:/usr"], "2": ["mount:/dev"]}), inventory=known
    )
    assert [unit.device.id for unit in resource.units] == ["pci:0", "pci:1", "pci:2"]
    (root / "dev/g0").unlink()
    assert probe.look(resource, registry, str(root))["0"].startswith("node-missing")  # what can be seen comes first
    units = [one._replace(device=one.device._replace(nodes=())) for one in resource.units]
    os.mkfifo(root / "dev/g0")
    out = {"pci:9": Disabled("broken fan", "2026-01-01T00:00:00Z")}
    assert probe.look(resource, registry, str(root), out, units) == {
        "0": "device: fell off the bus",
        "1": "reserved: a mounted disk",
        "2": "reserved: out of service with pci:9 since 2026-01-01T00:00:00Z, until it is enabled: broken fan",
    }


HURT = specs.spec("acme.com/gpu", GPUS, ["mount:/usr/libx.so.1"])
HURT["devices"][1]["containerEdits"]["hooks"] = [{"hookName": "createContainer", "path": "/usr/hook"}]
LIBRARY, HOOK, NODE = "library-missing: /etc/cdi/0.json", "hook-missing: acme.com/gpu=1", "node-missing: acme.com/gpu=1"


@pytest.mark.parametrize(
    ("ignore", "gone", "found"),
    [
        pytest.param([], [], {"0": LIBRARY, "1": HOOK, "2": LIBRARY}, id="nothing"),
        pytest.param(["library-missing"], [], {"1": HOOK}, id="a class"),
        pytest.param(["hook-*"], [], {"0": LIBRARY, "1": LIBRARY, "2": LIBRARY}, id="a pattern of classes"),
        pytest.param(["*-missing: *"], [], {}, id="a pattern of reasons"),
        pytest.param(["hook-missing: *=0*", "library-missing"], [], {"1": HOOK}, id="the text"),
        pytest.param(["hook-missing", "library-missing"], ["g1"], {"1": NODE}, id="what hides something worse"),
    ],
)
def test_what_the_settings_ignore(root, ignore, gone, found):
    for name in gone:
        (root / "dev" / name).unlink()
    resource, registry = offered(HURT)
    health = resource.settings.health._replace(ignore=tuple(ignore))
    resource = resource._replace(settings=resource.settings._replace(health=health))
    told = probe.look(resource, registry, str(root))
    assert {name: why.partition(": needs")[0] for name, why in told.items()} == found


def test_a_node_is_missing_whoever_says_so(root):
    """The spec or the inventory: else a setting that ignores it would ignore half of it."""
    resource, registry = offered(
        specs.spec("acme.com/gpu", {"0": ["/dev/g0"]}),
        inventory=specs.inventory([{"id": "pci:0", "nodes": ["/dev/g0"]}]),
    )
    (root / "dev/g0").unlink()
    settings = resource.settings._replace(health=configuration.HealthSettings(("node-missing",)))
    assert probe.look(resource._replace(settings=settings), registry, str(root)) == {}


def test_an_interface_that_may_have_moved_hides_nothing_else(root):
    """It is no trouble where a container has it (device_list.yml), and what else is wrong still is."""
    resource, registry = offered(specs.spec("acme.com/nic", {"a": ["net:eth1", "mount:/usr/x"], "b": ["net:eth2"]}))
    out = {resource.units[1].device.id: Disabled("cable", "2026-01-01T00:00:00Z")}
    classes = {name: class_of(why) for name, why in probe.look(resource, registry, str(root), out).items()}
    assert classes == {"a": "mount-missing", "b": "reserved"}


@pytest.mark.parametrize("why", ["taken: job", "reserved: x", "unresolved: x", "gone: x", "setup: x", "teardown: x"])
def test_what_no_setting_can_ignore(why):
    """Allocate would refuse it all the same."""
    assert not is_ignored(why, ["*", why])


def test_real_devices_of_this_host():
    """Our own specs of them, as the module writes them; each device is offered once, and nothing is wrong with it."""
    found = discover({name: {"profile": name, "required": False} for name in ("misc", "tty")}, snapshot.take("/"))
    usable = [device for device in found.devices if device.health.is_usable]
    if not usable:
        pytest.skip("this host has no device of the profiles misc and tty")
    made = [spec_of(kind, [one for one in usable if one.kind == kind.name]) for kind in found.kinds]
    registry = specs.registry(*filter(None, made))
    result = resources.offer(
        configuration.PluginSettings(), registry, Inventory(found.devices, found.kinds, found.links)
    )
    units = [unit for resource in result.resources for unit in resource.units]
    assert sorted(unit.device.id for unit in units) == sorted(device.id for device in usable)
    for resource in result.resources:
        assert probe.look(resource, registry) == {}


def test_every_reason_has_a_class(root):
    for name in ("g0", "g1", "g2"):
        (root / "dev" / name).unlink()
    reasons = probe.look(*offered(specs.spec("acme.com/gpu", GPUS)), str(root)).values()
    assert {class_of(why) for why in reasons} <= CLASSES
    assert class_of("odd: x") == ""


@pytest.mark.parametrize(
    ("text", "nodes"),
    [("0\n", {0}), ("0-1\n", {0, 1}), ("0,2-3,8\n", {0, 2, 3, 8}), ("\n", set()), ("x\n", None), (None, None)],
)
def test_numa_nodes_of_a_host(tmp_path, text, nodes):
    if text is not None:
        (tmp_path / "sys/devices/system/node").mkdir(parents=True)
        (tmp_path / "sys/devices/system/node/online").write_text(text, encoding="ascii")
    assert probe.numa_nodes(str(tmp_path)) == nodes
