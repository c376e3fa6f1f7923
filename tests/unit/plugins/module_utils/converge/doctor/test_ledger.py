# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of the doctor in the ledger: grants of hardware that is gone, and claims.

What many claims lack for one cause is one finding, or none if another rule tells the cause.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.holds import pod_holds
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.grant import Hold, Key
from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.claims import add_claim, store
from ansible_collections.fleet.cdi.plugins.module_utils.claims.calls import Caller
from ansible_collections.fleet.cdi.plugins.module_utils.claims.pods import pod_record
from ansible_collections.fleet.cdi.plugins.module_utils.claims.record import (
    GRANTED,
    ClaimPart,
    ClaimRecord,
    WantedClaim,
)
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.layout import Layout
from ansible_collections.fleet.cdi.plugins.module_utils.records import Device
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.converge.doctor.doctor_host import (
    KIND,
    device,
    told,
)

IDS = ("job-1", "job-2", "job-3", "job-4")
SPEC = {"deviceNodes": [{"path": "/dev/null"}]}
CONFIGURATION = {
    "cdiVersion": "0.0.2",
    "name": "zeros",
    "type": "zero",
    "plugin": "rule",
    "args": {"profile": "rule", "kind": KIND, "match": {"subsystem": "mem", "node": ["/dev/null"]}},
}


class TestLost:
    """Grants of hardware that neither an inventory nor a spec has any more."""

    @pytest.fixture
    def take(self, host):
        ledger = Ledger(str(host.root / "state"), inventory.boot_id())

        def hold(device, resource="acme.com/gpu"):
            pod_holds.take(ledger, resource, [pod_holds.Want(device.id, device)])

        return hold

    @staticmethod
    def found(host):
        return [one for one in host.diagnose() if one.rule == "grant-lost"]

    def test_the_device_and_its_holder_are_named(self, host, take):
        take(device("gone"))
        host.list_devices(device("other"))
        (finding,) = self.found(host)
        assert finding.subject == "id:gone"
        assert "acme.com/gpu" in finding.problem and "no inventory and no spec has it" in finding.problem

    def test_not_what_the_inventory_has_or_what_consists_of_it(self, host, take):
        take(device("there"))
        take(device("group")._replace(consists_of=("id:part",)))
        host.list_devices(device("there"), device("part"))
        assert self.found(host) == []

    def test_a_partition_that_is_gone_from_a_gpu_that_is_there(self, host, take):
        take(device("mig")._replace(part_of=("id:gpu",)))
        host.list_devices(device("gpu"))
        assert [one.subject for one in self.found(host)] == ["id:mig"]

    def test_a_device_that_only_a_spec_had(self, host, take):
        take(Device("node:/dev/x", "", KIND, ("x",), ()))
        take(Device("mount:/x", "", KIND, ("m",), ()))  # of what has no nodes nothing is said
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/x"}])
        assert self.found(host) == []
        host.put("etc/a.json", "x", deviceNodes=[{"path": "/dev/null"}])
        assert [one.subject for one in self.found(host)] == ["node:/dev/x"]

    def test_nothing_is_said_where_it_can_not_be_told(self, host, take):
        take(device("gone"))
        assert self.found(host) == [], "nobody discovered anything in this boot"
        host.list_devices(device("other"), boot_id="another")
        assert self.found(host) == [], "the inventory is of another boot"
        host.list_devices(device("other"))
        (host.root / "etc/bad.json").write_text("{")
        assert self.found(host) == [], "a spec can't be read"


class Claims:
    """Four claims of /dev/null by one configuration, three of them of one pod."""

    def __init__(self, host):
        self.host = host
        self.root = host.root
        self.state = str(host.root / "state")
        self.pod = Path(pod_record.pod_path(self.state, "default/a"))
        self.conf = host.root / "etc/zero.d/zeros.conf"
        self.conf.parent.mkdir()
        self.conf.write_text(json.dumps(CONFIGURATION))
        for name in ("rule", "cdi-hook", "fleet-cdi"):
            program = host.root / "cdi/bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
        self.spec = Path(host.put("etc/a.json", "x", ours=True, **SPEC))
        for number, id_ in enumerate(IDS):
            self.grant(id_, number)
        with pod_record.alone_with_pods(self.state):
            pod_record.write_pod(self.state, pod_record.PodRecord("default/a", {"c": IDS[1:]}))

    def grant(self, id_, number):
        hold = Hold(f"mem:{number}", KIND, (), ())
        ledger = Ledger(self.state, inventory.boot_id())
        ledger.add(Key("zero", "rule", id_), {"zero": 1}, lambda _: [hold], "claims")
        parts = (ClaimPart(str(self.conf), (add_claim.read_node("/", "/dev/null"),)),)
        boot, of_pods = inventory.boot_id(), number > 0
        claim = ClaimRecord(WantedClaim(id_, {"zero": 1}), GRANTED, parts, boot_id=boot, token="a", of_pods=of_pods)
        places = Layout(self.state, prefix=str(self.root / "cdi"), spec_dirs=tuple(self.host.directories))
        seen = add_claim.read_specs(places)
        claim = claim._replace(names=add_claim.names_of(places, claim, seen))
        with store.alone(self.state, id_, Caller()):
            add_claim.write_spec(places, claim, seen)
            store.write_claim(self.state, claim)

    def change(self, **fields):
        """Change the record of each claim."""
        for claim in store.read_claims(self.state).claims:
            with store.alone(self.state, claim.id, Caller()):
                store.write_claim(self.state, claim._replace(**fields))

    def forget(self, *names):
        for name in names:
            os.unlink(os.path.join(self.state, name))

    def found(self):
        """The findings; of the pool, which these hosts lack, nothing is asked here."""
        return [one for one in self.host.diagnose() if one.rule != "pool-unusable"]


