# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The device plugin's configuration: what it says, and the check of all of it before anything registers.

One JSON document; docs/device-plugin.md explains the options. Private API of fleet.cdi.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ... import files
from ...records import OCCUPIED, CdiError
from ...spec.names import DEVICE, DEVICE_RULE
from ...system.openers import EXPECTED
from . import fields
from .faults import fault_class
from .resource_names import why_no_resource
from .unit_ids import SORTS

PATH = "/etc/fleet-cdi/device-plugin.json"  # not in /etc/cdi, where runtimes would take it for a spec
VERSION = 1  # of the document
LARGEST = 1 << 20  # bytes of the document

KUBELET = "/var/lib/kubelet"
PROFILE = "{profile}"  # in a resource's name: one resource for each partition profile that there is


class Match(NamedTuple):
    """Which units a resource offers. An empty condition holds for all; of several patterns one has to match."""

    names: tuple[str, ...] = ()  # patterns of CDI device names, without the kind
    ids: tuple[str, ...] = ()  # patterns of Device.id: "pci:0000:3b:*"
    driver: tuple[str, ...] = ()
    vendor_id: tuple[str, ...] = ()
    device_id: tuple[str, ...] = ()
    pci_address: tuple[str, ...] = ()
    numa_node: tuple[int, ...] = ()
    profile: tuple[str, ...] = ()  # of partitions: "1g.5gb"; what is no partition has none and never matches
    partition: Optional[bool] = None  # True: partitions alone, False: whole devices alone
    properties: Mapping[str, tuple[str, ...]] = {}  # udev's: name -> patterns


class Group(NamedTuple):
    """One unit that hands out several CDI names together, or none of them."""

    name: str  # the unit's id
    members: tuple[str, ...]  # qualified names without which there is no such unit
    optional: tuple[str, ...] = ()  # those that come along if they are there


class Health(NamedTuple):
    """When a unit counts as unhealthy."""

    ignore: tuple[str, ...] = ()  # fault classes (look.CLASSES), or "class: pattern of the reason"
    hold_down: float = 10.0  # seconds that a unit stays Unhealthy after its fault is over
    linger: float = 60.0  # seconds that a unit which is gone stays listed, as Unhealthy


class ResourceSettings(NamedTuple):
    """One extended resource. `delivery` and `occupied` are "" where the document's own hold."""

    name: str
    kinds: tuple[str, ...] = ()  # () in the document: the kind of the resource's own name
    match: Match = Match()
    exclude: Optional[Match] = None  # what meets all of it is left out
    name_by: tuple[str, ...] = ()  # sorts of names, the one to take first; the others follow in the usual order
    replicas: int = 1
    replicas_by: Mapping[str, int] = {}  # pattern of a unit's names -> replicas; the first that matches counts
    sharing: str = "spread"
    groups: tuple[Group, ...] = ()
    delivery: str = ""
    setup: tuple[str, ...] = ()  # command; () for none
    teardown: tuple[str, ...] = ()
    time_limit: float = 30.0  # seconds, for each command
    pre_start: bool = False
    health: Health = Health()
    occupied: str = ""


class Settings(NamedTuple):
    """The whole document. No `resources`: each kind whose name makes a legal resource name is offered under it."""

    resources: Mapping[str, ResourceSettings] = {}
    delivery: str = "auto"
    registration: str = "auto"
    takeover: bool = False
    occupied: str = OCCUPIED[0]  # what is done about a device that is open though nobody holds it
    occupied_ignore: tuple[str, ...] = EXPECTED  # patterns of programs and units that may have devices open
    metrics: str = ""  # "host:port", "" for none
    grace: float = 30.0  # seconds; a hold that podresources left out goes back after them
    plugin_dir: str = f"{KUBELET}/device-plugins"
    registry_dir: str = f"{KUBELET}/plugins_registry"
    pod_resources: str = f"{KUBELET}/pod-resources/kubelet.sock"
    spec_dirs: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    inventory: str = "/run/cdi-inventory.json"
    state_dir: str = "/var/lib/cdi"
    run_dir: str = "/run/cdi-device-plugin"
    root: str = "/"

    def wants(self, resource: str) -> bool:
        """Whether there may be a resource of this name: it is named, or a pattern may make it, or none is named."""
        patterns = (".+".join(map(re.escape, name.split(PROFILE))) for name in self.resources)
        return not self.resources or any(re.fullmatch(pattern, resource) for pattern in patterns)


DELIVERY = ("auto", "cdi", "annotations", "expanded")
SHARING = ("spread", "pack")
REGISTRATION = ("auto", "register", "watcher")

