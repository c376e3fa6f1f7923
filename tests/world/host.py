# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host of a world: slots with cards, a sysfs and /dev for them, boots, and the directories of the product.

A card has a serial of its own, and a slot has a PCI address. Minors and names of nodes are others in each boot and
after each plug; a minor is not used twice in a boot.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any, Optional

from kernel import Kernel

from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

SLOTS = 4
MAJOR = 226
RENDER = 128  # the minor of a render node is that of its card and this
KIND = "fleet.cdi/gpu"
PLUGIN = "drm"
VERSION = "0.0.2"
ARGS: dict[str, Any] = {"occupied": "ignore", "name_by": ["index", "pci", "uuid"]}
# Resource-type -> args. All three grant the same cards: to jobs, to jobs whose cards need a setup, and to Slurm.
CONFIGS: dict[str, dict[str, Any]] = {
    "gpu": ARGS,
    "tuned": {**ARGS, "setup": ["/setup"], "teardown": ["/teardown"]},
    "slurm": {**ARGS, "owner": "external"},
}
ENTRIES = {"gpus": {"profile": PLUGIN, "name_by": ["index", "pci", "uuid"]}}


def config(type_: str) -> dict[str, Any]:
    """Return the configuration of a resource-type."""
    return {"cdiVersion": VERSION, "name": "of a world", "type": type_, "plugin": PLUGIN, "args": CONFIGS[type_]}


