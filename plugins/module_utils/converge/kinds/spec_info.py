# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All specs of this host against the host itself: the registry, what is ours in it, and what is stale.

Read-only and cheap: the specs, the manifest and the inventory are read, and every path in a spec is looked at once.
Private API of fleet.cdi.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...discovery import inventory
from ...discovery.out_of_service import Disabled, in_force
from ...manifest import Manifest, read_manifest
from ...records import CdiError, Device, as_document
from ...spec.registry import Registry, load
from ...spec.seen import releases
from ...spec.stale import LIVE, FileView, Reason, stale


class Survey(NamedTuple):
    """What was found."""

    registry: Registry
    managed: dict[str, str]  # path of each spec that we wrote and nobody changed since -> who asked for it
    stale: dict[str, tuple[Reason, ...]]  # path of each spec that does not agree with the host -> why
    ill: tuple[Device, ...] = ()  # devices that nothing is offered of because something is wrong with them
    disabled: Mapping[str, Disabled] = {}  # by id: those that an operator took out of service


def survey(directories: Sequence[str], state_dir: str, inventory_path: str = "", host: FileView = LIVE) -> Survey:
    """Look at every spec of `directories`.

    Devices that are gone or new are found in our own specs, against the inventory of this boot; where that is missing,
    unusable or not wanted (""), nothing is said of them. Raises CdiError for a manifest or a record of devices out of
    service that can't be read.
    """
    return compare(load(directories), read_manifest(state_dir), _listed(inventory_path), in_force(state_dir), host)


def compare(
    registry: Registry,
    manifest: Manifest,
    listed: inventory.Inventory,
    disabled: Mapping[str, Disabled],
    host: FileView = LIVE,
) -> Survey:
    """The specs of `registry` against the host. Raises nothing."""
    managed = {file.path: manifest.by(file.path) for file in registry.specs if _is_ours(file.path, manifest)}
    wanted = _wanted(listed)
    found = {}
    for file in registry.specs:
        names = wanted.get(file.spec["kind"]) if file.path in managed else None
        reasons = stale(file.spec, names, host)
        if reasons:
            found[file.path] = tuple(_explained(reason, file.spec["kind"], listed) for reason in reasons)
    ill = tuple(device for device in listed.devices if device.health.state == "unhealthy")
    return Survey(registry, managed, found, ill, disabled)


def registry_document(found: Survey) -> dict[str, Any]:
    """The survey as module spec_info returns it and as `fleet-cdi specs --json` prints it."""
    specs = [
        {
            "path": file.path,
            "kind": file.spec["kind"],
            "cdi_version": file.spec["cdiVersion"],
            "names": file.qualified_names,
            "seen_by": [name for name in releases.BY_NAME if name in file.seen_by],
            "managed": file.path in found.managed,
            "managed_by": found.managed.get(file.path),
            "findings": as_document(file.findings),
        }
        for file in found.registry.specs
    ]
    rest = {key: getattr(found.registry, key) for key in ("devices", "errors", "conflicts", "shadowed")}
    return {"specs": specs, **rest, "stale": as_document(found.stale)}


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """(result, warnings) of module spec_info for its `options`; it only reads, check mode or not. Raises CdiError."""
    found = registry_document(survey(options["spec_dirs"], options["state_dir"], options["device_list"]))
    return {**found, "kinds": kinds(read_manifest(options["state_dir"]))}, []


def kinds(manifest: Manifest) -> dict[str, str]:
    """Kind -> who asked for it, of all that a refresh keeps up or that we wrote a spec of, in whatever directory."""
    asked = {record["kind"]: record["by"] for record in manifest.files.values() if record["kind"]}
    asked.update({kind: str(memory["wanted"].get("by", "")) for kind, memory in manifest.kinds.items()})
    return asked


def _is_ours(path: str, manifest: Manifest) -> bool:
    try:
        return manifest.owns(path)
    except CdiError:  # a symlink now, say: somebody changed it
        return False


def _listed(path: str) -> inventory.Inventory:
    try:
        return inventory.read(path, inventory.boot_id()) if path else inventory.Inventory(())
    except CdiError:
        return inventory.Inventory(())


def _wanted(listed: inventory.Inventory) -> dict[str, set[str]]:
    """Kind -> the names that its spec offers, by the inventory: of devices that are not unhealthy, and aggregates."""
    names: dict[str, set[str]] = {}
    for device in listed.devices:
        names.setdefault(device.kind, set()).update(device.names if device.health.is_usable else ())
    for kind in listed.kinds:
        if names.get(kind.name):
            names[kind.name].update(kind.aggregates)
    return names


def _explained(reason: Reason, kind: str, listed: inventory.Inventory) -> Reason:
    """`reason`, where a device is gone with what the inventory says of it: since when, say."""
    if reason.rule == "device-gone":
        for device in listed.devices:
            if device.kind == kind and reason.expected in device.names and device.health.reason:
                return reason._replace(found=f"no such device ({device.health.reason})")
    return reason
