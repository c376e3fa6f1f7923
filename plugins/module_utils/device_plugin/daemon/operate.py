# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer operators: show the living instances and the devices they would offer, and free the holds of pods."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...allocation.holds import dra_holds
from ...allocation.ledger.ledger import Ledger
from ...discovery import inventory
from ...records import CdiError
from ..allocate import delivery
from ..allocate.reclaim import Reclaimer
from ..config import in_force
from ..config.configuration import PluginSettings
from ..config.faults import class_of
from ..health.device_list import Advertised, Roster
from ..health.probe import numa_nodes
from ..kubelet.podresources import InUse
from ..process import instance_status
from .observer import Viewer

WELL = (instance_status.REGISTERED, instance_status.STANDBY, instance_status.IDLE)


class OfferedResources(NamedTuple):
    """The resources that the kubelet would get now."""

    resources: Mapping[str, Sequence[Advertised]]
    names: Mapping[str, Mapping[str, Sequence[str]]]  # resource -> device ID -> qualified names for a container
    findings: Sequence[str]
    delivery: Mapping[str, delivery.Delivery]
    absent: Sequence[str]  # not on this host; not a finding, because many hosts share one configuration


def settings_at(path: str) -> PluginSettings:
    """Return the configuration that an instance would start with. Raises CdiError."""
    found = in_force.load(path)
    if found.settings is None:
        raise CdiError(found.error or f"{path}: can't be used")
    return found.settings


def living(run_dir: str) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the documents of the living instances, the youngest last, and the findings about them."""
    alive = [seen for seen in instance_status.instances_in(run_dir) if seen.alive]
    if not alive:
        return [], ["no instance of the device plugin runs here"]
    found = [seen.document for seen in alive]
    findings = [seen.problem for seen in alive if seen.hangs]
    working = [seen.document for seen in alive if not seen.hangs]  # the documents of the others are out of date
    for document in working:
        error = document["config"]["error"]
        if error:
            findings.append(f"instance {document['instance']}: works by an older configuration, or none: {error}")
        findings += [f"instance {document['instance']}: {text}" for text in document["warnings"]]
    names = sorted({name for document in working for name in document["resources"]})
    for name in names:
        findings += _of_resource(name, [one["resources"][name] for one in working if name in one["resources"]])
    return found, findings


def _of_resource(name: str, seen: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the findings about one resource. At least one instance has to serve it well."""
    findings = []
    youngest = seen[-1]
    if youngest["state"] not in WELL and not any(one["state"] == instance_status.REGISTERED for one in seen):
        findings.append(f"{name}: {youngest['state']}: {youngest['error'] or 'not there yet'}")
    elif youngest["state"] == instance_status.REGISTERED and not youngest["stream"]:
        findings.append(f"{name}: the kubelet's stream has ended")
    for device, said in sorted(youngest["devices"].items()):
        if not said["healthy"] and class_of(said["reason"]) not in ("taken", "reserved"):
            findings.append(f"{name}: {device} is Unhealthy: {said['reason']}")
    findings += [f"{name}: {text}" for text in youngest["warnings"]]
    why = (youngest["delivery"] or {}).get("why")
    return [*findings, f"{name}: {why}"] if why else findings


def would_offer(settings: PluginSettings) -> OfferedResources:
    """Return what an instance with these settings would offer on this host now. Changes nothing."""
    ledger = Ledger(settings.state_dir, inventory.boot_id())
    readers = delivery.readers(settings.root)
    view = Viewer(settings, ledger, ask=lambda: readers).look()
    resources, names, ways = {}, {}, {}
    for resource in view.offer.resources:
        roster = Roster(numa_nodes(settings.root))
        roster.update(resource, view.troubles[resource.name], 0.0)
        resources[resource.name] = roster.advertised
        names[resource.name] = {one: unit.qualified_names for unit in resource.units for one in unit.device_ids}
        mode = resource.settings.delivery or settings.delivery
        ways[resource.name] = delivery.decide(mode, readers, view.registry, delivery.names_of(resource))
    findings = [*view.offer.warnings, *view.problems.values(), *view.warnings]
    findings += [f"{name}: {why}" for name, why in view.offer.refused.items()]
    findings += [f"{name}: {way.why}" for name, way in ways.items() if way.why]
    return OfferedResources(resources, names, findings, ways, view.offer.absent)


def forget(settings: PluginSettings) -> int:
    """Release all holds of pods, and return their number. For a node whose pods, and this plugin, have gone.

    Raises CdiError while an instance lives, and if a teardown failed.
    """
    found, _findings = living(settings.run_dir)
    if found:
        raise CdiError(f"instance {found[-1]['instance']} runs; stop it first, and drain the node")
    ledger = Ledger(settings.state_dir, inventory.boot_id())
    number, failed = give_back(settings, ledger)
    if failed:
        text = "; ".join(f"{unit}: {why}" for unit, why in failed.items())
        raise CdiError(f"{number} devices may be granted again; others could not be torn down and are withheld: {text}")
    return number


def give_back(settings: PluginSettings, ledger: Ledger) -> tuple[int, dict[str, str]]:
    """Release the holds of pods, each after its teardown. Return (number, unit -> why not). Raises CdiError.

    Release the holds of DRA claims, too: without the daemon, no process updates them.
    """
    if not os.path.exists(ledger.path):
        return 0, {}
    resources = Viewer(settings, ledger).look().offer.resources
    reclaimer = Reclaimer(ledger, 1.0, settings.resources)
    # Two steps without any device in use, and an infinite time between them.
    events = [event for now in (0.0, math.inf) for event in reclaimer.step(resources, InUse(0, frozenset()), now)]
    failed = {event.unit: event.reason for event in events if event.what == "withheld"}
    return sum(event.what == "released" for event in events) + dra_holds.free(ledger), failed
