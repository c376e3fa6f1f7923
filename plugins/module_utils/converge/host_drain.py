# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Take all devices of a host out of service for work on it, and put back exactly these (module host_drain).

The host may run another release than this code. So this code only reads, and the command `fleet-cdi device` of the
active release writes. A device counts as ours by the text of its reason; devices that others took out of service stay.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple

from ..allocation.ledger.examine import examine
from ..discovery import inventory, snapshot, udev
from ..discovery.out_of_service import Disabled, health_of, in_force, read_disabled
from ..manifest import read_manifest
from ..records import CdiError, Device
from ..release import guard
from ..release.needed_by import check_state_dir, host_spec_dirs
from ..runtimes import containers
from ..spec.registry import Registry, load
from ..system import processes
from . import module_diff
from .holders import holders
from .kinds.converge_kinds import discover_kinds
from .kinds.device_state import listed_devices
from .kinds.memory import memory_of
from .kinds.refresh_all import optional, remembered

DRAINED = "drained"  # else "in_service"
ANY = "any device"  # what containers may have of which nothing is known
SECONDS = 120.0  # limit for one command; it refreshes all specs

Run = Callable[[Sequence[str], float], processes.Done]


class DrainHolder(NamedTuple):
    """A device that is in use."""

    device: str  # its id; "" for any device of the host
    name: str  # qualified; ANY for any device of the host
    by: tuple[str, ...]  # its holders: requests, pods, containers


def to_take(devices: Sequence[Device], out: Mapping[str, Disabled]) -> list[str]:
    """Return the ids of the devices to take out of service: the usable ones; a part goes with its whole."""
    usable = [one for one in devices if one.health.is_usable and not health_of(one, out)]
    ids = {one.id for one in usable}
    return list(dict.fromkeys(one.id for one in usable if ids.isdisjoint(one.part_of)))


def marked(out: Mapping[str, Disabled], reason: str) -> list[str]:
    """Return the ids of the devices that are out of service for this reason."""
    return sorted(id_ for id_, one in out.items() if one.reason == reason)


def held_devices(
    devices: Sequence[Device],
    state_dir: str,
    boot_id: str,
    registry: Registry,
    find: holders.Find = containers.find_containers,
) -> tuple[list[DrainHolder], tuple[str, ...]]:
    """Return (the devices that grants or running containers use, why an engine could not be asked).

    An engine that can't be asked, and whose containers may run, counts as a holder of any device. `registry` has names
    by which containers were made, besides those of the inventory (names_of_devices). A hold on a device that no list
    has counts too. Raises CdiError if the ledger can't be read.
    """
    store = examine(state_dir, boot_id)
    if store.grants is None:
        raise CdiError(f"{store.path}: {store.problem}; so nobody can tell who holds devices. `fleet-cdi doctor`")
    used: dict[str, dict[str, None]] = {}
    names: dict[str, str] = {}
    for one in devices:
        names.setdefault(one.id, one.qualified_names[0])
    if store.grants:
        # Imported here, because few hosts have grants, and the import of SQLite takes long.
        from ..allocation.holds.pod_holds import holder
        from ..allocation.ledger.grant import WITHHELD

        for grant in store.grants:
            for part in grant.parts:
                for hold in part.holds if part.state != WITHHELD else ():
                    used.setdefault(hold.device, {})[holder(grant.key, part)] = None
    found, asked = holders.containers_with(devices, registry, find)
    for id_ in filter(found.__contains__, names):
        for container in found[id_]:
            if container.runs:
                used.setdefault(id_, {})[str(container)] = None
    held = [DrainHolder(id_, names.get(id_, id_), tuple(by)) for id_, by in used.items()]
    if asked.trouble and asked.may_run:
        held.append(DrainHolder("", ANY, tuple(f"a container, maybe ({why})" for why in asked.trouble)))
    return held, asked.trouble


