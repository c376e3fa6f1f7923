# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices that an operator took out of service.

They are kept by their identity in `<state_dir>/device-state.json`, so that neither a reboot nor another number brings
one back. It is separate from the inventory, because a refresh can't find an operator's decision.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple, Optional

from .. import files, schema
from ..layout import device_state_path
from ..records import Device, Health

VERSION = 1


class Disabled(NamedTuple):
    """One device out of service. Times are UTC, as in 2026-11-21T15:20:00Z, so that they compare as text."""

    reason: str
    since: str
    until: str = ""  # "": until an operator enables it
    unique: str = ""  # its uuid or serial, so that another card in the same slot is not meant


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["devices"],
    "properties": {
        "devices": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": [name for name in Disabled._fields if name not in Disabled._field_defaults],
                "properties": {name: {"type": "string"} for name in Disabled._fields},
                "additionalProperties": False,
            },
        }
    },
}
REPAIR = "disable again what must not be used."


def read_disabled(state_dir: str) -> dict[str, Disabled]:
    """Device id -> what was decided, also where its time is over; empty if there is nothing. Raises CdiError."""
    path = device_state_path(state_dir)
    live = files.read(path)
    if live is None:
        return {}
    document = schema.own_document(live.content, path, VERSION, SCHEMA, REPAIR)
    return {name: Disabled(**fields) for name, fields in document["devices"].items()}


def render_disabled(devices: Mapping[str, Disabled]) -> Optional[bytes]:
    """The file's content; None (no file) where nothing is out of service."""
    if not devices:
        return None
    document: dict[str, Any] = {"version": VERSION, "devices": {name: one._asdict() for name, one in devices.items()}}
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def in_force(state_dir: str, clock: Callable[[], float] = time.time) -> dict[str, Disabled]:
    """Those whose time is not over yet. Raises CdiError."""
    now = moment(clock())
    return {name: one for name, one in read_disabled(state_dir).items() if not one.until or one.until > now}


def moment(seconds: float) -> str:
    """Convert seconds since the epoch to the format of this file."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def health_of(device: Device, devices: Mapping[str, Disabled]) -> Optional[Health]:
    """The health of a device that is out of service, or that is a part of one or holds one; None for the others."""
    for name in device.hardware:
        found = devices.get(name)
        if found is None or (name == device.id and found.unique and found.unique != device.unique):
            continue
        until = f"until {found.until}" if found.until else "until it is enabled"
        whose = "" if name == device.id else f" with {name}"
        return Health("reserved", f"out of service{whose} since {found.since}, {until}: {found.reason}")
    return None
