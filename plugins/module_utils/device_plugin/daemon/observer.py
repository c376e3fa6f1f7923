# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host as the daemon sees it at one moment: specs, inventory, devices, ledger. Private API of fleet.cdi.

Blocking; the daemon has a thread for it. What did not change is not read again: a registry of thousands of devices
takes longer to parse than all the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from ...allocation.ledger import filesystem
from ...allocation.ledger.ledger import Ledger
from ...discovery import inventory, out_of_service
from ...records import REFUSE, CdiError
from ...spec import registry as specs
from ..allocate.dra_claims import ClaimRegistry as Claims
from ..allocate.dra_keeper import Keeper, KeptClaims, by_specs
from ..config.configuration import PluginSettings
from ..config.faults import MOVED, class_of, reason
from ..health import held_elsewhere
from ..health.occupied_units import Lookout, choice, held_hardware, is_free
from ..health.probe import look
from ..offer.resources import Offer, Resource, offer
from ..process import garbage, watch
from . import inventories

# A host has some thousand inotify watches for everybody; what is in more directories is looked at in time.
MOST_DIRECTORIES = 256


class NodeView(NamedTuple):
    """What a look found."""

    registry: specs.Registry
    offer: Offer
    troubles: Mapping[str, Mapping[str, str]]  # resource -> unit id -> why it can't be had
    problems: Mapping[str, str]  # what could not be looked at -> why
    overlapping: frozenset[str] = frozenset()  # resources of which a hold makes devices of others Unhealthy
    directories: tuple[str, ...] = ()  # to follow: where what is offered has its device nodes and mounts
    warnings: tuple[str, ...] = ()  # about claims of DRA drivers


class Viewer:
    """Looks at the host that `settings` describe. With a `keeper` each look also holds what DRA claims have."""

    def __init__(
        self,
        settings: PluginSettings,
        ledger: Ledger,
        keeper: Optional[Keeper] = None,
        lookout: Optional[Lookout] = None,
    ) -> None:
        self.settings = settings
        self.keeper = keeper
        self._lookout = lookout or Lookout(settings.root)
        self._ledger = ledger
        self._claims: Optional[Claims] = None
        self._states: tuple[watch.State, ...] = ()
        self._known: Optional[NodeView] = None  # but for the troubles
        self._former: Optional[NodeView] = None  # kept until the next look: this thread is the last to let go of it
        self._held = held_elsewhere.LedgerView()  # as the ledger said last
        self._out: Mapping[str, out_of_service.Disabled] = {}  # as the file said last

    @garbage.none()
    def look(self) -> NodeView:
        """Look now. Raises nothing: what can't be read is one of `problems`, and the rest goes on."""
        self._let_go()
        view = self._offer()
        problems = dict(view.problems)
        try:
            self._out = out_of_service.in_force(self.settings.state_dir)
        except CdiError as error:
            problems["disabled"] = str(error)
        kept = by_specs(self._claims) if self._claims else KeptClaims()  # also where the ledger can't be used
        try:
            if self._claims and self.keeper:
                kept = self.keeper.look(self._claims)
            held = self._held = held_elsewhere.read_ledger(self._ledger)
            garbage.left(len(held.grants))
        except (CdiError, OSError) as error:
            problems["ledger"] = str(error)
            held = held_elsewhere.unread(self._held, error)
        troubles: dict[str, dict[str, str]] = {}
        for resource in view.offer.resources:
            found = troubles[resource.name] = held_elsewhere.taken(resource, held, kept.claims)
            for name, why in look(resource, view.registry, self.settings.root, self._out).items():
                if name not in found or class_of(why) not in MOVED:  # whoever has it has what moved
                    found[name] = why
        problems.update(self._occupied(view.offer.resources, held, troubles))
        return view._replace(troubles=troubles, problems=problems, warnings=kept.warnings)

    def _occupied(
        self, resources: Iterable[Resource], held: held_elsewhere.LedgerView, troubles: Mapping[str, dict[str, str]]
    ) -> dict[str, str]:
        """Add to `troubles` what processes have open, where that is refused; what of the processes can't be seen."""
        refusing = [one for one in resources if choice(one, self.settings) == REFUSE]
        if not refusing:
            return {}
        locked = held_hardware(held.grants)
        free = [
            (resource.name, unit)
            for resource in refusing
            for unit in resource.units
            if unit.id not in troubles[resource.name] and is_free(unit.device, locked)
        ]
        found = self._lookout.lately((unit for _name, unit in free), self.settings)
        for name, unit in free:
            if unit.device.id in found:
                troubles[name][unit.id] = reason("occupied", f"{found[unit.device.id]}, and nobody holds it")
        gaps = self._lookout.gaps
        return {"processes": f"who has devices open can't be told for sure: {gaps}"} if gaps else {}

    def subjects(self, view: Optional[NodeView] = None) -> list[watch.Subject]:
        """What to follow, so that the next look comes when it should; without a view, so that the first one does."""
        settings = self.settings
        folders = (*settings.spec_dirs, inventories.folder(settings.inventory))
        found = [watch.Subject(directory, watch.contents) for directory in folders]
        found += [
            watch.Subject(settings.inventory),
            watch.Subject(out_of_service.path_of(settings.state_dir)),
            watch.Subject(settings.state_dir, self._ledger.news),
        ]
        base = settings.root.rstrip("/")
        return found + [watch.Subject(base + one, watch.entries) for one in (view.directories if view else ())]

    def _offer(self) -> NodeView:
        settings = self.settings
        folders = (*settings.spec_dirs, inventories.folder(settings.inventory))
        states = (*map(watch.contents, folders), watch.state(settings.inventory))
        if self._known is None or states != self._states:
            registry = specs.load(settings.spec_dirs)
            found, problems = inventories.read_inventories(
                settings.inventory, inventory.boot_id(settings.root) or inventory.boot_id()
            )
            offered = offer(settings, registry, found)
            self._claims = Claims(registry, found)
            units = [unit for resource in offered.resources for unit in resource.units]
            directories = sorted({os.path.dirname(path) for unit in units for path in unit.paths})[:MOST_DIRECTORIES]
            directories = [one for one in directories if not _is_remote(settings.root.rstrip("/") + one)]
            overlapping = held_elsewhere.overlapping(offered.resources)
            problems.update(registry.errors)
            garbage.left(len(units))
            self._former = self._known
            self._known = NodeView(registry, offered, {}, problems, overlapping, tuple(directories))
            self._states = states
        return self._known

    def _let_go(self) -> None:
        """Free the former view piece by piece: all at once keeps the event loop waiting for Python's lock."""
        if self._former is not None:
            units = [unit for resource in self._former.offer.resources for unit in resource.units]
            parts = [*units, *(device for file in self._former.registry.specs for device in file.spec["devices"])]
            del units
            self._former = None
            while parts:
                parts.pop()


def _is_remote(directory: str) -> bool:
    """Whether it may hang with a server: who follows it would hang too, and hears nothing of it anyway."""
    kind = filesystem.type_of(directory)
    return kind in filesystem.NETWORK or kind == "autofs" or kind.startswith("fuse.")