_match = fields.record(
    Match,
    {
        "names": fields.patterns,
        "ids": fields.patterns,
        "driver": fields.patterns,
        "vendor_id": fields.one_or_many(fields.pci_id, "a PCI id, or a list of them"),
        "device_id": fields.one_or_many(fields.pci_id, "a PCI id, or a list of them"),
        "pci_address": fields.patterns,
        "numa_node": fields.one_or_many(fields.whole(0, 1023), "a NUMA node, or a list of them"),
        "profile": fields.patterns,
        "partition": fields.boolean,
        "properties": fields.mapping(
            fields.text("the name of a property"), lambda _name, value: fields.patterns(value), "an object of patterns"
        ),
    },
)
_names = fields.many(fields.qualified_name, "a list of qualified names")
_group = fields.record(
    lambda **found: found,
    {"members": fields.many(fields.qualified_name, "a list of one or more qualified names", 1), "optional": _names},
    ("members",),
)
_health = fields.record(
    Health,
    {
        "ignore": fields.many(fault_class, "a list of fault classes"),
        "hold_down": fields.seconds(0, 3600),
        "linger": fields.seconds(1, 86400),
    },
)
_resource = fields.record(
    lambda **found: found,
    {
        "kinds": fields.many(fields.kind, "a list of one or more kinds", 1),
        "match": _match,
        "exclude": _match,
        "name_by": fields.many(fields.one_of(*SORTS), "a list of sorts of names", 1),
        "replicas": fields.whole(1, 1024),
        "replicas_by": fields.mapping(
            fields.pattern,
            lambda _name, value: fields.whole(1, 1024)(value),
            "an object of patterns of names and their replicas",
        ),
        "sharing": fields.one_of(*SHARING),
        "groups": fields.mapping(
            fields.text(
                f"the id of a group: {DEVICE_RULE}, no '::'", lambda name: DEVICE.match(name) and "::" not in name
            ),
            lambda name, value: Group(name, **_group(value)),
            "an object of groups by their ids",
        ),
        "delivery": fields.one_of(*DELIVERY),
        "setup": fields.command,
        "teardown": fields.command,
        "time_limit": fields.seconds(0.1, 300),
        "pre_start": fields.boolean,
        "health": _health,
        "occupied": fields.one_of(*OCCUPIED),
    },
)


def _of_resource(name: str, value: Any) -> ResourceSettings:
    found = _resource(value)
    kinds = found.pop("kinds", None) or _own_kind(name)
    groups = tuple(found.pop("groups", {}).values())
    if groups and PROFILE in name:
        raise fields.Wrong("set", f"no groups, as they are no partitions and {PROFILE} is in {name}", ".groups")
    if found.get("exclude") == Match():
        raise fields.wrong({}, "one condition or more, as none leaves everything out").below(".exclude")
    return ResourceSettings(name, tuple(kinds), groups=groups, **found)


def _version(value: Any) -> int:
    if isinstance(value, bool) or value != VERSION:
        raise fields.wrong(value, f"{VERSION}, which this release reads")
    return VERSION


def _own_kind(name: str) -> tuple[str, ...]:
    try:
        return (fields.kind(name),)
    except fields.Wrong:
        raise fields.Wrong("missing", f"the kinds of its devices, as {name} is no kind itself", ".kinds") from None


def _resource_name(value: str) -> str:
    sample = value.replace(PROFILE, "x", 1)
    why = why_no_resource(sample)
    if why or PROFILE in value.partition("/")[0]:
        raise fields.Wrong("no resource name", why or f"{PROFILE} after the slash")
    return value


_settings = fields.record(
    lambda **found: Settings(**{name: value for name, value in found.items() if name != "version"}),
    {
        "version": _version,
        "resources": fields.mapping(_resource_name, _of_resource, "an object of resource names and their settings"),
        "delivery": fields.one_of(*DELIVERY),
        "registration": fields.one_of(*REGISTRATION),
        "takeover": fields.boolean,
        "occupied": fields.one_of(*OCCUPIED),
        "occupied_ignore": fields.many(fields.text("a pattern of a program's or unit's name"), "a list of patterns"),
        "metrics": fields.optional(fields.address),
        "grace": fields.seconds(1, 86400),
        "plugin_dir": fields.path,
        "registry_dir": fields.path,
        "pod_resources": fields.path,
        "spec_dirs": fields.many(fields.path, "a list of one or more directories", 1),
        "inventory": fields.path,
        "state_dir": fields.path,
        "run_dir": fields.path,
        "root": fields.path,
    },
    ("version",),
)


def read(path: str = PATH) -> Settings:
    """The configuration at `path`. Raises CdiError."""
    return decode(content(path), path)


def content(path: str) -> bytes:
    """The text of the configuration at `path`. Raises CdiError."""
    found = files.content(path, LARGEST)
    if found is None:
        raise CdiError(
            f"{path}: can't be read ({os.strerror(errno.ENOENT)}); expected the device plugin's configuration, "
            'of which the least is {"version": 1}'
        )
    return found


def decode(text: bytes, path: str) -> Settings:
    """The configuration that `text`, which is the content of the file `path`, says. Raises CdiError."""
    try:
        document = json.loads(text, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        why = f"the byte {error.object[error.start]:#04x} at {error.start} is no UTF-8"
        raise CdiError(f"{path}: is no JSON that can be used ({why}); correct it") from None
    except (ValueError, RecursionError) as error:
        raise CdiError(f"{path}: is no JSON that can be used ({error}); correct it") from None
    return parse(document, path)


def parse(document: Any, where: str) -> Settings:
    """The configuration that a document says; `where` names it in errors. Raises CdiError for anything wrong in it."""
    try:
        found: Settings = _settings(document)
    except fields.Wrong as error:
        raise CdiError(f"{where}: {error}") from None
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError for a key that it has twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, number in Counter(name for name, _value in pairs).items() if number > 1)
        raise ValueError(f"an object has the key {fields.shown(twice)} twice")
    return found
