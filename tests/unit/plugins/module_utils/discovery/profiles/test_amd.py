# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profile amd on the real KFD topology of a server with 8 MI210; PCI and DRM around it are rendered from it."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

KFD = "sys/devices/virtual/kfd/kfd"
# Node of KFD: (PCI address, render node, unique id), as one reads them in the files of the dump.
MI210 = {
    2: ("0000:63:00.0", 128, 1801979520617338022),
    3: ("0000:43:00.0", 129, 5847760019078012339),
    4: ("0000:03:00.0", 130, 10645161697164847644),
    5: ("0000:26:00.0", 131, 4847253685048710349),
    6: ("0000:e3:00.0", 132, 12585367064092601175),
    7: ("0000:c3:00.0", 133, 11779194899033552202),
    8: ("0000:83:00.0", 134, 17888023871577450191),
    9: ("0000:a3:00.0", 135, 14073402507705256557),
}


def server(dumps: Path, base: Path, minors: dict[int, int]) -> str:
    """The real topology; render node n of the dump is called `minors[n]`."""
    devices = {"/" + KFD: {"subsystem": "class/kfd", "uevent": {"MAJOR": 511, "MINOR": 0, "DEVNAME": "kfd"}}}
    for address, render_minor, _unique in MI210.values():
        place = f"/sys/devices/pci0000:00/{address}"
        ids = {"vendor": "0x1002", "device": "0x740f", "class": "0x038000"}
        devices[place] = {"subsystem": "bus/pci", "driver": "amdgpu", "attributes": ids}
        for node, minor in (("card{}", minors[render_minor] - 128), ("renderD{}", minors[render_minor])):
            name = node.format(minor)
            uevent = {"MAJOR": 226, "MINOR": minor, "DEVNAME": f"dri/{name}"}
            devices[f"{place}/drm/{name}"] = {"subsystem": "class/drm", "uevent": uevent}
    root = render({"devices": devices}, base)
    topology = base / KFD / "topology"
    topology.mkdir()
    archive = str(dumps / "kfd/mi210-xgmi-pcie.tar.gz")
    subprocess.run(["tar", "-xzf", archive, "--strip-components=2", "--no-same-owner", "-C", str(topology)], check=True)
    for path in topology.glob("nodes/*/properties"):
        words = dict(line.split() for line in path.read_text(encoding="ascii").splitlines())
        minor = int(words["drm_render_minor"])
        words["drm_render_minor"] = str(minors.get(minor, minor))
        path.chmod(0o644)
        path.write_text("".join(f"{key} {value}\n" for key, value in words.items()), encoding="ascii")
    return root


@pytest.mark.parametrize("renumbered", [False, True])
def test_eight_mi210_whatever_their_nodes_are_numbered(dumps, tmp_path, renumbered):
    numbers = list(range(128, 136))
    after = random.Random(1).sample(numbers, len(numbers)) if renumbered else numbers
    minors = dict(zip(numbers, after))
    found = discover({"gpus": {"profile": "amd"}}, snapshot.take(server(dumps, tmp_path, minors)))
    assert found.warnings == ()
    expected = [
        (
            f"pci:{address}",
            (str(index), f"GPU-{unique:016x}"),
            [f"/dev/dri/card{minor - 128}", f"/dev/dri/renderD{minor}"],
        )
        for index, (address, render_minor, unique) in enumerate(sorted(MI210.values()))
        for minor in [minors[render_minor]]
    ]
    assert [(one.id, one.names, [node.path for node in one.nodes]) for one in found.devices] == expected
    # Two hives of four, in each of which everybody is linked with everybody.
    assert {link.type for link in found.links} == {"XGMI"}
    assert len(found.links) == 2 * (4 * 3 // 2)
    assert {link.a for link in found.links} | {link.b for link in found.links} == {one.id for one in found.devices}
