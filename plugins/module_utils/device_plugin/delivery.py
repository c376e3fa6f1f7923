# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a container gets its devices: by CDI name, or by what the specs say, spelled out. Private API of fleet.cdi.

Three ways, of which several may be taken together: the field `cdi_devices` (KEP-4009: kubelets from 1.28 on; older
ones, and those with the feature gate off, drop it without a word), annotations `cdi.k8s.io/...` (CDI SPEC.md and the
reference library's pkg/cdi/annotations.go: they reach the runtime through any kubelet), and device nodes, mounts and
environment for runtimes that read no CDI. A runtime that finds a name in the field and in an annotation takes it once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import Settings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import Resource
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import installations, survey
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.survey import Reader
from ansible_collections.fleet.cdi.plugins.module_utils.spec import inject
from ansible_collections.fleet.cdi.plugins.module_utils.spec.errors import InjectError
from ansible_collections.fleet.cdi.plugins.module_utils.spec.registry import Registry

PREFIX = "cdi.k8s.io/"
PLUGIN = "fleet-cdi"
LONGEST = 63  # characters of an annotation's name, behind the prefix

# What a container without CDI can't be given (the v1beta1 message ContainerAllocateResponse has no field for it).
LOST = ("hooks", "netDevices", "intelRdt", "additionalGids")
LOST_OF_NODES = ("fileMode", "uid", "gid")

PERMISSIONS = {"": "rwm", "none": ""}  # SPEC.md, "permissions": all of them, unless it says otherwise


class Delivery(NamedTuple):
    """Which ways are taken. `why`: why what the configuration asks for can't work on this node, "" if it can."""

    cdi: bool
    annotations: bool
    expanded: bool
    why: str = ""


class Expanded(NamedTuple):
    """Container edits, spelled out: env by name, (path in the container, on the host, permissions) of device nodes by
    the first, (path in the container, on the host, read-only) of mounts by the first; and what can't be said so."""

    envs: Mapping[str, str]
    devices: Mapping[str, tuple[str, str, str]]
    mounts: Mapping[str, tuple[str, str, bool]]
    lost: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether a container gets nothing by it."""
        return not (self.envs or self.devices or self.mounts)


FIXED = {
    "cdi": Delivery(True, False, False),
    "annotations": Delivery(False, True, False),
    "expanded": Delivery(False, False, True),
}


def readers(root: str = "/", path: str = "") -> tuple[Reader, ...]:
    """The runtimes of this node, found by `path` (as the variable PATH) and where packages put them. Blocks.

    None where they can't be asked: in a container, where `root` is somewhere else, the host's programs don't run.
    """
    if root.rstrip("/"):
        return ()
    return survey.readers(survey.survey(installations.find(path, names=survey.FOR_KUBELETS).places))


def decide(mode: str, found: Sequence[Reader]) -> Delivery:
    """The ways for `mode` (config.DELIVERY) on a node with these runtimes.

    `auto`: by name where any of them reads CDI or none is known, spelled out where any does not: which one the kubelet
    talks to is not known, and what a container is given twice it has once.
    """
    blind = [one for one in found if not one.reads]
    reads_none = bool(found) and len(blind) == len(found)
    if mode == "auto":
        return FIXED["expanded"] if reads_none else Delivery(True, True, bool(blind))
    fixed = FIXED[mode]
    if reads_none and not fixed.expanded:
        why = "; ".join(one.why or f"{one.name} reads no CDI specs" for one in blind)
        return fixed._replace(why=f"delivery {mode}: {why}; containers get no devices. Use auto or expanded")
    return fixed


def warnings(settings: Settings, found: Sequence[Reader]) -> tuple[str, ...]:
    """What the configuration asks for and can't have on a node with these runtimes."""
    modes = [one.delivery or settings.delivery for one in settings.resources.values()] or [settings.delivery]
    return tuple(filter(None, (decide(mode, found).why for mode in dict.fromkeys(modes))))


def annotation(resource: str, names: Iterable[str]) -> tuple[str, str]:
    """Key and value of the annotation for the qualified `names` of one resource.

    The key is another one for each resource: of two alike the kubelet would pass on one only. It is `fleet-cdi_` and
    the resource's name with an underscore for its slash, which has no other; too long a name is cut and hashed.
    """
    name = f"{PLUGIN}_{resource.replace('/', '_')}"
    if len(name) > LONGEST:
        digest = hashlib.sha256(resource.encode()).hexdigest()[:16]
        name = f"{name[: LONGEST - len(digest) - 1]}.{digest}"
    return PREFIX + name, ",".join(names)


def expand(edits: Iterable[Mapping[str, Any]]) -> Expanded:
    """What these container edits say, in the order in which they apply; later ones win, as in spec.inject."""
    envs: dict[str, str] = {}
    devices: dict[str, tuple[str, str, str]] = {}
    mounts: dict[str, tuple[str, str, bool]] = {}
    lost: dict[str, None] = {}
    for one in edits:
        lost.update(dict.fromkeys(key for key in LOST if one.get(key)))
        for item in one.get("env") or ():
            name, _equals, value = item.partition("=")
            envs[name] = value
        for node in one.get("deviceNodes") or ():
            lost.update(dict.fromkeys(f"deviceNodes.{key}" for key in LOST_OF_NODES if node.get(key) is not None))
            if node.get("type") == "p":  # runtimes take device nodes alone
                lost["deviceNodes of type p"] = None
                continue
            said = node.get("permissions") or ""
            path = node["path"]
            devices[path] = (path, node.get("hostPath") or path, PERMISSIONS.get(said, said))
        for mount in one.get("mounts") or ():
            options = mount.get("options") or ()
            if mount.get("type") not in (None, "", "none", "bind") and not {"bind", "rbind"} & set(options):
                lost[f"mounts of type {mount['type']}"] = None
                continue
            path = mount["containerPath"]
            mounts[path] = (path, mount["hostPath"], "ro" in options)
    return Expanded(envs, devices, mounts, tuple(lost))


def lost(resource: Resource, registry: Registry) -> tuple[str, ...]:
    """A line for each spec of which containers without CDI don't get everything, for people to read."""
    found: dict[str, dict[str, None]] = {}
    for unit in resource.units:
        try:
            edits = inject.resolve(unit.qualified_names, registry)
        except InjectError:  # that it can't be handed out at all is told elsewhere
            continue
        for path, one in edits:
            found.setdefault(path, {}).update(dict.fromkeys(expand([one]).lost))
    return tuple(
        f"{path}: {', '.join(missing)}: not given to containers of {resource.name}, as this node's runtime reads no CDI"
        for path, missing in sorted(found.items())
        if missing
    )


def response(delivery: Delivery, resource: str, names: Sequence[str], expanded: Expanded) -> Any:
    """The ContainerAllocateResponse that gives a container the qualified `names`, `expanded` being what they say."""
    from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import api

    message = api.v1beta1.ContainerAllocateResponse()
    if delivery.cdi:
        for name in names:
            message.cdi_devices.add(name=name)
    if delivery.annotations:
        key, value = annotation(resource, names)
        message.annotations[key] = value
    if delivery.expanded:
        message.envs.update(expanded.envs)
        for inside, host, permissions in expanded.devices.values():
            message.devices.add(container_path=inside, host_path=host, permissions=permissions)
        for inside, host, read_only in expanded.mounts.values():
            message.mounts.add(container_path=inside, host_path=host, read_only=read_only)
    return message
