# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's profiles on rendered machines: what is found, what is ill and why, and that nothing hides anything else."""

from __future__ import annotations

import re
from pathlib import Path

import hypothesis
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.build_spec import spec_of
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.profiles.nvidia_modes import PROFILES
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Mount, as_document
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.discovery.profiles.nvidia_cases import (
    found,
    needs_nodes,
)
from ansible_collections.fleet.cdi.tests.unit.trees import nvidia, real

TABLE = yaml.safe_load((Path(__file__).parents[1] / "cases_nvidia.yml").read_text(encoding="utf-8"))


@needs_nodes
@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["name"])
def test_case(case, tmp_path):
    result = found(case, tmp_path, **{"name_by": ["index"], **case.get("options", {})})
    devices = {device.pci_address: device for device in result.devices}
    assert set(devices) == {gpu.address for gpu in nvidia.A100} - set(case.get("without", ()))
    for address, device in devices.items():
        reason = case["ill"].get(address, case["ill"].get("all"))
        assert device.health.state == ("unhealthy" if reason else "healthy"), device.health
        assert reason is None or re.search(reason, device.health.reason), device.health
        assert address not in case.get("names", {}) or device.names == tuple(case["names"][address])
    names = {name for device in result.devices for name in device.names}
    assert {str(index) for index in range(len(devices))} <= names
    patterns = case.get("warnings", [])
    assert len(result.warnings) == len(patterns), result.warnings
    for warning, pattern in zip(result.warnings, patterns):
        assert re.search(pattern, warning), warning


@needs_nodes
@pytest.mark.parametrize("case", TABLE["mig"], ids=lambda case: case["name"])
def test_mig(case, tmp_path):
    result = found(case, tmp_path, name_by=["index", "type-index", "pci"])
    documents = as_document(result.devices)
    for document in documents:
        document["nodes"] = [node["path"] for node in document["nodes"]]
    shown = [{key: document[key] for key in want} for document, want in zip(documents, case["devices"])]
    assert shown == case["devices"]
    assert "pci:0000:07:00.0" not in {device.id for device in result.devices}
    patterns = case.get("warnings", [])
    assert [bool(re.search(*pair)) for pair in zip(patterns, result.warnings)] == [True] * len(result.warnings)


def test_a_gpu_has_its_own_nodes_and_shares_the_drivers(tmp_path):
    result = found({}, tmp_path, device_numbers=True)
    (kind,) = result.kinds
    assert (kind.name, kind.all, kind.none) == ("nvidia.com/gpu", True, ())
    first = result.devices[0]
    assert (first.id, first.names) == ("pci:0000:07:00.0", ("0", nvidia.A100[0].uuid))
    assert (first.uuid, first.driver, first.vendor_id, first.numa_node) == (nvidia.A100[0].uuid, "nvidia", "0x10de", 0)
    assert [node.path for node in first.nodes] == ["/dev/nvidia2", "/dev/dri/card3", "/dev/dri/renderD131"]
    assert kind.edits.env == (f"NVIDIA_CTK_LIBCUDA_DIR={nvidia.LIB}", "NVIDIA_VISIBLE_DEVICES=void")
    mounted = {mount.host_path for mount in kind.edits.mounts}
    assert {f"{nvidia.LIB}/libcuda.so.{nvidia.VERSION}", "/usr/bin/nvidia-smi"} <= mounted
    assert not [path for path in mounted if "535" in path or "i386" in path]


@needs_nodes
def test_groups_of_nodes_come_along(tmp_path):
    result = found({"group": 27}, tmp_path)
    assert result.kinds[0].edits.additional_gids == (27,)
    assert result.devices[0].additional_gids == (27, 44, 105)


def test_no_device_is_an_environment_that_older_runtimes_understand(tmp_path):
    result = found({}, tmp_path, none=True)
    spec = spec_of(result.kinds[0], result.devices)
    (none,) = (device for device in spec["devices"] if device["name"] == "none")
    assert none["containerEdits"] == {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}


def test_renumbered_gpus_are_the_same_devices(tmp_path):
    one = found({"gpus": "H100"}, tmp_path / "one")
    changed = tuple(gpu._replace(minor=7 - gpu.minor, drm=8 - gpu.drm) for gpu in nvidia.H100)
    root = nvidia.build(nvidia.machine(changed), tmp_path / "two")
    two = discover({"gpus": {"profile": "nvidia"}}, snapshot.take(root))
    assert [(device.id, device.names) for device in one.devices] == [
        (device.id, device.names) for device in two.devices
    ]
    assert [device.nodes[0].path for device in two.devices] == [f"/dev/nvidia{7 - index}" for index in range(8)]


