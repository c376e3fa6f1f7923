# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of the product as a host calls them, in this process.

`seams` puts the world where the product would start a process or ask another program: executables, setup commands,
Slurm, /proc of containers, the kubelet's messages. All else is the product's own code.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Optional

from host import KIND, PLUGIN, SLOTS, VERSION, Host, config
from oracle import Broken

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.commands import setup
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import commands, delete
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate import delivery
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.allocate import Allocator
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.dra_keeper import Keeper
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.allocate.reclaim import LONG, Reclaimer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config.configuration import PluginSettings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.daemon.observer import NodeView, Viewer
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.kubelet.podresources import InUse
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer.resources import OfferedUnit, Resource
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.hooks import claim_user
from ansible_collections.fleet.cdi.plugins.module_utils.protocol import errors, plugin_call
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.errors import ProtocolError
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.messages import error_in
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.plugin_call import Reply
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.versions import VERSIONS
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect
from ansible_collections.fleet.cdi.plugins.module_utils.slurm import job_claim
from ansible_collections.fleet.cdi.plugins.module_utils.slurm.programs import SlurmPrograms
from ansible_collections.fleet.cdi.plugins.module_utils.system import control_group, process_mark

GRACE = 30.0  # seconds of the device plugin's configuration
LONGEST = GRACE * LONG + 1
RESOURCE = KIND


class Answer(NamedTuple):
    """The reply of an executable."""

    status: int
    document: Optional[dict[str, Any]]

    @property
    def error(self) -> int:
        """Return the code of the error; 0 without one."""
        return int((self.document or {}).get("error", 0))


