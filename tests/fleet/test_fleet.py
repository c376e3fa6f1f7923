# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet of mixed kinds, in which hosts break in many ways: provision, report and verify, one after the other.

The faults are rows of simulated_faults.yml, the drifts of simulated_drifts.yml. HOSTS=1000 more hosts; WHOLE=1 installs
the release on each of them, while the others use that of the first.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from simulated_fleet import Fleet, causes, failures, has_module, shown
from workplace import ROOM, workplace

HERE = Path(__file__).resolve().parent
FAULTS = [
    fault
    for fault in yaml.safe_load((HERE / "simulated_faults.yml").read_text())
    if "needs" not in fault or has_module(fault["needs"])
]
DRIFTS = yaml.safe_load((HERE / "simulated_drifts.yml").read_text())
HOSTS = int(os.environ.get("HOSTS") or 0)
LARGEST = 16 << 20  # bytes of a host, rounded up
SPARE = 5  # hosts of a small fleet that stay well
TWICE = 3  # faults that two hosts have, in other words

MEMORY = {
    "profile": "rule",
    "kind": "fleet.cdi/memory",
    "match": {"subsystem": "mem", "node": ["/dev/full", "/dev/zero"]},
    "group_by": "none",
    "name_by": ["sysname"],
}
RULE = {"mem/rule": {"args": {name: MEMORY[name] for name in ("profile", "kind", "match")}}}
USUAL = {"cdi_host_devices": {"memory": MEMORY}, "cdi_host_plugins": RULE}
# The kinds of the hosts that stay well.
MIXES = (
    USUAL,
    {"cdi_host_devices": {"consoles": {"profile": "tty"}}},
    {"cdi_host_devices": {"memory": MEMORY, "consoles": {"profile": "tty"}}},
    {
        "cdi_host_devices": {
            "random": {**MEMORY, "kind": "fleet.cdi/random", "match": {"subsystem": "mem", "node": ["/dev/urandom"]}}
        }
    },
)
DOCKER = {"cdi_host_runtime_settings": {"docker": {}}}
DOCKERD = r"""printf '#!/bin/sh\necho Docker version 26.1.5, build x\n' > /usr/local/bin/docker
chmod +x /usr/local/bin/docker; cp /usr/local/bin/docker /usr/local/bin/dockerd"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="hosts are mount namespaces: needs root")


@pytest.fixture(scope="module")
def plan():
    """The hosts by name: (variables, fault or None, drift or None)."""
    rows = [(USUAL, fault, None) for fault in (*FAULTS, *FAULTS[:TWICE])]
    rows += [(USUAL, None, drift) for drift in DRIFTS]
    rows += [(MIXES[number % len(MIXES)], None, None) for number in range(max(HOSTS - len(rows), SPARE))]
    return {f"gpu-{number:04}": row for number, row in enumerate(rows)}


def variables_of(row):
    usual, fault, drift = row
    docker = (fault or drift or {}).get("docker")
    return {**usual, **(DOCKER if docker else {}), **((fault or {}).get("variables") or {})}


@pytest.fixture(scope="module")
def fleet(plan):
    """The fleet, with the faults that come before its first provisioning. Each host has a thousand files."""
    with workplace("fleet-", ROOM + HOSTS * LARGEST) as place:
        found = Fleet(place, {name: variables_of(row) for name, row in plan.items()})
        for name, row in plan.items():
            if "cdi_host_runtime_settings" in found.hosts[name]:
                found.on(name, DOCKERD)
            if row[1] and row[1].get("before"):
                found.plant(name, row[1])
        yield found


def faulty(plan, before):
    return {
        name: fault for name, (_usual, fault, _drift) in plan.items() if fault and bool(fault.get("before")) == before
    }


def grouped(rows, *words):
    """Return (value of each of `words`) -> names of the hosts: hosts that belong together."""
    found = {}
    for name, row in rows.items():
        found.setdefault(tuple(row.get(word, "") for word in words), []).append(name)
    return found


def compared(wanted, found):
    """Return the differences of the causes `found`, (text, hosts), and those `wanted`, (words, hosts)."""
    wrong = []
    for words, hosts in wanted:
        mine = [text for text, there in found if there == hosts]
        if len(mine) != 1 or not all(word in mine[0] for word in words):
            wrong.append(
                f"{hosts}: expected one cause with {words}; found\n  "
                + "\n  ".join(text for text, there in found if set(there) & set(hosts))
            )
    more = [text for text, there in found if there not in [hosts for _words, hosts in wanted]]
    return wrong + [f"not expected: {text}" for text in more]


def say(name, done, hosts, more=""):
    """Say the figures of a run; pytest shows them with -s."""
    cost = f"{done.seconds / 60:.1f} min, {done.cpu / hosts:.2f} CPU-s for each host"
    sys.stderr.write(f"\n{name}: {hosts} hosts, {cost}{more}\n")


def test_provision_does_the_healthy_and_groups_the_others(fleet, plan):
    broken = faulty(plan, before=True)
    if not os.environ.get("WHOLE"):
        changing = [name for name, row in plan.items() if row[1] or row[2]]
        fleet.share_release(next(name for name in plan if name not in changing), broken, changing)
    done = fleet.play("fleet.cdi.provision")
    say("provision, first", done, len(plan))
    found = [(text, hosts) for text, _task, hosts in failures(done.said)]
    wanted = [
        ((row[0],), hosts) for row, hosts in ((key, value) for key, value in grouped(broken, "provision").items())
    ]
    assert not compared(wanted, found), "\n".join(compared(wanted, found))
    assert f"{len(broken)} failed" in done.said and "unreachable" not in done.said
    for name, (usual, fault, _drift) in plan.items():
        if not (fault and fault.get("before")):
            specs = sorted(path.stem for path in (fleet.place(name) / "etc/cdi").glob("*.json"))
            kinds = {"memory": "memory", "consoles": "tty", "random": "random"}
            assert specs == sorted(f"fleet.cdi-{kinds[key]}" for key in usual["cdi_host_devices"]), name


def test_report_has_one_cause_for_each_fault(fleet, plan):
    """A host has one cause: what follows from another finding is not said."""
    broken = faulty(plan, before=False)
    for name, fault in broken.items():
        fleet.plant(name, fault)
    every = {**broken, **faulty(plan, before=True)}
    done = fleet.play("fleet.cdi.report")
    assert done.status == 0, done.said
    found = causes(fleet.read("report.json"))
    say("report", done, len(plan), f", {len(found)} causes")
    wanted = list(grouped(every, "rule", "said", "next").items())
    told = [(f"{rule}: {problem} -> {then}", hosts) for rule, problem, then, hosts in found]
    assert not compared(wanted, told), "\n".join(compared(wanted, told))
    assert len(found) == len(wanted) >= 30
    assert max(Counter(host for *_more, hosts in found for host in hosts).values()) == 1, shown(found)


def test_verify_finds_each_drift_and_provision_repairs_these(fleet, plan):
    well = [name for name, (_usual, fault, _drift) in plan.items() if not fault]
    drifted = {name: drift for name, (_usual, _fault, drift) in plan.items() if drift}
    limit = fleet.limit(well)
    for name, drift in drifted.items():
        fleet.plant(name, drift)
        fleet.hosts[name].update(drift.get("variables", {}))
    done = fleet.play("fleet.cdi.verify", *limit)
    assert done.status == 2, done.said
    verdicts = fleet.read("verify.json")["hosts"]
    found = {name: one for name, one in verdicts.items() if one["verdict"] != "well"}
    say("verify", done, len(well), f", {len(found)} drifts")
    assert found.keys() == drifted.keys(), {name: found.get(name, "missed") for name in found.keys() ^ drifted.keys()}
    for name, drift in drifted.items():
        said = [f"{one['rule']}: {one['text']}" for one in found[name]["problems"]]
        assert any(text.startswith(f"{drift['rule']}: ") and drift["said"] in text for text in said), (drift, said)
    assert len(drifted) >= 30

    done = fleet.play("fleet.cdi.provision", "-v", *limit)
    changed = {line.split(": ")[1] for line in done.said.splitlines() if line.startswith("changed: ")}
    say("provision, again", done, len(well), f", {len(changed)} changed")
    assert done.status == 0, done.said
    assert changed == drifted.keys(), [plan[name][2] for name in changed ^ drifted.keys()]
    done = fleet.play("fleet.cdi.verify", *limit)
    assert done.status == 0, done.said
