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
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ...runtimes import detect, installations, survey
from ...runtimes.survey import RuntimeReader
from ...spec.model import VERSIONS
from ...spec.registry import Registry, SpecFile
from ...spec.seen import releases
from ..config.configuration import PluginSettings
from ..offer.resources import Resource

PREFIX = "cdi.k8s.io/"
PLUGIN = "fleet-cdi"
LONGEST = 63  # characters of an annotation's name, behind the prefix

# What a container without CDI can't be given (the v1beta1 message ContainerAllocateResponse has no field for it).
LOST = ("hooks", "netDevices", "intelRdt", "additionalGids")
LOST_OF_NODES = ("fileMode", "uid", "gid")

PERMISSIONS = {"": "rwm", "none": ""}  # SPEC.md, "permissions": all of them, unless it says otherwise


class Delivery(NamedTuple):
    """Which ways are taken. `why`: what this node lacks for what the configuration asks for, "" for nothing."""

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
    def paths(self) -> frozenset[str]:
        """What a container gets by it of the host."""
        return frozenset(host for _inside, host, _how in (*self.devices.values(), *self.mounts.values()))


FIXED = {
    "cdi": Delivery(True, False, False),
    "annotations": Delivery(False, True, False),
    "expanded": Delivery(False, False, True),
}


def readers(root: str = "/", path: str = "") -> tuple[RuntimeReader, ...]:
    """The runtimes of this node, found by `path` (as the variable PATH) and where packages put them. Blocks.

    None where they can't be asked: in a container, where `root` is somewhere else, the host's programs don't run.
    """
    if root.rstrip("/"):
        return ()
    return survey.readers(survey.survey(installations.find_installations(path, names=survey.FOR_KUBELETS).places))


def kubelets(root: str = "/", path: str = "") -> tuple[tuple[int, int], ...]:
    """The versions of the kubelets of this node, found like `readers`; k3s has its own within. Blocks."""
    found = []
    for directory in () if root.rstrip("/") else (*path.split(os.pathsep), *detect.DIRECTORIES):
        for program in (os.path.join(directory, name) for name in ("kubelet", "k3s") if directory):
            with suppress(OSError, ValueError):
                said = _KUBELET.match(detect.version_text(program)) if os.access(program, os.X_OK) else None
                found += [(int(said[1]), int(said[2]))] if said else []
    return tuple(found)


_KUBELET = re.compile(r"(?:Kubernetes|k3s version) v([0-9]+)\.([0-9]+)")
FIELD = (1, 29)  # from here on a kubelet passes on the field cdi_devices; 1.28 does with a feature gate


def decide(mode: str, found: Sequence[RuntimeReader], files: Collection[SpecFile] = ()) -> Delivery:
    """The ways for `mode` (config.DELIVERY) on a node with these runtimes, for devices that `files` define.

    `auto`: by name where any of them reads CDI or none is known, spelled out where any does not: which one the kubelet
    talks to is not known, and what a container is given twice it has once. But a runtime that reads CDI and not these
    files makes no container with a name that it does not find: then they are spelled out, and that alone.
    """
    off = [one.why or f"{one.name} reads no CDI specs" for one in found if not one.reads]
    lost = [why for why in (_unread(one, files) for one in found if one.reads) if why]
    none = bool(found) and len(off) + len(lost) == len(found)
    if mode == "auto":
        why = f"delivery auto: {'; '.join(lost)}; devices are spelled out" if lost else ""
        return FIXED["expanded"]._replace(why=why) if none or lost else Delivery(True, True, bool(off))
    fixed = FIXED[mode]
    if none and not fixed.expanded:
        why = "; ".join((*off, *lost))
        return fixed._replace(why=f"delivery {mode}: {why}; containers get no devices. Use auto or expanded")
    return fixed


def _unread(reader: RuntimeReader, files: Collection[SpecFile]) -> str:
    """Why a runtime that reads CDI finds no name that these files define, "" if it does."""
    known = {os.path.realpath(one) for one in reader.spec_dirs}
    for directory in dict.fromkeys(os.path.dirname(file.path) for file in files if known):
        if os.path.realpath(directory) not in known:
            return (
                f"{reader.name} does not read {directory}, only {', '.join(reader.spec_dirs)} (module "
                "fleet.cdi.container_runtime sets that)"
            )
    for file in files:
        version = str(file.spec["cdiVersion"]).removeprefix("v")
        is_known = version in VERSIONS and bool(reader.newest)
        if is_known and VERSIONS.index(version) > VERSIONS.index(reader.newest):
            return f"{reader.name} reads CDI up to {reader.newest}, and {file.path} has {version}"
        if reader.library and releases.row(reader.library) not in file.seen_by:
            return f"{reader.name} does not read {file.path} (`fleet-cdi validate` names its faults)"
    return ""


def files_of(resource: Resource, registry: Registry) -> tuple[SpecFile, ...]:
    """The specs that define what the resource offers."""
    paths = {registry.devices.get(name) for unit in resource.units for name in unit.qualified_names}
    return tuple(file for file in registry.specs if file.path in paths)


def warnings(
    settings: PluginSettings,
    found: Sequence[RuntimeReader],
    registry: Registry,
    versions: Sequence[tuple[int, int]] = (),
) -> tuple[str, ...]:
    """What the configuration asks for and can't have on a node with these runtimes, specs and versions of kubelets."""
    asked = [(one.delivery or settings.delivery, one.kinds) for one in settings.resources.values()]
    asked = asked or [(settings.delivery, ())]
    lines = [
        decide(mode, found, [file for file in registry.specs if not kinds or file.spec["kind"] in kinds]).why
        for mode, kinds in asked
    ]
    if "cdi" in dict(asked) and versions and max(versions) < FIELD:
        lines.append(
            f"delivery cdi: kubelet {'.'.join(map(str, max(versions)))} passes on no field cdi_devices (from 1.29 on "
            "they do, 1.28 with the feature gate DevicePluginCDIDevices); containers get no devices. Use auto or "
            "annotations"
        )
    return tuple(dict.fromkeys(filter(None, lines)))


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
    for file in files_of(resource, registry):
        found[file.path] = dict.fromkeys(expand([file.spec.get("containerEdits") or {}]).lost)
    for name in (name for unit in resource.units for name in unit.qualified_names):
        if name in registry.devices:  # else it can't be handed out at all, which is told elsewhere
            found[registry.devices[name]].update(dict.fromkeys(expand([registry.edits[name]]).lost))
    return tuple(
        f"{path}: {', '.join(missing)}: not given to containers of {resource.name}, as this node's runtime reads no CDI"
        for path, missing in sorted(found.items())
        if missing
    )


def response(delivery: Delivery, resource: str, names: Sequence[str], expanded: Expanded) -> Any:
    """The ContainerAllocateResponse that gives a container the qualified `names`, `expanded` being what they say."""
    from ..kubelet import api

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
