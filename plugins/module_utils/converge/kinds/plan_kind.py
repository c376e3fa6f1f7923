# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan one kind of one host: join settings, discovery, spec and manifest to changes.

converge_kinds.py does so for all kinds of a run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Callable, NamedTuple, Optional

from ... import directories, documents, files
from ...discovery import inventory
from ...discovery.discover import Enricher, discover
from ...discovery.inventory import Inventory
from ...discovery.out_of_service import Disabled, health_of
from ...discovery.snapshot import Snapshot
from ...layout import USUAL
from ...manifest import Manifest
from ...records import CdiError, Device
from ...release.launcher import CDI_HOOK
from ...runtimes import detect
from ...spec import cap, codec, names, registry
from ...spec.seen.linked import Linked
from ..change import Change, Plan, plan_file
from ..host_runtimes import HostRuntimes
from ..libraries import libraries
from . import foreign
from .build_spec import complete, spec_of, with_hook_env
from .keep_lost import KeptDevices, Terms, find_replaced, keep_lost_devices, listed, with_lost
from .memory import Memory, memory_of
from .plan_spec import is_lost, is_ours, plan_spec, room_made

ADVICE = "Choose another inventory, or remove it."  # for an inventory that is not ours


class WantedKind(NamedTuple):
    """The wanted state of one kind: from `entries` of the settings or from `content`; both None: no spec.

    `runtimes` (name -> version) are the runtimes that are to read the spec; empty: those of the host.
    """

    kind: str
    entries: Optional[dict[str, Any]] = None
    content: Optional[dict[str, Any]] = None
    by: str = ""  # who asks for the kind, for the manifest
    on_unsupported: str = cap.DROP
    runtimes: Mapping[str, Any] = {}
    on_foreign_kind: str = foreign.USE  # what to do if another tool provides the kind
    leaving: Mapping[str, Sequence[str]] = {}  # devices that stay because they are held (converge/kinds/leaving.py)
    used_names: Mapping[str, Sequence[str]] = {}  # names that devices keep because containers were made with them


class FoundDevices(NamedTuple):
    """The devices that discovery found for one kind."""

    found: Inventory = Inventory(())
    warnings: tuple[str, ...] = ()
    disabled: Mapping[str, Disabled] = {}  # id -> what an operator took out of service, also of other kinds
    ambiguous: frozenset[str] = frozenset()  # qualified names that several devices claim, so none has them


class HostSpecs(NamedTuple):
    """The host as all kinds share it: the specs that count, the inventory, and the id of this boot."""

    directory: str
    registry: registry.Registry
    inventory: str  # path; "" for no inventory
    listed: Inventory
    boot_id: str
    prefix: str  # of the release whose cdi-hook the specs name
    runtimes: HostRuntimes


class KindPlan(NamedTuple):
    """The changes for one kind."""

    plan: Plan
    found: Inventory  # the kind's part of the inventory
    spec: Optional[dict[str, Any]]
    runtimes: tuple[detect.Runtime, ...]  # that the spec was fitted to; () without a spec to fit
    kept: KeptDevices
    warnings: tuple[str, ...]
    foreign: tuple[foreign.Foreign, ...] = ()  # other tools' specs of the kind, also those that ours replaced
    by: str = ""  # who asks for the kind, for the manifest


def discover_kind(
    wanted: WantedKind, snapshot: Snapshot, enricher: Optional[Enricher], disabled: Mapping[str, Disabled]
) -> FoundDevices:
    """Discover the devices of `wanted`, which has entries. Raises CdiError as `discover` does, and for other kinds."""
    found = discover(wanted.entries or {}, snapshot, enricher, disabled)
    # Drop udev properties: consumers don't need them, and they are large.
    devices = tuple(device._replace(properties={}) for device in found.devices)
    for device in devices:
        if device.kind != wanted.kind:
            raise CdiError(
                f"devices: found {device.qualified_names[0]}; expected only devices of kind {wanted.kind}. "
                "Set its kind, or give it a spec of its own."
            )
    return FoundDevices(Inventory(devices, found.kinds, found.links), found.warnings, disabled, found.ambiguous)


