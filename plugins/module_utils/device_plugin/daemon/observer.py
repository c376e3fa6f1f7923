# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Look at the host: specs, inventory, devices, ledger.

A look blocks; the daemon has a thread for it. Files that did not change are not read again: to parse a registry of
thousands of devices takes longer than the rest of a look.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Optional

from ... import file_state
from ...allocation.ledger import filesystem
from ...allocation.ledger.ledger import Ledger
from ...discovery import inventory, out_of_service
from ...discovery.inventory import Inventory
from ...files import canonical
from ...layout import device_state_path
from ...manifest import read_manifest
from ...records import REFUSE, CdiError
from ...runtimes.survey import RuntimeReader
from ...spec import registry as specs
from ...spec.same_nodes import StrangeNodes
from ...system.device_nodes import numbers_at
from ..allocate import delivery
from ..allocate.dra_claims import ClaimRegistry as Claims
from ..allocate.dra_keeper import Keeper, KeptClaims, by_specs
from ..config.configuration import PluginSettings
from ..config.faults import MOVED, class_of, reason
from ..health import held_elsewhere
from ..health.occupied_units import Lookout, choice, held_hardware, is_free
from ..health.probe import host_below, look
from ..offer.resources import Offer, Resource, offer
from ..process import garbage, watch
from . import inventories

# All processes of a host share some thousand inotify watches. The regular looks cover further directories.
MOST_DIRECTORIES = 256
UNREFRESHED = "fleet.cdi writes the spec of {}, and no inventory of this boot has the device; run `fleet-cdi refresh`"


class NodeView(NamedTuple):
    """The result of a look."""

    registry: specs.Registry
    offer: Offer
    troubles: Mapping[str, Mapping[str, str]]  # resource -> unit id -> why it is not available
    problems: Mapping[str, str]  # subject that could not be read -> why
    overlapping: frozenset[str] = frozenset()  # resources whose holds make devices of other resources Unhealthy
    directories: tuple[str, ...] = ()  # to follow: those with device nodes and mounts of the offered units
    warnings: tuple[str, ...] = ()  # about claims of DRA drivers


class _Files(NamedTuple):
    """What the files of the host say."""

    registry: specs.Registry = specs.resolve((), (), {})
    inventory: Optional[Inventory] = None
    strange: StrangeNodes = StrangeNodes((), ())
    problems: Mapping[str, str] = {}
    complete: bool = True  # the inventory and the pools are there, and of this boot


