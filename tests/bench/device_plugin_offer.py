# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the device plugin's own thinking costs: the offer of a registry, one look at all of it, the kubelet's list.

Prints one JSON object per case: {"bench", "case", "unit", "value", "baseline", "ratio"}. CPU milliseconds, the best of
some runs; the baseline is json.loads of the spec, which nobody can do without, or, where files are missing, the same
look before they were.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Callable

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "build/pythonpath"))

from measure import line

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import PluginSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.served_resource import message
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.device_list import Roster
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.health.probe import look
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import (
    OfferedUnit,
    Resource,
    offer,
)
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node
from ansible_collections.fleet.cdi.plugins.module_utils.spec.registry import SpecFile, all_edits, resolve
from ansible_collections.fleet.cdi.plugins.module_utils.spec.same_nodes import StrangeNodes
from ansible_collections.fleet.cdi.plugins.module_utils.system.device_nodes import numbers_at

KIND = "nvidia.com/gpu"
NULL = "/dev/null"  # a node that is there, so that a look goes all the way


def cpu(work: Callable[[], Any], times: int) -> float:
    """CPU milliseconds of the cheapest run."""
    taken = []
    for _time in range(times):
        start = time.process_time()
        work()
        taken.append(1000 * (time.process_time() - start))
    return min(taken)


def gpus(number: int) -> tuple[dict[str, Any], Inventory]:
    """A spec of so many GPUs by index, by uuid and all together, and the inventory that knows them."""
    devices, known = [], []
    for index in range(number):
        uuid = f"GPU-{index:08x}-1111-2222-3333-444444444444"
        edits = {"deviceNodes": [{"path": f"/dev/nvidia{index}", "hostPath": f"/dev/nvidia{index}"}, {"path": NULL}]}
        devices += [{"name": name, "containerEdits": edits} for name in (str(index), uuid)]
        node = Node(f"/dev/nvidia{index}", "c", 195, index)
        known.append(Device(f"pci:{index:04x}:00:00.0", "nvidia", KIND, (str(index),), (node,), numa_node=index % 2))
    every = [{"path": f"/dev/nvidia{index}"} for index in range(number)]
    devices.append({"name": "all", "containerEdits": {"deviceNodes": every}})
    return {"cdiVersion": "0.6.0", "kind": KIND, "devices": devices}, Inventory(tuple(known))


def taken(roster: Roster, resource: Resource, left: Iterator[OfferedUnit]) -> None:
    """One device changes."""
    roster.update(resource, {next(left).id: "taken: x"}, 1.0)


def missing(number: int, lost: int) -> None:
    """One look where so many libraries of so many devices are missing, beside one where all are there."""
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory, f"lib{index}-{index % 7}.so.1.{index % 3}") for index in range(number)]
        for path in paths:
            path.touch()
        devices = [
            {
                "name": str(index),
                "containerEdits": {
                    "deviceNodes": [{"path": f"/dev/x{index}", "hostPath": NULL}],
                    "mounts": [{"hostPath": str(path), "containerPath": str(path)}],
                },
            }
            for index, path in enumerate(paths)
        ]
        spec = {"cdiVersion": "0.6.0", "kind": KIND, "devices": devices}
        registry = resolve(("/etc/cdi",), [SpecFile("/etc/cdi/gpus.json", 0, spec)], {})
        units = tuple(
            OfferedUnit(str(index), (f"{KIND}={index}",), Device(f"x:{index}", "nvidia", KIND, (str(index),), ()))
            for index in range(number)
        )
        resource = Resource(KIND, units)
        baseline = cpu(partial(look, resource, registry), 3)
        for path in paths[:lost]:
            path.unlink()
        assert len(look(resource, registry)) == lost
        line(
            f"look, {number} devices, {lost} missing", "ms of CPU", cpu(partial(look, resource, registry), 3), baseline
        )


def main() -> None:
    """The lines of all sizes."""
    for lost in (100, 10_000):
        missing(10_000, lost)
    for number in (8, 1000, 60_000):
        times = 2 if number > 1000 else 5
        spec, known = gpus(number)
        text = json.dumps(spec)
        baseline = cpu(partial(json.loads, text), times)
        registry = resolve(("/etc/cdi",), [SpecFile("/etc/cdi/gpus.json", 0, spec)], {})
        (resource,) = offer(PluginSettings(), registry, known).resources
        assert len(resource.units) == number
        edits, nodes = all_edits(registry), [node for one in known.devices for node in one.nodes]
        strange = StrangeNodes(edits, nodes)
        roster = Roster(frozenset({0, 1}))
        roster.update(resource, {}, 0.0)
        cases: dict[str, Callable[[], Any]] = {
            "nodes of specs, beside the inventory's": partial(StrangeNodes, edits, nodes),
            "look for nodes under other paths": partial(strange.look, numbers_at),
            "offer": partial(offer, PluginSettings(), registry, known),
            "look": partial(look, resource, registry),
            "roster, nothing new": partial(roster.update, resource, {}, 1.0),
            "roster, another one is taken": partial(taken, roster, resource, iter(resource.units)),
            "message": partial(message, roster),
        }
        for name, work in cases.items():
            value = cpu(work, times)
            line(f"{name}, {number} devices", "ms of CPU", value, baseline)


if __name__ == "__main__":
    main()