def known(directory: str, listing: str, boot_id: str, prefix: str = USUAL.prefix, path: str = "") -> HostSpecs:
    """Read the inventory of this boot, and the specs that count together with those in `directory`.

    An inventory that can't be used counts as empty. Raises CdiError if it can't be read now.
    """
    usual = tuple(map(directories.resolved, USUAL.spec_dirs))
    named = USUAL.spec_dirs if directories.resolved(directory) in usual else (directory,)
    # Who names the place behind a link has the runtimes look there, too.
    unread = [one for one in registry.hidden(named) if directory in named or not _leads(one, directory)]
    directory = directories.resolved(directory)  # one file has one path: /var/run/cdi is /run/cdi on most hosts
    listing = files.canonical(listing) if listing else ""
    try:
        there = inventory.read(listing, boot_id) if listing else Inventory(())
    except documents.CallFailed:
        raise
    except CdiError:  # missing, damaged or of another boot
        there = Inventory(())
    specs = registry.load(usual if directory in usual else (directory,))
    specs = specs._replace(unread=tuple(unread))  # as named, symlinks included
    return HostSpecs(directory, specs, listing, there, boot_id, prefix, HostRuntimes(path))


def _leads(link: registry.Hidden, directory: str) -> bool:
    """Tell whether a directory is hidden because it is a link to `directory`."""
    return link.why == registry.LINK and directories.resolved(link.path) == directories.resolved(directory)


def of_each_kind(around: HostSpecs) -> Callable[[str], HostSpecs]:
    """Return a function that returns the host as one kind sees it: with the specs of the kind and those in its place.

    With all specs for each kind, the work would grow with the square of their number.
    """
    every = around.registry.specs
    places: dict[str, set[int]] = {}  # kind or path -> indices of specs
    for at, file in enumerate(every):
        for key in (*file.kinds, file.path, file.target):
            places.setdefault(key, set()).add(at)

    def seen_by(kind: str) -> HostSpecs:
        path = os.path.join(around.directory, names.file_name(kind))
        found = sorted({at for key in (kind, path) for at in places.get(key, ())})
        return around._replace(registry=around.registry._replace(specs=tuple(every[at] for at in found)))

    return seen_by


def live_spec(around: HostSpecs, path: str) -> Optional[dict[str, Any]]:
    """Return the spec in the file at `path`; None without such a file. Raises CdiError if it can't be read now.

    Devices in use keep their entries of this spec, so an unread file must not count as one without entries.
    """
    file = next((one for one in around.registry.specs if one.path == path), None) or registry.read_file(path)[0]
    return file.spec if file else None


def our_spec(kind: str, around: HostSpecs, manifest: Manifest) -> tuple[str, Optional[dict[str, Any]]]:
    """Return (path, spec) of the kind, changed by others or not: here, or in the directory that was named before.

    None without a spec of ours. Raises CdiError if it can't be read now.
    """
    here = os.path.join(around.directory, names.file_name(kind))
    others = [path for path, record in manifest.files.items() if record["kind"] == kind]
    for path in dict.fromkeys((here, *others)):
        ours = is_ours(path, manifest) or is_lost(path, kind, files.read(path), manifest)
        spec = live_spec(around, path) if ours else None
        if spec is not None:
            return path, spec
    return here, None