def test_hooks_are_those_that_their_program_knows(tmp_path):
    case = {"gpus": "P100", "programs": {nvidia.HOOK: "create-symlinks update-ldcache"}}
    result = found(case, tmp_path)
    assert {hook.args[1] for hook in result.kinds[0].edits.hooks} == {"create-symlinks", "update-ldcache"}
    assert result.devices[0].hooks == ()


def test_a_script_in_place_of_the_program_for_hooks(tmp_path):
    program = {nvidia.HOOK: "#!/bin/sh\nexec nvidia-cdi-hook.real\n", f"{nvidia.HOOK}.real": "update-ldcache"}
    (hook,) = found({"gpus": "P100", "programs": program}, tmp_path).kinds[0].edits.hooks
    assert (hook.path, hook.args[1]) == (nvidia.HOOK, "update-ldcache")


def test_only_hooks_that_are_wanted(tmp_path):
    result = found({"gpus": "P100"}, tmp_path, hooks=["update-ldcache"])
    (hook,) = result.kinds[0].edits.hooks
    folders = ("--folder", nvidia.LIB, "--folder", f"{nvidia.LIB}/vdpau")
    assert hook.args == ("nvidia-cdi-hook", "update-ldcache", *folders)
    assert (hook.name, hook.path) == ("createContainer", nvidia.HOOK)


def test_links_of_libraries(tmp_path):
    result = found({"gpus": "P100"}, tmp_path, hooks=["create-symlinks"])
    links = [part for hook in result.kinds[0].edits.hooks for part in hook.args if "::" in part]
    version, lib = nvidia.VERSION, nvidia.LIB
    assert {
        f"libcuda.so.1::{lib}/libcuda.so",
        f"libcuda.so.{version}::{lib}/libcuda.so.1",
        f"libGLX_nvidia.so.{version}::{lib}/libGLX_indirect.so.0",
        f"libnvidia-opticalflow.so.1::{lib}/libnvidia-opticalflow.so",
        f"../libnvidia-allocator.so.1::{lib}/gbm/nvidia-drm_gbm.so",
        f"libglxserver_nvidia.so.{version}::{lib}/nvidia/xorg/libglxserver_nvidia.so",
        f"libvdpau_nvidia.so.{version}::{lib}/vdpau/libvdpau_nvidia.so.1",
    } <= set(links)
    assert not [link for link in links if "rtcore" in link or "gpucomp" in link]  # no ELF file; no name of its own


def test_a_driver_below_a_root_of_its_own(tmp_path):
    case = {"gpus": "P100", "move": {"/usr": "/run/nvidia/driver/usr"}, "programs": {nvidia.HOOK: "update-ldcache"}}
    (kind,) = found(case, tmp_path, driver_root="/run/nvidia/driver").kinds
    library = f"{nvidia.LIB}/libcuda.so.{nvidia.VERSION}"
    assert Mount(f"/run/nvidia/driver{library}", library) in kind.edits.mounts
    assert kind.edits.env[0] == f"NVIDIA_CTK_LIBCUDA_DIR={nvidia.LIB}"
    assert kind.edits.hooks[0].args[2:] == ("--folder", nvidia.LIB, "--folder", f"{nvidia.LIB}/vdpau")


def test_libraries_where_no_distribution_has_them(tmp_path):
    case = {"gpus": "P100", "move": {nvidia.LIB: "/opt/driver"}}
    (kind,) = found(case, tmp_path, library_paths=["/opt/driver"]).kinds
    assert Mount(f"/opt/driver/libcuda.so.{nvidia.VERSION}") in kind.edits.mounts


@needs_nodes
@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (["2"], {"2"}),
        (["0000:07:00.0", "7"], {"0:0", "0:1", "7"}),
        ([nvidia.A100[3].uuid], {"3"}),
        (["0"], {"0:0", "0:1"}),
        (["0:1", nvidia.A100[1].uuid], {"0:1", "1"}),
        ([nvidia.A100[0].uuid], {"0:0", "0:1"}),
    ],
)
def test_a_subset_keeps_its_numbers(tmp_path, wanted, names):
    case = {"mig": {"0000:07:00.0": [[1, 0, 0], [2, 0, 0]]}}
    result = found(case, tmp_path, name_by=["index"], devices=wanted)
    assert {name for device in result.devices for name in device.names} == names
    assert not [warning for warning in result.warnings if "devices" in warning]
    assert found(case, tmp_path / "again", name_by=["index"]).kinds == result.kinds


