# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L8: the life of a node. life.yml has the scenarios, this file what their verbs do.

A host is a tree with device nodes and a boot id, which the executables take for the machine. After every step: nothing
that was granted and not given back is stored with other devices, nor given to anybody else.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Optional

import damage
import reader
import yaml
from table import Tally, tally

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import collect, report
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger import ledger, migrate, schema
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Key
from ansible_collections.fleet.cdi.plugins.module_utils.cdi_plugin import commands
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.protocol.pools import pool_path
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device, Node

TABLE = Path(__file__).with_name("life.yml")
TYPE, VERSION, MAJOR = "gpu", "0.0.2", 195


class Broken(Exception):
    """A step had another outcome than the table says."""


@contextmanager
def told() -> Iterator[BinaryIO]:
    """What goes to stderr meanwhile: executables write to the descriptor itself."""
    real = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(real, 2)
            os.close(real)


class Life:
    """One host through one scenario."""

    def __init__(self, directory: Path, devices: dict[str, dict[str, Any]], chance: random.Random) -> None:
        self.devices, self.chance = devices, chance
        self.root, self.state = directory / "root", directory / "state"
        self.host = Layout(
            str(self.state), str(directory / "inventory.json"), root=str(self.root), prefix=str(directory / "opt")
        )
        self.there: list[str] = []  # devices on the host, by their names in the table
        self.given: dict[tuple[str, str], list[str]] = {}  # (plugin, request-id) -> devices granted, not given back
        self.said = ""  # on stderr, by the last call
        (self.root / "dev").mkdir(parents=True)
        self.boot(1)

    def boot(self, number: int) -> None:
        """Start the host again."""
        path = self.root / "proc/sys/kernel/random/boot_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        self.boot_id = f"00000000-0000-4000-8000-{number:012d}"
        path.write_text(self.boot_id + "\n")

    def hardware(self, names: list[str]) -> None:
        """These devices are there now, and no others."""
        shutil.rmtree(self.root / "dev")
        (self.root / "dev").mkdir()
        for name in names:
            row = self.devices[name]
            os.mknod(self.root / "dev" / row.get("node", name), stat.S_IFCHR | 0o600, os.makedev(MAJOR, row["minor"]))
        self.there = names

    def refresh(self, plugin: str = "rule") -> None:
        """Discover: the pool says what is there."""
        path = Path(self._pool(plugin))
        path.parent.mkdir(exist_ok=True)
        found = tuple(self._device(name) for name in self.there)
        path.write_bytes(inventory.render(inventory.Inventory(found), self.boot_id))

    def pool(self, what: str) -> None:
        """Break the pool."""
        damage.POOL[what](Path(self._pool("rule")))

    def migrate(self, target: int) -> None:
        """A release after this one takes the store to a schema of its own."""
        migrate.migrate(self._ledger(), {schema.VERSION: ["CREATE TABLE more (id INTEGER)"]}, target)

    def store(self, what: str) -> None:
        """Break the store."""
        damage.STORE[what](self.state, self.chance)

    def add(self, request_id: str, amount: int = 1, plugin: str = "rule", **expected: Any) -> None:
        """ADD; `gives` says which devices, by name, `error` which code."""
        reply = self._call("ADD", request_id, plugin, f"{TYPE}:{amount}")
        nodes = [os.path.basename(path) for path in reply.get("devices", ())]
        got = sorted(name for name in self.there if self.devices[name].get("node", name) in nodes)
        self._compare("ADD", reply, expected, got)
        if "error" not in reply:
            ids = sorted(self.devices[name]["id"] for name in got)
            for other, devices in self.given.items():
                if other != (plugin, request_id) and set(ids) & set(devices):
                    raise Broken(f"[I1] {ids} given to {request_id}, but {other} has {devices}")
            self.given[plugin, request_id] = ids

    def delete(self, request_id: str, plugin: str = "rule", **expected: Any) -> None:
        """DEL; `error` says which code."""
        reply = self._call("DEL", request_id, plugin, "")
        self._compare("DEL", reply, expected, [])
        if reply.get("error", 5) == 5:
            self.given.pop((plugin, request_id), None)

    def check(self, request_id: str, problems: list[str]) -> None:
        """CHECK finds these problems with a grant."""
        present = {self.devices[name]["id"]: self.devices[name].get("uuid", "") for name in self.there}
        book = self._ledger()
        grant = book.find(Key(TYPE, "rule", request_id))
        found = report.check_grant(grant, book.boot_id, present) if grant else None
        if found is None or sorted({problem.code for problem in found}) != sorted(problems):
            raise Broken(f"[CHECK] found {found}, expected {problems}")

    def gc(self, valid: Optional[list[str]], force: bool = False) -> None:
        """GC with this list of valid request-ids, made now."""
        book = self._ledger()
        listed = None if valid is None else [(None, request_id) for request_id in valid]
        done = collect.gc(book, listed, book.now(), complete=True, force=force)
        for grant in done.freed:
            self.given.pop((grant.key.plugin, grant.key.request_id))

    def accept(self) -> None:
        """The operator says that nothing is lost."""
        self._ledger().accept_loss()

    def survives(self, lost: bool) -> None:
        """Whatever became of the store: it was told, and what was granted is not given to others.

        `lost`: whether grants may be lost, so that no new ones are made until somebody says so.
        """
        reply = self._call("ADD", "after", "rule", f"{TYPE}:1")
        if "damaged" not in self.said and "damaged" not in reply.get("details", ""):
            raise Broken(f"[D5] nobody was told: {reply}, {self.said!r}")
        if "error" in reply and (not lost or reply["error"] != 102):
            raise Broken(f"[D5] {reply}")
        if "error" not in reply:
            store = reader.ours(self.state)
            taken = {device for devices in self.given.values() for device in devices}
            for (_plugin, request_id), devices in self.given.items():
                if list(store.of(request_id)) != devices:
                    raise Broken(f"[I2] {request_id} had {devices}, the rebuilt store has {store.of(request_id)}")
            if set(store.of("after")) & taken:
                raise Broken(f"[I1] {store.of('after')} was given again")

    def weathers(self) -> None:
        """Damage that may be without consequence: either nobody notices and all is there, or it is as in `survives`."""
        reply = self._call("ADD", "after", "rule", f"{TYPE}:1")
        told = "damaged" in self.said + reply.get("details", "")
        if "error" in reply:
            if reply["error"] != 102:
                raise Broken(f"[D5] {reply}")
            return
        store = reader.ours(self.state)
        for (_plugin, request_id), devices in self.given.items():
            if list(store.of(request_id)) != devices:
                raise Broken(f"[I2] {request_id} had {devices}, the store has {store} (told: {told})")
        if store.damage or store.doubles:
            raise Broken(f"[I1] {store}")

    def kept(self, number: int) -> None:
        """So many damaged stores were put aside."""
        names = [name for name in os.listdir(self.state) if "damaged" in name and not name.endswith("-journal")]
        if len(names) != number:
            raise Broken(f"[D5] put aside are {names}, expected {number}")

    def holds(self) -> None:
        """The reader finds exactly what was given."""
        store = reader.ours(self.state)
        expected = {request_id: tuple(devices) for (_plugin, request_id), devices in self.given.items()}
        found = {row.request_id: row.devices for row in store.grants}
        if store.damage or found != expected or store.doubles:
            raise Broken(f"[I2] stored is {store}, given was {expected}")

    def _call(self, command: str, request_id: str, plugin: str, request: str) -> dict[str, Any]:
        config = {"cdiVersion": VERSION, "name": "of a test", "type": TYPE, "plugin": plugin, "args": {}}
        variables = {"CDI_COMMAND": command, "CDI_VERSION": VERSION, "CDI_REQUEST_ID": request_id}
        variables["CDI_REQUEST"] = request
        with told() as said:
            status, stdout, _undo = commands.answer(plugin, variables, self.host, lambda: json.dumps(config).encode())
            said.seek(0)
            self.said = said.read().decode(errors="replace")
        reply: dict[str, Any] = json.loads(stdout) if stdout else {}
        if status != (1 if command == "ADD" and "error" in reply else 0):
            raise Broken(f"[I7] status {status} with {reply}")
        return reply

    def _compare(self, what: str, reply: dict[str, Any], expected: dict[str, Any], got: list[str]) -> None:
        if reply.get("error") != expected.get("error"):
            raise Broken(f"[{what}] replied {reply}, expected error {expected.get('error')}")
        if "gives" in expected and got != sorted(expected["gives"]):
            raise Broken(f"[{what}] gave {got}, expected {expected['gives']}")

    def _ledger(self) -> ledger.Ledger:
        return ledger.Ledger(str(self.state), self.boot_id)

    def _pool(self, plugin: str) -> str:
        return pool_path(self.host.inventory, TYPE, plugin, {})

    def _device(self, name: str) -> Device:
        row = self.devices[name]
        return Device(
            row["id"],
            "rule",
            "fault.test/gpu",
            (name,),
            (Node(f"/dev/{row.get('node', name)}", "c", MAJOR, row["minor"]),),
            uuid=row.get("uuid", ""),
            part_of=tuple(row.get("part_of", ())),
            consists_of=tuple(row.get("consists_of", ())),
        )


