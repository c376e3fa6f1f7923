# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make this mount namespace look like a machine with GPUs, for pages that are typed: all of it is rendered.

stand_in.py nvidia|amd DIRECTORY

The trees are those of the unit tests (tests/unit/trees), made in DIRECTORY and mounted over /sys, /dev, /proc and /usr.
Run it in a mount namespace of its own (unshare --mount), as root. The nodes lead to no driver of a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "build/pythonpath"))

from ansible_collections.fleet.cdi.tests.unit.trees import nvidia
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

SAME = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")  # nodes that every program needs
# Numbers of nodes that open: of /dev/urandom, and of four others for the two cards and their render nodes.
KFD, CARDS, RENDERERS = 9, (3, 5), (7, 8)
TOPOLOGY = "/sys/devices/virtual/kfd/kfd/topology/nodes"


def amd(base: Path) -> None:
    """Render a machine with two MI210 under amdgpu."""
    tree: dict[str, Any] = {"nodes": {"/dev/kfd": f"c 1:{KFD}"}, "files": {f"{TOPOLOGY}/0/gpu_id": "0\n"}}
    tree["devices"] = {
        "/sys/devices/virtual/kfd/kfd": {
            "subsystem": "class/kfd",
            "uevent": {"MAJOR": 1, "MINOR": KFD, "DEVNAME": "kfd"},
        }
    }
    tree["files"][f"{TOPOLOGY}/0/properties"] = "cpu_cores_count 8\nsimd_count 0\nunique_id 0\n"
    for number, bus in enumerate((0x43, 0x63)):
        place = f"/sys/devices/pci0000:00/0000:{bus:02x}:00.0"
        ids = {"vendor": "0x1002", "device": "0x740f", "class": "0x038000"}
        tree["devices"][place] = {"subsystem": "bus/pci", "driver": "amdgpu", "attributes": ids}
        for name, minor in ((f"card{number}", CARDS[number]), (f"renderD{128 + number}", RENDERERS[number])):
            uevent = {"MAJOR": 1, "MINOR": minor, "DEVNAME": f"dri/{name}"}
            tree["devices"][f"{place}/drm/{name}"] = {"subsystem": "class/drm", "uevent": uevent}
            tree["nodes"][f"/dev/dri/{name}"] = f"c 1:{minor}"
        properties = {"simd_count": 416, "vendor_id": 4098, "device_id": 29711, "location_id": bus << 8, "domain": 0}
        properties |= {"drm_render_minor": 128 + number, "unique_id": 1801979520617338022 + number, "num_xcc": 1}
        text = "".join(f"{key} {value}\n" for key, value in properties.items())
        tree["files"] |= {
            f"{TOPOLOGY}/{number + 1}/properties": text,
            f"{TOPOLOGY}/{number + 1}/gpu_id": f"{number + 1}\n",
        }
    render(tree, base)


def show(base: Path) -> None:
    """Mount what was rendered where a machine has it. Raises CalledProcessError."""
    for name in SAME:
        subprocess.run(["cp", "--archive", "--force", f"/dev/{name}", f"{base}/dev/{name}"], check=True)
    for name in ("fd", "stdin", "stdout", "stderr"):
        os.symlink(os.readlink(f"/dev/{name}"), f"{base}/dev/{name}")
    for name in ("shm", "pts", "mqueue"):
        (base / "dev" / name).mkdir()
        if os.path.ismount(f"/dev/{name}"):
            mount("--bind", f"/dev/{name}", f"{base}/dev/{name}")
    for path in [
        one for one in base.glob("usr/**/*") if not one.is_dir() and os.path.lexists(f"/{one.relative_to(base)}")
    ]:
        path.unlink()  # this machine's own, such as libc
    if (base / "usr").is_dir():
        mount("-t", "overlay", "-o", f"lowerdir={base}/usr:/usr", "none", "/usr")
    for name in ("devices", "modules", "driver"):
        if (base / "proc" / name).exists():
            mount("--bind", f"{base}/proc/{name}", f"/proc/{name}")
    mount("--bind", f"{base}/sys", "/sys")
    mount("--bind", f"{base}/dev", "/dev")


def mount(*arguments: str) -> None:
    """Run mount(8). Raises CalledProcessError."""
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    there = Path(sys.argv[2]).resolve()
    if sys.argv[1] == "amd":
        amd(there)
    else:
        nvidia.build(nvidia.machine(nvidia.H100[:2]), there)
    show(there)