class Programs:
    """The programs of one host. `failing`: setup and teardown commands may fail now; `failed` has those that did."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.failing = False
        self.failed: list[str] = []
        self.caller = Caller(os.path.join(host.places.prefix, "bin"))
        self.gres: list[tuple[str, str]] = []  # type and node of each card that Slurm knows

    # -- executables -------------------------------------------------------------------------------

    def executable(self, command: str, type_: str, request_id: str, amount: int = 0) -> Answer:
        """Call an executable. Raises Broken if it had to say that it did not expect an error."""
        variables = {"CDI_COMMAND": command, "CDI_VERSION": VERSION, "CDI_REQUEST_ID": request_id}
        if amount:
            variables["CDI_REQUEST"] = f"{type_}:{amount}"
        return self._answer(variables, json.dumps(config(type_)).encode())

    def _answer(self, variables: dict[str, str], content: bytes) -> Answer:
        status, reply, _undo = commands.answer(PLUGIN, variables, self.host.places, lambda: content)
        document = json.loads(reply) if reply else None
        if (document or {}).get("error") == errors.INTERNAL:
            raise Broken(f"traceback: {variables} replied {document}")
        return Answer(status, document)

    def plugin(self, path: str, variables: dict[str, str], content: bytes, *_more: Any) -> Reply:
        """Stand for protocol/plugin_call.plugin: start an executable."""
        if variables["CDI_COMMAND"] == "VERSION":
            return Reply(0, {"cdiVersion": VERSIONS[-1], "supportedVersions": [*VERSIONS]}, None, '""')
        assert os.path.basename(path) == PLUGIN, path
        answer = self.host.kernel.run_plugin(lambda: self._answer({**variables}, content))
        if answer is None:
            return Reply(-9, None, None, '""')
        return Reply(answer.status, answer.document, error_in(answer.document) if answer.document else None, '""')

    def command(self, code: int, command: Sequence[str], _variables: Any, _limit: float) -> None:
        """Stand for allocation/commands/setup.run: a setup or teardown, which may fail. Raises ProtocolError."""
        self.host.kernel.enter("command")
        if self.failing and self.host.chance.random() < 0.3:
            self.failed.append(command[0])
            in_use = code == errors.SETUP and self.host.chance.random() < 0.3
            raise (setup.DeviceInUse if in_use else ProtocolError)(code, f"{command[0]}: failed")

    # -- others ------------------------------------------------------------------------------------

    def slurmd(self, *words: str) -> str:
        """Stand for SlurmPrograms.ask: what `slurmd -G` prints."""
        assert words[:2] == ("slurmd", "-G"), words
        return "".join(
            f"slurmd: Gres Name=gpu Type={type_} Count=1 Index={index} ID=7696487 File={path} Links=(null)\n"
            for index, (type_, path) in enumerate(self.gres)
        )

    def ledger(self) -> Ledger:
        """Return the ledger for one call."""
        return Ledger(self.host.places.state_dir, self.host.kernel.boot_id)


class DevicePlugin:
    """A process of the device plugin, without its sockets: it looks, allocates and reclaims."""

    def __init__(self, host: Host) -> None:
        places = host.places
        self.host = host
        self.ledger = Ledger(places.state_dir, host.kernel.boot_id, keep=True)
        self.keeper = Keeper(self.ledger)
        self.settings = PluginSettings(
            occupied="ignore",
            grace=GRACE,
            spec_dirs=places.spec_dirs,
            inventory=places.inventory,
            state_dir=places.state_dir,
            run_dir=places.run_dir,
            root=places.root,
        )
        self.viewer = Viewer(self.settings, self.ledger, self.keeper)
        self.reclaimer = Reclaimer(self.ledger, GRACE, {})
        self.allocator = Allocator(self.ledger, places.root)
        self.view: Optional[NodeView] = None

    def die(self) -> None:
        """The kernel closes the store of a process that is killed."""
        self.ledger._store._close()

    def look(self) -> NodeView:
        """Look at the host, as after each change."""
        self.view = self.viewer.look()
        return self.view

    def resource(self) -> Optional[Resource]:
        """Return the resource of the cards, as the last look has it."""
        found = self.view.offer.resources if self.view else ()
        return next((one for one in found if one.name == RESOURCE), None)

    def healthy(self) -> list[OfferedUnit]:
        """Return the units that the kubelet may grant, by the last look."""
        resource = self.resource()
        if resource is None or self.view is None:
            return []
        ill = self.view.troubles.get(RESOURCE, {})
        return [unit for unit in resource.units if unit.id not in ill]

    def allocate(self, units: Sequence[str]) -> list[Any]:
        """Answer Allocate for one container. Raises AllocateFailed."""
        resource = self.resource()
        assert resource is not None and self.view is not None
        return self.allocator.allocate(resource, [units], self.view.registry, delivery.FIXED["cdi"])

    def step(self, in_use: InUse) -> None:
        """Compare with podresources, as the daemon does every few seconds."""
        now = self.host.kernel.since_boot()
        self.reclaimer.step(self.view.offer.resources if self.view else (), in_use, now)
        self.keeper.step(in_use, now, GRACE)


@contextmanager
def patched(patches: Sequence[tuple[Any, str, Any]]) -> Iterator[None]:
    """Replace attributes (owner, name, value) meanwhile."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _value in patches]
    for owner, name, value in patches:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


@contextmanager
def seams(programs: Programs) -> Iterator[None]:
    """Put the world in the places of other programs and of /proc."""
    kernel, host = programs.host.kernel, programs.host
    real = [
        (plugin_call, "plugin", programs.plugin),
        (setup, "run", programs.command),
        (job_claim, "WAIT", 0.3),  # seconds: two tries instead of forty, of which each costs as much as a claim
        (SlurmPrograms, "ask", programs.slurmd),
        (process_mark, "process_mark", kernel.mark),
        (process_mark, "runs", kernel.runs),
        (claim_user, "process_mark", kernel.mark),
        (claim_user, "container_process", lambda state: (state.split(":")[0], int(state.split(":")[1]))),
        (control_group, "running_containers", lambda _ids: set()),
        (delivery, "response", lambda _ways, _resource, names, _expanded: [*names]),
        (detect, "detect", lambda _path: detect.named({})),
        (os, "register_at_fork", lambda **_calls: None),  # nothing forks, and it would keep each device plugin for good
        (delete, "complain", lambda _text: None),
        (inventory.boot_id, "__defaults__", (host.places.root,)),
    ]
    with patched(real):
        yield


def known_cards(host: Host) -> list[tuple[str, str]]:
    """Return what gres.conf says: a type for each slot, and the node of its card."""
    return [(f"slot{slot}", host.render_node(slot)) for slot in range(SLOTS) if slot in host.present]
