# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Registries and inventories in a few words, for tests of those who hand out what is in them.

An edit is one text: "/dev/x" is a device node, "/dev/x:/dev/y" one that a container sees as /dev/y, "net:eth0" an
interface, "mount:/x" a mount, "env:A=b" a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.discovery.inventory import Inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Health, Link, NetDevice, Node
from ansible_collections.fleet.cdi.plugins.module_utils.spec.registry import Registry, SpecFile, resolve
from ansible_collections.fleet.cdi.tests.unit import builders

DIRECTORIES = ("/etc/cdi", "/run/cdi")


def edits(texts: Iterable[str]) -> dict[str, Any]:
    """Container edits."""
    found: dict[str, list[Any]] = {}
    for text in texts:
        what, _colon, rest = text.partition(":")
        if what == "net":
            found.setdefault("netDevices", []).append({"hostInterfaceName": rest, "name": rest})
        elif what == "mount":
            found.setdefault("mounts", []).append({"hostPath": rest, "containerPath": rest})
        elif what == "env":
            found.setdefault("env", []).append(rest)
        else:
            node = {"path": rest, "hostPath": what} if rest else {"path": what}
            found.setdefault("deviceNodes", []).append(node)
    return found


def spec(kind: str, devices: Mapping[str, Iterable[str]], common: Iterable[str] = ()) -> dict[str, Any]:
    """Return a spec: device name -> its edits; `common` are those of the whole spec."""
    shared = {"containerEdits": edits(common)} if common else {}
    return builders.spec({str(name): edits(texts) for name, texts in devices.items()}, kind, "0.6.0", **shared)


def registry(*specs: dict[str, Any]) -> Registry:
    """What a runtime makes of them; each is a file, in the first directory unless it says a `priority`.

    A `file` is its name without the directory.
    """
    files = []
    for number, one in enumerate(specs):
        priority = one.get("priority", 0)
        name = one.get("file", f"{number}.json")
        document = {key: value for key, value in one.items() if key not in ("priority", "file")}
        files.append(SpecFile(f"{DIRECTORIES[priority]}/{name}", priority, document))
    return resolve(DIRECTORIES, files, {})


def device(name: str, kind: str = "fleet.cdi/gpu", **fields: Any) -> Device:
    """A record of an inventory; nodes are paths, nets names of interfaces, health is [state, reason]."""
    nodes = tuple(
        Node(path, "c", 240, minor) if isinstance(path, str) else Node(*path)
        for minor, path in enumerate(fields.pop("nodes", ()))
    )
    nets = tuple(NetDevice(one) for one in fields.pop("nets", ()))
    health = Health(*fields.pop("health", ["healthy"]))
    names = tuple(map(str, fields.pop("names", ("0",))))
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return Device(name, "rule", kind, names, nodes, net_devices=nets, health=health, **lists)


def inventory(devices: Iterable[Mapping[str, Any]], links: Iterable[Iterable[Any]] = ()) -> Inventory:
    """An inventory of such devices, each a mapping with `id`."""
    made = tuple(device(one["id"], **{key: value for key, value in one.items() if key != "id"}) for one in devices)
    return Inventory(made, links=tuple(Link(*link) for link in links))
