# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a profile is, and the engine that profiles share.

The engine chooses the class devices that have a device node and fulfil a rule, and groups them by hardware.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

from ..records import ContainerEdits, Link, Node
from ..schema import PCI_ID, one_or_several
from .snapshot import Snapshot, SysDevice

GLOBS = one_or_several({"type": "string"})
PCI_IDS = one_or_several(PCI_ID)
PCI_CLASSES = one_or_several(
    {
        "type": "string",
        "pattern": PCI_ID["pattern"].replace("{4}", "{2,6}"),
        "description": 'the start of a PCI class in quotes, as in "0x03"',
    }
)


class DeviceGroup(NamedTuple):
    """One device found: its class devices, each with the role of its node, in the order of their nodes.

    The first member is the head: what the record says of driver, PCI ids and NUMA node is its. It may have no node.
    """

    parent: Optional[SysDevice]  # the physical device they share; None for a virtual one, and for one that stands alone
    members: tuple[tuple[SysDevice, str], ...]
    # What sysfs's class devices don't say:
    nodes: tuple[Node, ...] = ()  # further nodes, which come first: /dev/nvidia0
    names: Mapping[str, str] = {}  # values for name_by, instead of or besides the usual: {"type-index": "mig0:1"}
    fields: Mapping[
        str, Any
    ] = {}  # fields of the record that are not as usual: id, uuid, part_of, capacity, health ...


class Selection(NamedTuple):
    """What a profile found; `why` says of an empty result which condition left nothing.

    `missing` has a text for devices that the options name and this host lacks.
    """

    groups: tuple[DeviceGroup, ...]
    why: str = ""
    warnings: tuple[str, ...] = ()
    edits: ContainerEdits = ContainerEdits()  # what everybody gets who gets one of them
    links: tuple[Link, ...] = ()
    missing: tuple[str, ...] = ()


class Profile(NamedTuple):
    """One device family: a file of `profiles/`, and a line in the table of options.py."""

    kind: str  # by default; "" stands for fleet.cdi/<name of the entry>
    name_by: tuple[str, ...]  # by default
    options: dict[str, dict[str, Any]]  # JSON Schema of each option of its own
    find: Callable[[dict[str, Any], Snapshot], Selection]
    required: tuple[str, ...] = ()  # options
    defaults: Mapping[str, Any] = {}  # of the common options, where they are not as usual: {"all": True}
    none: str = "FLEET_CDI_DEVICES=none"  # the variable of the name "none"
    opens: tuple[str, ...] = ()  # roles of nodes that may be opened to see whether they answer: it changes nothing


class SelectRule(NamedTuple):
    """What to choose. An empty condition holds for everything; one of several patterns has to match."""

    subsystem: tuple[str, ...] = ()
    sysname: tuple[str, ...] = ()
    node: tuple[str, ...] = ()  # below /dev: dri/card*
    driver: tuple[str, ...] = ()
    pci_vendor: tuple[str, ...] = ()
    pci_device: tuple[str, ...] = ()
    pci_class: tuple[str, ...] = ()  # starts of it
    attributes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    roles: tuple[tuple[str, str], ...] = ()  # (pattern of the sysname, role) in the order of nodes; empty: all, no role
    group_by_parent: bool = False
    has_node: bool = True  # of its own; PCI functions have none, what sits on them may


def select(rule: SelectRule, snapshot: Snapshot) -> Selection:
    """Return the devices that `rule` selects. Cheap conditions come first, so that little is read of other devices."""
    chosen = [name for name in snapshot.subsystems if _matches(name, rule.subsystem)]
    if not chosen:
        return Selection((), f"this host has no subsystem {' or '.join(rule.subsystem)}")
    left = list({device.path: device for name in chosen for device in snapshot.members(name)}.values())
    for label, patterns, value in _conditions(rule):
        candidates, left = left, [device for device in left if _matches(value(device), patterns)]
        if not left:
            seen = sorted({text for text in map(value, candidates) if text})[:3]
            why = f"none of {len(candidates)} devices has the {label} {' or '.join(patterns)}".rstrip()
            return Selection((), why + (f"; found {', '.join(seen)}" if seen else ""))
    return Selection(_group(left, rule))