def unhealthy(
    state_dir: str, device_list: str, devices: Sequence[str], out: Mapping[str, Disabled]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return (id -> why, for those of `devices` that would be unusable in service, with `out` out of service; the ids
    of those that the host does not have any more).

    Devices of the pools beside `device_list` are there if they are listed. Raises CdiError if the manifest can't be
    read.
    """
    kinds = read_manifest(state_dir).kinds
    wanted = [optional(remembered(kind, memory)) for kind, document in kinds.items() if (memory := memory_of(document))]
    found = discover_kinds(wanted, snapshot.take("/"), udev.enricher("/")[0], out)
    health = {one.id: one.health for kind in found.seen.values() for one in kind.found.devices}
    ill = {
        id_: health[id_].reason or health[id_].state
        for id_ in devices
        if id_ in health and not health[id_].is_usable and health[id_].state != "reserved"
    }
    listed = {one.id for one in listed_devices(device_list)[0]}
    return ill, tuple(id_ for id_ in devices if id_ not in health and id_ not in listed)


def answer(options: dict[str, Any], check: bool) -> tuple[dict[str, Any], list[str]]:
    """Return (result, warnings) of module host_drain for its `options`. Raises CdiError."""
    reason = " ".join((options["reason"] or "").split())
    if not reason:
        raise CdiError("reason: found none; expected one line that tells operators why the devices are out of service")
    check_state_dir(options["state_dir"], options["prefix"])
    release, state_dir, boot_id = guard.active(options["prefix"]), options["state_dir"], inventory.boot_id()
    there = read_disabled(state_dir)
    mine = marked(there, reason)
    devices, unlisted = listed_devices(options["device_list"])
    held: list[DrainHolder] = []
    warnings: tuple[str, ...] = ()
    if options["state"] == DRAINED:
        if unlisted and release and read_manifest(state_dir).kinds:
            raise CdiError(f"{unlisted}; nobody can tell which devices to take out of service. Nothing was changed")
        chosen = to_take(devices, in_force(state_dir)) if release else []
        after = {**dict.fromkeys([*mine, *chosen], reason)}
    else:
        chosen, after = mine, {}
        others = {id_: one for id_, one in in_force(state_dir).items() if id_ not in mine}
        if options["only_healthy"] and chosen:
            ill, missing = unhealthy(state_dir, options["device_list"], chosen, others)
            if ill:
                told = "; ".join(f"{id_}: {why}" for id_, why in ill.items())
                raise CdiError(f"Not put back into service, because it is unhealthy: {told}. Nothing was changed.")
            if missing and not options["allow_missing"]:
                raise CdiError(
                    "Not put back into service, because the host does not have these devices any more, or its settings "
                    f"leave them out: {holders.some(missing)}. Nothing was changed. If that is intended, set "
                    "allow_missing (fleet_cdi_upgrade_allow_missing of playbook fleet.cdi.upgrade)."
                )
    if chosen and not release:
        raise CdiError(
            f"{options['prefix']}/lib/current: no release is active, so nothing can put these devices back into "
            f"service: {', '.join(chosen)}. Run playbook fleet.cdi.provision first."
        )
    if not check:
        change(options["prefix"], options["state"], chosen, reason)
    if options["state"] == DRAINED:
        held, warnings = held_devices(devices, state_dir, boot_id, load(host_spec_dirs(options["prefix"])))
    result = {
        "changed": bool(chosen),
        "release": release,
        "devices": chosen,
        "drained": sorted(after),
        "held": [one._asdict() for one in held],
        "diff": [module_diff.diff(state_dir, dict.fromkeys(mine, reason), after)],
    }
    return result, list(warnings)


def change(prefix: str, state: str, devices: Sequence[str], reason: str, run: Run = processes.run) -> None:
    """Take `devices` out of service, or put them back, by one command of the active release: it refreshes all specs.

    Raises CdiError if it fails.
    """
    command = os.path.join(prefix, "bin", "fleet-cdi")
    words = ("disable", "--reason", reason) if state == DRAINED else ("enable",)
    asked = [command, "device", *words, "--", *devices]
    if not devices:
        return
    try:
        done = run(asked, SECONDS)
    except OSError as error:  # TimeoutError is one
        raise CdiError(f"{' '.join(asked)}: {error}") from error
    if done.status:
        said = " ".join(done.err.split()) or f"exit status {done.status}"
        raise CdiError(f"{' '.join(asked)}: {said}")
