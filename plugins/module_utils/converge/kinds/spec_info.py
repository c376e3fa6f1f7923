# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare all specs of this host with the host: the registry, our own specs, and stale specs.

It only reads and is cheap: it reads the specs, the manifest and the inventory, and checks every path in a spec once. It
asks the runtimes for their versions only where these read the specs in different ways.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Callable, NamedTuple

from ...discovery import inventory
from ...discovery.out_of_service import Disabled, in_force
from ...manifest import Manifest, read_manifest
from ...records import CdiError, Device, as_document
from ...spec.registry import Registry, load, names_of, on_host
from ...spec.seen import releases
from ...spec.seen.linked import ANY, Linked
from ...spec.stale import LIVE, FileView, Reason, stale
from ..libraries import of_host
from .memory import memory_of


class Survey(NamedTuple):
    """The specs of a host, and where they disagree with it."""

    registry: Registry
    managed: dict[str, str]  # path of each spec of ours that is unchanged -> who asked for it
    stale: dict[str, tuple[Reason, ...]]  # path of each spec that disagrees with the host -> why
    ill: tuple[Device, ...] = ()  # unhealthy devices, which no spec offers
    disabled: Mapping[str, Disabled] = {}  # by id: devices that an operator took out of service


def survey(
    directories: Sequence[str],
    state_dir: str,
    inventory_path: str = "",
    linked: Callable[[], Collection[Linked]] = lambda: ANY,
) -> Survey:
    """Compare every spec of `directories` with the host, whose runtimes read them as `linked` returns.

    Devices that are gone or new are found only in our own specs, by the inventory of this boot. They are left out if
    that inventory is missing, unusable or not wanted (""). Raises CdiError if the manifest or the record of devices out
    of service can't be read.
    """
    registry = on_host(load(directories), linked)
    return compare(registry, read_manifest(state_dir), _listed(inventory_path), in_force(state_dir))


def compare(
    registry: Registry,
    manifest: Manifest,
    listed: inventory.Inventory,
    disabled: Mapping[str, Disabled],
    host: FileView = LIVE,
) -> Survey:
    """Compare the specs of `registry` with the host."""
    managed = {file.path: manifest.by(file.path) for file in registry.specs if _is_ours(file.path, manifest)}
    wanted = _wanted(listed, manifest)
    found = {}
    for file in registry.specs:
        names = wanted.get(file.spec["kind"]) if file.path in managed else None
        reasons = stale(file.spec, names, host)
        if reasons:
            found[file.path] = tuple(_explained(reason, file.spec["kind"], listed) for reason in reasons)
    ill = tuple(device for device in listed.devices if device.health.state == "unhealthy")
    return Survey(registry, managed, found, ill, disabled)


def registry_document(found: Survey) -> dict[str, Any]:
    """Return the survey as module spec_info returns it and `fleet-cdi specs --json` prints it."""
    specs = [
        {
            "path": file.path,
            "kind": file.spec["kind"],
            "cdi_version": file.spec["cdiVersion"],
            "names": file.qualified_names,
            "seen_by": _in_order(file.seen_by.difference(*(one.by for one in file.seen_otherwise))),
            "seen_otherwise": [
                {"names": names_of(one.spec), "seen_by": _in_order(one.by)} for one in file.seen_otherwise
            ],
            "managed": file.path in found.managed,
            "managed_by": found.managed.get(file.path),
            "findings": as_document(file.findings),
        }
        for file in found.registry.specs
    ]
    rest = {key: getattr(found.registry, key) for key in ("devices", "errors", "conflicts", "shadowed")}
    return {"specs": specs, **rest, "stale": as_document(found.stale)}


def _in_order(names: frozenset[str]) -> list[str]:
    return [name for name in releases.BY_NAME if name in names]


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module spec_info for its `options`; it only reads. Raises CdiError."""
    asked = partial(of_host, os.environ.get("PATH", ""))
    found = survey(options["spec_dirs"], options["state_dir"], options["device_list"], asked)
    return {**registry_document(found), "kinds": kinds(read_manifest(options["state_dir"]))}, []


def kinds(manifest: Manifest) -> dict[str, str]:
    """Return kind -> who asked for it, for all kinds that a refresh maintains or that we wrote a spec of."""
    asked = {record["kind"]: record["by"] for record in manifest.files.values() if record["kind"]}
    asked.update({kind: str(memory["wanted"].get("by", "")) for kind, memory in manifest.kinds.items()})
    return asked


def _is_ours(path: str, manifest: Manifest) -> bool:
    try:
        return manifest.owns(path)
    except CdiError:  # for example a symlink now: another process changed it
        return False


def _listed(path: str) -> inventory.Inventory:
    try:
        return inventory.read(path, inventory.boot_id()) if path else inventory.Inventory(())
    except CdiError:
        return inventory.Inventory(())


def _wanted(listed: inventory.Inventory, manifest: Manifest) -> dict[str, set[str]]:
    """Return kind -> the names of its spec: healthy devices of the inventory, devices that are leaving, aggregates."""
    memories = {kind: memory_of(document) for kind, document in manifest.kinds.items()}
    leaving = {(kind, id_) for kind, memory in memories.items() if memory for id_ in memory.leaving}
    names: dict[str, set[str]] = {}
    for device in listed.devices:
        stays = device.health.is_usable or (device.kind, device.id) in leaving
        names.setdefault(device.kind, set()).update(device.names if stays else ())
    for kind in listed.kinds:
        if names.get(kind.name):
            names[kind.name].update(kind.aggregates)
    return names


def _explained(reason: Reason, kind: str, listed: inventory.Inventory) -> Reason:
    """Add to the `reason` that a device is gone the text of the inventory, for example since when."""
    if reason.rule == "device-gone":
        for device in listed.devices:
            if device.kind == kind and reason.expected in device.names and device.health.reason:
                return reason._replace(found=f"no such device ({device.health.reason})")
    return reason