# Attributes in which a GPU's driver reports its memory, in bytes (Documentation/gpu/amdgpu/driver-misc.rst).
MEMORY = ("mem_info_vram_total",)


def memory(group: DeviceGroup) -> DeviceGroup:
    """The group with what can be asked for of its memory, where its driver says how much there is."""
    text = nearest(group.members[0][0], MEMORY)
    if text is None or not text.isdecimal() or len(text) > 18:
        return group
    return group._replace(fields={**group.fields, "capacity": {"memory": int(text) >> 20}})


def globs(value: Any) -> tuple[str, ...]:
    """The value of an option that is a string or a list of strings."""
    return (value,) if isinstance(value, str) else tuple(value or ())


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts tty2 before tty10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]{1,18})", text))


def address_order(device: Optional[SysDevice]) -> tuple[int, ...]:
    """A key that sorts by PCI address; what sits on no PCI function comes last."""
    function = device and device.pci
    return tuple(int(part, 16) for part in re.split("[:.]", function.name)) if function else (1 << 32,)


def _conditions(rule: SelectRule) -> Iterator[tuple[str, tuple[str, ...], Callable[[SysDevice], Optional[str]]]]:
    """(what it is about, its patterns, the value of a device) of each condition. No patterns: to have it is enough."""
    roles = tuple(pattern for pattern, _role in rule.roles)
    if rule.sysname:
        yield "name", rule.sysname, _sysname
    if roles:
        yield "name", roles, _sysname
    if rule.has_node:
        nodes = tuple(pattern[5:] if pattern.startswith("/dev/") else pattern for pattern in rule.node)
        yield "device node", nodes, _node
    if rule.driver:
        yield "driver", rule.driver, _driver
    for index, name in enumerate(("vendor", "device", "class")):
        wanted = (rule.pci_vendor, rule.pci_device, rule.pci_class)[index]
        if wanted:
            patterns = tuple("0x" + item.lower().replace("0x", "", 1) + "*" * (name == "class") for item in wanted)
            yield f"PCI {name}", patterns, partial(_pci_id, index)
    for attribute, patterns in rule.attributes:
        yield f"attribute {attribute}", patterns, partial(nearest, attributes=(attribute,), asked_for=True)


def _sysname(device: SysDevice) -> str:
    return device.sysname


def _node(device: SysDevice) -> Optional[str]:
    return device.node.path[5:] if device.node else None


def _driver(device: SysDevice) -> Optional[str]:
    return device.driver or None


def _pci_id(index: int, device: SysDevice) -> Optional[str]:
    return device.pci.pci_ids[index] if device.pci else None


def nearest(device: SysDevice, attributes: tuple[str, ...], asked_for: bool = False) -> Optional[str]:
    """The first of these attributes that the device has, or the nearest of its ancestors up to the physical device."""
    for ancestor in device.up_to_physical():
        for name in attributes:
            text = ancestor.attribute(name, asked_for)
            if text:
                return text
    return None


def _group(devices: list[SysDevice], rule: SelectRule) -> tuple[DeviceGroup, ...]:
    """The devices in order: by PCI address, then by name; one group for each physical parent if the rule wants that."""
    order = {role: index for index, (_pattern, role) in enumerate(rule.roles)}
    ranked = sorted(
        (address_order(device), order.get(role, 0), natural(device.sysname), device.path, role)
        for device in devices
        for role in [_role(device, rule.roles)]
    )
    groups: dict[str, list[tuple[SysDevice, str]]] = {}
    for _address, _order, _name, path, role in ranked:
        device = devices[0].snapshot.device(path)
        parent = device.physical if rule.group_by_parent else None
        groups.setdefault(parent.path if parent else path, []).append((device, role))
    return tuple(
        DeviceGroup(members[0][0].physical if rule.group_by_parent else None, tuple(members))
        for members in groups.values()
    )


def _role(device: SysDevice, roles: tuple[tuple[str, str], ...]) -> str:
    return next((role for pattern, role in roles if fnmatchcase(device.sysname, pattern)), "")


def _matches(text: Optional[str], patterns: tuple[str, ...]) -> bool:
    return text is not None and (not patterns or any(fnmatchcase(text, pattern) for pattern in patterns))