@needs_nodes
def test_a_subset_that_is_not_all_there(tmp_path):
    (warning, *_more) = found({}, tmp_path, devices=["1", "9", "GPU-00000000-0000-0000-0000-000000000000"]).warnings
    assert warning.endswith("option 'devices': 9, GPU-00000000-0000-0000-0000-000000000000: this host has no such GPU")
    with pytest.raises(CdiError, match="option 'devices': 9: this host has no such GPU, but has required: true"):
        found({}, tmp_path / "required", devices=["1", "9"], required=True)
    nothing = found({}, tmp_path / "none", devices=["9"])
    assert nothing.devices == () and "none of the GPUs is among devices: 9" in " ".join(nothing.warnings)


@needs_nodes
def test_one_of_a_subset_that_is_ill(tmp_path):
    (device,) = found({"remove": ["/dev/nvidia2"]}, tmp_path, devices=["0000:07:00.0"]).devices
    assert device.health.state == "unhealthy"


@pytest.mark.parametrize("wanted", [[0], ["0:"], ["gpu0"], ["GPU-1"], ["07:00.0"], [], ["0\n"], ["0", "0"]])
def test_what_is_no_subset(tmp_path, wanted):
    with pytest.raises(CdiError, match="devices"):
        found({}, tmp_path, devices=wanted)


@needs_nodes
@pytest.mark.parametrize(
    ("path", "first"), [("/opt/toolkit/nvidia-cdi-hook", "nvidia-cdi-hook"), ("/opt/toolkit/nvidia-ctk", "nvidia-ctk")]
)
def test_the_path_of_the_vendors_hook(tmp_path, path, first):
    case = {"gpus": "P100", "programs": {path: "update-ldcache create-symlinks"}}
    (kind,) = found(case, tmp_path, hook_path=path).kinds
    assert {hook.path for hook in kind.edits.hooks} == {path}
    assert {hook.args[0] for hook in kind.edits.hooks} == {first}
    assert {hook.args[2 if first == "nvidia-ctk" else 1] for hook in kind.edits.hooks} == {
        "update-ldcache",
        "create-symlinks",
    }


@needs_nodes
def test_a_path_that_is_not_the_vendors_hook(tmp_path):
    """Ours does the work, as containers with a hook that is missing do not start."""
    result = found({"gpus": "P100"}, tmp_path, hook_path="/opt/toolkit/nvidia-cdi-hook")
    assert {hook.path for hook in result.kinds[0].edits.hooks} == {""}
    (warning,) = result.warnings
    assert "hook_path: /opt/toolkit/nvidia-cdi-hook" in warning and "cdi-hook takes its place" in warning


@needs_nodes
def test_device_nodes_below_a_root_of_their_own(tmp_path):
    case = {
        "mig": {"0000:07:00.0": [[1, 0, 0]]},
        "move": {"/dev": "/run/nvidia/driver/dev"},
        "nodes": {"/dev/null": "c 1:3"},
    }
    result = found(case, tmp_path, dev_root="/run/nvidia/driver", name_by=["index"], hooks=["create-symlinks"])
    devices = {device.names[0]: device for device in result.devices}
    assert {device.health.state for device in result.devices} == {"healthy"}, result.devices
    nodes = {
        (node.path, node.container_path)
        for device in (devices["0:0"], devices["1"])
        for node in (*device.nodes, *result.kinds[0].edits.nodes)
    }
    assert {path for path, _place in nodes} == {f"/run/nvidia/driver{place}" for _path, place in nodes}
    assert {"/dev/nvidia2", "/dev/nvidia3", "/dev/nvidiactl", "/dev/dri/renderD132"} <= {place for _p, place in nodes}
    assert len([place for _path, place in nodes if "nvidia-caps" in place]) == 2
    links = [argument for argument in devices["1"].hooks[0].args if "::" in argument]
    assert "../card4::/dev/dri/by-path/pci-0000:0f:00.0-card" in links
    case["remove"] = ["/dev/nvidiactl"]
    ill = found(case, tmp_path / "ill", dev_root="/run/nvidia/driver").devices
    assert all("/run/nvidia/driver/dev/nvidiactl" in device.health.reason for device in ill)


