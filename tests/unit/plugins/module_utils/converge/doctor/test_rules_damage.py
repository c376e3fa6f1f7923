# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every file that fleet.cdi knows is damaged in every way, one by one, and the doctor names each.

The host is made by what the modules call, below one directory; only systemctl and the runtimes' programs are not real.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path

import pytest

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
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import advice, rule, view
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor.rules import RULES
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds import (
    cdi_plugin,
    device_state,
    plan_kind,
    spec,
)
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.converge.runtime import container_runtime
from ansible_collections.fleet.cdi.plugins.module_utils.converge.services import (
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
        self.instance.write(
            {
                "instance": "a",
                "since_boot": 1.0,
                "resources": {"fleet.cdi/zero": REGISTERED},
                "warnings": [],
                "config": {"path": self.plugin_config, "sha256": "", "error": None},
            }
        )
        self.claim()
        note_ended(places.ended_claims, this_boot(places), "job-0", ["0123"])
        unused_for(places.unused_claims, this_boot(places), {"a": ["0123"]}, 5.0)

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


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield Everything(tmp_path_factory.mktemp("host"), patch)


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


def link(path):
    shutil.copy2(path, path.parent / "..elsewhere")
    path.unlink()
    path.symlink_to("..elsewhere")


USER = "0123456789ab"  # id of the container that uses the claim
ABSENT = ("claims.unused", USER)  # also absent where no claim waits, and no container uses it: nothing shows a loss
DAMAGES = (delete, empty, truncate, corrupt, edit, link)


def test_nothing_is_found_where_nothing_is_damaged(everything):
    assert [one.rule for one in everything.findings()] == ["disabled"]  # which is part of the host


def test_the_host_has_every_sort_of_file(everything):
    names = {path.name for path in everything.files()}
    assert names >= {
        "fleet.cdi-zero.json",
        "vendor.com-by-hand.json",
        "inventory.json",
        "zeros.conf",
        "manifest.json",
        "device-state.json",
        "ledger.db",
        "device-plugin.json",
        "a.json",
        "daemon.json",
        "SHA256SUMS",
        ".fleet-cdi.json",
        "fleet-cdi",
        "rule",
        "main.py",
        f"main.{sys.implementation.cache_tag}.pyc",
        "70-fleet-cdi.rules",
        "fleet-cdi-refresh.service",
        "fleet-cdi-refresh.path",
        "fleet-cdi-refresh.timer",
        "fleet-cdi-libraries.service",
        "fleet-cdi-libraries.path",
        "fleet-cdi-device-plugin@.service",
        "fleet-cdi-openers.socket",
        "fleet-cdi-openers@.service",
        "job-1.json",
        POD,
        "fleet.cdi-claim_job-1.json",
        "claims.ended",
        "claims.ended.sum",
        "claims.unused",
        USER,
    }
    assert any(path.name.startswith("zero.rule.") for path in everything.files())


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_doctor_names_every_file_that_is_damaged(everything, damage):
    missed, tried = [], 0
    for path in everything.files():
        if path.name in ABSENT and damage is delete:
            continue
        kept = everything.root / "kept"
        shutil.copy2(path, kept)
        before = path.read_bytes()
        damage(path)
        if path.is_symlink() or not path.exists() or path.read_bytes() != before or path.name == "ledger.db":
            tried += 1
            text = "\n".join(f"{one.subject} {one.problem} {one.details}" for one in everything.findings())
            # Of a record that is gone, nothing but the claims that it had has the pod's name.
            named = path.parent if path.name == POD and damage is delete else path
            if str(named) not in text:
                missed.append(str(path.relative_to(everything.root)))
        path.unlink(missing_ok=True)
        shutil.move(kept, path)
        (path.parent / "..elsewhere").unlink(missing_ok=True)
        if path.name == "ledger.db":  # its inode is another one now
            Ledger(everything.state, inventory.boot_id()).grants()
    assert missed == [] and tried > 50, f"{len(missed)} of {tried}"


def places_in(value, path=()):
    """Yield (path, value) of all that a JSON document has; of the items of a list only the first."""
    items = enumerate(value[:1]) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    for key, item in items:
        yield (*path, key), item
        yield from places_in(item, (*path, key))


def with_value(document, path, value):
    key, *rest = path
    copy = document.copy()
    copy[key] = with_value(document[key], rest, value) if rest else value
    return copy


SAID = {"manifest.json": "manifest-damaged", "inventory.json": "inventory-unusable"}  # the rule; any of others
ANY_TYPE = {"value", "entries", "runtimes"}  # below these: an option of a runtime, and settings, checked at their use


def test_a_value_of_another_type_is_a_finding_wherever_it_is(everything):
    """As after a flipped bit, where a file that only fleet.cdi reads is still JSON: the doctor names it."""
    missed, tried = [], set()
    ours = (".fleet-cdi.json", "a.json", "device-state.json", "inventory.json", "job-1.json", "manifest.json", POD)
    for path in [path for path in everything.files() if path.name in ours]:
        kept = path.read_bytes()
        for place, value in list(places_in(json.loads(kept))):
            alike = (path.name, *("(a path)" if "/" in str(key) else key for key in place))
            if alike in tried:
                continue
            tried.add(alike)
            other = "x" if isinstance(value, (int, float)) else 5
            path.write_text(json.dumps(with_value(json.loads(kept), place, other), indent=2))
            found = [one for one in everything.findings() if str(path) in f"{one.subject} {one.problem} {one.details}"]
            wanted = SAID.get(path.name) if ANY_TYPE.isdisjoint(place[:-1]) and place[-1] != "value" else None
            if not found or (wanted and wanted not in [one.rule for one in found]):
                missed.append(alike)
        path.write_bytes(kept)
    assert missed == [] and len(tried) > 100


NOTES = (  # not there before they are needed
    *("run/cdi-refresh.last", "state/.manifest.json.tmp"),
    *("state/claims/.job-1.json.tmp", "etc/cdi/.fleet.cdi-zero.json.tmp", "run/cdi/.fleet.cdi-claim_job-1.json.tmp"),
)
LOCKS = (
    *("state/claims.ended", "state/claims.ended.sum", "state/claims.unused"),
    "state/.lock",
    "state/ledger.db-journal",
    "state/ledger.lock",
    "state/claims/job-1.lock",
    "state/pods/.lock",
    "opt/cdi/lib/.fleet-cdi.lock",
)


@pytest.mark.parametrize("name", [*NOTES, *LOCKS])
@pytest.mark.parametrize("put", [Path.mkdir, lambda path: path.symlink_to("nowhere"), os.mkfifo])
def test_what_is_in_the_place_of_a_lock_or_a_note_is_named(everything, name, put):
    """Nobody can lock or write it: each call that needs it fails."""
    path = everything.root / name
    assert path.exists() == (name in LOCKS)
    if name in LOCKS:
        path.rename(everything.root / "kept")
    try:
        put(path)
        assert [(one.rule, one.subject) for one in everything.findings() if one.subject == str(path)] == [
            ("irregular-file", str(path))
        ]
    finally:
        path.rmdir() if path.is_dir() else path.unlink()
        if name in LOCKS:
            (everything.root / "kept").rename(path)


@pytest.mark.parametrize("name", ["run/inventory.json", "run/inventory.d/zero.rule.*.json"])
@pytest.mark.parametrize("put", [link, lambda path: (path.unlink(), path.symlink_to("nowhere")), os.mkfifo])
def test_what_is_in_the_place_of_a_list_of_devices_is_moved_away(everything, name, put):
    """A refresh writes no file in its place: it says that it is a symlink, and ends."""
    (path,) = everything.root.glob(name)
    kept = path.read_bytes()
    moved = path.with_name(path.name + ".old")
    try:
        if put is os.mkfifo:
            path.unlink()
        put(path)
        (found,) = [one for one in everything.findings() if one.rule != "disabled"]
        assert (found.rule, found.subject) == ("irregular-file", str(path))
        assert f"`mv {path} {moved}`" in found.next and "`fleet-cdi refresh`" in found.next
        path.rename(moved)
        refresh(everything.places())
        assert [one.rule for one in everything.findings()] == ["disabled"] and path.is_file()
    finally:
        path.unlink(missing_ok=True)
        moved.unlink(missing_ok=True)
        (path.parent / "..elsewhere").unlink(missing_ok=True)
        path.write_bytes(kept)


THEIRS = (
    "etc/cdi/backup.tmp",
    "etc/cdi/vendor.lock",
    "etc/cdi/old-journal",
    "etc/cdi/.x.json.tmp",
    "run/cdi/.cache.tmp",
)


@pytest.mark.parametrize("name", THEIRS)
def test_a_directory_of_others_beside_our_specs_is_theirs(everything, name):
    path = everything.root / name
    path.mkdir()
    try:
        assert [one.rule for one in everything.findings()] == ["disabled"]  # which is part of the host
    finally:
        path.rmdir()


@pytest.mark.parametrize("name", ["state", "state/claims", "state/pods", "etc/cdi", "run", "run/cdi", "opt/cdi/bin"])
def test_a_directory_that_others_can_write_to_is_named(everything, name):
    """Nothing is written or run there: each call that needs it fails."""
    path = everything.root / name
    mode = path.stat().st_mode
    path.chmod(0o777)
    try:
        found = {one.rule: one for one in everything.findings() if one.subject == str(path)}
    finally:
        path.chmod(mode)
    assert "has mode 0777" in found["untrusted-directory"].problem and str(path) in found["untrusted-directory"].next


def test_a_program_that_others_can_write_is_named(everything):
    program = everything.root / "opt/cdi/bin/rule"
    program.chmod(0o777)
    try:
        (found,) = [one for one in everything.findings() if one.subject == str(program)]
    finally:
        program.chmod(0o755)
    assert found.rule == "program-missing" and "can be written by others (mode 0777)" in found.problem


def test_a_manifest_that_is_gone_shows_by_what_is_there_with_it(everything):
    (Path(everything.state) / "manifest.json").rename(everything.root / "kept")
    try:
        assert "manifest-gone" in {one.rule for one in everything.findings()}
    finally:
        (everything.root / "kept").rename(Path(everything.state) / "manifest.json")


@pytest.mark.parametrize(
    ("kept", "subject", "rule_", "step"),
    [
        ((), "state/ledger.db", "ledger-gone", "`fleet-cdi grants gc --complete FILE`"),
        (("ledger.log",), "state/ledger.db", "ledger-gone", "`fleet-cdi grants gc --complete FILE`"),
    ],
)
def test_a_store_that_is_gone_with_what_is_beside_it(everything, kept, subject, rule_, step):
    """It shows by the claims, if nothing else is left of it: the next claim would get their devices."""
    files = list(Path(everything.state).glob("ledger.*"))
    moved = [path for path in files if path.name not in kept]
    for path in moved:
        path.rename(everything.root / path.name)
    try:
        (found,) = [one for one in everything.findings() if one.rule != "disabled"]
        assert (found.rule, step in found.next) == (rule_, True) and found.subject.endswith(subject)
    finally:
        for path in moved:
            (everything.root / path.name).rename(path)
        Ledger(everything.state, inventory.boot_id()).grants()  # a file that was moved has another time


@pytest.mark.parametrize("damage", [delete, truncate, edit])
def test_the_record_of_a_pod_is_one_finding(everything, damage):
    path = Path(everything.state, pod_record.DIRECTORY, POD)
    kept = path.read_bytes()
    damage(path)
    found = [one.rule for one in everything.findings() if one.rule != "disabled"]
    path.write_bytes(kept)
    assert found == ["claim-lost" if damage is delete else "pod-damaged"]


@pytest.mark.parametrize(("damage", "rules"), [
    (delete, ["claim-outdated"]), (truncate, ["claim-outdated"]), (edit, ["claim-outdated"]),
])  # fmt: skip
def test_the_spec_of_a_claim_is_never_that_of_another_tool(everything, damage, rules):
    path = everything.root / "run/cdi/fleet.cdi-claim_job-1.json"
    kept = path.read_bytes()
    damage(path)
    found = [one for one in everything.findings() if one.rule != "disabled"]
    path.write_bytes(kept)
    assert [one.rule for one in found] == rules and "`fleet-cdi claim restore`" in found[0].next
    assert not any(advice.VENDOR.partition(";")[0] in one.next for one in found)


def test_another_file_with_the_device_of_a_claim_is_one_finding(everything):
    path = everything.root / "run/cdi/fleet.cdi-claim_job-1.json"
    other = shutil.copy2(path, path.with_name("another.json"))
    try:
        found = [one for one in everything.findings() if one.rule != "disabled"]
    finally:
        other.unlink()
    assert [one.rule for one in found] == ["conflict"]
