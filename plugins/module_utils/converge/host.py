# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One kind of one host, from what the user wants to what the files say: discovery, spec and manifest joined.

Private API of fleet.cdi.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils import files
from ansible_collections.fleet.cdi.plugins.module_utils.converge.apply import apply
from ansible_collections.fleet.cdi.plugins.module_utils.converge.plan import (
    Change,
    Plan,
    complete,
    plan_inventory,
    plan_spec,
    spec_of,
)
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory, snapshot, udev
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.disabled import in_force
from ansible_collections.fleet.cdi.plugins.module_utils.discovery.discover import discover
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, as_document
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect
from ansible_collections.fleet.cdi.plugins.module_utils.spec import cap, registry


class Wanted(NamedTuple):
    """What is to be there for one kind: from `entries` of the settings or `content`; nothing if both are None.

    `runtimes` (name -> version) are those that are to read it; none stands for those that the host has.
    """

    kind: str
    entries: Optional[dict[str, Any]] = None
    content: Optional[dict[str, Any]] = None
    by: str = ""  # who asks for it, for the manifest
    on_unsupported: str = cap.DROP
    runtimes: Mapping[str, Any] = {}


class Paths(NamedTuple):
    """Where things are on the host. `inventory` may be "": none is written."""

    directory: str = "/etc/cdi"
    inventory: str = "/run/cdi-inventory.json"
    state_dir: str = "/var/lib/cdi"


class Outcome(NamedTuple):
    """What was, or with `check` would be, changed."""

    plan: Plan
    spec: Optional[dict[str, Any]]
    runtimes: tuple[detect.Runtime, ...]  # that the spec was fitted to; () where there is none to fit
    warnings: tuple[str, ...]


def converge(wanted: Wanted, paths: Paths, force: bool = False, check: bool = False) -> Outcome:
    """Make the spec of one kind and its part of the inventory as wanted. Raises CdiError, with nothing changed."""
    ours = inventory.Inventory(())
    spec, warnings = None, []
    if wanted.entries is not None:
        enricher, unavailable = udev.enricher("/")
        found = discover(wanted.entries, snapshot.take("/"), enricher, in_force(paths.state_dir))
        # What udev says beyond the record's own fields is no business of who hands devices out, and large.
        devices = tuple(device._replace(properties={}) for device in found.devices)
        ours = inventory.Inventory(devices, found.kinds, found.links)
        warnings = [*unavailable, *found.warnings]
        for device in devices:
            if device.kind != wanted.kind:
                raise CdiError(
                    f"devices: found {device.qualified_names[0]}; expected only devices of kind {wanted.kind}. "
                    "Set its kind, or give it a spec of its own."
                )
        warnings += _left_out(devices)
        spec = spec_of(found.kinds[0], devices) if devices else None
    elif wanted.content is not None:
        spec = complete(wanted.kind, wanted.content)

    engines: tuple[detect.Runtime, ...] = ()
    if spec is not None:
        spec, engines, limits = _fitted(spec, wanted)
        warnings += limits

    # One file has one path: /var/run/cdi is /run/cdi on most hosts.
    directory = os.path.realpath(paths.directory)
    known = registry.load(_directories(directory))
    listing = files.canonical(paths.inventory) if paths.inventory else ""
    boot_id = inventory.boot_id("/")

    def make_plan(manifest: files.Manifest) -> Plan:
        plan = plan_spec(wanted.kind, spec, directory, known, manifest, files.read, force)
        if not listing:
            return plan
        listed = _with(_others(listing, boot_id, wanted.kind), ours)
        after = inventory.render(listed, boot_id) if listed.devices else None
        return plan._replace(changes=plan.changes + plan_inventory(listing, after, manifest, files.read))

    plan = apply(make_plan, paths.state_dir, check, wanted.by)
    return Outcome(plan, spec, engines, (*warnings, *plan.warnings))