@needs_nodes
@pytest.mark.parametrize("profile", ["nvidia", *PROFILES])
def test_every_profile_takes_a_root_of_device_nodes(tmp_path, profile):
    case = {"gpus": "H100", "switches": True, "channels": [0, 5]}
    roots = [
        nvidia.of_case({**case, **more}, tmp_path / name)[0]
        for name, more in (
            ("plain", {}),
            ("moved", {"move": {"/dev": "/run/nvidia/driver/dev"}, "nodes": {"/dev/null": "c 1:3"}}),
        )
    ]
    entry = {"profile": profile, "hooks": []} if profile in ("nvidia", "nvidia_management") else {"profile": profile}
    entries = entry, {**entry, "dev_root": "/run/nvidia/driver/"}
    plain, moved = (discover({"x": one}, snapshot.take(root)) for one, root in zip(entries, roots))
    assert plain.devices and [device.names for device in plain.devices] == [device.names for device in moved.devices]
    for one, other in zip((*plain.devices, *plain.kinds), (*moved.devices, *moved.kinds)):
        assert other.edits.nodes == tuple(
            node._replace(path=f"/run/nvidia/driver{node.path}", container_path=node.path) for node in one.edits.nodes
        )
        assert one.edits._replace(nodes=()) == other.edits._replace(nodes=())


@needs_nodes
@pytest.mark.skipif(not nvidia.LDCONFIG, reason="no ldconfig here")
@pytest.mark.parametrize("driver_root", ["", "/run/nvidia/driver"])
def test_libraries_that_only_the_linkers_cache_knows(tmp_path, driver_root):
    move = {nvidia.LIB: f"{driver_root}/opt/lib", **({"/etc": f"{driver_root}/etc"} if driver_root else {})}
    case = {"gpus": "P100", "move": move, "driver_root": driver_root or "/"}
    options = {"driver_root": driver_root} if driver_root else {}
    (kind,) = found(case, tmp_path / "without", **options).kinds
    assert not [mount for mount in kind.edits.mounts if "/libcuda.so" in mount.host_path]
    result = found({**case, "library_folders": ["/opt/lib"]}, tmp_path / "with", **options)
    (kind,) = result.kinds
    library = f"/opt/lib/libcuda.so.{nvidia.VERSION}"
    assert Mount(driver_root + library, library if driver_root else "") in kind.edits.mounts
    beside = f"{driver_root}/opt/lib/vdpau/libvdpau_nvidia.so.{nvidia.VERSION}"
    assert beside in [mount.host_path for mount in kind.edits.mounts]
    assert kind.edits.env[0] == "NVIDIA_CTK_LIBCUDA_DIR=/opt/lib"
    assert result.warnings == ()


@needs_nodes
@pytest.mark.parametrize("content", [b"", b"\xff" * 100, b"glibc-ld.so.cache1.1" + b"\xff" * 100])
def test_a_damaged_cache_of_the_linker_is_as_none(tmp_path, content):
    root, _gpus = nvidia.of_case({"gpus": "P100", "move": {nvidia.LIB: "/opt/lib"}}, tmp_path)
    (tmp_path / "etc/ld.so.cache").write_bytes(content)
    (warning,) = discover({"gpus": {"profile": "nvidia"}}, snapshot.take(root)).warnings
    assert "no library of driver" in warning


def test_a_real_virtual_machine_with_a_p100(dumps, tmp_path):
    root = real.unpack(dumps / "sysfs/ghw-tesla-p100-vm.tar.gz", tmp_path)
    (device,) = discover({"gpus": {"profile": "nvidia", "hooks": []}}, snapshot.take(root)).devices
    assert (device.id, device.names, device.driver) == ("pci:0000:06:00.0", ("0",), "nvidia")
    assert (device.vendor_id, device.device_id, device.nodes) == ("0x10de", "0x15f8", ())
    assert device.health == ("unknown", "there is no /proc to ask the driver")


@pytest.fixture(scope="module")
def p100s(tmp_path_factory):
    """The root directory of a machine with two GPUs and without a driver's user part."""
    gpus = tuple(nvidia.Gpu(f"0000:0{bus}:00.0", bus) for bus in (1, 2))
    tree = nvidia.machine(gpus)
    tree["files"] = {path: text for path, text in tree["files"].items() if not path.startswith("/usr/lib")}
    return Path(nvidia.build(tree, tmp_path_factory.mktemp("p100s")))


LINES = st.tuples(st.sampled_from(["Device Minor", "GPU UUID", "GPU Excluded", "Model"]), st.text(max_size=8))


@hypothesis.settings(max_examples=40)
@given(st.one_of(st.binary(max_size=60), st.lists(LINES.map(": ".join)).map("\n".join).map(str.encode)))
def test_whatever_the_driver_says_of_a_gpu_it_hides_no_other(p100s, content):
    (p100s / "proc/driver/nvidia/gpus/0000:01:00.0/information").write_bytes(content)
    result = discover({"gpus": {"profile": "nvidia"}}, snapshot.take(str(p100s)))
    assert [device.pci_address for device in sorted(result.devices)] == ["0000:01:00.0", "0000:02:00.0"]
    assert {name for device in result.devices for name in device.names if name.isdecimal()} == {"0", "1"}
