# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's devices besides GPUs: GDRCopy, GDS, IMEX channels, MIG capabilities, switches, and management."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.profiles.nvidia_modes import PROFILES
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.discovery.profiles.nvidia_cases import needs_nodes
from ansible_collections.fleet.cdi.tests.unit.trees import nvidia


def others(profile, case, base, **options):
    root, _gpus = nvidia.of_case({"gpus": "H100", **case}, base)
    return discover({"other": {"profile": profile, **options}}, snapshot.take(root))


@needs_nodes
@pytest.mark.parametrize(
    ("profile", "names", "paths"),
    [
        ("nvidia_gdrcopy", [("all",)], ["/dev/gdrdrv"]),
        ("nvidia_gds", [("all",)], ["/dev/nvidia-fs0", "/dev/nvidia-fs1"]),
        ("nvidia_imex", [("2",), ("10",)], [f"/dev/nvidia-caps-imex-channels/channel{number}" for number in (2, 10)]),
        ("nvidia_mig_caps", [("config",), ("monitor",)], [f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in (1, 2)]),
        (
            "nvidia_nvswitch",
            [(str(index), address) for index, address in enumerate(nvidia.SWITCHES)],
            [f"/dev/nvidia-nvswitch{index}" for index in range(4)],
        ),
    ],
)
def test_others(profile, names, paths, tmp_path):
    result = others(profile, {"switches": True, "channels": [10, 2]}, tmp_path)
    assert [device.names for device in result.devices] == names
    assert [node.path for device in result.devices for node in device.nodes] == paths
    assert {device.health.state for device in result.devices} == {"healthy"}
    assert result.warnings == ()
    assert {device.kind for device in result.devices} == {PROFILES[profile].kind}


@needs_nodes
def test_management_has_every_node_of_the_gpus_and_no_other(tmp_path):
    result = others(
        "nvidia_management", {"switches": True, "channels": [0], "mig": {"0000:19:00.0": [[1, 0]]}}, tmp_path
    )
    (device,) = result.devices
    paths = {node.path for node in device.nodes}
    assert {
        "/dev/nvidiactl",
        "/dev/nvidia0",
        "/dev/nvidia7",
        "/dev/nvidia-uvm",
        "/dev/nvidia-caps/nvidia-cap1",
    } <= paths
    assert "/dev/nvidia-caps-imex-channels/channel0" in paths
    assert not [path for path in paths if "nvswitch" in path or "nvidia-fs" in path or "dri" in path]
    hooks = {hook.args[1] for hook in result.kinds[0].edits.hooks}
    assert hooks == {"create-symlinks", "enable-cuda-compat", "update-ldcache"}


@needs_nodes
def test_a_channel_beyond_the_last_is_none(tmp_path):
    nodes = {f"/dev/nvidia-caps-imex-channels/{name}": "c 235:9" for name in ("channel1048576", "channelx", "channel")}
    assert not others("nvidia_imex", {"nodes": nodes}, tmp_path, required=False).devices


@needs_nodes
def test_a_switch_without_its_node_is_ill(tmp_path):
    result = others("nvidia_nvswitch", {"switches": True, "remove": ["/dev/nvidia-nvswitch1"]}, tmp_path)
    assert [device.health.state for device in result.devices] == ["healthy", "unhealthy", "healthy", "healthy"]
    assert result.devices[1].health.reason == "/dev/nvidia-nvswitch1: No such file or directory"


def test_a_bridge_without_the_drivers_is_no_switch(tmp_path):
    result = others("nvidia_nvswitch", {"switches": True, "remove": ["/sys/devices/pci0000:05/*/driver*"]}, tmp_path)
    expected = [(str(index), address) for index, address in enumerate(nvidia.SWITCHES[1:])]
    assert [device.names for device in result.devices] == expected


@pytest.mark.parametrize("profile", [*PROFILES, "nvidia"])
def test_a_host_without_any_of_it(profile, tmp_path):
    for name in ("sys/class/drm", "sys/bus/pci/devices"):
        (tmp_path / name).mkdir(parents=True)
    result = discover({"other": {"profile": profile}}, snapshot.take(str(tmp_path)))
    assert (result.devices, result.kinds, len(result.warnings)) == ((), (), 1)
