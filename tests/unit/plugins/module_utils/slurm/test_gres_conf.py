# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines for Slurm's files: features, links and cores of devices."""

from __future__ import annotations

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import pool_path
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, Link, Node
from ansible_collections.fleet.cdi.plugins.module_utils.slurm.gres_conf import core_indexes, gres_lines

CONFIG = '{"cdiVersion": "0.0.2", "name": "Slurm", "type": "slurm", "plugin": "drm", "args": {}}'
VARIABLES = {"SLURMD_NODENAME": "n1"}


def gpu(number, numa_node):
    """A GPU with two device nodes."""
    nodes = tuple(Node(f"/dev/dri/{name}", "c", 226, number) for name in (f"card{number}", f"renderD{128 + number}"))
    more = {"driver": "amdgpu", "vendor_id": "0x1002", "device_id": "0x74a1", "numa_node": numa_node}
    return Device(f"pci:0000:0{number}:00.0", "drm", "amd.com/gpu", (str(number),), nodes, **more)


@pytest.fixture
def host(tmp_path):
    """A host with two sockets of two cores of two threads, and two GPUs with links."""
    system = tmp_path / "sys/devices/system"
    for cpu in range(8):
        topology = system / f"cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        core = cpu % 4  # the second threads come behind all first ones
        (topology / "physical_package_id").write_text(f"{core % 2}\n")
        (topology / "core_id").write_text(f"{core // 2}\n")
        near = system / f"node/node{core % 2}"
        near.mkdir(parents=True, exist_ok=True)
        (near / f"cpu{cpu}").mkdir()
    (tmp_path / "cdi/slurm.d").mkdir(parents=True)
    (tmp_path / "cdi/slurm.d/gpu.conf").write_text(CONFIG)
    (tmp_path / "pools.d").mkdir()
    return Layout(str(tmp_path / "state"), str(tmp_path / "pools.json"), str(tmp_path / "cdi"), str(tmp_path))


def write(host, devices, links=()):
    path = pool_path(host.inventory, "slurm", "drm", {})
    with open(path, "wb") as file:
        file.write(inventory.render(inventory.Inventory(tuple(devices), (), tuple(links)), inventory.boot_id()))


def test_lines_of_two_linked_gpus(host):
    one, two = gpu(0, 0), gpu(1, 1)
    write(host, [one, two], [Link(one.id, two.id, "XGMI", 4)])
    lines = gres_lines(host, VARIABLES)
    assert lines.gres_conf == (
        "NodeName=n1 Name=gpu Type=renderD128 File=/dev/dri/renderD128 Links=-1,4 Cores=0,1",
        "NodeName=n1 Name=gpu Type=renderD129 File=/dev/dri/renderD129 Links=4,-1 Cores=2,3",
    )
    assert lines.slurm_conf == (
        "NodeName=n1 Gres=gpu:renderD128:1,gpu:renderD129:1 Feature=amd.com_gpu,amdgpu,pci-1002-74a1",
    )


def test_a_gpu_of_unknown_locality_has_no_cores_and_no_links(host):
    write(host, [gpu(0, None)])
    assert gres_lines(host, VARIABLES).gres_conf == ("NodeName=n1 Name=gpu Type=renderD128 File=/dev/dri/renderD128",)


def test_a_host_without_topology_has_no_cores(tmp_path):
    assert core_indexes(str(tmp_path)) == {}


def test_without_devices_the_error_says_what_to_write(host):
    write(host, [])
    with pytest.raises(CdiError, match=r"slurm\.d: has no configuration with devices"):
        gres_lines(host, VARIABLES)