class Host:
    """A host below `directory`. `present`: slot -> serial of the card in it."""

    def __init__(self, directory: Path, kernel: Kernel) -> None:
        self.directory, self.kernel = directory, kernel
        self.chance = kernel.chance
        self.root = directory / "root"
        self.run = directory / "run"
        self.specs = directory / "etc/cdi"
        self.present: dict[int, str] = {}
        self.minors: dict[int, int] = {}  # slot -> minor of its card node
        self.boots = 0
        self._nodes: dict[str, int] = {}  # path of each node of this boot, also of cards that are gone -> slot
        self._next_minor = 0
        self._serials = 0
        self.places = Layout(
            state_dir=str(directory / "state"),
            inventory=str(self.run / "cdi-inventory.json"),
            config_dir=str(self.specs),
            root=str(self.root),
            prefix=str(directory / "opt"),
            spec_dirs=(str(self.specs), str(self.run / "cdi")),
            run_dir=str(self.run / "plugin"),
            plugin_config="",
        )

    def make(self) -> None:
        """Make the directories, the configurations, and what module `spec` once remembered."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(0o700, parents=True)
        for name in CONFIGS:
            folder = self.specs / f"{name}.d"
            folder.mkdir(parents=True)
            (folder / "world.conf").write_text(json.dumps(config(name)))
        self.run.mkdir()
        (self.directory / "opt").mkdir()
        for slot in range(SLOTS):
            self.present[slot] = self.new_card()
        self.boot()
        memory = {
            "wanted": {"entries": ENTRIES},
            "directory": str(self.specs),
            "inventory": self.places.inventory,
            "offered": {},
            "gone": {},
        }
        with locked_manifest(self.places.state_dir) as manifest:
            manifest.remember({KIND: memory})

    def remove(self) -> None:
        """Leave nothing."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def new_card(self) -> str:
        """Return the serial of a card that was never here."""
        self._serials += 1
        return f"card-{self._serials}"

    # -- boots and hot plug ------------------------------------------------------------------------

    def boot(self) -> None:
        """Start anew: another boot id, an empty /run, no process, other minors."""
        self.boots += 1
        self.kernel.boot_id = f"{self.boots:08x}-0000-4000-8000-{self.chance.getrandbits(48):012x}"
        self.kernel.booted = self.kernel.ever
        self.kernel.alive.clear()
        for path in (self.root, self.run):
            shutil.rmtree(path, ignore_errors=True)
        (self.run / "cdi").mkdir(parents=True)
        render({"nodes": {"/dev/null": "c 1:3"}, "files": {BOOT: self.kernel.boot_id + "\n"}}, self.root)
        (self.root / "sys/class/drm").mkdir(parents=True)
        (self.root / "sys/bus/pci/devices").mkdir(parents=True)
        self.minors, self._next_minor, self._nodes = {}, self.chance.randrange(3), {}
        slots = sorted(self.present)
        self.chance.shuffle(slots)
        for slot in slots:
            self._appear(slot)

    def plug(self, slot: int, serial: str) -> None:
        """Put a card into an empty slot."""
        self.present[slot] = serial
        self._appear(slot)

    def unplug(self, slot: int) -> str:
        """Take the card out of a slot; return its serial."""
        minor = self.minors.pop(slot)
        for name in _names(minor):
            (self.root / f"dev/dri/{name}").unlink()
            (self.root / f"sys/class/drm/{name}").unlink()
        (self.root / f"sys/bus/pci/devices/{address(slot)}").unlink()
        shutil.rmtree(self.root / _place(slot).lstrip("/"))
        return self.present.pop(slot)

    def _appear(self, slot: int) -> None:
        minor, self._next_minor = self._next_minor, self._next_minor + self.chance.choice((1, 1, 2))
        self.minors[slot] = minor
        serial = self.present[slot]
        attributes = {"vendor": "0x1234", "device": "0x0001", "class": "0x030000", "numa_node": slot % 2}
        place = _place(slot)
        device = {"subsystem": "bus/pci", "attributes": {**attributes, "unique_id": serial}, "driver": "demo"}
        tree: dict[str, Any] = {"devices": {place: device}, "nodes": {}}
        for name, number in zip(_names(minor), (minor, RENDER + minor)):
            uevent = {"MAJOR": MAJOR, "MINOR": number, "DEVNAME": f"dri/{name}"}
            tree["devices"][f"{place}/drm/{name}"] = {"subsystem": "class/drm", "uevent": uevent}
            tree["nodes"][f"/dev/dri/{name}"] = f"c {MAJOR}:{number}"
            self._nodes[f"/dev/dri/{name}"] = slot
        render(tree, self.root)

    # -- who is who --------------------------------------------------------------------------------

    def slot_of_number(self, minor: int) -> Optional[int]:
        """Return the slot whose card has this minor now; None for a minor of no card."""
        for slot, own in self.minors.items():
            if minor in (own, RENDER + own):
                return slot
        return None

    def slots_at(self, paths: list[str]) -> list[int]:
        """Return the slots of the cards at these device nodes, each once. Raises OSError, KeyError for another node."""
        found = []
        for path in paths:
            status = os.stat(f"{self.root}{path}")
            slot = self.slot_of_number(os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None
            if slot is None:
                raise KeyError(path)
            found.append(slot)
        return sorted(set(found))

    def slot_of_id(self, id_: str) -> int:
        """Return the slot of what the product calls by this id, or by a device node. Raises ValueError for others."""
        head, _colon, rest = id_.partition(":")
        return self._nodes[rest] if head == "node" else slot_of_id(id_)

    def render_node(self, slot: int) -> str:
        """Return the path of the render node of a slot's card."""
        return f"/dev/dri/{_names(self.minors[slot])[1]}"

    def alias(self, slot: int) -> str:
        """Make another path to a card's render node, as udev does, and return it."""
        path = f"/dev/dri/by-path/pci-{address(slot)}-render"
        place = Path(f"{self.root}{path}")
        place.parent.mkdir(exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(f"../{_names(self.minors[slot])[1]}")
        self._nodes[path] = slot
        return path


def address(slot: int) -> str:
    """Return the PCI address of a slot."""
    return f"0000:{slot + 1:02x}:00.0"


def device_id(slot: int) -> str:
    """Return the product's id of what is in a slot."""
    return f"pci:{address(slot)}"


def slot_of_id(id_: str) -> int:
    """Return the slot of an id. Raises ValueError for an id of something else."""
    head, _colon, rest = id_.partition(":")
    if head != "pci":
        raise ValueError(id_)
    return int(rest.split(":")[1], 16) - 1


def _place(slot: int) -> str:
    return f"/sys/devices/pci0000:00/{address(slot)}"


def _names(minor: int) -> tuple[str, str]:
    return f"card{minor}", f"renderD{RENDER + minor}"
