# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's setup and teardown commands, for the units of a resource that change hands. Private API of fleet.cdi.

The device plugin proposal's "gpu cleanup", "scrubbing"; the same commands, in the same environment, as an executable
runs (docs/executables.md, "Setup and teardown"): resource-type `kubernetes`, the resource as plugin, the unit as
request-id. One call for each unit, so that it is known which one failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.handover import key_of
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import ResourceSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import Unit
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.trouble import reason
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.versions import VERSIONS
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device

AT_ONCE = 16  # processes
NODE = "node:"  # before the path of a device node, where that is all that is known of the hardware

# What is done -> the CDI_COMMAND that it belongs to, the code of its failure.
STEPS = {"setup": ("ADD", errors.SETUP), "teardown": ("DEL", errors.TEARDOWN)}

Subjects = Mapping[str, tuple[str, tuple[str, ...]]]  # unit id -> Device.id, paths of its device nodes


def subjects(units: Iterable[Unit]) -> Subjects:
    """What the commands are told of these units."""
    return {unit.id: about(unit.device) for unit in units}


def about(device: Device) -> tuple[str, tuple[str, ...]]:
    """What the commands are told of a device. One that only a spec knows has its nodes as ids (offer.py)."""
    own = [name[len(NODE) :] for name in (device.id, *device.consists_of) if name.startswith(NODE)]
    return device.id, tuple(dict.fromkeys([*(node.path for node in device.nodes), *own]))


def run(settings: ResourceSettings, what: str, units: Subjects) -> dict[str, str]:
    """Run the `setup` or `teardown` of a resource for each of `units`, at the same time: unit id -> why it failed.

    Nothing to run is no failure. Of AT_ONCE units this takes `settings.time_limit`, or little more. Raises nothing.
    """
    command = {"setup": settings.setup, "teardown": settings.teardown}[what]
    if not command or not units:
        return {}
    # Here, as what runs commands costs memory that most nodes have no use for.
    from ansible_collections.fleet.cdi.plugins.module_utils.allocation import setup

    verb, code = STEPS[what]

    def one(unit: str) -> str:
        device, paths = units[unit]
        told = setup.variables(VERSIONS[-1], verb, key_of(settings.name, unit), [device], paths)
        try:
            setup.run(code, command, told, settings.time_limit)
        except ProtocolError as error:
            return reason(what, error.details)
        except OSError as error:
            return reason(what, f"{command[0]}: {error}")
        return ""

    with ThreadPoolExecutor(min(len(units), AT_ONCE)) as pool:
        return {unit: why for unit, why in zip(units, pool.map(one, units)) if why}
