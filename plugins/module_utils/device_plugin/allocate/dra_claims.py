# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find the hardware that claims of DRA drivers have, by the specs and by the kubelet's list.

This works for drivers of any vendor. Most write a transient spec when they prepare a claim, named by the claim's UID,
and remove it with the claim: while the file exists, the claim has the devices in it. Other drivers give their claims
devices of a permanent spec: then only the kubelet's list shows them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

from ...allocation.holds.dra_holds import UNNAMED, Claim, claim_key, disjoint, kind_of
from ...allocation.holds.owners import Owners, finest
from ...allocation.holds.pod_holds import claim_text
from ...allocation.ledger.grant import hold_of
from ...discovery.inventory import Inventory
from ...records import Device
from ...safe_text import one_line
from ...spec.items import items_of
from ...spec.names import AGGREGATES, foreign_claim, named_uid
from ...spec.registry import Registry
from ...spec.same_nodes import spec_node
from ...system.device_nodes import Numbers
from ..kubelet.podresources import ListedClaim
from ..offer import resources

LONGEST = 253  # characters of the name of a driver, namespace or claim: the limit of an API server


class ClaimsFound(NamedTuple):
    """The claims at one moment."""

    claims: tuple[Claim, ...] = ()  # by key
    unknown: tuple[str, ...] = ()  # why a claim's hardware is not known, one text for each claim


class ClaimRegistry:
    """Index specs and inventory for claims."""

    def __init__(self, registry: Registry, inventory: Optional[Inventory]) -> None:
        self._registry = registry
        self._inventory = inventory
        self._hardware: Optional[_Hardware] = None
        self.edits: dict[str, Mapping[str, Any]] = {}  # qualified name of a claim's device -> its edits
        self.of_uid: dict[tuple[str, str], list[str]] = {}  # (driver, UID) -> qualified names
        for file in registry.specs:
            claim = foreign_claim(file.path, file.spec["kind"])
            if claim:
                self.of_uid.setdefault(claim, []).extend(file.qualified_names)
                for name, device in zip(file.qualified_names, file.spec["devices"]):
                    self.edits[name] = device["containerEdits"]
        self.uids = frozenset(filter(None, map(named_uid, registry.broken))) | {uid for _driver, uid in self.of_uid}
        self.complete = not any(one in registry.errors for one in registry.directories)  # False: specs may be missing

    def claims(self, listed: Sequence[ListedClaim]) -> ClaimsFound:
        """Return all claims that the specs show or the kubelet `listed`."""
        found: dict[tuple[str, str], set[str]] = {}
        shown = {name: key for key, names in self.of_uid.items() for name in names}
        named: set[tuple[str, str]] = set()
        unknown = []
        for one in listed:
            mine = {shown[name] for name in one.names if name in shown}
            named |= mine
            names = {*one.names, *(name for key in mine for name in self.of_uid[key])}
            lost = sorted(one_line(name)[:LONGEST] for name in names if not self._has(name))
            driver, claim = one_line(one.driver)[:LONGEST], one_line(one.claim)[: 2 * LONGEST + 1]
            found.setdefault((driver, claim), set()).update(filter(self._has, names))
            if lost:
                unknown.append(
                    f"claim {claim} of DRA driver {driver} has {lost[0]}, which no spec that can be read gives"
                )
        for (driver, uid), shown_names in self.of_uid.items():
            if (driver, uid) not in named:
                found.setdefault((driver, f"{UNNAMED}{uid}"), set()).update(shown_names)
        claims = [self._claim(driver, claim, sorted(names)) for (driver, claim), names in sorted(found.items())]
        return ClaimsFound(tuple(claims), tuple(unknown))

    def shows(self, names: Iterable[str]) -> bool:
        """Tell if the specs still show the claim that has these CDI devices."""
        return any(name in self.edits or any(uid in name for uid in self.uids) for name in names)

    def _has(self, name: str) -> bool:
        return name in self.edits or name in self._registry.edits

    def _claim(self, driver: str, claim: str, names: Sequence[str]) -> Claim:
        if self._hardware is None:  # made here, as few hosts have claims
            self._hardware = _Hardware(self._registry, self._inventory)
        devices: dict[str, Device] = {}
        for name in names:
            if name.partition("=")[2] not in AGGREGATES:  # "all" does not mean that a claim has all devices of the host
                edits = self.edits.get(name) or self._registry.edits.get(name, {})
                devices.update((one.id, one) for one in self._hardware.of(items_of(edits, self._registry.same)))
        holds = (hold_of(device)._replace(kind=kind_of(driver)) for _id, device in sorted(devices.items()))
        return Claim(claim_key(driver, claim), tuple(names), disjoint(holds))


def nodes_in_claims(registry: Registry, at: Callable[[str], Optional[Numbers]]) -> dict[Union[str, Numbers, None], str]:
    """Map each path and each device in a transient spec to its claim, in words; also nodes that a whole family shares.

    `at` returns the device at a path of the host.
    """
    known = ClaimRegistry(registry, None)
    found: dict[Union[str, Numbers, None], str] = {}
    for (driver, uid), names in known.of_uid.items():
        text = claim_text(claim_key(driver, f"{UNNAMED}{uid}"))
        for edits in map(known.edits.__getitem__, names):
            found.update((item.partition(":")[2], text) for item in items_of(edits))
            for path, given in map(spec_node, edits.get("deviceNodes") or ()):
                found[given or at(path)] = text
    found.pop(None, None)
    return found


class _Hardware:
    """Find the devices of a node or network interface, as the ledger locks them for other holders."""

    def __init__(self, registry: Registry, inventory: Optional[Inventory]) -> None:
        self._owners = Owners(inventory.devices if inventory else ())
        self._made: dict[str, dict[str, Device]] = {}  # item -> id -> device that only specs know
        self._shared: set[str] = set()  # items that several of these devices have
        self._units: dict[str, list[tuple[frozenset[str], Device]]] = {}  # item -> all items of a unit, the unit
        for one in resources.known(registry, inventory):
            whole = frozenset(one.identity.own)
            for item in one.identity.own:
                self._units.setdefault(item, []).append((whole, one.device))
                if self._owners.records.keys().isdisjoint([one.device.id, *one.device.consists_of]):
                    self._made.setdefault(item, {})[one.device.id] = one.device
            self._shared.update(one.identity.above)

    def of(self, items: Collection[str]) -> list[Device]:
        """Return the devices that have some of the items. Nodes of a whole family, as /dev/kfd, don't count."""
        wanted = frozenset(items)
        found: dict[str, Device] = {}
        for item in sorted(wanted):
            found.update((unit.id, unit) for own, unit in self._units.get(item, ()) if own <= wanted)
            if item in self._owners.items:
                found.update((device.id, device) for device in self._owners.of(item))
            else:
                found.update(self._made.get(item, {}))
        if not found and wanted <= self._shared.union(
            self._owners.items
        ):  # the parent of partitions, of which only the partitions are known
            found = {item: Device(item, "", "", (), ()) for item in sorted(wanted & self._shared)}
        return finest(found.values())
