# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth of one host, as module host_report_info returns it and `fleet-cdi report --json` prints it.

It looks at the host once, and changes nothing. What can't be read makes truths unknown, and hides nothing else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ..allocation.ledger.examine import Examined
from ..allocation.ledger.grant import WITHHELD as GRANT_WITHHELD
from ..allocation.ledger.grant import GrantPart, Key
from ..converge.doctor.rule import NOTES, HostFinding, find_problems
from ..converge.doctor.rules import RULES
from ..converge.doctor.view import HostView, take
from ..converge.kinds.converge_kinds import discover_kinds
from ..converge.kinds.memory import DROPPED
from ..converge.kinds.refresh_all import optional, remembered
from ..discovery import entry_options, inventory, snapshot, udev
from ..discovery.discover import discover
from ..discovery.topology import nics
from ..layout import Layout
from ..records import CdiError, Device, Health, Kind, Link
from ..release import guard
from ..spec.stale import Reason
from ..system import openers
from ..system.local_users import local_users
from ..system.occupied import Occupied, numbers, own_nodes
from . import device_truth as truths
from .device_truth import DeviceTruth, Promise, Truth

VERSION = 1  # of the document; one more for every change that an older reader would get wrong
INTENT = ("disabled",)  # rules of doctor that tell what an operator wanted, so nothing disagrees


class FoundNow(NamedTuple):
    """The devices that the kernel has now."""

    devices: Mapping[str, Device]  # by id
    kinds: tuple[Kind, ...]
    links: tuple[Link, ...]
    network: Sequence[Device]
    failed: Mapping[str, str]  # kind -> why its devices could not be discovered
    chosen: Collection[str]  # ids of the devices that the settings choose; not those of a kind in `failed`


class HostTruth(NamedTuple):
    """The truth of one host."""

    devices: tuple[DeviceTruth, ...]
    links: tuple[Link, ...]
    network: Sequence[Device]
    findings: tuple[HostFinding, ...]
    concerns: Mapping[int, tuple[str, ...]]  # index of a finding -> ids of the devices that it is about
    kinds: Collection[str] = ()  # that the host remembers from its settings


