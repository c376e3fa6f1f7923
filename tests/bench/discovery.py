# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU that discovery takes for 1,016 virtual functions on 8 ports, beside `udevadm info --export-db` on the same tree.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. Both run as a process of their
own, interpreter start included. The last case says how cost grows: 1,016 functions beside 248, so 4.1 would be linear.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(CHECKOUT / "build/pythonpath"), str(CHECKOUT)]

from measure import line

from tests.unit.trees.render import render

TIMES = 5
PRELOAD = "libumockdev-preload.so.0"
OURS = """
import sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory, snapshot
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
found = discover({"vfs": {"profile": "sriov"}}, snapshot.take(sys.argv[2]))
assert len(found.devices) == int(sys.argv[3]), found.warnings
inventory.render(inventory.Inventory(found.devices, found.kinds, found.links), "")
"""


def tree(ports: int, functions: int) -> dict[str, Any]:
    """`ports` physical functions, each behind a root port, with `functions` virtual ones: interface and verbs each."""
    devices: dict[str, Any] = {}
    links: dict[str, str] = {}
    for port in range(ports):
        bridge = f"/sys/devices/pci0000:{port:02x}/0000:{port:02x}:00.0"
        for number in range(functions + 1):
            address = f"0000:{0x40 + port:02x}:{number >> 3:02x}.{number & 7}"
            path = f"{bridge}/{address}"
            ids = {
                "vendor": "0x15b3",
                "device": "0x101e",
                "class": "0x020000",
                "numa_node": port // 4,
                "config": b"\0" * 64,
            }
            uevent = {"DRIVER": "mlx5_core", "PCI_CLASS": "20000", "PCI_ID": "15B3:101E", "PCI_SLOT_NAME": address}
            devices[path] = {"subsystem": "bus/pci", "driver": "mlx5_core", "attributes": ids, "uevent": uevent}
            name = f"ens{port}f0" + (f"v{number - 1}" if number else "")
            devices[f"{path}/net/{name}"] = {
                "subsystem": "class/net",
                "attributes": {"type": 1},
                "uevent": {"INTERFACE": name, "IFINDEX": 10 + port * 200 + number},
            }
            minor = 192 + port * 200 + number
            devices[f"{path}/infiniband_verbs/uverbs{minor}"] = {
                "subsystem": "class/infiniband_verbs",
                "uevent": {"MAJOR": 231, "MINOR": minor, "DEVNAME": f"infiniband/uverbs{minor}"},
            }
            if number:
                parent = f"0000:{0x40 + port:02x}:00.0"
                links[f"{path}/physfn"] = f"../{parent}"
                links[f"{bridge}/{parent}/virtfn{number - 1}"] = f"../{address}"
        devices[bridge] = {"subsystem": "bus/pci", "driver": "pcieport", "uevent": {"DRIVER": "pcieport"}}
    return {"devices": devices, "links": links}


def theirs(root: str) -> float:
    """What udevadm takes to print all devices of the tree."""
    command, environment = ["udevadm", "info", "--export-db"], {"UMOCKDEV_DIR": root, "LD_PRELOAD": PRELOAD}
    printed = subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment}).stdout
    assert printed.count(b"\nP: ") > 3000, "udevadm did not look at the tree"
    return cpu_seconds(command, environment)


def cpu_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """User and system time of a process and its children, the least of TIMES."""
    taken = []
    for _time in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **environment})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def ours(root: str, count: int) -> float:
    """What our discovery takes, down to the text of the inventory."""
    return cpu_seconds([sys.executable, "-I", "-c", OURS, str(CHECKOUT / "build/pythonpath"), root, str(count)], {})


def main() -> None:
    """Print the lines of all cases."""
    with tempfile.TemporaryDirectory() as base:
        large, small = (render(tree(8, functions), Path(base, str(functions))) for functions in (127, 31))
        value, fewer = ours(large, 1016), ours(small, 248)
        baseline = None
        if shutil.which("udevadm") and shutil.which("umockdev-run"):
            baseline = theirs(large)
        else:
            print("SKIPPED in bench: udevadm beside us (it takes udev and umockdev)", file=sys.stderr)
        cases = (("1016 virtual functions, beside udevadm", baseline), ("1016 virtual functions, beside 248", fewer))
        for case, beside in cases:
            line(case, "CPU s", value, beside)


if __name__ == "__main__":
    main()
