# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""hwloc's opinion: its XML, read without any of the project's code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree


def functions_of(xml: bytes) -> dict[str, dict[str, Any]]:
    """PCI address -> vendor, device, class ("0x0b40"), numa_node and pcie_path, bridges included.

    A function below several NUMA nodes has no locality: numa_node is None.
    """
    return dict(_below(ElementTree.fromstring(xml), [], []))


def _below(element: Any, nodes: list[int], path: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    nodes = [int(child.get("os_index")) for child in element.findall("object[@type='NUMANode']")] or nodes
    for child in element.findall("object"):
        address, inner = child.get("pci_busid"), path
        if address:
            class_, ids = child.get("pci_type").split()[:2]
            vendor, device = ids.strip("[]").split(":")
            yield (
                address,
                {
                    "vendor": f"0x{vendor}",
                    "device": f"0x{device}",
                    "class": f"0x{class_}",
                    "numa_node": nodes[0] if len(nodes) == 1 else None,
                    "pcie_path": path,
                },
            )
            inner = [*path, address]
        elif child.get("type") == "Bridge":  # a host bridge: "0000:[5d-60]"
            inner = ["pci" + child.get("bridge_pci").split("-")[0].replace("[", "")]
        yield from _below(child, nodes, inner)
