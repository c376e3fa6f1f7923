# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converge the spec of one kind and its part of the inventory (module spec)."""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Optional

from ...discovery import inventory, snapshot, udev
from ...discovery.out_of_service import in_force
from ...layout import Layout
from ...manifest import Manifest
from ...records import as_document
from ...release import guard
from ...runtimes import containers, detect
from ...spec import names
from .. import image, module_diff
from ..apply import apply
from ..change import Change, Plan
from ..holders.granted import GrantedDevices
from . import leaving, own_hook
from .foreign import Foreign
from .keep_lost import Terms
from .memory import gone_now, memory_of
from .plan_kind import FoundDevices, KindPlan, WantedKind, discover_kind, known, plan_kind, plan_listing


class SpecOutcome(NamedTuple):
    """The changes that were made, or with `check` would be made."""

    plan: Plan
    spec: Optional[dict[str, Any]]
    runtimes: tuple[detect.Runtime, ...]  # that the spec was fitted to; () without a spec to fit
    warnings: tuple[str, ...]
    foreign: tuple[Foreign, ...] = ()  # other tools' specs of the kind, also those that ours replaced
    held: tuple[leaving.HeldDevice, ...] = ()  # devices that stay because they are held


def converge_spec(
    wanted: WantedKind,
    paths: Layout,
    force: bool = False,
    check: bool = False,
    live: bool = True,
    on_held: str = leaving.KEEP,
    find: leaving.Find = containers.find_containers,
    release: str = "",
) -> SpecOutcome:
    """Bring the spec of one kind and its part of the inventory to the wanted state.

    Missing devices are dropped at once, because the user has seen the preview. `on_held` decides about held ones;
    `find` tells which containers hold a device. `release`: the id of the release, if known. Raises CdiError, with
    nothing changed.
    """
    seen = FoundDevices()
    warnings: list[str] = []
    if wanted.entries is not None:
        enricher, warnings = udev.enricher("/") if live else (None, [])
        seen = discover_kind(wanted, snapshot.take("/", live), enricher, in_force(paths.state_dir))
    around = known(paths.spec_dir, paths.inventory, inventory.boot_id("/"), paths.prefix, paths.path)
    ledger = GrantedDevices(paths.state_dir, around.boot_id)
    terms = Terms(gone_now(around.boot_id), 0, (lambda _id: False) if on_held == leaving.DROP else ledger)
    parts: list[KindPlan] = []
    kept: list[leaving.KeptKind] = []
    lacking: list[str] = []

    def make_plan(manifest: Manifest) -> Plan:
        before = memory_of(manifest.kinds.get(wanted.kind))
        path = os.path.join(around.directory, names.file_name(wanted.kind))
        ours = next((one.spec for one in around.registry.specs if one.path == path and manifest.owns(path)), None)
        asked = leaving.keep_held(wanted, seen, before, ours, on_held, ledger, find)
        if asked.held and not wanted.by:  # a request to remove a kind does not make its author the owner
            asked = asked._replace(wanted=asked.wanted._replace(by=manifest.by(path)))
        kept.append(asked)
        part = plan_kind(asked.wanted, seen, around, manifest, terms, force)
        parts.append(part)
        lacking[:] = own_hook.require(part.spec, paths.prefix, release, check)
        listing = plan_listing(around, {wanted.kind: part.found}, manifest, asked.wanted.by)
        return part.plan._replace(changes=part.plan.changes + listing)

    plan = apply(make_plan, paths.state_dir, check)
    part = parts[-1]
    if ledger.trouble:
        warnings.append(f"{ledger.trouble}: until then nothing that is gone is dropped")
    said = (*warnings, *kept[-1].warnings, *lacking, *part.warnings)
    return SpecOutcome(plan, part.spec, part.runtimes, said, part.foreign, kept[-1].held)


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module spec for its `options`. Raises CdiError."""
    warnings = guard.check(options["prefix"], options["release"], check)
    listing = options["device_list"]
    live = options["root"] == "/"
    if not live:
        image.enter(options["root"])
        listing = ""  # an image has no inventory: it has not booted
    present = options["state"] == "present"
    wanted = WantedKind(
        options["kind"],
        options["devices"] if present else None,
        options["content"] if present else None,
        options["managed_by"],
        options["on_unsupported"],
        options["runtime_versions"],
        options["on_foreign_kind"],
    )
    paths = Layout(
        options["state_dir"],
        listing,
        prefix=options["prefix"],
        spec_dirs=(options["spec_dir"],),
        path=os.environ.get("PATH", ""),
    )
    find = containers.find_containers if live else _nobody
    outcome = converge_spec(
        wanted, paths, options["force"], check, live, options["on_held"], find, options["release"] or ""
    )
    spec = outcome.spec
    result = {
        "changed": bool(outcome.plan.changes or outcome.plan.kinds),
        "kind": wanted.kind,
        "path": outcome.plan.path,
        "cdi_version": spec["cdiVersion"] if spec else "",
        "names": [f"{wanted.kind}={device['name']}" for device in spec["devices"]] if spec else [],
        "foreign": as_document(outcome.foreign),
        "held": as_document(outcome.held),
        "runtimes": as_document(outcome.runtimes),
        "diff": [
            module_diff.diff(
                change.path, *(_shown(content, change, wanted.kind) for content in (change.before, change.after))
            )
            for change in outcome.plan.changes
        ],
    }
    return result, [*warnings, *outcome.warnings]


def _nobody(_names: Any) -> containers.RunningContainers:
    """Return no containers: an image that is not booted has none."""
    return containers.RunningContainers(())


def _shown(content: Optional[bytes], change: Change, kind: str) -> Any:
    """Return the content of a file for the diff.

    Of the inventory show only the devices of `kind`: others come from other runs, and check mode has none of theirs.
    """
    document = module_diff.parsed(content)
    if change.kind:
        return document
    devices = document.get("devices", ()) if isinstance(document, dict) else ()
    return {"devices": [device for device in devices if device["kind"] == kind]}