def plan_kind(
    wanted: WantedKind,
    seen: FoundDevices,
    around: HostSpecs,
    manifest: Manifest,
    terms: Terms,
    force: bool = False,
    refit: bool = True,
) -> KindPlan:
    """Return the changes that bring the spec of `wanted`, and the memory of the kind, to the wanted state.

    With `refit=False` the runtimes are asked only if the spec differs from the live file. Raises CdiError.
    """
    before = memory_of(manifest.kinds.get(wanted.kind))
    path = os.path.join(around.directory, names.file_name(wanted.kind))
    kept, spec = _offered(wanted, seen, before, around, manifest, path, terms)
    engines: tuple[detect.Runtime, ...] = ()
    limits: list[str] = []
    current = files.read(path)
    if spec is not None and (refit or current is None or current.content != codec.encode(spec)):
        spec, engines, limits = _fitted(spec, wanted, around.runtimes.find(wanted.runtimes))
    others = foreign.providers(wanted.kind, around.registry, manifest) if wanted.entries is not None else ()
    if is_lost(path, wanted.kind, current, manifest):
        others = tuple(one for one in others if one.path != path)
    out = left_out(kept, others if wanted.on_foreign_kind == foreign.USE else ())
    others = others if spec else ()
    place = (around.directory, around.registry, manifest)

    def linked() -> tuple[Linked, ...]:
        return libraries(around.runtimes.find(wanted.runtimes))

    serve = wanted.on_foreign_kind == foreign.USE
    if spec and (others or (serve and wanted.entries is not None and room_made(wanted.kind, manifest))):
        plan = foreign.plan_foreign(wanted.kind, spec, wanted.on_foreign_kind, others, *place, force, linked)
        spec = None if serve else spec
    else:
        put_back = serve or not (wanted.entries or wanted.content)
        plan = plan_spec(wanted.kind, spec, *place, force, linked, put_back)
    plan = plan._replace(
        changes=tuple(change._replace(by=wanted.by) for change in plan.changes),
        kinds=_remembered(wanted, kept, around, manifest, before),
    )
    offered = before.offered if before else {}
    devices = listed(wanted.kind, kept, offered, around.listed.devices, wanted.leaving)
    warnings = (*seen.warnings, *out, *kept.warnings, *limits, *plan.warnings)
    return KindPlan(plan, seen.found._replace(devices=devices), spec, engines, kept, warnings, others, wanted.by)


def plan_listing(around: HostSpecs, parts: Mapping[str, Inventory], manifest: Manifest, by: str) -> tuple[Change, ...]:
    """Return the changes that put `parts` (kind -> inventory) into the inventory; other kinds stay. Raises CdiError."""
    if not around.inventory:
        return ()
    devices = tuple(device for device in around.listed.devices if device.kind not in parts)
    ids = {device.id for device in devices}
    every = [
        Inventory(
            devices,
            tuple(kind for kind in around.listed.kinds if kind.name not in parts),
            tuple(link for link in around.listed.links if link.a in ids and link.b in ids),
        ),
        *parts.values(),
    ]
    # Sorted by kind, so that the order in which kinds are converged makes no difference.
    whole = Inventory(
        tuple(sorted((device for one in every for device in one.devices), key=lambda device: device.kind)),
        tuple(sorted(kind for one in every for kind in one.kinds)),
        tuple(sorted({link for one in every for link in one.links})),
    )
    after = inventory.render(whole, around.boot_id) if whole.devices else None
    return plan_file(around.inventory, after, manifest, by, advice=ADVICE, has_our_form=inventory.is_rendered)


def _offered(
    wanted: WantedKind,
    seen: FoundDevices,
    before: Optional[Memory],
    around: HostSpecs,
    manifest: Manifest,
    path: str,
    terms: Terms,
) -> tuple[KeptDevices, Optional[dict[str, Any]]]:
    """Return (the devices to offer, their spec, or that of the content; None for no file). Raises CdiError."""
    if wanted.entries is None:
        return KeptDevices((), {}), None if wanted.content is None else complete(wanted.kind, wanted.content)
    withdrawn = _withdrawn(seen, around.listed.devices)
    terms = terms._replace(
        withdrawn=withdrawn, ambiguous=seen.ambiguous, leaving=wanted.leaving, used_names=wanted.used_names
    )
    kept = keep_lost_devices(seen.found.devices, wanted.entries, before, terms)
    live = (live_spec(around, path) or our_spec(wanted.kind, around, manifest)[1]) if kept.lost else None
    kept = find_replaced(kept, seen.found.devices, live, before.offered if before else {})
    return kept, _spec(wanted.kind, kept, seen, before, live, os.path.join(around.prefix, "bin", CDI_HOOK))


