# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the device plugin's configuration, and check all of it before any resource registers.

It is one JSON document; docs/device-plugin.md explains the options.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Callable, NamedTuple, Optional

from ... import documents, schema
from ...layout import USUAL, kubelet_layout
from ...records import OCCUPIED, CdiError
from ...schema import END, Schema, Wrong
from ...spec.names import DEVICE_PATTERN, DEVICE_RULE, PART_PATTERN
from ...system.openers import EXPECTED
from .faults import IGNORABLE, may_be_ignored
from .resource_names import why_no_resource
from .unit_ids import SORTS

PATH = USUAL.plugin_config
VERSION = 1  # of the document
LARGEST = 1 << 20  # bytes of the document

KUBELET = kubelet_layout()
PROFILE = "{profile}"  # in a resource's name: one resource for each partition profile of the host


class Match(NamedTuple):
    """The units that a resource offers. An empty condition matches all units; of several patterns one has to match."""

    names: tuple[str, ...] = ()  # patterns of CDI device names, without the kind
    ids: tuple[str, ...] = ()  # patterns of Device.id: "pci:0000:3b:*"
    driver: tuple[str, ...] = ()
    vendor_id: tuple[str, ...] = ()
    device_id: tuple[str, ...] = ()
    pci_address: tuple[str, ...] = ()
    numa_node: tuple[int, ...] = ()
    profile: tuple[str, ...] = ()  # of partitions: "1g.5gb"; a whole device never matches
    partition: Optional[bool] = None  # True: partitions alone, False: whole devices alone
    properties: Mapping[str, tuple[str, ...]] = {}  # udev's: name -> patterns


class GroupSettings(NamedTuple):
    """A unit that consists of several CDI names. A container gets all of them together."""

    name: str  # the unit's id
    members: tuple[str, ...]  # qualified names; the unit exists only while all of them do
    optional: tuple[str, ...] = ()  # qualified names that a container gets too, if they exist


class HealthSettings(NamedTuple):
    """When a unit is Unhealthy."""

    ignore: tuple[str, ...] = ()  # fault classes (faults.IGNORABLE), or "class: pattern of the reason"
    hold_down: float = 10.0  # seconds that a unit stays Unhealthy after its fault has ended
    linger: float = 60.0  # seconds that a removed unit stays listed, as Unhealthy


class ResourceSettings(NamedTuple):
    """One extended resource. `delivery` and `occupied` are "" if the values of the whole document apply."""

    name: str
    kinds: tuple[str, ...] = ()  # without them in the document: the kind that the resource is named after
    match: Match = Match()
    exclude: Optional[Match] = None  # leave out units that meet all its conditions
    name_by: tuple[str, ...] = ()  # sorts of names to prefer; the others follow in the order of SORTS
    replicas: int = 1
    replicas_by: Mapping[str, int] = {}  # pattern of a unit's names -> replicas; the first match counts
    sharing: str = "spread"
    groups: tuple[GroupSettings, ...] = ()
    delivery: str = ""
    setup: tuple[str, ...] = ()  # command; () for none
    teardown: tuple[str, ...] = ()
    time_limit: float = 30.0  # seconds, for each command
    pre_start: bool = False
    health: HealthSettings = HealthSettings()
    occupied: str = ""


class PluginSettings(NamedTuple):
    """The whole document. Without `resources`, offer each kind whose name is a legal resource name, under that name."""

    resources: Mapping[str, ResourceSettings] = {}
    delivery: str = "auto"
    registration: str = "auto"
    takeover: bool = False
    occupied: str = OCCUPIED[0]  # what to do about an occupied device
    occupied_ignore: tuple[str, ...] = EXPECTED  # patterns of programs and units that may have devices open
    metrics: str = ""  # "host:port", "" for none
    grace: float = 30.0  # seconds until a hold that podresources no longer lists is released
    plugin_dir: str = KUBELET.plugin_dir
    registry_dir: str = KUBELET.registry_dir
    pod_resources: str = KUBELET.pod_resources
    spec_dirs: tuple[str, ...] = USUAL.spec_dirs
    inventory: str = USUAL.inventory
    state_dir: str = USUAL.state_dir
    run_dir: str = USUAL.run_dir
    root: str = "/"

    def wants(self, resource: str) -> bool:
        """Tell whether a resource of this name is possible: it is named, a pattern matches, or none is configured."""
        patterns = (".+".join(map(re.escape, name.split(PROFILE))) for name in self.resources)
        return not self.resources or any(re.fullmatch(pattern, resource) for pattern in patterns)


