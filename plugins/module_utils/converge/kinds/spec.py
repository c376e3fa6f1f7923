# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converge the specs of kinds, and their part of the inventory (module spec)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

from ...discovery import entry_options, inventory, snapshot, udev
from ...discovery.discover import unready
from ...discovery.out_of_service import in_force
from ...layout import Layout
from ...manifest import Manifest
from ...records import CdiError, Device, as_document
from ...release.needed_by import check_host
from ...runtimes import containers, detect
from ...safe_text import one_line
from ...spec import codec
from .. import image, module_diff
from ..change import Plan
from ..holders import holders
from ..holders.granted import GrantedDevices
from ..host_runtimes import HostRuntimes
from . import leaving, own_hook
from .converge_kinds import ConvergedKinds, FoundKinds, KindRequest, KindsLook, converge_kinds, discover_kinds
from .foreign import Foreign
from .keep_lost import Terms
from .memory import gone_now, memory_of
from .plan_kind import FoundDevices, HostSpecs, KindPlan, WantedKind, known, of_each_kind, our_spec, plan_kind


class DevicesMissing(CdiError):
    """Devices that are asked for can't be found; nothing was changed. The driver may only need longer to load."""


class SpecOutcome(NamedTuple):
    """The changes that were made for one kind, or with `check` would be made."""

    plan: Plan
    spec: Optional[dict[str, Any]]
    runtimes: tuple[detect.Runtime, ...]  # that the spec was fitted to; () without a spec to fit
    warnings: tuple[str, ...]
    foreign: tuple[Foreign, ...] = ()  # other tools' specs of the kind, also those that ours replaced
    held: tuple[leaving.HeldDevice, ...] = ()  # devices that stay because they are held
    devices: Sequence[Device] = ()  # that were found


class SpecOutcomes(NamedTuple):
    """The changes that were made for several kinds, or with `check` would be made."""

    plan: Plan  # of all kinds and the inventory
    kinds: dict[str, SpecOutcome]
    failed: dict[str, CdiError]  # kinds that stay unchanged
    warnings: tuple[str, ...]  # that are not about one kind


def converge_specs(
    kinds: Sequence[WantedKind],
    paths: Layout,
    force: bool = False,
    check: bool = False,
    live: bool = True,
    on_held: str = leaving.KEEP,
    find: holders.Find = containers.find_containers,
    release: str = "",
    runtimes: Optional[HostRuntimes] = None,
) -> SpecOutcomes:
    """Bring the specs of several kinds and their part of the inventory to the wanted state.

    Missing devices are dropped at once, because the user has seen the preview. `on_held` decides about held ones;
    `find` tells which containers hold a device. `release`: the id of the release, if known. `runtimes`: those of the
    host, if they were asked already. Raises CdiError, with nothing changed, if the devices of a kind can't be
    discovered (DevicesMissing), or if the inventory or the manifest can't be used.
    """

    def look(manifest: Manifest) -> tuple[KindsLook, Callable[[ConvergedKinds], SpecOutcomes]]:
        seen, warnings = _discovered(kinds, paths, live)
        around = known(paths.spec_dir, paths.inventory, inventory.boot_id("/"), paths.prefix, paths.path)
        around = around._replace(runtimes=runtimes) if runtimes else around
        ledger = GrantedDevices(paths.state_dir, around.boot_id)
        terms = Terms(gone_now(around.boot_id), 0, (lambda _id: False) if on_held == leaving.DROP else ledger)
        kept: dict[str, leaving.KeptKind] = {}

        def plan(wanted: WantedKind, specs: HostSpecs) -> KindPlan:
            found = seen.get(wanted.kind, FoundDevices())
            before = memory_of(manifest.kinds.get(wanted.kind))
            path, ours = our_spec(wanted.kind, specs, manifest)
            asked = leaving.keep_held(wanted, found, before, ours, on_held, ledger, find)
            if asked.held and not wanted.by:  # a request to remove a kind does not make its author the owner
                asked = asked._replace(wanted=asked.wanted._replace(by=manifest.by(path)))
            kept[wanted.kind] = asked
            part = plan_kind(asked.wanted, found, specs, manifest, terms, force)
            lacking = own_hook.require(part.spec, paths.prefix, release, check)
            told = (*asked.warnings, *lacking, *part.warnings)
            served = _served(part)
            if ours and part.spec is None and served:
                told += leaving.check_served(wanted, before, ours, served, on_held, ledger, find)
            return part._replace(warnings=told)

        of_kind = of_each_kind(around)
        requests = []
        for one in kinds:
            specs = of_kind(one.kind)
            requests.append(KindRequest(one.kind, specs, partial(plan, one, specs)))

        def outcomes(done: ConvergedKinds) -> SpecOutcomes:
            trouble = [f"{ledger.trouble}: until then nothing that is gone is dropped"] if ledger.trouble else []
            each = {
                kind: SpecOutcome(
                    part.plan,
                    part.spec,
                    part.runtimes,
                    part.warnings,
                    part.foreign,
                    kept[kind].held,
                    part.found.devices,
                )
                for kind, part in done.parts.items()
            }
            return SpecOutcomes(done.plan, each, done.failed, (*warnings, *trouble))

        return KindsLook(requests), outcomes

    return converge_kinds(look, paths.state_dir, check)


