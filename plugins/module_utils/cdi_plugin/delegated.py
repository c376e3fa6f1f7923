# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin that another one delegated to: it works on devices that were picked, and keeps no record.

docs/chain-loading.md. Private API of fleet.cdi.
"""

from __future__ import annotations

from typing import Any, Optional

from ..allocation.choosing.request import DeviceRequest
from ..allocation.ledger.errors import Unusable
from ..allocation.ledger.grant import PENDING, Grant, Key
from ..allocation.ledger.ledger import Ledger
from ..discovery.inventory import Inventory
from ..protocol import errors
from ..protocol.errors import ProtocolError
from ..records import Device
from . import chain, devices
from .args import Picked
from .call import Call


def add_delegated(call: Call, pool: Inventory, asked: DeviceRequest, key: Key) -> dict[str, Any]:
    """The fields of the reply. Raises ProtocolError; the plugin that picked calls DEL then."""
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
    """Tear down what was picked; frees nothing. Raises ProtocolError."""
    picked = _picked(call)
    if _holder(call, key, picked) is None:
        raise ProtocolError(errors.REQUEST_ID)
    if call.settings.commands:
        try:
            pool = call.pool()
            paths = [node.path for node in devices.nodes(_on(pool, picked), pool)]
        except ProtocolError:
            paths = []  # what is not known any more must not keep the rest
        chain.back(call, picked.devices, paths)


def _picked(call: Call) -> Picked:
    return call.settings.picked or Picked("", ())


def _holder(call: Call, key: Key, picked: Picked) -> Optional[Grant]:
    """The grant of the plugin that picked, under the same request-id; None unless it holds all that was picked.

    Without this, whoever can call a plugin could get any device by saying that it was picked.
    """
    try:
        grant = Ledger(call.host.state_dir, call.boot_id).find(key._replace(plugin=picked.plugin))
    except Unusable as error:
        raise ProtocolError(errors.STORE, str(error)) from None
    held = {hold.device for hold in grant.holds} if grant else set()
    return grant if held.issuperset(picked.devices) else None


def _on(pool: Inventory, picked: Picked) -> list[Device]:
    """The devices that are, or sit on, what was picked. Raises ProtocolError 100 if one of those has none."""
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
