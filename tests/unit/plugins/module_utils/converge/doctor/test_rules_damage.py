# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every file that fleet.cdi knows is damaged in every way, one by one, and the doctor names each."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods import pod_record
from ansible_collections.fleet.cdi.plugins.module_utils.converge.doctor import advice
from ansible_collections.fleet.cdi.plugins.module_utils.converge.kinds.refresh_all import refresh
from ansible_collections.fleet.cdi.plugins.module_utils.device_plugin.process import instance_status
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.everything import (
    DAMAGES,
    POD,
    USER,
    Everything,
    another_boot,
    append,
    delete,
    edit,
    fifo,
    link,
    truncate,
)


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield Everything(tmp_path_factory.mktemp("host"), patch)


CASES = yaml.safe_load(Path(__file__).with_name("rules_damage.yml").read_text(encoding="utf-8"))
WAYS = {way.__name__: way for way in (*DAMAGES, append, another_boot, fifo)}
ABSENT = ("claims.unused", USER)  # also absent where no claim waits, and no container uses it: nothing shows a loss


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
        "fleet-cdi-converge.service",
        "fleet-cdi-converge.timer",
        "settings.json",
        "job-1.json",
        POD,
        "fleet.cdi-claim_job-1.json",
        "claims.ended",
        "claims.ended.sum",
        "claims.unused",
        USER,
    }
    assert any(path.name.startswith("zero.rule.") for path in everything.files())
    assert any(path.parent.name == "features.d" for path in everything.files())


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_doctor_names_every_file_that_is_damaged(everything, damage):
    missed, tried = [], 0
    for path in everything.files():
        if path.name in ABSENT and damage is delete:
            continue
        before = path.read_bytes()
        with everything.damaged(path, damage):
            if path.is_symlink() or not path.exists() or path.read_bytes() != before or path.name == "ledger.db":
                tried += 1
                text = "\n".join(f"{one.subject} {one.problem} {one.details}" for one in everything.findings())
                # Of a record that is gone, nothing but the claims that it had has the pod's name.
                named = path.parent if path.name == POD and damage is delete else path
                if str(named) not in text:
                    missed.append(str(path.relative_to(everything.root)))
    assert missed == [] and tried > 50, f"{len(missed)} of {tried}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['rules'][-1]}-{case['damage']}")
def test_what_a_damaged_file_is_called(everything, case):
    """The rule tells what to do, so it is the one that is meant, and no other tells of the same cause."""
    (path,) = everything.root.glob(case["file"])
    with everything.damaged(path, WAYS[case["damage"]]):
        assert [one.rule for one in everything.findings() if one.rule != "disabled"] == case["rules"]


@pytest.mark.parametrize(
    "name", ["run/inventory.json", "run/inventory.d/zero.rule.*.json", "etc/cdi/fleet.cdi-zero.json"]
)
def test_a_file_that_others_may_write_is_named(everything, name):
    (path,) = everything.root.glob(name)
    path.chmod(0o666)
    (found,) = [one for one in everything.findings() if one.rule != "disabled"]
    path.chmod(0o644)
    assert (found.rule, found.subject) == ("file-rights", str(path))
    assert found.problem == f"has mode 0666 and the owner {os.geteuid()}; expected 0644 and {os.geteuid()}"


def test_a_pool_that_no_configuration_asks_for_any_more(everything):
    """Else its loss ends each ADD (pool-unusable)."""
    (pool,) = everything.root.glob("run/inventory.d/zero.rule.*.json")
    configuration = everything.root / "etc/cdi/zero.d/zeros.conf"
    with everything.damaged(configuration, delete):
        kept = pool.rename(everything.root / "pool")
        found = [(one.rule, one.subject) for one in everything.findings() if one.rule != "disabled"]
        kept.rename(pool)
    assert found == [("pool-gone", str(pool)), ("file-gone", str(configuration))]


def test_a_device_plugin_that_is_not_well(everything):
    everything.serve(state=instance_status.REFUSED, error="no such resource")
    try:
        (found,) = [one for one in everything.findings() if one.rule != "disabled"]
    finally:
        everything.serve()
    assert found.rule == "plugin-unwell" and "refused: no such resource" in found.problem


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
    ("kept", "rule_", "step"),
    [
        ((), "ledger-lost", "`fleet-cdi claim del ID`"),
        (("ledger.log",), "ledger-gone", "`fleet-cdi grants list`"),
        (("ledger.lock",), "ledger-gone", "`fleet-cdi grants list`"),
    ],
)
def test_a_store_that_is_gone_with_what_is_beside_it(everything, kept, rule_, step):
    """It shows by the claims, if nothing else is left of it: the next claim would get their devices."""
    files = list(Path(everything.state).glob("ledger.*"))
    moved = [path for path in files if path.name not in kept]
    for path in moved:
        path.rename(everything.root / path.name)
    try:
        (found,) = [one for one in everything.findings() if one.rule != "disabled"]
        assert (found.rule, step in found.next) == (rule_, True) and found.subject.endswith("state/ledger.db")
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