def _served(part: KindPlan) -> set[str]:
    """Return the qualified names that other tools' specs offer in place of ours, also those that come back now."""
    back = [codec.read(change.after or b"", change.path).spec for change in part.plan.changes if change.back]
    again = {f"{spec['kind']}={device['name']}" for spec in back if spec for device in spec["devices"]}
    return again.union(*(one.names for one in part.foreign))


def converge_spec(wanted: WantedKind, paths: Layout, *terms: Any, **more: Any) -> SpecOutcome:
    """Do as `converge_specs` does, for one kind. Raises CdiError, with nothing changed."""
    done = converge_specs([wanted], paths, *terms, **more)
    for error in done.failed.values():
        raise error
    one = done.kinds[wanted.kind]
    return one._replace(plan=done.plan._replace(path=one.plan.path), warnings=(*done.warnings, *one.warnings))


def _discovered(kinds: Sequence[WantedKind], paths: Layout, live: bool) -> tuple[dict[str, FoundDevices], list[str]]:
    """Return (the devices of the kinds with entries, warnings). Raises CdiError for all kinds that fail."""
    selected = [wanted for wanted in kinds if wanted.entries is not None]
    if not selected:
        return {}, []
    enricher, warnings = udev.enricher("/") if live else (None, [])
    out = in_force(paths.state_dir)
    host = (snapshot.take("/", live), enricher)
    found = discover_kinds(selected, *host, out)
    if found.failed:
        raise DevicesMissing("; ".join(map(str, found.failed.values())))
    lacking = _lacking(selected, found)
    if lacking and out:  # that operators took devices out of service does not make the driver unready
        lacking = _lacking(selected, discover_kinds(selected, *host, {}))
    if lacking:
        raise DevicesMissing(
            f"{'; '.join(lacking)}. Nothing was changed. Repair the driver. For a slow driver set "
            "cdi_host_driver_timeout of role cdi_host."
        )
    return found.seen, warnings


