# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on devices that an earlier plugin of the chain picked, and keep no record (docs/chain-loading.md)."""

from __future__ import annotations

from typing import Any, Optional

from ..allocation.choosing.request import DeviceRequest
from ..allocation.ledger.errors import Unusable
from ..allocation.ledger.grant import PENDING, Grant, Key
from ..allocation.ledger.ledger import Ledger
from ..discovery.inventory import Inventory
from ..protocol import errors
from ..protocol.errors import ProtocolError
from ..protocol.plugin_args import Picked
from ..records import Device
from . import chain, devices
from .call import Call


def add_delegated(call: Call, pool: Inventory, asked: DeviceRequest, key: Key) -> dict[str, Any]:
    """Return the fields of the reply to an ADD. Raises ProtocolError; then the plugin that picked calls DEL."""
    picked = _picked(call)
    grant = _holder(call, key, picked)
    if grant is None:
        raise ProtocolError(
            errors.DELEGATION, f"args.picked: {picked.plugin} holds no such devices for request {key.request_id}"
        )
    mine = _on(pool, picked)
    for device in mine:
        for name, amount in asked.needs:
            if device.capacity.get(name, 0) < amount:
                raise ProtocolError(
                    errors.UNFULFILLED, f"{device.id}: has {device.capacity.get(name, 0)} {name}; asked for {amount}"
                )
    lost = devices.faults(mine, pool, call.host.root)
    if lost:
        raise ProtocolError(errors.UNFULFILLED, "; ".join(sorted(lost.values())))
    paths = [node.path for node in devices.nodes(mine, pool)]
    if call.settings.commands:
        fresh = any(part.state == PENDING for part in grant.parts)
        paths = chain.forward(call, picked.devices, paths, fresh)
    fields: dict[str, Any] = {"devices": paths}
    localities = devices.numa_nodes(mine)
    if localities:
        fields["numa_locality"] = localities
    return fields


def delete_delegated(call: Call, key: Key) -> None:
    """Tear down the picked devices. Frees nothing. Raises ProtocolError."""
    picked = _picked(call)
    if _holder(call, key, picked) is None:
        raise ProtocolError(errors.REQUEST_ID)
    if call.settings.commands:
        try:
            pool = call.pool()
            paths = [node.path for node in devices.nodes(_on(pool, picked), pool)]
        except ProtocolError:
            paths = []  # devices that are not known any more must not block the others
        chain.back(call, picked.devices, paths)


def _picked(call: Call) -> Picked:
    return call.settings.picked or Picked("", ())


def _holder(call: Call, key: Key, picked: Picked) -> Optional[Grant]:
    """Return the grant of the plugin that picked, under this request-id, or None unless it holds all picked devices.

    Without this check a caller could get any device by the claim that it was picked.
    """
    try:
        grant = Ledger(call.host.state_dir, call.boot_id).find(key._replace(plugin=picked.plugin))
    except Unusable as error:
        raise ProtocolError(errors.STORE, str(error)) from None
    held = {hold.device for hold in grant.holds} if grant else set()
    return grant if held.issuperset(picked.devices) else None


def _on(pool: Inventory, picked: Picked) -> list[Device]:
    """Return the picked devices and those on them. Raises ProtocolError 100 for a picked one without any here."""
    found: list[Device] = []
    seen = set()
    for device in pool.devices:
        on = {device.id, f"pci:{device.pci_address}"}.intersection(picked.devices)
        if on:
            found.append(device)
            seen |= on
    lacking = [one for one in picked.devices if one not in seen]
    if lacking:
        raise ProtocolError(errors.UNFULFILLED, f"{lacking[0]}: this plugin knows no device on it")
    return found