def answer(options: dict[str, Any], _check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of the module for its `options`; it only reads, check mode or not."""
    places = Layout(
        options["state_dir"],
        options["device_list"],
        prefix=options["prefix"],
        spec_dirs=tuple(options["spec_dirs"]),
        path=os.environ.get("PATH", ""),
    )
    return {"report": report_document(places)}, []


def report_document(places: Layout) -> dict[str, Any]:
    """Return the truth of this host for JSON. Empty values are left out."""
    view = take(places)
    return document(host_truth(view, find_now(view)), view.live.boot_id, guard.active(places.prefix) or "")


def find_now(view: HostView) -> FoundNow:
    """Discover the remembered kinds, and everything else that needs no settings, in one snapshot."""
    host = (snapshot.take(view.places.root), udev.enricher(view.places.root)[0], view.wanted.disabled)
    wanted = {kind: remembered(kind, memory) for kind, memory in view.wanted.kinds.items()}
    strict = discover_kinds(wanted.values(), *host)
    lenient = discover_kinds([optional(wanted[kind]) for kind in strict.failed], *host)
    seen = [found.found for found in (*strict.seen.values(), *lenient.seen.values())]
    failed = {kind: str(error) for kind, error in lenient.failed.items()}
    chosen = frozenset(device.id for found in seen for device in found.devices)
    try:
        rest = discover(entry_options.everything(), *host)
        seen.append(inventory.Inventory(rest.devices, rest.kinds, rest.links))
        network = nics.nics(host[0])
    except CdiError as error:
        failed[""], network = str(error), ()
    every = {device.id: device for found in reversed(seen) for device in found.devices}
    return FoundNow(
        every,
        tuple({kind.name: kind for found in reversed(seen) for kind in found.kinds}.values()),
        tuple(dict.fromkeys(link for found in seen for link in found.links)),
        network,
        failed,
        chosen,
    )


def host_truth(view: HostView, now: FoundNow) -> HostTruth:
    """Join the view of the doctor with what the kernel has `now`."""
    named = {device.id: device for device in (*view.live.pooled, *view.live.listed.devices)}
    offered = {
        id_: (kind, names) for kind, memory in view.wanted.kinds.items() for id_, names in memory.offered.items()
    }
    listed = [*offered, *named, *(id_ for id_, device in now.devices.items() if _shown(device, view, now))]
    devices = [_device(id_, now, named, offered) for id_ in dict.fromkeys(listed)]
    opened = _openers(devices, now)
    every = tuple(
        DeviceTruth(
            device,
            _wanted(device, view, offered, now),
            *_written(device, view),
            *_promised(device, view.running.ledger),
            _real(device, now, offered, view),
            opened if opened is None else opened.get(device.id, ()),
        )
        for device in devices
    )
    doctor = find_problems(RULES, view)
    found, concerns = _joined(doctor, every, view)
    kept = {one.device.id for one in every}
    links = tuple(link for link in now.links if link.a in kept and link.b in kept)
    return HostTruth(every, links, now.network, found, concerns, tuple(view.wanted.kinds))


def _chosen(device: Device, view: HostView, now: FoundNow) -> bool:
    """Return True if the settings choose the device, or if the devices of its kind could not be discovered."""
    return device.id in now.chosen or (device.kind in view.wanted.kinds and device.kind in now.failed)


def _shown(device: Device, view: HostView, now: FoundNow) -> bool:
    """Return True for a device that the settings choose, and for an accelerator that nobody asks for."""
    return _chosen(device, view, now) or device.pci_class.startswith(nics.ACCELERATORS)


def _device(
    id_: str, now: FoundNow, named: Mapping[str, Device], offered: Mapping[str, tuple[str, tuple[str, ...]]]
) -> Device:
    """Return the record of a device: that of now, or the one that the inventory or the manifest remembers."""
    found = now.devices.get(id_) or named.get(id_)
    if found:
        return found
    kind, names = offered[id_]
    address = id_.rpartition("pci:")[2] if id_.startswith("pci:") else ""
    return Device(id_, "", kind, names, (), pci_address=address, health=Health("unknown"))


def _wanted(device: Device, view: HostView, offered: Mapping[str, Any], now: FoundNow) -> Truth:
    if view.wanted.manifest_error:
        return Truth(truths.UNKNOWN, view.wanted.manifest_error)
    if view.wanted.disabled_error:
        return Truth(truths.UNKNOWN, view.wanted.disabled_error)
    out = view.wanted.disabled.get(device.id)
    if out and (not out.unique or not device.unique or out.unique == device.unique):
        until = f" until {out.until}" if out.until else ""
        return Truth(truths.WITHDRAWN, f"out of service since {out.since}{until}: {out.reason}")
    memory = view.wanted.kinds.get(device.kind)
    if view.wanted.is_leaving(device):
        return Truth(truths.SPARE, DROPPED)
    if device.id in offered or _chosen(device, view, now):
        return Truth(truths.OFFERED, str(memory.wanted.get("by", "")) if memory else "")
    if any(device.id == one.id for one in view.live.pooled):
        return Truth(truths.POOLED)
    return Truth(truths.SPARE)


def _written(device: Device, view: HostView) -> tuple[Truth, tuple[str, ...]]:
    registry = view.written.registry
    files = tuple(dict.fromkeys(registry.devices[name] for name in device.qualified_names if name in registry.devices))
    if files:
        return Truth(truths.IN_SPEC), files
    if registry.errors:
        return Truth(truths.UNKNOWN, next(iter(registry.errors.values()))), ()
    return Truth(truths.IN_NO_SPEC), ()


def _promised(device: Device, store: Examined) -> tuple[Truth, tuple[Promise, ...]]:
    mine = {*device.hardware, *device.items}
    found = [
        Promise(_holder(grant.key, part), part.owner, grant.key.request_id, part.state, int(part.made), hold.unique)
        for grant in store.grants or ()
        for part in grant.parts
        for hold in part.holds
        if not mine.isdisjoint(hold.locks())
    ]
    if store.grants is None or not store.complete:
        return Truth(truths.UNKNOWN, f"{store.path}: {store.problem}"), tuple(found)
    if not found:
        return Truth(truths.FREE), ()
    kept = any(hold.state != GRANT_WITHHELD for hold in found)
    return Truth(truths.HELD if kept else truths.WITHHELD), tuple(found)


def _holder(key: Key, part: GrantPart) -> str:
    # Imported here, because few hosts have grants, and the import of SQLite takes long.
    from ..allocation.holds.pod_holds import holder

    return holder(key, part)


def _real(device: Device, now: FoundNow, offered: Collection[str], view: HostView) -> Truth:
    if device.id in now.devices:
        return Truth(*device.health)
    why = now.failed.get(device.kind) or now.failed.get("")
    if why:
        return Truth(truths.UNKNOWN, why)
    known_to_all = device.profile in entry_options.everything()
    if view.wanted.is_leaving(device) and not known_to_all:
        return Truth(truths.UNKNOWN, "the settings dropped it, so nothing looks for it")
    searched = device.id in offered or known_to_all
    if device.profile and not searched and device.nodes:
        return Truth(truths.UNKNOWN, "only the pool of an executable lists it")
    return Truth(truths.GONE)


def _openers(devices: Iterable[Device], now: FoundNow) -> Optional[dict[str, tuple[dict[str, Any], ...]]]:
    """Return id -> the processes that have its nodes open; None if the look may have missed some."""
    nodes = own_nodes(devices, [node for kind in now.kinds for node in kind.edits.nodes])
    seen = openers.look(numbers(nodes))
    if seen.gaps:
        return None
    users = local_users() if any(seen.openers.values()) else {}
    found = {
        id_: [
            one for number, path in own.items() for one in Occupied(id_, path, seen.openers.get(number, ())).documents()
        ]
        for id_, own in nodes.items()
    }
    return {id_: tuple(_opener(one, users) for one in every) for id_, every in found.items()}


def _opener(one: Mapping[str, Any], users: Mapping[int, str]) -> dict[str, Any]:
    """Return a process for the report, with the name of its user if the host knows it."""
    shown = {**one, "user": users.get(one["uid"], "")}
    return {key: value for key, value in shown.items() if key != "device" and value != ""}


def _joined(
    doctor: Sequence[HostFinding], devices: Sequence[DeviceTruth], view: HostView
) -> tuple[tuple[HostFinding, ...], dict[int, tuple[str, ...]]]:
    """Return the findings of the doctor, those of devices that it does not name, and the devices of each."""
    kept = [one for one in doctor if one.status != NOTES and one.rule not in INTENT]
    concerns = {index: tuple(_about(one, devices, view)) for index, one in enumerate(kept)}
    for one in devices:
        said = {kept[index].rule for index, ids in concerns.items() if one.device.id in ids}
        for rule, problem in truths.disagreements(one, said):
            concerns[len(kept)] = (one.device.id,)
            kept.append(HostFinding(rule.name, one.device.qualified_names[0], problem, rule.next, (problem,)))
    return tuple(kept), concerns


def _about(finding: HostFinding, devices: Sequence[DeviceTruth], view: HostView) -> Iterable[str]:
    """Yield the ids of the devices that a finding of the doctor is about.

    One about a kind, about our spec of it or about the directory of that is about the devices of the kind too that no
    spec has.
    """
    kinds = {finding.subject, view.wanted.manifest.kind_of(finding.subject)}
    kinds.update(kind for kind, memory in view.wanted.kinds.items() if memory.directory == finding.subject)
    words = {finding.subject, *finding.details}
    reasons = [one for one in view.live.stale.get(finding.subject, ()) if one.rule == finding.rule]
    names = _names_of(finding.subject, reasons, view)
    for one in devices:
        known = {one.device.id, *one.device.qualified_names, *one.device.items}
        whole = names is None and finding.subject in one.files
        lost = one.device.kind in kinds and one.written.state == truths.IN_NO_SPEC
        if not known.isdisjoint(words) or whole or lost or (names and not known.isdisjoint(names)):
            yield one.device.id


def _names_of(path: str, reasons: Sequence[Reason], view: HostView) -> Optional[set[str]]:
    """Return the qualified names in a spec that the reasons are about; None: all of them."""
    if not reasons:
        return set()
    spec = next(file.spec for file in view.written.registry.specs if file.path == path)
    names: set[str] = set()
    for one in reasons:
        words = one.pointer.split("/")
        if one.rule in ("device-gone", "device-new"):
            names.add(f"{spec['kind']}={one.expected if one.rule == 'device-gone' else one.found}")
        elif words[1:2] == ["devices"] and words[2:3] and words[2].isdecimal():
            names.add(f"{spec['kind']}={spec['devices'][int(words[2])]['name']}")
        else:
            return None
    return names


def document(host: HostTruth, boot_id: str, release: str) -> dict[str, Any]:
    """Return the truth of a host for JSON."""
    about: dict[str, list[int]] = {}
    for index, ids in host.concerns.items():
        for id_ in ids:
            about.setdefault(id_, []).append(index)
    places = {one.device.id: index for index, one in enumerate(host.devices)}
    return {
        "version": VERSION,
        "made": int(time.time()),
        "uptime": int(time.clock_gettime(time.CLOCK_BOOTTIME)),
        "boot_id": boot_id,
        "release": release,
        "kinds": sorted(host.kinds),
        "devices": [_row(one, about.get(one.device.id, [])) for one in host.devices],
        "links": [[places[one.a], places[one.b], one.type, one.parallel, one.bandwidth] for one in host.links],
        "nics": [
            {"id": one.id, "names": list(one.names), "numa_node": one.numa_node, "pcie_path": list(one.pcie_path)}
            for one in host.network
        ],
        "findings": [
            {"rule": one.rule, "subject": one.subject, "problem": one.problem, "next": one.next}
            for one in host.findings
        ],
    }


def _row(one: DeviceTruth, findings: list[int]) -> dict[str, Any]:
    device = one.device
    shown: dict[str, Any] = {
        "id": device.id,
        "kind": device.kind,
        "names": list(device.names),
        "driver": device.driver,
        "pci_address": device.pci_address,
        "pci_id": ":".join(filter(None, (device.vendor_id, device.device_id))),
        "serial": device.serial,
        "uuid": device.uuid,
        "partition": device.partition,
        "part_of": list(device.part_of),
        "pcie_path": list(device.pcie_path),
        "nic_relation": device.nic_relation,
        "nodes": [node.path for node in device.nodes],
        "wanted": list(one.wanted),
        "written": [*one.written, list(one.files)],
        "promised": [*one.promised, [hold._asdict() for hold in one.promises]],
        "real": list(one.real),
        "findings": findings,
        "unknown": list(one.unknown),
    }
    found = {key: value for key, value in shown.items() if value not in ("", [])}
    found["numa_node"] = device.numa_node
    found["openers"] = None if one.openers is None else list(one.openers)
    return found
