# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profiles infiniband and intel on dumps of real machines; test_amd.py has the real topology of KFD."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import Udev, discover
from ansible_collections.fleet.cdi.tests.unit.trees.render import render


def found(profile, root, **options):
    return discover({"some": {"profile": profile, **options}}, snapshot.take(root))


def test_a_real_infiniband_card_with_its_active_port(trees):
    root = trees("hwloc-4-numa-unknown-locality.tar.bz2")
    result = found("infiniband", root, want_device_nodes=["uverbs", "umad", "issm"])
    assert result.warnings == ()
    (card,) = result.devices
    place = Path(root, "sys/class/infiniband/qib0")
    assert card.names == ("0", "qib0")
    assert card.id == "pci:" + (place / "device").resolve().name
    assert card.uuid == (place / "node_guid").read_text(encoding="ascii").strip()
    assert card.serial == (place / "serial").read_text(encoding="ascii").strip("\0 \n")
    assert card.driver == (place / "device/driver").readlink().name
    # The kernel of 2013 leaves the directory /dev/infiniband to a rule of udev.
    assert {(node.role, node.path, node.major, node.minor) for node in card.nodes} == {
        ("uverbs", "/dev/uverbs0", 231, 192),
        ("umad", "/dev/umad0", 231, 0),
        ("issm", "/dev/issm0", 231, 64),
    }
    assert card.health.state == "unknown"  # it has no /dev; the port is active
    (card,) = found("infiniband", root, net_devices=True).devices
    assert [one.host_interface for one in card.net_devices] == ["ib0"]


def test_real_cards_whose_dump_has_no_rdma_are_not_hidden(trees):
    result = found("infiniband", trees("hwloc-8-vector-engines.tar.bz2"))
    assert [device.id for device in result.devices] == ["pci:0000:1a:00.0", "pci:0000:3e:00.0"]
    assert {device.health.state for device in result.devices} == {"unhealthy"}
    assert {device.driver for device in result.devices} == {"mlx5_core"}


def test_a_real_gpu_under_i915_whose_dump_has_no_drm(trees):
    (device,) = found("intel", trees("ghw-415ee03b.tar.gz")).devices
    assert device.names == ("0", "0000-00-02-0-0x46a6")
    assert device.health.reason == "0000:00:02.0: its driver made no DRM device of it"


def test_a_container_sees_an_intel_gpu_by_path_too(tmp_path):
    """As with Intel's generator, without being asked."""
    place = "/sys/devices/pci0000:00/0000:03:00.0"
    ids = {"vendor": "0x8086", "device": "0x56c0", "class": "0x038000"}
    uevent = {"MAJOR": 226, "MINOR": 128, "DEVNAME": "dri/renderD128"}
    root = render(
        {
            "devices": {
                place: {"subsystem": "bus/pci", "driver": "xe", "attributes": ids},
                f"{place}/drm/renderD128": {"subsystem": "class/drm", "uevent": uevent},
            }
        },
        tmp_path,
    )
    link = "/dev/dri/by-path/pci-0000:03:00.0-render"
    (gpu,) = discover({"gpus": {"profile": "intel"}}, snapshot.take(root), lambda _path: Udev({}, (link,))).devices
    assert [node.container_path or node.path for node in gpu.nodes] == ["/dev/dri/renderD128", link]