@pytest.fixture
def claims(host):
    return Claims(host)


def test_claims_that_are_well(claims):
    assert claims.found() == []


def test_a_damaged_configuration_is_told_and_not_its_claims(claims):
    claims.conf.write_text("{")
    assert told(claims.found()) == [("configuration-invalid", str(claims.conf))]


def test_a_configuration_that_only_its_claims_tell_of_is_one_finding(claims):
    claims.conf.unlink()
    (found,) = claims.found()
    assert (found.rule, found.subject, found.details) == ("claim-lost", str(claims.conf), IDS)
    assert "can't be used" in found.problem and found.problem.endswith("job-1, job-2, job-3, and 1 more")
    assert "`fleet-cdi claim del ID`" in found.next


@pytest.mark.parametrize(
    ("damage", "rule", "name"),
    [
        ("gone", "spec-gone", "etc/a.json"),
        ("cut", "invalid", "etc/a.json"),
        ("another node", "spec-changed", "etc/a.json"),
        ("another name", "spec-changed", "etc/a.json"),
        ("twice", "conflict", "etc/b.json"),
    ],
)
def test_a_fault_of_our_spec_is_told_and_not_its_claims(claims, damage, rule, name):
    if damage == "gone":
        claims.spec.unlink()
    elif damage == "cut":
        claims.spec.write_text("{")
    elif damage == "twice":
        claims.host.put("etc/b.json", "x", **SPEC)
    else:
        claims.spec.write_text(claims.spec.read_text().replace(*{
            "another node": ("/dev/null", "/dev/zero"), "another name": ('"x"', '"y"'),
        }[damage]))  # fmt: skip
    found = claims.found()
    assert (rule, str(claims.root / name)) in told(found)
    assert {one.rule for one in found} <= {rule, "spec-changed"}


def test_a_device_that_no_spec_defines_any_more_is_one_finding(claims):
    """The spec is that of another tool, which wrote it anew without the device, or removed it."""
    (claims.root / "state/manifest.json").unlink()
    (claims.root / "state/.lock").unlink()
    for spec, cause in ({"y": []}, f"{KIND}=x"), ({}, KIND):
        claims.spec.unlink()
        if spec:
            claims.host.put("etc/a.json", *spec)
        (found,) = [one for one in claims.found() if one.rule != "manifest-gone"]
        assert (found.rule, found.subject, found.details) == ("claim-lost", cause, IDS)


def test_a_pod_record_that_is_gone_is_one_finding(claims):
    claims.pod.unlink()
    (found,) = claims.found()
    assert (found.rule, found.subject, found.details) == ("claim-lost", str(claims.pod.parent), IDS[1:])
    assert "no pod" in found.problem


@pytest.mark.parametrize("left", [(), ("ledger.lock",), ("ledger.log",)])
def test_a_ledger_that_is_gone_is_told_and_not_its_claims(claims, left):
    names = [name for name in os.listdir(claims.state) if name.startswith("ledger.") and name not in left]
    claims.forget(*names)
    (found,) = claims.found()
    assert (found.rule, found.subject) == ("ledger-gone" if left else "ledger-lost", f"{claims.state}/ledger.db")
    if not left:  # nothing but the claims tells of it
        assert found.details == IDS


def test_a_damaged_ledger_is_told_and_not_its_claims(claims):
    path = claims.root / "state/ledger.db"
    path.write_bytes(path.read_bytes()[:1000])
    assert [one.rule for one in claims.found()] == ["ledger-damaged"]


def test_a_ledger_that_was_rebuilt_without_its_log_may_lack_grants(claims):
    """No grants are made from then on, and the claims that it lacks are named in one finding."""
    claims.forget("ledger.log")
    path = claims.root / "state/ledger.db"
    path.write_bytes(path.read_bytes()[:1000])
    Ledger(claims.state, inventory.boot_id()).grants()
    found = {one.rule: one for one in claims.found()}
    assert found["ledger-incomplete"].subject == f"{claims.state}/ledger.db"
    assert found.keys() <= {"ledger-incomplete", "claim-lost"}


def test_a_directory_of_claims_that_can_not_be_listed(claims):
    (claims.root / "state/claims").rename(claims.root / "kept")
    (claims.root / "state/claims").write_text("")
    assert ("claims-unread", f"{claims.state}/claims") in told(claims.found())


def test_grants_that_a_good_ledger_lacks_are_one_finding(claims):
    ledger = Ledger(claims.state, inventory.boot_id())
    for id_ in IDS[:3]:
        ledger.delete(Key("zero", "rule", id_))
    (found,) = claims.found()
    assert (found.rule, found.subject) == ("claim-lost", f"{claims.state}/ledger.db")
    assert found.details == IDS[:3] and found.problem.startswith("has no grant of zero/rule for these claims")


def test_claims_that_are_not_restored_after_a_reboot_are_one_finding(claims):
    claims.change(boot_id="another")
    (found,) = claims.found()
    assert (found.rule, found.subject, found.details) == ("claim-outdated", f"{claims.state}/claims", IDS)
    assert "`fleet-cdi claim restore`" in found.next
    claims.change(reason="/dev/null: is gone")
    (found,) = claims.found()
    assert "/dev/null: is gone" in found.problem and found.details == IDS


def test_what_one_claim_has_by_itself_is_told_of_it(claims):
    (claims.root / "run/fleet.cdi-claim_job-2.json").unlink()
    (claims.root / "run/fleet.cdi-claim_job-3.json").write_text("{")
    assert told(claims.found()) == [("claim-outdated", "job-2"), ("claim-outdated", "job-3")]
