# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a device sits in the PCIe tree, and how PCI addresses are written."""

from __future__ import annotations

import re

from ..snapshot import PCI_ADDRESS, SysDevice

# "pci0000:00": domain and root bus (Linux, drivers/pci/probe.c, pci_register_host_bridge). Behind a VMD controller
# there is a second one, with a domain of its own: /sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0.
HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z")
WRITTEN = re.compile(r"([0-9a-f]{1,8}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])\Z")


def pcie_path(device: SysDevice) -> tuple[str, ...]:
    """The way to the PCI function that a device is or sits on: host bridge, root port, switch ports; without itself.

    () for what sits on no PCI function, and where a dump has only a flat list of functions. A sysfs path is free of
    links, so the tree is what the path says, and nothing is read.
    """
    function = device.pci
    if function is None:
        return ()
    above = function.path.split("/")[:-1]
    return tuple(name for name in above if HOST_BRIDGE.match(name) or PCI_ADDRESS.match(name))


def address(text: str) -> str:
    """A PCI address as Linux writes it, from however a tool wrote it ("00000000:3B:00.0"); "" if it is none."""
    found = WRITTEN.match(text.strip().lower())
    if not found:
        return ""
    domain, bus, device, function = (int(part, 16) for part in found.groups())
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}" if device < 32 else ""


def identity(function: str) -> str:
    """What a device on this PCI function is known by (records.Device.id)."""
    return f"pci:{function}"
