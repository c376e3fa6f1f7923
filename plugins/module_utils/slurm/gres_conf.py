# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines of gres.conf and slurm.conf for the devices of the configurations in slurm.d."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ..claims.ended import this_boot
from ..discovery import inventory
from ..layout import Layout
from ..manifest import read_manifest
from ..protocol.configurations import directories, find
from ..protocol.pools import PROFILES, pool_path
from ..records import CdiError, Device, Link
from .gres_devices import GPU
from .job_claim import TYPE
from .programs import SlurmPrograms

_ODD = re.compile(r"[^A-Za-z0-9_.-]")  # in a word of slurm.conf
_RENDER = re.compile(r"/renderD[0-9]+$")  # of the nodes of a GPU, the one that jobs compute with


class GresLines(NamedTuple):
    """What an operator puts into Slurm's files."""

    gres_conf: tuple[str, ...]
    slurm_conf: tuple[str, ...]


def gres_lines(places: Layout, variables: Mapping[str, str]) -> GresLines:
    """Return the lines for this host. Raises CdiError without devices for Slurm."""
    devices, links = _pools(places, this_boot(places))
    node = SlurmPrograms(variables).node
    types = [_type_of(device) for device in devices]
    twice = next((one for one in types if types.count(one) > 1), None)
    if twice:
        raise CdiError(f"{TYPE}.d: two devices have a node with the name {twice}; expected different names")
    cores = core_indexes(places.root)
    lines = [
        " ".join(
            [
                f"NodeName={node} Name={GPU} Type={type_} File={file_of(device)}",
                *_links(device, devices, links),
                *_cores(device, cores),
            ]
        )
        for device, type_ in zip(devices, types)
    ]
    gres = ",".join(f"{GPU}:{type_}:1" for type_ in types)
    features = ",".join(sorted({word for device in devices for word in features_of(device)}))
    return GresLines(tuple(lines), (f"NodeName={node} Gres={gres} Feature={features}",))


def file_of(device: Device) -> str:
    """Return the device node that stands for the device in gres.conf."""
    paths = [node.path for node in device.nodes]
    return next(filter(_RENDER.search, paths), paths[0])


def features_of(device: Device) -> tuple[str, ...]:
    """Return the node features for a device: its kind, driver, PCI ids and partition, as far as known."""
    ids = f"pci-{device.vendor_id[2:]}-{device.device_id[2:]}" if device.vendor_id and device.device_id else ""
    return tuple(_ODD.sub("_", word) for word in (device.kind, device.driver, ids, device.partition) if word)


def core_indexes(root: str) -> dict[int, tuple[int, ...]]:
    """Return NUMA node -> the indexes of its cores as Slurm counts them: by socket, then by core, without threads.

    gres.conf(5), "Cores". {} if the kernel does not say it.
    """
    base = os.path.join(root, "sys/devices/system")
    places: dict[int, tuple[int, int]] = {}
    try:
        for name in os.listdir(f"{base}/cpu"):
            if re.match(r"cpu[0-9]+$", name) and os.path.exists(f"{base}/cpu/{name}/topology/core_id"):
                at = [_number(f"{base}/cpu/{name}/topology/{field}") for field in ("physical_package_id", "core_id")]
                places[int(name[3:])] = (at[0], at[1])
        order = {place: index for index, place in enumerate(sorted(set(places.values())))}
        found: dict[int, tuple[int, ...]] = {}
        for name in os.listdir(f"{base}/node"):
            if re.match(r"node[0-9]+$", name):
                cpus = [int(entry[3:]) for entry in os.listdir(f"{base}/node/{name}") if re.match(r"cpu[0-9]+$", entry)]
                found[int(name[4:])] = tuple(sorted({order[places[cpu]] for cpu in cpus if cpu in places}))
        return found
    except (OSError, ValueError):
        return {}


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read(32))


def _pools(places: Layout, boot_id: str) -> tuple[list[Device], list[Link]]:
    """Return the devices of all configurations for Slurm, each hardware once, and their links. Raises CdiError."""
    devices: dict[str, Device] = {}
    links: dict[Link, Any] = {}
    for directory in directories(read_manifest(places.state_dir).files, places.config_dir):
        for one in find(directory, TYPE).configurations:
            if one.config.plugin not in PROFILES:
                continue
            pool = inventory.read(pool_path(places.inventory, TYPE, one.config.plugin, one.config.args), boot_id)
            devices.update((device.id, device) for device in pool.devices if device.nodes)
            links.update(dict.fromkeys(pool.links))
    if not devices:
        raise CdiError(
            f"{places.config_dir}/{TYPE}.d: has no configuration with devices; expected one that names the devices "
            "that Slurm may give to jobs. Module cdi_plugin writes one, then run `fleet-cdi refresh`"
        )
    return [*devices.values()], [*links]


def _type_of(device: Device) -> str:
    return _ODD.sub("_", os.path.basename(file_of(device)))


def _links(device: Device, devices: Sequence[Device], links: Sequence[Link]) -> list[str]:
    """Return Links=: the number of direct links to each device, and -1 for itself. [] without links."""
    counts = {
        other: link.parallel
        for link in links
        for one, other in ((link.a, link.b), (link.b, link.a))
        if one == device.id
    }
    if not counts:
        return []
    return ["Links=" + ",".join("-1" if one is device else str(counts.get(one.id, 0)) for one in devices)]


def _cores(device: Device, cores: Mapping[int, Sequence[int]]) -> list[str]:
    """Return Cores= if the device is close to some cores and not to all."""
    near: Optional[Sequence[int]] = cores.get(device.numa_node) if device.numa_node is not None else None
    everything = {index for one in cores.values() for index in one}
    if not near or set(near) == everything:
        return []
    return [f"Cores={','.join(map(str, near))}"]
