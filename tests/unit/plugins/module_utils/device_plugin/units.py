# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with device nodes, a spec of them and a ledger, for what hands them out; and programs of root's alone."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds.pod_holds import unit_key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import GrantPart
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import (
    AllocateFailed,
    Allocator,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.delivery import Delivery
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import configuration
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import Resource, offer
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry
from ansible_collections.fleet.cdi.tests.unit.builders import nodes, spec

NAME = "vendor.com/gpu"
BY_NAME = Delivery(True, False, False)


class Host:
    """Below `directory`: /dev/gpu0 and so on in a root of its own, one spec, a ledger of boot `boot`."""

    def __init__(self, directory: Path, number: int = 4, boot: str = "boot-1", **resource: Any) -> None:
        if os.geteuid() != 0:
            pytest.skip("only root can make device nodes")
        self.directory = directory
        self.root = directory / "root"
        self.specs = directory / "cdi"
        self.state = directory / "state"
        self.log = directory / "log"
        (self.root / "dev").mkdir(parents=True, exist_ok=True)
        self.specs.mkdir(exist_ok=True)
        self.resource_settings = resource
        for index in range(number):
            self.plug(index)
        self.write({str(index): f"/dev/gpu{index}" for index in range(number)})
        self.reboot(boot)

    def reboot(self, boot: str) -> None:
        """Begin anew with what is on disk."""
        self.ledger = Ledger(str(self.state), boot)
        self.allocator = Allocator(self.ledger, str(self.root))

    def plug(self, index: int, minor: int = 0) -> None:
        """Make a device node; its numbers are those of a device that any machine has."""
        path = self.root / f"dev/gpu{index}"
        if not path.exists():
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor or 3 + index))

    def unplug(self, index: int) -> None:
        """Remove it."""
        (self.root / f"dev/gpu{index}").unlink()

    def write(self, devices: dict[str, str], edits: dict[str, Any] | None = None, **more: Any) -> None:
        """The spec: device name -> path of its node. And look at it, as the daemon does."""
        self.replace(devices, edits, **more)
        self.look()

    def replace(
        self,
        devices: dict[str, str],
        edits: dict[str, Any] | None = None,
        name: str = "gpu.json",
        more: dict[str, Any] | None = None,
    ) -> None:
        """Only put the spec there, which nobody has looked at yet. `more`: device name -> its edits."""
        each = {one: nodes(path) for one, path in devices.items()}
        document = spec({**each, **(more or {})}, NAME, "1.1.0", containerEdits=edits or {"env": ["GPU=1"]})
        new = self.specs / f".{name}.new"
        new.write_text(json.dumps(document))
        new.rename(self.specs / name)

    def look(self) -> None:
        """Read specs, and make the offer."""
        settings = configuration.parse({"version": 1, "resources": {NAME: self.resource_settings}}, "test")
        self.registry = registry.load([str(self.specs)])
        self.resource: Resource = offer(settings, self.registry).resources[0]

    def allocate(self, *ids: str, ways: Delivery = BY_NAME, unhealthy: dict[str, str] | None = None) -> Any:
        """The response."""
        (response,) = self.allocator.allocate(self.resource, [ids], self.registry, ways, unhealthy)
        return response

    def refused(self, *ids: str, **more: Any) -> tuple[str, dict[str, str]]:
        """The text of the refusal, and the units that are in trouble."""
        with pytest.raises(AllocateFailed) as refused:
            self.allocate(*ids, **more)
        assert "\n" not in str(refused.value)
        return str(refused.value), refused.value.troubles

    def part(self, unit: str) -> GrantPart | None:
        """The hold on a unit."""
        found = self.ledger.find(unit_key(NAME, unit))
        assert found is None or len(found.parts) == 1
        return found.parts[0] if found else None

    def state_of(self, unit: str) -> str:
        """What the ledger says of a unit."""
        found = self.part(unit)
        return found.state if found else "free"

    def ran(self) -> list[str]:
        """The lines that the commands wrote, in any order of those that ran together."""
        return sorted(self.log.read_text().split("\n")[:-1]) if self.log.exists() else []


def run(scene: Coroutine[Any, Any, Any]) -> Any:
    """Run a scene in the event loop of the test (fixture `loop`), as asyncio.run does in one of its own.

    Before Python 3.10 an asyncio.Event or Lock belongs to the loop that was the current one when it was made.
    """
    current = asyncio.get_event_loop()
    try:
        return current.run_until_complete(scene)
    finally:
        left = asyncio.all_tasks(current)
        for task in left:
            task.cancel()
        current.run_until_complete(asyncio.gather(*left, return_exceptions=True))
