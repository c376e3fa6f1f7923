# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""sysfs trees of machines that nobody dumped, rendered from the link graphs that NCCL or RCCL wrote on them.

They are never called real. From the file come PCI addresses, classes, vendors, switches, NUMA nodes, interfaces and
xGMI links. What it does not say is made up: root ports and downstream ports (on buses that the file does not use), a
host bridge for each device or switch that is directly at a CPU, vendors of old files, drivers, the numbers of nodes.
None of the project's code is used here, so that a test may compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from ansible_collections.fleet.cdi.tests.unit.trees.render import render


class Family(NamedTuple):
    """What is made up for one sort of device."""

    vendor: str
    device: str
    driver: str


AMD, NVIDIA, MELLANOX = (
    Family("0x1002", "0x740f", "amdgpu"),
    Family("0x10de", "0x20b2", "nvidia"),
    Family("0x15b3", "0x101b", "mlx5_core"),
)
BRIDGE = Family("0x1000", "0xc010", "pcieport")
# KFD's gfx_target_version, and MB/s that it tells for one link: none before gfx90a.
PROCESSORS = {
    "906": (90006, 0),
    "908": (90008, 0),
    "910": (90010, 50000),
    "940": (90400, 64000),
    "gfx942": (90402, 64000),
}
XGMI = 11


class Function(NamedTuple):
    """One <pci> of a file and what is made up for it."""

    element: Any
    address: str
    path: str  # of the directory
    numa_node: str


def rendered(xml: Path, base: Path, flat: bool = False) -> str:
    """Render the tree of a link graph below `base`; returns the root directory. `flat`: see `tree`."""
    return render(tree(xml.read_bytes(), flat), base)


def tree(xml: bytes, flat: bool = False) -> dict[str, Any]:
    """The tree in render.py's words. `flat` is what a virtual machine shows: no switch, no NUMA node, no link."""
    root = ElementTree.fromstring(xml)
    buses = {element.get("busid")[:7] for element in root.iter("pci")}
    functions: list[Function] = []
    devices: dict[str, Any] = {}
    for cpu in root.findall("cpu"):
        for top in cpu.findall("pci"):
            if flat:
                leaves = [element for element in top.iter("pci") if not element.findall("pci")]
                functions += [_alone(element, buses, devices) for element in leaves]
            else:
                numa = cpu.get("numaid", "-1")
                place, directory = _place(top, numa, buses, devices)
                functions += _below(top, f"{place}/{directory}", numa, buses, devices)
    gpus = [function for function in functions if _family(function.element) in (AMD, NVIDIA)]
    nics = [function for function in functions if _family(function.element) == MELLANOX]
    for function in functions:
        devices[function.path] = _function(function)
    for index, gpu in enumerate(gpus):
        devices |= _drm(gpu, index)
    for index, nic in enumerate(nics):
        devices |= _network(nic, index)
    files = {} if flat else _kfd([gpu for gpu in gpus if _family(gpu.element) == AMD])
    return {"devices": devices, "files": files}


def _alone(element: Any, buses: set[str], devices: dict[str, Any]) -> Function:
    place, directory = _place(element, "-1", buses, devices)
    return Function(element, directory, f"{place}/{directory}", "-1")


def _place(element: Any, numa: str, buses: set[str], devices: dict[str, Any]) -> tuple[str, str]:
    """(directory above, own name) of what is directly at a CPU: on bus 0 at a host bridge, else below a root port."""
    address = element.get("busid")
    domain, bus = address[:4], address[5:7]
    if bus == "00":
        return f"/sys/devices/pci{domain}:00", address
    root_bus = _unused(buses, domain, int(bus, 16))
    port = f"/sys/devices/pci{root_bus}/{root_bus}:00.0"
    devices[port] = _bridge(f"{root_bus}:00.0", numa)
    return port, address


def _below(element: Any, path: str, numa: str, buses: set[str], devices: dict[str, Any]) -> Iterator[Function]:
    """The function and what is below it; the ports of a switch that the file does not name go to `devices`."""
    children = element.findall("pci")
    yield Function(element, path.rpartition("/")[2], path, numa)
    if children:
        inside = _unused(buses, element.get("busid")[:4], int(element.get("busid")[5:7], 16))
        for index, child in enumerate(children):
            port = f"{inside}:{index:02x}.0"
            devices[f"{path}/{port}"] = _bridge(port, numa)
            yield from _below(child, f"{path}/{port}/{child.get('busid')}", numa, buses, devices)


def _unused(buses: set[str], domain: str, near: int) -> str:
    """A bus of the domain that nothing uses, and take it."""
    numbers = sorted(range(256), key=lambda bus: (abs(bus - near), bus))
    found = next(name for bus in numbers for name in [f"{domain}:{bus:02x}"] if name not in buses)
    buses.add(found)
    return found


