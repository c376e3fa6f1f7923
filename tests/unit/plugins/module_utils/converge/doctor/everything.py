# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with one file of each sort at least, made by what the modules call, and ways to damage a file.

It is below one directory; only systemctl and the runtimes' programs are not real.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import contextmanager
from pathlib import Path

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.claims import add_claim, store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.ended import note_ended, this_boot
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.unused_since import unused_for
from ansible_collections.fleet.cdi.plugins.module_utils.claims.lifetime.users import users_path
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods import pod_record
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import (
    GRANTED,
    ClaimPart,
    ClaimRecord,
    WantedClaim,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge import node_features
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import rule, view
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import (
    cdi_plugin,
    device_state,
    plan_kind,
    spec,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import container_runtime
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import (
    converge_service,
    converge_unit,
    device_plugin_config,
    device_plugin_service,
    device_plugin_unit,
    refresh_service,
    refresh_unit,
    units,
)
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes import detect, oci_runtimes
from ansible_collections.fleet.cdi.plugins.module_utils.runtimes.place import InstalledRuntime, WantedCdi
from ansible_collections.fleet.cdi.plugins.module_utils.system import openers
from ansible_collections.fleet.cdi.plugins.module_utils.system.process_mark import process_mark
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.runtime.docker_machine import Machine
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.release.conftest import Host as Prefix

KIND = "fleet.cdi/zero"
POD = "default_a.json"
USER = "0123456789ab"  # id of the container that uses the claim
MATCH = {"subsystem": "mem", "node": ["/dev/null", "/dev/zero", "/dev/full"]}
ENTRY = {"profile": "rule", "kind": KIND, "match": MATCH, "name_by": ["sysname"]}
WELL = "LoadState=loaded\nActiveState=active\nNeedDaemonReload=no\nResult=success\n"
REGISTERED = {
    "state": instance_status.REGISTERED,
    "stream": True,
    "devices": {},
    "healthy": 1,
    "unhealthy": 0,
    "mode": "register",
    "error": "",
    "delivery": None,
    "warnings": [],
}


def systemctl(command):
    """Answers as systemctl(1) does where all is well."""
    if command[1] == "show":
        return 0, "\n".join(f"Id={unit}\n{WELL}" for unit in command[4:])
    return 0, "enabled\n" if command[1] == "is-enabled" else ""


class Everything:
    """A host with one file of each sort at least."""

    def __init__(self, root, patch):
        self.root = root
        release = Prefix(root)
        release.install(release.release())
        self.prefix = release.prefix
        self.state = str(root / "state")
        self.inventory = str(root / "run/inventory.json")
        self.etc = str(root / "etc/cdi")
        self.run_dir = str(root / "run/device-plugin")
        places = Layout(self.state, self.inventory, self.etc, "/", self.prefix)
        docker = Machine(root)
        docker.state = self.state
        docker.converge()
        self.daemon_json = docker.config
        self.podman = InstalledRuntime(
            "podman", "system", "5.6.0", (5, 6, 0), "0.8.0", "podman", f"{root}/etc/containers.conf"
        )
        container_runtime.converge_runtime(
            self.podman, WantedCdi(True, (self.etc, "/srv/cdi")), self.state, by=docker.by
        )
        wanted = plan_kind.WantedKind(KIND, {"zero": ENTRY}, by="test", runtimes={"podman": "5.4.0"})
        spec.converge_spec(wanted, Layout(self.state, self.inventory, prefix=self.prefix, spec_dirs=(self.etc,)))
        content = {"devices": [{"name": "x", "containerEdits": {"env": ["A=1"]}}]}
        by_hand = plan_kind.WantedKind("vendor.com/by-hand", None, content, runtimes={"podman": "5.4.0"})
        spec.converge_spec(by_hand, Layout(self.state, self.inventory, prefix=self.prefix, spec_dirs=(self.etc,)))
        document = {"cdiVersion": "0.0.2", "name": "zeros", "type": "zero", "plugin": "rule", "args": ENTRY}
        cdi_plugin.converge_configuration(
            cdi_plugin.WantedConfiguration("zero", "zeros", document), places, f"{self.prefix}/bin"
        )
        device_state.converge_state(device_state.WantedDeviceState(f"{KIND}=full", "it is full"), places)
        # Nothing of this machine: no processes that have /dev/zero open, and no runtimes, which take time to answer.
        patch.setattr(openers, "look", lambda _numbers: openers.OpenersSeen())
        for module in (detect, oci_runtimes):
            patch.setattr(module, "DIRECTORIES", ())
        patch.setattr(refresh_unit, "UNIT_DIR", str(root / "units"))
        patch.setattr(refresh_unit, "RULES", str(root / "rules.d/70-fleet-cdi.rules"))
        patch.setattr(device_plugin_unit, "UNIT_DIR", refresh_unit.UNIT_DIR)
        patch.setattr(units.shutil, "which", lambda name: f"/usr/bin/{name}")
        settings = refresh_unit.RefreshUnit(self.prefix, self.etc, self.state, self.inventory)
        refresh_service.install(settings, self.state, False, systemctl, booted=False)
        machine = device_plugin_service.ServiceHost(systemctl, lambda: False)
        device_plugin_service.install(device_plugin_unit.PluginUnit(), None, self.state, 0, False, machine)
        patch.setattr(converge_unit, "UNIT_DIR", refresh_unit.UNIT_DIR)
        unit = converge_unit.ConvergeUnit(str(root / "etc/fleet-cdi/settings.json"), prefix=self.prefix)
        converge_service.install(unit, b'{"devices": {}}\n', self.state, False, systemctl, False)
        node_features.keep_features(str(root / "features.d/fleet-cdi"), self.inventory, self.state)
        self.plugin_config = str(root / "etc/fleet-cdi/device-plugin.json")
        options = {
            "config_file": self.plugin_config,
            "kubelet_dir": str(root / "kubelet"),
            "resources": {},
            "delivery": "auto",
            "registration": "auto",
            "takeover": False,
            "occupied": "warn",
            "occupied_ignore": [],
            "metrics": "",
            "grace": 30,
            "spec_dirs": [self.etc],
            "device_list": self.inventory,
            "state_dir": self.state,
        }
        document = device_plugin_config.rendered(options)
        device_plugin_config.write_config(self.plugin_config, document, self.state, False, False)
        patch.setattr(device_plugin_unit, "RUN_DIR", self.run_dir)
        patch.setattr(view.in_force, "run_dir", lambda _path: self.run_dir)
        self.instance = instance_status.InstanceEntry(self.run_dir, "a")
        self.instance.enter()
        self.serve()
        self.claim()
        note_ended(places.ended_claims, this_boot(places), "job-0", ["0123"])
        unused_for(places.unused_claims, this_boot(places), {"a": ["0123"]}, 5.0)

    def serve(self, **said):
        """Write what an instance of the device plugin says of itself; `said`: of its resource, if that is not well."""
        self.instance.write(
            {
                "instance": "a",
                "since_boot": 1.0,
                "resources": {"fleet.cdi/zero": {**REGISTERED, **said}},
                "warnings": [],
                "config": {"path": self.plugin_config, "sha256": "", "error": None},
            }
        )

    def claim(self):
        """A claim as `claim add` leaves it."""
        hold = Hold("mem:null", KIND, (), ())
        Ledger(self.state, inventory.boot_id()).add(
            Key("zero", "rule", "job-1"), {"zero": 1}, lambda _: [hold], "claims"
        )
        places = self.places()
        parts = (ClaimPart(f"{self.etc}/zero.d/zeros.conf", (add_claim.read_node("/", "/dev/null"),)),)
        claim = ClaimRecord(
            WantedClaim("job-1", {"zero": 1}), GRANTED, parts, boot_id=inventory.boot_id(), token="a", of_pods=True
        )
        seen = add_claim.read_specs(places)
        claim = claim._replace(names=add_claim.names_of(places, claim, seen))
        with store.alone(self.state, claim.id, Caller()):
            add_claim.write_spec(places, claim, seen)
            store.write_claim(self.state, claim)
            Path(users_path(self.state, claim), USER).write_text(process_mark(os.getpid()))
            with pod_record.alone_with_pods(self.state):
                pod_record.write_pod(self.state, pod_record.PodRecord("default/a", {"c": (claim.id,)}))

    def places(self):
        return Layout(self.state, self.inventory, prefix=self.prefix, spec_dirs=(self.etc, str(self.root / "run/cdi")))

    def findings(self):
        self.instance.beat()
        places = self.places()
        return rule.find_problems(RULES, view.take(places, run=systemctl, booted=True))

    def files(self):
        """Every file, but for the content of locks, and the journal of the store, empty between two grants."""
        skipped = (".lock", "-journal")
        found = [path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink()]
        return sorted(path for path in found if "source-" not in str(path) and not path.name.endswith(skipped))

    @contextmanager
    def damaged(self, path, damage):
        """Damage a file, and make it again at the end."""
        kept = self.root / "kept"
        shutil.copy2(path, kept)
        try:
            damage(path)
            yield
        finally:
            path.unlink(missing_ok=True)
            shutil.move(kept, path)
            (path.parent / "..elsewhere").unlink(missing_ok=True)
            if path.name == "ledger.db":  # its inode is another one now
                Ledger(self.state, inventory.boot_id()).grants()


def delete(path):
    path.unlink()


def empty(path):
    path.write_bytes(b"")


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def corrupt(path):
    content = bytearray(path.read_bytes() or b"\n")
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)


def edit(path):
    """What an operator with an editor does: still a good file of its sort."""
    if path.name == "ledger.db":
        with sqlite3.connect(path) as db:
            db.execute("UPDATE kinds SET held = held")
        os.utime(path)
    elif path.name in ("daemon.json", "fleet-cdi.conf", "99-fleet-cdi.conf"):
        path.write_bytes(path.read_bytes().replace(b"true", b"false").replace(b"/srv/cdi", b"/srv/cdj"))
    elif path.name == POD:
        path.write_bytes(path.read_bytes().replace(b"job-1", b"job-2"))
    elif path.name == "a.json":
        path.write_bytes(path.read_bytes().replace(b'"unhealthy": 0', b'"unhealthy": 1'))
    else:
        path.write_bytes(path.read_bytes().replace(b"e", b"E", 1) + b"\n")


def append(path):
    """What an editor does that ends a file with a line of its own: the content is the same."""
    path.write_bytes(path.read_bytes() + b"\n")


def another_boot(path):
    """What a reboot leaves where the directory is not emptied."""
    path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "another"}))


def link(path):
    shutil.copy2(path, path.parent / "..elsewhere")
    path.unlink()
    path.symlink_to("..elsewhere")


def fifo(path):
    path.unlink()
    os.mkfifo(path, 0o600)


DAMAGES = (delete, empty, truncate, corrupt, edit, link)
