# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the operator's setup and teardown commands for units with a new holder.

The device plugin proposal calls this "gpu cleanup" and "scrubbing". An executable runs the same commands in the same
environment (docs/executables.md, "Setup and teardown"): resource-type `kubernetes`, the resource as plugin, the unit as
request-id. Each unit has a call of its own, which shows the unit that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Optional

from ...allocation.holds.pod_holds import unit_key
from ...allocation.ledger.grant import Hold
from ...protocol import errors
from ...protocol.errors import ProtocolError
from ...protocol.versions import VERSIONS
from ...records import NODE, Device, items
from ..config.configuration import ResourceSettings
from ..config.faults import reason
from ..offer.resources import OfferedUnit

AT_ONCE = 16  # processes

# Step -> its CDI_COMMAND, the error code of its failure.
STEPS = {"setup": ("ADD", errors.SETUP), "teardown": ("DEL", errors.TEARDOWN)}

Subjects = Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]  # unit id -> Device.id, paths of device nodes


class CommandFailure(NamedTuple):
    """Why a command failed for a unit, and whether the device may be in an unknown state because of that."""

    why: str
    unclear: bool = True  # False: another owner has the device, and the command changed nothing


def subjects(units: Iterable[OfferedUnit]) -> Subjects:
    """Return the ids and device nodes of these units for the commands."""
    return {unit.id: about(unit.device) for unit in units}


def about(device: Device) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (ids, device nodes) of a device. A device that only a spec knows has its nodes as ids (hardware.py)."""
    own = [name[len(NODE) :] for name in (device.id, *device.consists_of) if name.startswith(NODE)]
    return (device.id,), tuple(dict.fromkeys([*(node.path for node in device.nodes), *own]))


def of_holds(holds: Mapping[str, Hold], units: Iterable[OfferedUnit]) -> Subjects:
    """Return the ids and device nodes of former holds (unit id -> hold) for a teardown; `units` are the present units.

    Since then a unit may mean another device, and a device may be another unit. For hardware without a unit now only
    the id is known. Exception: a device that only a spec knew, whose node a unit has now.
    """
    known = {unit.device.id: about(unit.device) for unit in units} if holds else {}

    def one(hold: Hold) -> tuple[tuple[str, ...], tuple[str, ...]]:
        now = [known[name] for name in (hold.device, *hold.consists_of) if name in known]
        ids = tuple(name for own, _paths in now for name in own)
        paths = tuple(dict.fromkeys(path for _own, own in now for path in own))
        there = hold.device in ids or hold.device in items(paths)
        return (ids if there else (hold.device, *ids)), paths

    return {name: one(hold) for name, hold in holds.items()}


def run_command(settings: ResourceSettings, what: str, units: Subjects) -> dict[str, CommandFailure]:
    """Run the `setup` or `teardown` of a resource for all `units` at once. Return unit id -> its failure.

    No command or no units: returns {}. AT_ONCE units take about `settings.time_limit` at most.
    """
    command = {"setup": settings.setup, "teardown": settings.teardown}[what]
    if not command or not units:
        return {}
    # Imported here: running commands costs memory, and most nodes run none.
    from ...allocation.commands import setup

    verb, code = STEPS[what]

    def one(unit: str) -> Optional[CommandFailure]:
        told = setup.variables(VERSIONS[-1], verb, unit_key(settings.name, unit), *units[unit])
        try:
            setup.run(code, command, told, settings.time_limit)
        except ProtocolError as error:
            return CommandFailure(reason(what, error.details), not isinstance(error, setup.DeviceInUse))
        except OSError as error:
            return CommandFailure(reason(what, f"{command[0]}: {error}"))
        return None

    with ThreadPoolExecutor(min(len(units), AT_ONCE)) as pool:
        return {unit: why for unit, why in zip(units, pool.map(one, units)) if why}