class Viewer:
    """Look at the host by `settings`. With a `keeper`, each look also holds the devices of DRA claims.

    `ask` returns the runtimes of the node. It is called when specs or programs change, if it makes a difference.
    """

    def __init__(
        self,
        settings: PluginSettings,
        ledger: Ledger,
        keeper: Optional[Keeper] = None,
        lookout: Optional[Lookout] = None,
        ask: Optional[Callable[[], Sequence[RuntimeReader]]] = None,
    ) -> None:
        self.settings = settings
        self.keeper = keeper
        self._lookout = lookout or Lookout(settings.root)
        self._ask = ask or partial(delivery.readers, settings.root)
        self._ledger = ledger
        self._claims: Optional[Claims] = None
        self._states: tuple[file_state.State, ...] = ()
        self._files = _Files()
        self._doubtful = False  # something could not be read that may be read now
        self._known: Optional[NodeView] = None  # the last view, without troubles
        self._former: Optional[NodeView] = None  # kept until the next look, so that this thread frees it
        self._held = held_elsewhere.LedgerView()  # the last reading of the ledger
        self._out: Mapping[str, out_of_service.Disabled] = {}  # the last reading of the file
        self._ours: Optional[Collection[str]] = None  # specs that a refresh writes, by the last reading of the manifest

    @garbage.none()
    def look(self) -> NodeView:
        """Look now. List in `problems` the subjects that can't be read; the rest of the view is valid."""
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
        waiting = self._waiting(view, problems)
        troubles: dict[str, dict[str, str]] = {}
        for resource in view.offer.resources:
            found = {**_unrefreshed(resource, waiting), **held_elsewhere.taken(resource, held, kept.claims)}
            troubles[resource.name] = found
            for name, why in look(resource, view.registry, self.settings.root, self._out).items():
                if name not in found or class_of(why) not in MOVED:  # the holder has the device, and so caused this
                    found[name] = why
        problems.update(self._occupied(view.offer.resources, held, troubles))
        return view._replace(troubles=troubles, problems=problems, warnings=kept.warnings)

    def _waiting(self, view: NodeView, problems: dict[str, str]) -> frozenset[str]:
        """Return the qualified names in specs that a refresh writes, of units that no inventory has yet.

        Such a spec is that of another boot, or its refresh was cut off before it wrote the inventory. Where the
        manifest can't be read, the specs of the last time count, or all if there was none; `problems` gets the reason.
        """
        units = (unit for resource in view.offer.resources for unit in resource.units if not unit.is_recorded)
        names = frozenset(name for unit in units for name in unit.qualified_names if name in view.registry.devices)
        if not names:
            return names
        try:
            self._ours = _refreshed(self.settings.state_dir)
        except CdiError as error:
            problems["manifest"] = str(error)
        if self._ours is None:
            return names
        own = {path for path in {view.registry.devices[name] for name in names} if canonical(path) in self._ours}
        return frozenset(name for name in names if view.registry.devices[name] in own)

    def _occupied(
        self, resources: Iterable[Resource], held: held_elsewhere.LedgerView, troubles: Mapping[str, dict[str, str]]
    ) -> dict[str, str]:
        """Add occupied units to `troubles`, for resources that refuse them. Return problems with reading processes."""
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
        """Return the subjects whose change needs a new look. Without a view, only those known before the first look."""
        settings = self.settings
        folders = (*settings.spec_dirs, inventories.folder(settings.inventory))
        found = [watch.Subject(directory, file_state.contents) for directory in folders]
        found += [
            watch.Subject(settings.inventory),
            watch.Subject(device_state_path(settings.state_dir)),
            watch.Subject(settings.state_dir, self._ledger.news),
        ]
        base = settings.root.rstrip("/")
        return found + [watch.Subject(base + one, file_state.entries) for one in (view.directories if view else ())]

    def _offer(self) -> NodeView:
        settings = self.settings
        folders = (*settings.spec_dirs, inventories.folder(settings.inventory))
        programs = delivery.programs(settings.root)  # another release of a runtime may read the specs otherwise
        states = (*map(file_state.contents, folders), *map(file_state.state, (settings.inventory, *programs)))
        is_new = self._known is None or states != self._states or self._doubtful
        if is_new:
            problems, self._files = self._files.problems, _read(settings, self._ask)
            # A damaged file gives the same problem again; a read that failed once need not fail at the next look.
            self._doubtful = self._files.problems not in ({}, problems)
        registry, found, strange, problems, complete = self._files
        same = strange.look(partial(numbers_at, stat=host_below(settings.root).stat))
        before = self._known.registry.same if self._known else same
        registry = registry._replace(same=same)
        if self._known is None or is_new or (same.also, same.instead) != (before.also, before.instead):
            offered = offer(settings, registry, found, complete)
            self._claims = Claims(registry, found)
            units = [unit for resource in offered.resources for unit in resource.units]
            directories = sorted({os.path.dirname(path) for unit in units for path in unit.paths})[:MOST_DIRECTORIES]
            directories = [one for one in directories if not _is_remote(settings.root.rstrip("/") + one)]
            overlapping = held_elsewhere.overlapping(offered.resources)
            garbage.left(len(units))
            self._former = self._known
            self._known = NodeView(registry, offered, {}, problems, overlapping, tuple(directories))
            self._states = states
        elif same.seen != before.seen:
            self._known = self._known._replace(registry=registry)
        return self._known

    def _let_go(self) -> None:
        """Free the former view piece by piece: otherwise the event loop waits long for Python's lock."""
        if self._former is not None:
            units = [unit for resource in self._former.offer.resources for unit in resource.units]
            parts = [*units, *(device for file in self._former.registry.specs for device in file.spec["devices"])]
            del units
            self._former = None
            while parts:
                parts.pop()


def _read(settings: PluginSettings, ask: Callable[[], Sequence[RuntimeReader]]) -> _Files:
    registry = delivery.load_specs(settings.spec_dirs, ask)
    found, problems, complete = inventories.read_inventories(
        settings.inventory, inventory.boot_id(settings.root) or inventory.boot_id()
    )
    nodes = [node for one in found.devices for node in one.nodes] if found else []
    nodes += [node for kind in found.kinds for node in kind.edits.nodes] if found else []
    strange = StrangeNodes(specs.all_edits(registry), nodes)
    return _Files(registry, found, strange, {**problems, **registry.errors}, complete)


def _refreshed(state_dir: str) -> set[str]:
    """Return the canonical paths of the specs that a refresh writes, with an inventory. Raises CdiError."""
    manifest = read_manifest(state_dir)
    kinds = {kind for kind, one in manifest.kinds.items() if one["inventory"]}
    return {path for path, record in manifest.files.items() if record["kind"] in kinds}


def _unrefreshed(resource: Resource, waiting: Collection[str]) -> dict[str, str]:
    """Return why units that no inventory has can't be had, as these names wait for a refresh: unit id -> reason."""
    found = {}
    for unit in resource.units if waiting else ():
        name = next((name for name in unit.qualified_names if name in waiting), "")
        if name and not unit.is_recorded:
            found[unit.id] = reason("unresolved", UNREFRESHED.format(name))
    return found


def _is_remote(directory: str) -> bool:
    """Tell whether a directory is on a remote file system: access may hang, and inotify reports no remote changes.

    One that can't be looked at, with a NUL in its name as in a spec of others, can't be watched either.
    """
    try:
        kind = filesystem.type_of(directory)
    except (OSError, ValueError):
        return True
    return kind in filesystem.NETWORK or kind == "autofs" or kind.startswith("fuse.")
