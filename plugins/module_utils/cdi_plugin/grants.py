# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's work on grants, besides ADD and DEL: list, check, collect, release."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Optional

from ..allocation.commands import turns
from ..allocation.holds import collect, report
from ..allocation.holds.collect import Collected
from ..allocation.holds.pod_holds import holder, is_kept
from ..allocation.holds.report import GrantProblem, Info
from ..allocation.ledger import schema
from ..allocation.ledger.grant import Grant, Hold, Key
from ..allocation.ledger.ledger import Ledger
from ..allocation.ledger.lock_file import has_traces
from ..allocation.ledger.migrate import migrate
from ..claims.store import claimed_requests
from ..discovery import device_lookup, inventory
from ..discovery.inventory import Inventory
from ..layout import Layout
from ..protocol.configurations import DIRECTORY, find, may_be_of
from ..protocol.plugin_args import settings
from ..protocol.pools import pool_path
from ..records import NODE, CdiError, Device, Node, items
from ..schema import unknown
from ..spec.names import split_kind
from ..spec.registry import load
from ..system import openers
from ..system.occupied import Occupied, numbers, occupied, own_nodes
from . import chain
from .call import Call
from .valid_requests import ValidRequests, parse, stamp


class GrantsView(NamedTuple):
    """All grants, and the problems found in them."""

    info: Info
    grants: tuple[Grant, ...]
    problems: tuple[tuple[Key, GrantProblem], ...]
    reports: tuple[str, ...]  # what the ledger repaired when it was opened
    proved: dict[str, Optional[bool]]  # token of a part -> Part.proved; None where the kubelet chose its devices


class Open(NamedTuple):
    """A device that processes have open, and its holders: () if no grant holds it."""

    occupied: Occupied
    holders: tuple[str, ...]
    expected: bool  # all its openers are programs that open devices without using them