def _withdrawn(seen: FoundDevices, before: Iterable[Device]) -> set[str]:
    """Return the ids of devices that are out of service, of those found now and those `before`.

    A device that is gone may be another one than the one in the same slot that an operator took out of service.
    """
    known = {device.id: device for device in (*before, *seen.found.devices)}
    out = {id_ for id_, device in known.items() if health_of(device, seen.disabled)}
    return out | (seen.disabled.keys() - known.keys())


def _spec(
    kind: str,
    kept: KeptDevices,
    seen: FoundDevices,
    before: Optional[Memory],
    live: Optional[dict[str, Any]],
    program: str,
) -> Optional[dict[str, Any]]:
    """Return the spec of the found and the kept devices; None for no file. Raises CdiError."""
    spec = spec_of(seen.found.kinds[0], kept.devices, program) if kept.devices else None
    if not before or not kept.lost:
        return spec
    lost = {name for id_ in kept.lost if id_ not in kept.replaced for name in before.offered[id_]}
    content = with_lost(spec, live, lost)
    if content is spec or content is None:
        return spec
    # The lowest version that fits may have changed.
    return complete(kind, with_hook_env({key: value for key, value in content.items() if key != "cdiVersion"}))


def _fitted(
    spec: dict[str, Any], wanted: WantedKind, found: detect.DetectedRuntimes
) -> tuple[dict[str, Any], tuple[detect.Runtime, ...], list[str]]:
    """Return (the spec as every runtime reads it, those runtimes, warnings). Raises CdiError if no such spec exists."""
    readers = [cap.SpecReader(engine.name, engine.version, engine.reads) for engine in found.runtimes]
    fitted = cap.fit(spec, readers, wanted.on_unsupported)
    return fitted.spec, found.runtimes, [*found.warnings, *fitted.warnings]


def _remembered(
    wanted: WantedKind, kept: KeptDevices, around: HostSpecs, manifest: Manifest, before: Optional[Memory]
) -> dict[str, Optional[dict[str, Any]]]:
    """Return the new memory of the kind for the manifest; empty if the manifest already has it."""
    document = None
    if wanted.entries is not None:
        offered = {id_: before.offered[id_] for id_ in kept.lost} if before else {}
        for device in kept.devices:
            if device.health.is_usable:
                offered[device.id] = tuple(dict.fromkeys((*offered.get(device.id, ()), *device.names)))
        held = {
            "leaving": {id_: list(by) for id_, by in wanted.leaving.items() if id_ in kept.lost},
            "used_names": {id_: list(names) for id_, names in wanted.used_names.items() if id_ in offered},
        }
        options = {key: value for key, value in wanted._asdict().items() if key not in ("kind", "content", *held)}
        options.update({key: value for key, value in held.items() if value})
        if wanted.entries or offered:  # else the kind is absent, and its last held device is gone
            document = Memory(options, around.directory, around.inventory, offered, kept.lost).document()
    return {} if manifest.kinds.get(wanted.kind) == document else {wanted.kind: document}


def left_out(kept: KeptDevices, served: Sequence[foreign.Foreign] = ()) -> dict[str, Sequence[str]]:
    """Return the warning about each device that its spec leaves out -> the qualified names of the device.

    `served`: the specs of other tools that serve the kind in place of ours, and leave nothing out for us.
    """
    found: dict[str, Sequence[str]] = {}
    for device in kept.devices:
        if device.health.is_usable or device.id in kept.lost:
            continue
        every, reason = device.qualified_names, device.health.reason
        text = f"{every[0]} is left out of the spec: {reason}"
        found[foreign.still_offered(every, reason, served) if served else text] = every
    return found