def scenario(steps: list[dict[str, Any]], devices: dict[str, Any], directory: Path, seed: int) -> str:
    """Go through one; what was broken, or ""."""
    life = Life(directory, devices, random.Random(seed))
    for number, step in enumerate(steps, 1):
        verb, value = next(iter(step.items()))
        method = getattr(life, {"del": "delete"}.get(verb, verb))
        more = {name: given for name, given in step.items() if name != verb}
        try:
            method(*([] if value is True else [value]), **more)
        except Broken as broken:
            invariant, _bracket, text = str(broken).partition("] ")
            return f"{invariant}] step {number}, {step}: {text}"
        except Exception as error:
            return f"[crash] step {number}, {step}: {type(error).__name__}: {error}"
    return ""


def live(directory: Path, seed: int) -> list[Tally]:
    """All scenarios. Each run of one counts as a fault; it hits if its last step is reached."""
    if os.geteuid() != 0:
        return [Tally("L8 node life", "executable", 0, 0, skipped="only root can make device nodes")]
    table = yaml.safe_load(TABLE.read_text())
    tried = 0
    found = []
    for name, row in table["scenarios"].items():
        for turn in range(row.get("times", 1)):
            broken = scenario(row["steps"], table["devices"], directory / str(tried), seed + turn)
            tried += 1
            found += [broken.replace("] ", f"] {name}: ", 1)] if broken else []
    return [tally("L8 node life", "executable", tried, tried - len(found), found)]