DELIVERY = ("auto", "cdi", "annotations", "expanded")
SHARING = ("spread", "pack")
REGISTRATION = ("auto", "register", "watcher")

LONGEST = 511  # characters of a kind or a qualified name
PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6([0-4][0-9]{3}|5([0-4][0-9]{2}|5([0-2][0-9]|3[0-5]))))"


def _seconds(least: float, most: float) -> dict[str, Any]:
    expected = f"a number of seconds from {least:g} to {most:g}"
    return {"type": "number", "minimum": least, "maximum": most, "description": expected}


def _list(items: Schema, expected: str, least: int = 1) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "uniqueItems": True, "description": expected}


def _one_or_several(item: Schema) -> dict[str, Any]:
    return {**schema.one_or_several(item), "uniqueItems": True}


def _by_name(names: Schema, item: Schema, expected: str) -> dict[str, Any]:
    return {"type": "object", "propertyNames": names, "additionalProperties": item, "description": expected}


def _record(fields: Schema, *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": [*required], "additionalProperties": False}


BOOLEAN = {"type": "boolean"}
PATTERN = {**schema.TEXT, "description": "a text in which *, ? and [...] match as in file names"}
PATTERNS = _one_or_several(PATTERN)
REPLICAS = {"type": "integer", "minimum": 1, "maximum": 1024}
KIND = {
    "type": "string",
    "maxLength": LONGEST,
    "pattern": f"^{PART_PATTERN}/{PART_PATTERN}{END}",
    "description": "a kind, vendor/class, each of two characters or more, as in fleet.cdi/gpu",
}
NAME = {
    "type": "string",
    "maxLength": LONGEST,
    "pattern": f"^{PART_PATTERN}/{PART_PATTERN}={DEVICE_PATTERN}{END}",
    "description": "a qualified name, vendor/class=name, as in fleet.cdi/gpu=0",
}
GROUP_ID = {
    "type": "string",
    "pattern": f"^(?!.*::){DEVICE_PATTERN}{END}",
    "description": f"the id of a group: {DEVICE_RULE}, no '::'",
}

MATCH = _record(
    {
        "names": PATTERNS,
        "ids": PATTERNS,
        "driver": PATTERNS,
        "vendor_id": _one_or_several(schema.PCI_ID),
        "device_id": _one_or_several(schema.PCI_ID),
        "pci_address": PATTERNS,
        "numa_node": _one_or_several({"type": "integer", "minimum": 0, "maximum": 1023}),
        "profile": PATTERNS,
        "partition": BOOLEAN,
        "properties": _by_name(
            {**schema.TEXT, "description": "the name of a property"}, PATTERNS, "patterns by the names of properties"
        ),
    }
)
GROUP = _record(
    {
        "members": _list(NAME, "a list of one or more qualified names"),
        "optional": _list(NAME, "a list of qualified names", 0),
    },
    "members",
)
HEALTH = _record(
    {
        "ignore": _list({**schema.TEXT, "description": "a class of faults"}, "a list of classes of faults", 0),
        "hold_down": _seconds(0, 3600),
        "linger": _seconds(1, 86400),
    }
)
RESOURCE = _record(
    {
        "kinds": _list(KIND, "a list of one or more kinds"),
        "match": MATCH,
        "exclude": MATCH,
        "name_by": _list({"enum": [*SORTS]}, "a list of sorts of names"),
        "replicas": REPLICAS,
        "replicas_by": _by_name(PATTERN, REPLICAS, "numbers of replicas by patterns of names"),
        "sharing": {"enum": [*SHARING]},
        "groups": _by_name(GROUP_ID, GROUP, "groups by their ids"),
        "delivery": {"enum": [*DELIVERY]},
        "setup": schema.COMMAND,
        "teardown": schema.COMMAND,
        "time_limit": _seconds(0.1, 300),
        "pre_start": BOOLEAN,
        "health": HEALTH,
        "occupied": {"enum": [*OCCUPIED]},
    }
)
SCHEMA = _record(
    {
        "version": {"const": VERSION, "description": f"{VERSION}, which this release reads"},
        "resources": _by_name({}, RESOURCE, "resources by name, as in {nvidia.com/gpu: {replicas: 4}}"),
        "delivery": {"enum": [*DELIVERY]},
        "registration": {"enum": [*REGISTRATION]},
        "takeover": BOOLEAN,
        "occupied": {"enum": [*OCCUPIED]},
        "occupied_ignore": _list(
            {**schema.TEXT, "description": "a pattern of a program's or unit's name"}, "a list of patterns", 0
        ),
        "metrics": {
            "type": "string",
            "pattern": rf"^((\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]*):(?=[0-9]{{1,5}}{END})0*{PORT})?{END}",
            "description": "host:port, as in 127.0.0.1:9400",
        },
        "grace": _seconds(1, 86400),
        "plugin_dir": schema.PATH,
        "registry_dir": schema.PATH,
        "pod_resources": schema.PATH,
        "spec_dirs": _list(schema.PATH, "a list of one or more directories"),
        "inventory": schema.PATH,
        "state_dir": schema.PATH,
        "run_dir": schema.PATH,
        "root": schema.PATH,
    },
    "version",
)


def wrong_resources(resources: Mapping[str, Any]) -> Iterator[Wrong]:
    """Yield the errors that `SCHEMA` can't express, in resources that conform to it."""
    for name, resource in resources.items():
        why = why_no_resource(name.replace(PROFILE, "x", 1))
        if why or PROFILE in name.partition("/")[0]:
            yield Wrong((name,), "is not a resource name", why or f"{PROFILE} after the slash")
        elif "kinds" not in resource and any(schema.errors(name, KIND)):
            expected = f"the kinds of its devices, as {name[:LONGEST]} is not a kind itself"
            yield Wrong((name, "kinds"), "is missing", expected)
        if resource.get("groups") and PROFILE in name:
            expected = f"no groups, because groups are not partitions and {PROFILE} is in {name[:LONGEST]}"
            yield Wrong((name, "groups"), "is set", expected)
        if "exclude" in resource and _match(resource["exclude"]) == Match():
            yield Wrong((name, "exclude"), "is empty", "one condition or more, as none leaves everything out")
        for position, item in enumerate(resource.get("health", {}).get("ignore", ())):
            if not may_be_ignored(item):
                expected = f"one of {', '.join(sorted(IGNORABLE))}, or one of these with ': ' and a pattern behind it"
                yield Wrong((name, "health", "ignore", position), f"found {schema.shown(item)}", expected)


def _tuples(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with its lists as tuples."""
    return {field: tuple(value) if isinstance(value, list) else value for field, value in document.items()}


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _pci_ids(value: Any) -> tuple[str, ...]:
    """Return PCI ids as in sysfs: 0x and four lower-case digits."""
    return tuple("0x" + one.lower()[-4:] for one in _several(value))


_OTHERWISE: dict[str, Callable[[Any], Any]] = {
    "vendor_id": _pci_ids,
    "device_id": _pci_ids,
    "partition": bool,
    "properties": lambda value: {name: _several(patterns) for name, patterns in value.items()},
}


def _match(document: Mapping[str, Any]) -> Match:
    return Match(**{field: _OTHERWISE.get(field, _several)(value) for field, value in document.items()})


def _group(name: str, document: Mapping[str, Any]) -> GroupSettings:
    return GroupSettings(name, tuple(document["members"]), tuple(document.get("optional", ())))


def _resource(name: str, document: Mapping[str, Any]) -> ResourceSettings:
    found = _tuples(document)
    found["kinds"] = found.get("kinds", (name,))
    found.update({field: _match(found[field]) for field in ("match", "exclude") if field in found})
    if "health" in found:
        ignore = tuple(found["health"].get("ignore", ()))
        found["health"] = HealthSettings(**{**found["health"], "ignore": ignore})
    found["groups"] = tuple(_group(*group) for group in found.get("groups", {}).items())
    return ResourceSettings(name, **found)


def read(path: str = PATH) -> PluginSettings:
    """Return the configuration at `path`. Raises CdiError."""
    return decode(content(path), path)


def content(path: str) -> bytes:
    """Return the content of the file `path`. Raises CdiError."""
    found = documents.content(path, LARGEST)
    if found is None:
        raise CdiError(
            f"{path}: can't be read ({os.strerror(errno.ENOENT)}); expected the device plugin's configuration, "
            'of which the least is {"version": 1}'
        )
    return found


def decode(text: bytes, path: str) -> PluginSettings:
    """Return the configuration in `text`, the content of the file `path`. Raises CdiError."""
    return parse(documents.parse(text, path), path)


def parse(document: Any, where: str) -> PluginSettings:
    """Return the configuration in a document, which errors call `where`. Raises CdiError for an invalid document."""
    schema.check(document, SCHEMA, where)
    found = _tuples(document)
    del found["version"]
    resources = found.get("resources", {})
    for wrong in wrong_resources(resources):
        raise CdiError(f"{where}: {wrong._replace(path=('resources', *wrong.path))}")
    found["resources"] = {name: _resource(name, resource) for name, resource in resources.items()}
    return PluginSettings(**found)
