# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Give a container its devices: by CDI name, or as expanded container edits.

There are three ways, which may be combined:
- the field `cdi_devices` (KEP-4009): kubelets from 1.28 on; older ones, or without the feature gate, drop it silently;
- annotations `cdi.k8s.io/...`, which pass any kubelet (CDI SPEC.md; the reference library's pkg/cdi/annotations.go);
- device nodes, mounts and environment, for runtimes that don't read CDI.
A runtime that finds a name in the field and in an annotation injects it once.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Callable, NamedTuple

from ...runtimes import detect, installations, survey, table
from ...runtimes.survey import RuntimeReader
from ...spec import registry as specs
from ...spec.model import VERSIONS
from ...spec.registry import Registry, SpecFile
from ...spec.seen.linked import Linked, of_runtime
from ..config.configuration import PluginSettings
from ..offer.resources import Resource

PREFIX = "cdi.k8s.io/"
PLUGIN = "fleet-cdi"
LONGEST = 63  # characters of an annotation's name, without the prefix

# Edits that need CDI: the v1beta1 message ContainerAllocateResponse has no field for them.
LOST = ("hooks", "netDevices", "intelRdt", "additionalGids")
LOST_OF_NODES = ("fileMode", "uid", "gid")

PERMISSIONS = {"": "rwm", "none": ""}  # SPEC.md, "permissions": all of them by default


class Delivery(NamedTuple):
    """The ways to use. `why`: the reason if this node lacks something for the configured way, or ""."""

    cdi: bool
    annotations: bool
    expanded: bool
    why: str = ""


class Expanded(NamedTuple):
    """Container edits for a runtime without CDI.

    `envs`: value by name. `devices`: (path in the container, on the host, permissions), by the first. `mounts`: (path
    in the container, on the host, read-only), by the first. `lost`: the edits that need CDI.
    """

    envs: Mapping[str, str]
    devices: Mapping[str, tuple[str, str, str]]
    mounts: Mapping[str, tuple[str, str, bool]]
    lost: tuple[str, ...] = ()

    @property
    def paths(self) -> frozenset[str]:
        """Return the host paths that a container gets."""
        return frozenset(host for _inside, host, _how in (*self.devices.values(), *self.mounts.values()))


FIXED = {
    "cdi": Delivery(True, False, False),
    "annotations": Delivery(False, True, False),
    "expanded": Delivery(False, False, True),
}

NOTHING = specs.resolve((), (), {})


def readers(root: str = "/", path: str = "") -> tuple[RuntimeReader, ...]:
    """Return the runtimes of this node, found in `path` (as the variable PATH) and where packages put them. Blocks.

    Returns () in a container, where `root` is not "/" and the host's programs can't run.
    """
    if root.rstrip("/"):
        return ()
    return survey.readers(survey.survey(installations.find_installations(path, names=survey.FOR_KUBELETS).places))


def programs(root: str = "/") -> list[str]:
    """Return the paths of the programs that `readers` asks: it answers anew when one is replaced."""
    names = () if root.rstrip("/") else survey.FOR_KUBELETS
    return [path for name in names for path in detect.programs(table.ENGINES[name].program, detect.DIRECTORIES)]


def load_specs(directories: Sequence[str], ask: Callable[[], Sequence[RuntimeReader]]) -> Registry:
    """Read the specs as the runtimes of this node do. Blocks longer where these must be asked: where they differ."""
    return specs.on_host(specs.load(directories), lambda: [one for reader in ask() for one in _linked(reader)])


def _linked(reader: RuntimeReader) -> tuple[Linked, ...]:
    facts = reader.library, reader.follows_links, reader.is_newer
    return of_runtime(reader.name, *facts) if reader.reads else ()


def kubelets(root: str = "/", path: str = "") -> tuple[tuple[int, int], ...]:
    """Return the versions of the kubelets of this node, found like `readers`; k3s contains one. Blocks."""
    found = []
    for directory in () if root.rstrip("/") else (*path.split(os.pathsep), *detect.DIRECTORIES):
        for program in (os.path.join(directory, name) for name in ("kubelet", "k3s") if directory):
            with suppress(OSError, ValueError):
                said = _KUBELET.match(detect.version_text(program)) if os.access(program, os.X_OK) else None
                found += [(int(said[1]), int(said[2]))] if said else []
    return tuple(found)


_KUBELET = re.compile(r"(?:Kubernetes|k3s version) v([0-9]+)\.([0-9]+)")
FIELD = (1, 29)  # first kubelet that passes on the field cdi_devices; 1.28 needs a feature gate


def decide(
    mode: str, found: Sequence[RuntimeReader], registry: Registry = NOTHING, names: Collection[str] = ()
) -> Delivery:
    """Return the ways for `mode` (configuration.DELIVERY) on a node with these runtimes, for the qualified `names`.

    `auto` uses names if a runtime reads CDI or no runtime is known, and expanded edits if a runtime does not read CDI.
    It may use both: the kubelet's own runtime is not known, and an edit given twice applies once. But a runtime that
    reads CDI and does not find these names refuses containers that have them: then `auto` uses expanded edits alone.
    """
    off = [one.why or f"{one.name} reads no CDI specs" for one in found if not one.reads]
    lost = [why for why in (_unread(one, registry, names) for one in found if one.reads) if why]
    none = bool(found) and len(off) + len(lost) == len(found)
    if mode == "auto":
        why = f"delivery auto: {'; '.join(lost)}; devices are spelled out" if lost else ""
        return FIXED["expanded"]._replace(why=why) if none or lost else Delivery(True, True, bool(off))
    fixed = FIXED[mode]
    if none and not fixed.expanded:
        why = "; ".join((*off, *lost))
        return fixed._replace(why=f"delivery {mode}: {why}; containers get no devices. Use auto or expanded")
    return fixed


def _unread(reader: RuntimeReader, registry: Registry, names: Collection[str]) -> str:
    """Tell why a runtime that reads CDI does not find these names where `registry` has them, or return ""."""
    files, linked = files_of(names, registry), _linked(reader)
    known = {os.path.realpath(one) for one in reader.spec_dirs}
    for directory in dict.fromkeys(os.path.dirname(file.path) for file in files if known):
        if os.path.realpath(directory) not in known:
            return (
                f"{reader.name} does not read {directory}, only {', '.join(reader.spec_dirs)} (module "
                "fleet.cdi.container_runtime sets that)"
            )
    for file in files:
        version = str(file.spec["cdiVersion"]).removeprefix("v")
        is_known = version in VERSIONS and bool(reader.newest) and not reader.is_newer
        if is_known and VERSIONS.index(version) > VERSIONS.index(reader.newest):
            return f"{reader.name} reads CDI up to {reader.newest}, and {file.path} has {version}"
        if linked and not any(one.release in file.seen_by for one in linked):
            return f"{reader.name} does not read {file.path} (`fleet-cdi validate` names its faults)"
    return next(_elsewhere(reader, linked, registry, names), "") if linked else ""


def _elsewhere(
    reader: RuntimeReader, linked: Sequence[Linked], registry: Registry, names: Collection[str]
) -> Iterator[str]:
    kinds = {name.partition("=")[0] for name in names}
    own = registry._replace(specs=tuple(file for file in registry.specs if not kinds.isdisjoint(file.kinds)))
    seen = specs.seen_with(own, linked)
    for name, path in ((name, registry.devices[name]) for name in names if name in registry.devices):
        other = seen.devices.get(name)
        if other is None:
            yield f"{reader.name} does not find {name} in {path} (`fleet-cdi doctor` says why)"
        elif other != path:
            yield f"{reader.name} takes {name} from {other}, not from {path}"
        elif seen.edits[name] != registry.edits[name]:
            yield f"{reader.name} reads {name} in {path} otherwise (`fleet-cdi validate` says what)"


def names_of(resource: Resource) -> tuple[str, ...]:
    """Return the qualified names that containers get from the resource."""
    return tuple(name for unit in resource.units for name in unit.qualified_names)


def files_of(names: Iterable[str], registry: Registry) -> tuple[SpecFile, ...]:
    """Return the specs that define these devices."""
    paths = {registry.devices.get(name) for name in names}
    return tuple(file for file in registry.specs if file.path in paths)


def warnings(
    settings: PluginSettings,
    found: Sequence[RuntimeReader],
    registry: Registry,
    versions: Sequence[tuple[int, int]] = (),
) -> tuple[str, ...]:
    """Return warnings for configured ways that can't work with these runtimes, specs and versions of kubelets."""
    asked = [(one.delivery or settings.delivery, one.kinds) for one in settings.resources.values()]
    asked = asked or [(settings.delivery, ())]
    lines = [
        decide(
            mode, found, registry, [one for one in registry.devices if not kinds or one.partition("=")[0] in kinds]
        ).why
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
    """Return key and value of the annotation for the qualified `names` of one resource.

    Each resource has its own key: of equal keys the kubelet would pass on only one. The key is `fleet-cdi_` and the
    resource's name, with an underscore for its only slash. A long name is cut, and ends in a hash.
    """
    name = f"{PLUGIN}_{resource.replace('/', '_')}"
    if len(name) > LONGEST:
        digest = hashlib.sha256(resource.encode()).hexdigest()[:16]
        name = f"{name[: LONGEST - len(digest) - 1]}.{digest}"
    return PREFIX + name, ",".join(names)


def expand(edits: Iterable[Mapping[str, Any]]) -> Expanded:
    """Expand these container edits, in the order in which they apply; later ones win, as in spec.inject."""
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
            if node.get("type") == "p":  # runtimes take only device nodes here
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
    """Return a message for each spec whose edits containers without CDI don't get in full."""
    found: dict[str, dict[str, None]] = {}
    for file in files_of(names_of(resource), registry):
        found[file.path] = dict.fromkeys(expand([file.spec.get("containerEdits") or {}]).lost)
    for name in names_of(resource):
        if name in registry.devices:  # otherwise the device can't be handed out, which probe.py reports
            found[registry.devices[name]].update(dict.fromkeys(expand([registry.edits[name]]).lost))
    return tuple(
        f"{path}: {', '.join(missing)}: not given to containers of {resource.name}, as this node's runtime reads no CDI"
        for path, missing in sorted(found.items())
        if missing
    )


def response(delivery: Delivery, resource: str, names: Sequence[str], expanded: Expanded) -> Any:
    """Return the ContainerAllocateResponse for the qualified `names` and their `expanded` edits."""
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
