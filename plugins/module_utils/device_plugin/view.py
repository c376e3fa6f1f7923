# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host as the daemon sees it at one moment: specs, inventory, devices, ledger. Private API of fleet.cdi.

Blocking; the daemon has a thread for it. What did not change is not read again: a registry of thousands of devices
takes longer to parse than all the rest.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple, Optional

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin import known, taken, watch
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.config import Settings
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.look import look
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.offer import Offer, offer
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import disabled, inventory
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import registry as specs

MOST_DIRECTORIES = 256
LEDGER = "ledger.db"  # reading the ledger touches the other files beside it


class View(NamedTuple):
    """What a look found."""

    registry: specs.Registry
    offer: Offer
    troubles: Mapping[str, Mapping[str, str]]  # resource -> unit id -> why it can't be had
    problems: Mapping[str, str]  # what could not be looked at -> why


class Viewer:
    """Looks at the host that `settings` describe."""

    def __init__(self, settings: Settings, ledger: Ledger) -> None:
        self.settings = settings
        self._ledger = ledger
        self._states: tuple[watch.State, ...] = ()
        self._known: Optional[tuple[specs.Registry, Offer, dict[str, str]]] = None

    def look(self) -> View:
        """Look now. Raises nothing: what can't be read is one of `problems`, and the rest goes on."""
        registry, offered, problems = self._offer()
        problems = dict(problems)
        out: Mapping[str, disabled.Disabled] = {}
        try:
            out = disabled.in_force(self.settings.state_dir)
        except CdiError as error:
            problems["disabled"] = str(error)
        held = taken.Held()
        try:
            held = taken.read(self._ledger)
        except (CdiError, OSError) as error:
            problems["ledger"] = str(error)
        troubles = {}
        for resource in offered.resources:
            found = dict(taken.taken(resource, held))
            found.update(look(resource, registry, self.settings.root, out))
            troubles[resource.name] = found
        return View(registry, offered, troubles, problems)

    def subjects(self, view: View) -> list[watch.Subject]:
        """What to follow, so that the next look comes when it should."""
        settings = self.settings
        folders = (*settings.spec_dirs, known.folder(settings.inventory))
        found = [watch.Subject(directory, watch.contents) for directory in folders]
        found += [
            watch.Subject(settings.inventory),
            watch.Subject(disabled.path_of(settings.state_dir)),
            watch.Subject(os.path.join(settings.state_dir, LEDGER)),
        ]
        base = settings.root.rstrip("/")
        paths = {path for resource in view.offer.resources for unit in resource.units for path in unit.paths}
        directories = sorted({os.path.dirname(path) for path in paths})
        # A host has some thousand inotify watches for everybody; what is in more directories is looked at in time.
        return found + [watch.Subject(base + one, watch.entries) for one in directories[:MOST_DIRECTORIES]]

    def _offer(self) -> tuple[specs.Registry, Offer, dict[str, str]]:
        settings = self.settings
        folders = (*settings.spec_dirs, known.folder(settings.inventory))
        states = (*map(watch.contents, folders), watch.state(settings.inventory))
        if self._known is None or states != self._states:
            registry = specs.load(settings.spec_dirs)
            found, problems = known.read(settings.inventory, inventory.boot_id(settings.root))
            self._known = registry, offer(settings, registry, found), {**registry.errors, **problems}
            self._states = states
        return self._known