def _lacking(kinds: Sequence[WantedKind], found: FoundKinds) -> list[str]:
    """Return a text for each required entry without a usable device."""
    return [text for one in kinds for text in unready(one.entries or {}, found.seen[one.kind].found.devices)]


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module spec for its `options`. Raises CdiError.

    Without `kind` the result has a list of kinds, and `failed` with `msg` if a kind could not be converged.
    """
    warnings = check_host(options, check)
    listing = options["device_list"]
    live = options["root"] == "/"
    if not live:
        image.enter(options["root"])
        listing = ""  # an image has no inventory: it has not booted
    paths = Layout(
        options["state_dir"],
        listing,
        prefix=options["prefix"],
        spec_dirs=(options["spec_dir"],),
        path=os.environ.get("PATH", ""),
    )
    find = containers.finder() if live else _nobody
    terms = (options["force"], check, live, options["on_held"], find, options["release"] or "")
    if options["kind"]:
        result, more = _of_one(options, paths, terms)
    else:
        done = converge_specs(wanted_kinds(options), paths, *terms)
        result, more = result_of_kinds(done), warnings_of_kinds(done)
    return result, [*warnings, *more]


def wanted_kinds(options: Mapping[str, Any]) -> list[WantedKind]:
    """Return the kinds of the entries in `options`, those of module spec. Raises CdiError for wrong entries."""
    return [_wanted(options, kind, entries) for kind, entries in entry_options.by_kind(options["devices"]).items()]


def _of_one(options: Mapping[str, Any], paths: Layout, terms: tuple[Any, ...]) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) for the kind that `options` name."""
    kind, present = options["kind"], options["state"] == "present"
    entries, content = (options[name] if present else None for name in ("devices", "content"))
    one = converge_spec(_wanted(options, kind, entries, content), paths, *terms)
    changed = bool(one.plan.changes or one.plan.kinds)
    return {"changed": changed, **_result(kind, one), "diff": _diff(one.plan, [kind])}, list(one.warnings)


def result_of_kinds(done: SpecOutcomes) -> dict[str, Any]:
    """Return what module spec returns for several kinds; with `failed` and `msg` if one could not be converged."""
    inventories = [(_listed(change.before), _listed(change.after)) for change in done.plan.changes if not change.kind]
    results = []
    for kind, one in done.kinds.items():
        listed = any(before.get(kind) != after.get(kind) for before, after in inventories)
        results.append({"changed": listed or bool(one.plan.changes or one.plan.kinds), **_result(kind, one)})
    failed = [one_line(f"{kind}: {error}") for kind, error in done.failed.items()]
    return {
        "changed": bool(done.plan.changes or done.plan.kinds),
        "kinds": results,
        "diff": _diff(done.plan, [*done.kinds, *done.failed]),
        **({"failed": True, "msg": "; ".join(failed)} if failed else {}),
    }


def warnings_of_kinds(done: SpecOutcomes) -> list[str]:
    """Return the warnings about all kinds, each once."""
    told = dict.fromkeys(text for one in done.kinds.values() for text in one.warnings)
    return [*done.warnings, *told]


def _wanted(
    options: Mapping[str, Any], kind: str, entries: Optional[dict[str, Any]], content: Optional[dict[str, Any]] = None
) -> WantedKind:
    return WantedKind(
        kind,
        entries,
        content,
        options["managed_by"],
        options["on_unsupported"],
        options["runtime_versions"],
        options["on_foreign_kind"],
    )


def _result(kind: str, one: SpecOutcome) -> dict[str, Any]:
    """Return what module spec returns for one kind."""
    spec = one.spec
    return {
        "kind": kind,
        "path": one.plan.path,
        "cdi_version": spec["cdiVersion"] if spec else "",
        "names": [f"{kind}={device['name']}" for device in spec["devices"]] if spec else [],
        "foreign": as_document(one.foreign),
        "held": as_document(one.held),
        "runtimes": as_document(one.runtimes),
    }


def _nobody(_names: Any) -> containers.RunningContainers:
    """Return no containers: an image that is not booted has none."""
    return containers.RunningContainers(())


def _diff(plan: Plan, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """Return the diff of all files.

    Of the inventory show only the devices of `kinds`: others come from other runs, and check mode has none of theirs.
    """

    def of_kinds(content: Optional[bytes]) -> Any:
        listed = _listed(content)
        return {"devices": [device for kind in sorted(kinds) for device in listed.get(kind, ())]}

    return [module_diff.of_file(change, module_diff.parsed if change.kind else of_kinds) for change in plan.changes]


def _listed(content: Optional[bytes]) -> dict[str, list[dict[str, Any]]]:
    """Return kind -> its devices in an inventory."""
    document = module_diff.parsed(content)
    found: dict[str, list[dict[str, Any]]] = {}
    for device in document.get("devices", ()) if isinstance(document, dict) else ():
        found.setdefault(device["kind"], []).append(device)
    return found