def _family(element: Any) -> Family:
    gpu = element.find("gpu")
    if gpu is not None:
        return AMD if gpu.get("gcn") else NVIDIA
    class_ = element.get("class", "")
    return {"0x03": NVIDIA, "0x02": MELLANOX}.get(class_[:4], BRIDGE)


def _function(function: Function) -> dict[str, Any]:
    family, element = _family(function.element), function.element
    return _pci(
        element.get("vendor") or family.vendor,
        element.get("device") or family.device,
        element.get("class"),
        family.driver,
        function.address,
        function.numa_node,
    )


def _bridge(address: str, numa: str) -> dict[str, Any]:
    return _pci(BRIDGE.vendor, BRIDGE.device, "0x060400", BRIDGE.driver, address, numa)


def _pci(vendor: str, device: str, class_: str, driver: str, address: str, numa: str) -> dict[str, Any]:
    return {
        "subsystem": "bus/pci",
        "driver": driver,
        "uevent": {
            "DRIVER": driver,
            "PCI_CLASS": class_[2:].lstrip("0").upper(),
            "PCI_ID": f"{vendor[2:]}:{device[2:]}".upper(),
            "PCI_SLOT_NAME": address,
        },
        "attributes": {"vendor": vendor, "device": device, "class": class_, "numa_node": numa},
    }


def _drm(gpu: Function, index: int) -> dict[str, Any]:
    """card<n> and renderD<128 + n>."""
    names = {f"card{index}": index, f"renderD{128 + index}": 128 + index}
    return {
        f"{gpu.path}/drm/{name}": {
            "subsystem": "class/drm",
            "uevent": {"MAJOR": 226, "MINOR": minor, "DEVNAME": f"dri/{name}"},
            "attributes": {"dev": f"226:{minor}"},
        }
        for name, minor in names.items()
    }


def _network(nic: Function, index: int) -> dict[str, Any]:
    """The interfaces: InfiniBand where it is called mlx<n>_<n>, with uverbs<n>; an Ethernet interface otherwise."""
    found: dict[str, Any] = {}
    for name in [net.get("name") for net in nic.element.iter("net")] or [f"mlx5_{index}"]:
        if not name.startswith("mlx"):
            found[f"{nic.path}/net/{name}"] = {"subsystem": "class/net"}
            continue
        found[f"{nic.path}/infiniband/{name}"] = {"subsystem": "class/infiniband"}
        found[f"{nic.path}/infiniband_verbs/uverbs{index}"] = {
            "subsystem": "class/infiniband_verbs",
            "uevent": {"MAJOR": 231, "MINOR": 192 + index, "DEVNAME": f"infiniband/uverbs{index}"},
            "attributes": {"dev": f"231:{192 + index}"},
        }
    return found


def _kfd(gpus: list[Function]) -> dict[str, str]:
    """KFD's topology: node 0 is the CPUs, the GPUs follow; their xGMI links, and that of PCIe to the CPUs."""
    if not gpus:
        return {}
    top = "/sys/class/kfd/kfd/topology/nodes"
    numbers = {gpu.address: number for number, gpu in enumerate(gpus, 1)}
    files = {f"{top}/0/properties": _lines({"cpu_cores_count": 64, "simd_count": 0})}
    for gpu, number in zip(gpus, numbers.values()):
        domain, bus, device, function = (int(part, 16) for part in gpu.address.replace(".", ":").split(":"))
        version, each = PROCESSORS[gpu.element.find("gpu").get("gcn")]
        files[f"{top}/{number}/properties"] = _lines(
            {
                "cpu_cores_count": 0,
                "simd_count": 416,
                "vendor_id": 0x1002,
                "location_id": bus << 8 | device << 3 | function,
                "domain": domain,
                "drm_render_minor": 127 + number,
                "gfx_target_version": version,
                "unique_id": 0xFEED0000 + number,
            }
        )
        files[f"{top}/{number}/io_links/0/properties"] = _lines({"type": 2, "node_from": number, "node_to": 0})
        for index, link in enumerate(gpu.element.iter("xgmi"), 1):
            files[f"{top}/{number}/io_links/{index}/properties"] = _lines(
                {
                    "type": XGMI,
                    "node_from": number,
                    "node_to": numbers[link.get("target")],
                    "min_bandwidth": each,
                    "max_bandwidth": each * int(link.get("count")),
                }
            )
    return files


def _lines(properties: dict[str, int]) -> str:
    return "".join(f"{name} {value}\n" for name, value in properties.items())
