# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List the devices of a host, who holds each, and the name that a spec gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from ..allocation.ledger.examine import Examined, examine
from ..allocation.ledger.grant import Grant
from ..discovery import discover, entry_options, inventory, out_of_service, snapshot, udev
from ..records import Device
from ..spec.registry import load


class DeviceListing(NamedTuple):
    """The devices of a host, their holders and their names."""

    devices: tuple[Device, ...]
    held: Optional[Mapping[str, tuple[str, ...]]]  # id -> its holders; None: the store of grants can't be read
    why_unknown: str  # why the store of grants can't be read
    offered: Mapping[str, str]  # qualified name -> path of the spec that defines it
    warnings: tuple[str, ...] = ()

    def is_free(self, device: Device) -> bool:
        """Return True if the device may be granted now: healthy, not reserved, and known to be held by nobody."""
        return device.health.is_usable and self.held is not None and not self.held[device.id]

    def name_of(self, device: Device) -> str:
        """Return the first name of the device that a spec defines; "" if no spec defines one."""
        return next((name for name in device.qualified_names if name in self.offered), "")


def list_devices(state_dir: str, listing: str, spec_dirs: Sequence[str], scan: bool = False) -> DeviceListing:
    """Return the devices of the inventory `listing`, or with `scan` those found now. Raises CdiError."""
    boot_id = inventory.boot_id()
    devices, warnings = _scanned(state_dir) if scan else (tuple(inventory.read(listing, boot_id).devices), ())
    store = examine(state_dir, boot_id)
    return DeviceListing(devices, _held(devices, store), _trouble(store), load(spec_dirs).devices, warnings)


def _scanned(state_dir: str) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    enricher, warnings = udev.enricher("/")
    found = discover.discover(
        entry_options.everything(), snapshot.take("/"), enricher, out_of_service.in_force(state_dir)
    )
    return found.devices, (*warnings, *found.warnings)


def _trouble(store: Examined) -> str:
    return "" if store.grants is not None and store.complete else f"{store.path}: {store.problem}"


def _held(devices: Sequence[Device], store: Examined) -> Optional[dict[str, tuple[str, ...]]]:
    """Return for each id who holds the device, a part of it, or the device that it is part of."""
    if store.grants is None or not store.complete:
        return None
    holders: dict[str, list[str]] = {}
    for grant in store.grants:
        for hold in grant.holds:
            for resource in hold.locks():
                by = "" if resource == hold.device else f", by {hold.device}"
                holders.setdefault(resource, []).append(f"{_holder(grant)}{by}")
    return {device.id: tuple(dict.fromkeys(holders.get(device.id, ()))) for device in devices}


def _holder(grant: Grant) -> str:
    """Return the holder for people: a request of an executable, or a pod."""
    from ..allocation.holds import pod_holds  # here: it needs SQLite

    if pod_holds.is_ours(grant.key):
        return f"pod ({grant.key.plugin} {grant.key.request_id})"
    if pod_holds.is_dra(grant.key):
        return pod_holds.claim_text(grant.key)
    return f"request {grant.key.request_id} ({grant.key.resource_type}/{grant.key.plugin})"
