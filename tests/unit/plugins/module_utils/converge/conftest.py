# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What several test files share: a host whose devices come and go, for a refresh; a docker, for runtimes; a node, for
device_plugin_service. Test files with another host have their own."""

from __future__ import annotations

import json
import shutil

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.converge.driver import device_links
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import (
    memory,
    plan_kind,
    refresh_all,
    spec,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import device_plugin_unit as unit_file
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import units
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest, read_manifest
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import containers
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.runtime.docker_machine import Machine
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.services.plugin_node import Node
from ansible_collections.fleet.cdi.tests.unit.trees.render import render

KIND = "vendor.com/card"
ENTRIES = {"cards": {"profile": "rule", "kind": KIND, "match": {"subsystem": "card"}, "name_by": ["index", "pci"]}}


@pytest.fixture(autouse=True)
def no_device_of_this_machine(tmp_path, monkeypatch):
    """Device nodes below a directory of the test's own are the only ones that get links by number."""
    places = device_links.DeviceFolders(str(tmp_path / "dev"), str(tmp_path / "sys-dev"))
    monkeypatch.setattr(device_links, "HOST", places)
    return places


@pytest.fixture(autouse=True)
def no_container_of_this_machine(monkeypatch):
    """The engines have no container, whatever this machine has."""
    monkeypatch.setattr(containers, "ENGINES", dict.fromkeys(containers.ENGINES, list))


class Clock:
    """Time that passes only where somebody sleeps; `events` happen on the way: (second, call)."""

    def __init__(self):
        self.now, self.slept, self.events = 100.0, [], []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.slept.append(seconds)
        for event in [one for one in self.events if one[0] <= sum(self.slept)]:
            self.events.remove(event)
            event[1]()


class Host:
    """A rendered tree with cards in slots, and the state of fleet.cdi on it. No /dev: health is unknown, not bad."""

    def __init__(self, root):
        self.root = root
        self.tree = root / "tree"
        self.places = Layout(str(root / "state"), str(root / "run/inventory.json"), str(root / "etc"), str(self.tree))
        self.clock = Clock()
        self.held: set[str] = set()
        render({"devices": {"/sys/devices/virtual/mem/zero": {"subsystem": "class/mem"}}}, self.tree)
        self.boot("first")
        self.spec_path = root / "etc/vendor.com-card.json"
        self.want(KIND, ENTRIES)

    def boot(self, boot_id):
        shutil.rmtree(self.root / "run", ignore_errors=True)
        (self.root / "run").mkdir()
        path = self.tree / "proc/sys/kernel/random/boot_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(boot_id)

    def insert(self, *slots, node=None):
        """Put a card into each slot; with the slot's node, or the `node` with this number."""
        for slot in slots:
            function = f"/sys/devices/pci0000:00/0000:00:{slot:02x}.0"
            number = slot if node is None else node
            node_ = {"subsystem": "class/card", "uevent": {"MAJOR": 250, "MINOR": number, "DEVNAME": f"card{number}"}}
            devices = {function: {"subsystem": "bus/pci", "driver": "card"}, f"{function}/card/card{slot}": node_}
            render({"devices": devices}, self.tree)

    def remove(self, *slots):
        for slot in slots:
            shutil.rmtree(self.tree / f"sys/devices/pci0000:00/0000:00:{slot:02x}.0")
            (self.tree / f"sys/class/card/card{slot}").unlink()
            (self.tree / f"sys/bus/pci/devices/0000:00:{slot:02x}.0").unlink()

    def want(self, name, entries, listing=None, **more):
        # Named runtimes: those of this machine are not asked.
        wanted = plan_kind.WantedKind(name, entries, by="test", runtimes={"podman": "5.4.0"}, **more)._asdict()
        options = {key: value for key, value in wanted.items() if key not in ("kind", "content")}
        record = memory.Memory(options, str(self.root / "etc"), listing or self.places.inventory)
        with locked_manifest(self.places.state_dir) as manifest:
            manifest.remember({name: record.document()})

    def refresh(self, timeout=0, grace=600, ledger=False, disabled=None, **more):
        granted = None if ledger else self.held.__contains__
        if disabled is not None:
            more["disabled"] = lambda: disabled
        return refresh_all.refresh(
            self.places, timeout, grace, granted=granted, clock=self.clock, sleep=self.clock.sleep, **more
        )

    def spec(self):
        """Name -> path of its node; {} where there is no file."""
        if not self.spec_path.exists():
            return {}
        return {one["name"]: one["containerEdits"]["deviceNodes"][0]["path"] for one in self.devices()}

    def edit(self, name, new):
        """Give a device in the spec file another name, as an administrator may do with an editor."""
        self.spec_path.write_text(self.spec_path.read_text().replace(f'"{name}"', f'"{new}"'))

    def devices(self):
        return json.loads(self.spec_path.read_bytes())["devices"]

    def listed(self):
        """Id -> (names, health) by the inventory."""
        found = inventory.read(self.places.inventory, inventory.boot_id(str(self.tree)))
        return {one.id: (one.names, one.health) for one in found.devices}

    def memory(self):
        return memory.memory_of(read_manifest(self.places.state_dir).kinds[KIND])

    def want_less(self, leaving):
        """As module spec notes that no device is asked for any more while those in `leaving` are held."""
        with locked_manifest(self.places.state_dir) as manifest:
            record = json.loads(json.dumps(manifest.kinds[KIND]))
            record["wanted"].update(entries={}, leaving=leaving)
            record["offered"] = {id_: record["offered"][id_] for id_ in leaving}
            manifest.remember({KIND: record})

    def forgotten(self):
        """Whether the manifest knows nothing of the kind."""
        return KIND not in read_manifest(self.places.state_dir).kinds

    def everything(self):
        return {
            str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in self.root.rglob("*") if path.is_file()
        }

    def age(self, seconds):
        """Let what is gone be gone for so much longer."""
        with locked_manifest(self.places.state_dir) as manifest:
            record = json.loads(json.dumps(manifest.kinds[KIND]))
            for gone in record["gone"].values():
                gone.update(seconds=gone["seconds"] - seconds, since="long ago")
            manifest.remember({KIND: record})


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.fixture
def after_the_look(monkeypatch):
    """Have another process act once, after the first look at the devices and before the lock: after_the_look(action).

    `name`: the function that looks.
    """

    def call(action, name="discover_kinds"):
        actions = [action]
        for where in (refresh_all, spec):
            monkeypatch.setattr(where, name, acting(getattr(where, name), actions))

    def acting(real, actions):
        def looked(*arguments):
            found = real(*arguments)
            while actions:
                actions.pop()()
            return found

        return looked

    return call


@pytest.fixture
def docker(tmp_path):
    return Machine(tmp_path)


def id_of(slot):
    return f"pci:0000:00:{slot:02x}.0"


CARD1 = {"0": "/dev/card1", "0000:00:01.0": "/dev/card1"}
CARD2 = {"1": "/dev/card2", "0000:00:02.0": "/dev/card2"}


@pytest.fixture
def node(tmp_path, monkeypatch):
    """A host with nothing of ours; the unit goes below tmp_path."""
    monkeypatch.setattr(unit_file, "UNIT_DIR", str(tmp_path / "units"))
    monkeypatch.setattr(unit_file, "RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(units.shutil, "which", lambda name: f"/usr/bin/{name}")
    return Node(str(tmp_path / "state"))