def _fitted(spec: dict[str, Any], wanted: Wanted) -> tuple[dict[str, Any], tuple[detect.Runtime, ...], list[str]]:
    """(the spec as every runtime reads it, those runtimes, warnings). Raises CdiError where that can't be."""
    found = detect.named(wanted.runtimes) if wanted.runtimes else detect.detect(os.environ.get("PATH", ""))
    readers = [cap.Reader(engine.name, engine.version, engine.reads) for engine in found.runtimes]
    fitted = cap.fit(spec, readers, wanted.on_unsupported)
    return fitted.spec, found.runtimes, [*found.warnings, *fitted.warnings]


def _directories(directory: str) -> Sequence[str]:
    usual = tuple(os.path.realpath(path) for path in registry.DIRECTORIES)
    return usual if directory in usual else (directory,)


def _others(path: str, boot_id: str, kind: str) -> inventory.Inventory:
    """What the inventory has of other kinds; one that is missing, damaged or of another boot has nothing."""
    try:
        found = inventory.read(path, boot_id)
    except CdiError:
        return inventory.Inventory(())
    devices = tuple(device for device in found.devices if device.kind != kind)
    ids = {device.id for device in devices}
    return inventory.Inventory(
        devices,
        tuple(one for one in found.kinds if one.name != kind),
        tuple(link for link in found.links if link.a in ids and link.b in ids),
    )


def _with(others: inventory.Inventory, ours: inventory.Inventory) -> inventory.Inventory:
    """Both; sorted by kind, so that it doesn't matter in which order the kinds are converged."""
    return inventory.Inventory(
        tuple(sorted(others.devices + ours.devices, key=lambda device: device.kind)),
        tuple(sorted(others.kinds + ours.kinds)),
        tuple(sorted({*others.links, *ours.links})),
    )


def _left_out(devices: Sequence[Device]) -> list[str]:
    return [
        f"{device.qualified_names[0]} is left out of the spec: {device.health.reason}"
        for device in devices
        if device.health.state == "unhealthy"
    ]


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """(result, warnings) of module spec for its `options`. Raises CdiError."""
    warnings = []
    try:
        guard.check(options["prefix"], options["release"])
    except CdiError as error:
        if not check:
            raise
        warnings.append(str(error))  # in check mode the other release may be about to be replaced
    present = options["state"] == "present"
    wanted = Wanted(
        options["kind"],
        options["devices"] if present else None,
        options["content"] if present else None,
        options["managed_by"],
        options["on_unsupported"],
        options["runtimes"],
    )
    paths = Paths(options["directory"], options["inventory"], options["state_dir"])
    outcome = converge(wanted, paths, options["force"], check)
    spec = outcome.spec
    result = {
        "changed": bool(outcome.plan.changes),
        "kind": wanted.kind,
        "path": outcome.plan.path,
        "cdi_version": spec["cdiVersion"] if spec else "",
        "names": [f"{wanted.kind}={device['name']}" for device in spec["devices"]] if spec else [],
        "runtimes": as_document(outcome.runtimes),
        "diff": [
            {
                "before_header": change.path,
                "after_header": change.path,
                "before": _shown(change.before, change, wanted.kind),
                "after": _shown(change.after, change, wanted.kind),
            }
            for change in outcome.plan.changes
        ],
    }
    return result, [*warnings, *outcome.warnings]


def _shown(content: Optional[bytes], change: Change, kind: str) -> Any:
    """A file's content for the diff: the document in it, or its text if it holds none, or "" for no file.

    Of the inventory it is the devices of `kind`: the others are other runs' doing, and check mode has none of theirs.
    """
    try:
        document = json.loads(content) if content else ""
    except ValueError:
        return (content or b"").decode(errors="replace")
    if change.kind:
        return document
    devices = document.get("devices", ()) if isinstance(document, dict) else ()
    return {"devices": [device for device in devices if device["kind"] == kind]}