class Operator:
    """The ledger of a host, and the configurations of its grants."""

    def __init__(self, host: Layout, config_dirs: Iterable[str] = (DIRECTORY,)) -> None:
        self.host = host
        self.boot_id = inventory.boot_id(host.root)
        self.ledger = Ledger(host.state_dir, self.boot_id)
        found = [find(config_dir) for config_dir in config_dirs]
        self.configurations = [one for part in found for one in part.configurations]
        self.unread = {path: error for part in found for path, error in part.errors.items()}

    def ledger_is_new(self) -> bool:
        """Return True if the host has no store of grants, and no file that tells of an earlier one."""
        return not has_traces(self.ledger.path)

    def look(self) -> GrantsView:
        """Return all grants, checked against the inventory and the pools. Raises CdiError."""
        info = report.info(self.ledger)
        grants = tuple(self.ledger.grants())
        present = self._present()
        problems = []
        for grant in grants:
            found = report.check_grant(grant, self.boot_id, present)
            # The device plugin also hands out devices of foreign specs, and checks them itself.
            elsewhere = is_kept(grant.key)
            problems += [(grant.key, one) for one in found if not (elsewhere and one.code == "missing")]
        proved = {part.token: None if is_kept(grant.key) else part.proved for grant in grants for part in grant.parts}
        return GrantsView(info, grants, tuple(problems), tuple(self.ledger.reports), proved)

    def open(self, grants: Iterable[Grant]) -> tuple[list[Open], str]:
        """Return (the devices that processes have open, what the look may have missed).

        Covers the devices of the inventories, and others that the device plugin holds by their nodes.
        """
        holders: dict[str, list[str]] = {}
        for grant in grants:
            for part in grant.parts:
                for locked in (name for hold in part.holds for name in hold.locks()):
                    holders.setdefault(locked, []).append(holder(grant.key, part))
        found = self._inventories()
        devices = [device for one in found for device in one.devices]
        known = {(node.type, node.major, node.minor) for device in devices for node in device.nodes}
        devices += [one for one in map(_of_item, holders) if one and one.nodes[0][1:4] not in known]
        nodes = own_nodes(devices, [node for one in found for kind in one.kinds for node in kind.edits.nodes])
        seen = openers.look(numbers(nodes))
        unexpected = occupied(nodes, seen, openers.EXPECTED)
        made = [
            Open(one, _of(holders, name, *items([one.path])), name not in unexpected)
            for name, one in sorted({**occupied(nodes, seen), **unexpected}.items())
        ]
        return made, seen.gaps

    def stamp(self) -> str:
        """Return the first line for a list of valid requests that is made from now on."""
        return stamp(self.boot_id, self.ledger.now())

    def valid(self, text: str) -> ValidRequests:
        """Parse the list of valid requests in `text`. Raises CdiError if it lacks a stamp of this boot."""
        return parse(text, self.boot_id, self.ledger.now())

    def collect(self, valid: ValidRequests, force: bool, complete: bool, check: bool = False) -> Collected:
        """Tear down and free grants that are older than `valid` and not in it, but those of claims.

        With `check`, only tell which. Raises CdiError.
        """
        return collect.gc(
            self.ledger,
            valid.requests,
            valid.as_of,
            force=force,
            complete=complete,
            check=check,
            teardown=self._tear_down,
            claimed=claimed_requests(self.host.state_dir),  # a claim that comes later is newer than the list
        )

    def release(self, name: str) -> Optional[Hold]:
        """Let a withheld device be granted again. Return None if it was not withheld. Raises CdiError."""
        held = {hold.device for grant in self.ledger.grants() for hold in grant.holds}
        records = [device for one in self._inventories() for device in one.devices]
        device = device_lookup.find(name, records, held)
        return self.ledger.release(device.id if device else name)

    def accept_loss(self) -> bool:
        """Allow grants again after some may have been lost. Return False if they were allowed. Raises CdiError."""
        return self.ledger.accept_loss()

    def migrate(self) -> tuple[int, int]:
        """Bring the store to the schema of this release. Return (version before, version now). Raises CdiError."""
        before, now = (schema.versions(found)[0] for found in migrate(self.ledger))
        return before, now

    def check_kind(self, kind: str) -> None:
        """Raise CdiError for a kind that no spec, no inventory and no owner has: a misspelt one protects no device.

        A host that has no kind at all takes each: its devices may come later.
        """
        split_kind(kind)
        known = {name.partition("=")[0] for name in load(self.host.spec_dirs).devices}
        known.update(device.kind for device in self.devices())
        if known and kind not in known and kind not in self.ledger.owners():
            raise CdiError(f"give: {unknown('kind', kind, sorted(known))}")

    def give(self, kind: str, owners: Collection[str]) -> None:
        """Set the owner of a kind, several that share it, or none. Raises CdiError."""
        split_kind(kind)
        self.ledger.set_owners(kind, owners)

    def _present(self) -> dict[str, str]:
        """Return the devices known in this boot: id -> unique id."""
        return {device.id: device.unique for device in self.devices()}

    def devices(self) -> list[Device]:
        """Return the devices of the inventory and of the pools, each once."""
        return list({device.id: device for one in self._inventories() for device in one.devices}.values())

    def _inventories(self) -> list[Inventory]:
        """Return the inventory and the pools, without unreadable ones."""
        paths = [
            pool_path(self.host.inventory, one.config.type, one.config.plugin, one.config.args)
            for one in self.configurations
        ]
        found = []
        for path in (self.host.inventory, *paths):
            with suppress(CdiError):  # an unreadable file adds no devices
                found.append(inventory.read(path, self.boot_id))
        return found

    def _tear_down(self, grant: Grant) -> None:
        """Run the teardown of the configuration that made a grant. Does nothing if the configuration is gone.

        Raises CdiError if it may be one that can't be read.
        """
        found = [one for one in self.configurations if (one.config.type, one.config.plugin) == grant.key[:2]]
        for path, error in self.unread.items() if not found else ():
            if may_be_of(grant.key.resource_type, path):
                raise CdiError(f"{path}: {error}; expected the configuration that tells how the device is torn down")
        for one in found:
            wants = settings(one.config)
            if wants.commands:
                variables = {"CDI_REQUEST_ID": grant.key.request_id}
                version, plugin = one.config.version, one.config.plugin
                call = Call(plugin, version, "del", variables, one.config, wants, self.host, self.boot_id)
                with turns.turn(self.host.state_dir, [grant.key], wants.time_limit):  # a DEL may work on it, too
                    chain.back(call, [hold.device for hold in grant.holds], [])


def _of(holders: Mapping[str, Sequence[str]], *names: str) -> tuple[str, ...]:
    """Return the holders of hardware with any of these names."""
    return tuple(dict.fromkeys(one for name in names for one in holders.get(name, ())))


def _of_item(item: str) -> Optional[Device]:
    """Return the device of a hold that names only a device node ("node:/dev/x"), with the node's present numbers."""
    path = item[len(NODE) :] if item.startswith(NODE) else ""
    number = openers.number_of(path)
    return Device(item, "", "", (item,), (Node(path, *number),)) if number else None
