# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profile infiniband on dumps of real machines."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover


def found(root, **options):
    return discover({"some": {"profile": "infiniband", **options}}, snapshot.take(root))


def test_a_real_infiniband_card_with_its_active_port(trees):
    root = trees("hwloc-4-numa-unknown-locality.tar.bz2")
    result = found(root, want_device_nodes=["uverbs", "umad", "issm"])
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
    (card,) = found(root, net_devices=True).devices
    assert [one.host_interface for one in card.net_devices] == ["ib0"]


def test_real_cards_whose_dump_has_no_rdma_are_not_hidden(trees):
    result = found(trees("hwloc-8-vector-engines.tar.bz2"))
    assert [device.id for device in result.devices] == ["pci:0000:1a:00.0", "pci:0000:3e:00.0"]
    assert {device.health.state for device in result.devices} == {"unhealthy"}
    assert {device.driver for device in result.devices} == {"mlx5_core"}
