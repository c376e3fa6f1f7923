# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The subjects: the careless control, and ours."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import careless
import driver
import holder
import reader
from subject import BOOT, NODES, RESOURCE_TYPE, VERSION, Call, Place, Subject

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import WAIT
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import commands
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import pool_path
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node
from ansible_collections.fleet.cdi.plugins.module_utils.release import launcher

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable  # the one that hosts have
HERE = Path(__file__).resolve().parent


def careless_inventory(place: Place, devices: int) -> None:
    """What the control reads of an inventory."""
    rows = [{"id": f"mem:{name}", "nodes": [{"path": f"/dev/{name}"}]} for name in list(NODES)[:devices]]
    place.inventory.write_text(json.dumps({"devices": rows}))


CARELESS = Subject(
    name="careless",
    command=lambda place, _call: [
        PYTHON,
        "-I",
        "-S",
        str(HERE / "careless.py"),
        str(place.state),
        str(place.inventory),
    ],
    answer=lambda place, environment, config: careless.answer(
        [str(place.state), str(place.inventory)], environment, config
    ),
    read=reader.careless,
    prepare=careless_inventory,
    config=lambda _place: "{}",
    collects=False,
    slow=False,
    limit=1.0,
    locks=("lock",),
)


def mem_inventory(place: Place, devices: int) -> None:
    """Devices of the kernel's own, which exist everywhere."""
    found = tuple(
        Device(f"mem:{name}", "rule", "fault.test/accel", (name,), (Node(f"/dev/{name}", "c", 1, minor),))
        for name, minor in list(NODES.items())[:devices]
    )
    place.inventory.write_bytes(inventory.render(inventory.Inventory(found), BOOT))


def _driver(place: Place) -> list[str]:
    return [str(place.state), str(place.inventory), BOOT]


LEDGER = Subject(
    name="ledger",
    command=lambda place, _call: [PYTHON, "-I", "-S", str(HERE / "driver.py"), *_driver(place)],
    answer=lambda place, environment, config: driver.answer(_driver(place), environment, config),
    read=reader.ours,
    prepare=mem_inventory,
    config=lambda _place: "{}",
    collects=True,
    slow=False,
    limit=driver.WAIT,
    locks=("ledger.lock",),
)


# The holds of the kubelet's device plugin.
HOLDS = LEDGER._replace(
    name="holds",
    command=lambda place, _call: [PYTHON, "-I", "-S", str(HERE / "holder.py"), *_driver(place)],
    answer=lambda place, environment, config: holder.answer(_driver(place), environment, config),
    limit=4 * driver.WAIT,  # a call is up to four transactions, of which each may wait
    holds=(Call("ADD", "b", 2), Call("ADD", "b", 2), Call("ADOPT", "b"), Call("ADOPT", "f"), Call("DEL", "b")),
)

# A control: as they should not be, durable, and not all or nothing.
HASTY = HOLDS._replace(
    name="hasty holds",
    command=lambda place, call: [*HOLDS.command(place, call), "hasty"],
    answer=lambda place, environment, config: holder.answer([*_driver(place), "hasty"], environment, config),
    holds=HOLDS.holds[:2],
)

PLUGIN = "rule"
TRUE = "/bin/true"
ARGS = {"occupied": "ignore"}  # the nodes of its devices are the machine's own, which many processes have open
CONFIG = {"cdiVersion": VERSION, "name": "of a test", "type": RESOURCE_TYPE, "plugin": PLUGIN, "args": ARGS}


def layout(place: Place) -> Layout:
    """The directories of the host that a place is."""
    specs = (str(place.root / "cdi"),)
    return Layout(str(place.state), str(place.inventory), prefix=str(place.root / "opt"), spec_dirs=specs)


def _pool(place: Place, devices: int) -> None:
    """The pool of the configuration, as refresh writes it."""
    mem_inventory(place, devices)
    path = pool_path(str(place.inventory), RESOURCE_TYPE, PLUGIN, ARGS)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    Path(path).write_bytes(place.inventory.read_bytes())


def _executable(place: Place, call: Call) -> list[str]:
    """/opt/cdi/bin/<plugin> as a release has it, beside the checkout's code; the driver for what it can't do."""
    if call.command not in ("ADD", "DEL"):
        return LEDGER.command(place, call)
    return [PYTHON, "-I", "-S", install(place, PLUGIN)]


def install(place: Place, name: str) -> str:
    """Write one of a release's launchers, beside the checkout's code; return its path."""
    code = place.root / "opt/ansible_collections"
    path = place.root / "opt/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not code.is_symlink():
        code.symlink_to(HERE.parents[1] / "build/pythonpath/ansible_collections")
    path.write_text(launcher.texts(PYTHON, layout(place)._asdict())[name])
    path.chmod(0o755)
    return str(path)


def _executed(place: Place, environment: Mapping[str, str], config: str) -> tuple[int, str]:
    if environment["CDI_COMMAND"] not in ("ADD", "DEL"):
        return LEDGER.answer(place, environment, config)
    status, reply, _undo = commands.answer(PLUGIN, environment, layout(place), config.encode)
    return status, reply.decode()


EXECUTABLE = Subject(
    name="executable",
    command=_executable,
    answer=_executed,
    read=reader.ours,
    prepare=_pool,
    config=lambda _place: json.dumps(CONFIG),
    collects=True,
    slow=True,
    limit=WAIT,
    locks=("ledger.lock",),
)

# The same with commands to run: its grants go through `pending` and `withheld`, its calls take turns.
SETUP = EXECUTABLE._replace(
    name="with setup",
    config=lambda _place: json.dumps({**CONFIG, "args": {**ARGS, "setup": [TRUE], "teardown": [TRUE]}}),
)
