# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profile intel on a dump of a real machine, and a link by path of a rendered one."""

from __future__ import annotations

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import Udev, discover
from ansible_collections.fleet.cdi.tests.unit.trees.render import render


def found(root, **options):
    return discover({"some": {"profile": "intel", **options}}, snapshot.take(root))


def test_a_real_gpu_under_i915_whose_dump_has_no_drm(trees):
    (device,) = found(trees("ghw-415ee03b.tar.gz")).devices
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
