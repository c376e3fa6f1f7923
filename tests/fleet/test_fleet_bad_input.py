# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes wrong while playbooks run on simulated hosts: kills, reboots, two runs at once, aliases, other releases.

KILLS=100 more moments at which ansible-playbook is killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest
import simulated_host
from simulated_fleet import CHECKOUT, PYTHON, Fleet, causes, failures, has_module

KILLS = int(os.environ.get("KILLS") or 3)
VARIABLES = {
    "cdi_host_devices": {
        "memory": {
            "profile": "rule",
            "kind": "fleet.cdi/memory",
            "match": {"subsystem": "mem", "node": ["/dev/full", "/dev/zero"]},
            "group_by": "none",
            "name_by": ["sysname"],
        }
    }
}
SPEC = "etc/cdi/fleet.cdi-memory.json"
WELL = {"verdict": "well", "problems": []}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="hosts are mount namespaces: needs root")


@pytest.fixture
def fleet_of(tmp_path):
    """Make a fleet: fleet_of(*names) -> hosts with the same settings."""

    def make(*names, **variables):
        return Fleet(tmp_path, {name: {**VARIABLES, **variables} for name in names})

    return make


@pytest.fixture
def provisioned(fleet_of):
    """Make a fleet whose hosts are provisioned."""

    def make(*names):
        fleet = fleet_of(*names)
        fleet.share_release(names[0], copied=names)
        done = fleet.play("fleet.cdi.provision")
        assert done.status == 0, done.said
        return fleet

    return make


def paths(place):
    """Return the paths of all files of a host that fleet.cdi may have written."""
    return {
        str(path.relative_to(place))
        for own in ("etc/cdi", "opt/cdi", "run", "usr/local/bin", "var/lib/cdi")
        for path in (place / own).rglob("*")
    }


def verdicts(fleet, *options):
    done = fleet.play("fleet.cdi.verify", *options)
    assert done.status in (0, 2), done.said
    return fleet.read("verify.json")["hosts"]


def report_causes(fleet):
    done = fleet.play("fleet.cdi.report")
    assert done.status == 0, done.said
    return causes(fleet.read("report.json"))


def test_a_run_that_is_killed_at_any_point_is_ended_by_the_next(fleet_of):
    names = [f"gpu-{number}" for number in range(KILLS)]
    fleet = fleet_of("whole", *names)
    whole = fleet.play("fleet.cdi.provision", "--limit", "whole")
    assert whole.status == 0, whole.said
    cut = 0
    for number, name in enumerate(names):
        running = fleet.start("fleet.cdi.provision", "--limit", name)
        moment = time.monotonic() + whole.seconds * (number + 1) / (KILLS + 1)
        # The first one when it begins to write, at the latest: the machine may be faster now than for the whole one.
        while time.monotonic() < moment and not (number == 0 and os.listdir(fleet.place(name) / "opt/cdi")):
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
        cut += running.returncode == -signal.SIGKILL and not (fleet.place(name) / SPEC).exists()
    assert cut, "no run was killed before its end"
    done = fleet.play("fleet.cdi.provision")
    assert done.status == 0, done.said
    assert verdicts(fleet) == dict.fromkeys(fleet.hosts, WELL)
    for name in names:
        assert paths(fleet.place(name)) == paths(fleet.place("whole")), name


def test_skipped_tags_leave_nothing_out_of_a_verdict(provisioned):
    fleet = provisioned("gpu-1", "gpu-2")
    fleet.hosts["gpu-1"]["cdi_host_devices"] = {}
    assert {name: one["verdict"] for name, one in verdicts(fleet, "--skip-tags", "specs").items()} == {
        "gpu-1": "drift",
        "gpu-2": "well",
    }


def test_two_runs_at_once(fleet_of):
    fleet = fleet_of("gpu-1", "gpu-2")
    runs = [fleet.start("fleet.cdi.provision") for _run in range(2)]
    for run in runs:
        said, _none = run.communicate()
        assert run.returncode == 0, said
    assert verdicts(fleet) == dict.fromkeys(fleet.hosts, WELL)


def test_a_machine_with_two_names(fleet_of):
    """Both names are provisioned in one run, at the same time; the report counts no device twice in silence."""
    fleet = fleet_of("gpu-1", "gpu-2", "other")
    fleet.hosts["gpu-2"]["simulated_directory"] = str(fleet.place("gpu-1"))
    done = fleet.play("fleet.cdi.provision")
    assert done.status == 0, done.said
    ((rule, problem, then, hosts),) = report_causes(fleet)
    assert (rule, hosts) == ("same-machine", ["gpu-1", "gpu-2"])
    assert "the devices of 1 other host, so these names of the inventory are one machine" in problem
    assert then == "leave one of its names in the inventory"
    found = verdicts(fleet)
    assert {name: one["verdict"] for name, one in found.items()} == {
        "gpu-1": "problem",
        "gpu-2": "problem",
        "other": "well",
    }


def test_a_host_that_reboots_in_the_middle(fleet_of):
    """The run goes on with the others, and names the cause; the next run converges."""
    fleet = fleet_of("gpu-1", "gpu-2")
    (fleet.place("gpu-1") / "lost").write_text("0.5")
    done = fleet.play("fleet.cdi.provision")
    assert done.status == 4, done.said
    ((text, _task, hosts),) = failures(done.said)
    assert "Connection" in text and hosts == ["gpu-1"]
    assert (fleet.place("gpu-2") / SPEC).exists()
    for name in ("lost", "refused"):
        (fleet.place("gpu-1") / name).unlink()
    simulated_host.boot(fleet.place("gpu-1"))
    done = fleet.play("fleet.cdi.provision")
    assert done.status == 0, done.said
    assert verdicts(fleet) == dict.fromkeys(fleet.hosts, WELL)


def test_a_host_that_reboots_between_two_runs(provisioned):
    """/run is empty after a boot, and nothing refreshes here: one cause, and the next run repairs it."""
    fleet = provisioned("gpu-1", "gpu-2")
    simulated_host.boot(fleet.place("gpu-1"))
    ((rule, problem, then, hosts),) = report_causes(fleet)
    assert (rule, then, hosts) == (
        "inventory-unusable",
        "`fleet-cdi refresh`",
        ["gpu-1"],
    ) and "does not exist" in problem
    assert fleet.play("fleet.cdi.provision").status == 0
    assert verdicts(fleet) == dict.fromkeys(fleet.hosts, WELL)


FULL = "mount -t tmpfs -o size=4k,mode=755 none {0}; dd if=/dev/zero of={0}/full status=none || true"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("/etc/cdi", "/etc/cdi/fleet.cdi-memory.json: can't write it: No space left on device"),
        ("/var/lib/cdi", "can't write it: No space left on device"),
        ("/opt/cdi", "can't write it: No space left on device"),
    ],
)
def test_a_full_disk(fleet_of, place, said):
    """The run names the file that it could not write, and does the other host. With space, the next run converges."""
    fleet = fleet_of("gpu-1", "gpu-2")
    fleet.share_release("gpu-2", ["gpu-1"] if place == "/opt/cdi" else [])
    fleet.plant("gpu-1", {"always": FULL.format(place)})
    done = fleet.play("fleet.cdi.provision")
    ((text, _task, hosts),) = failures(done.said)
    assert said in text and hosts == ["gpu-1"] and done.status == 2
    (fleet.place("gpu-1") / simulated_host.ALWAYS).unlink()
    assert fleet.play("fleet.cdi.provision").status == 0
    assert verdicts(fleet) == dict.fromkeys(fleet.hosts, WELL)


@pytest.mark.parametrize("playbook", ["provision", "remove", "report", "upgrade", "verify"])
def test_hosts_that_the_inventory_chooses(fleet_of, playbook):
    """Ansible would do all hosts: it does not read the hosts of a play there."""
    fleet = fleet_of("gpu-1", "gpu-2", fleet_cdi_hosts="gpu-1")
    done = fleet.play(f"fleet.cdi.{playbook}")
    ((text, _task, hosts),) = failures(done.said)
    assert text.startswith("fleet_cdi_hosts: found gpu-1 in the inventory, and in this play other hosts, as gpu-2;")
    assert done.status == 2 and not hosts and not (fleet.place("gpu-2") / SPEC).exists()
    done = fleet.play(f"fleet.cdi.{playbook}", "--limit", "gpu-1", "-e", "fleet_cdi_hosts=all", "--check")
    assert "in this play other hosts" not in done.said


def test_hosts_that_the_variables_of_one_host_choose(tmp_path):
    """It is not the host in whose name the check runs."""
    fleet = Fleet(tmp_path, {"gpu-1": VARIABLES, "gpu-2": {**VARIABLES, "fleet_cdi_hosts": "gpu-2"}})
    ((text, _task, _hosts),) = failures(fleet.play("fleet.cdi.remove").said)
    assert text.startswith("fleet_cdi_hosts: found gpu-2 in the inventory, and in this play other hosts, as gpu-1;")


def test_a_host_with_another_release(provisioned, tmp_path):
    """Another controller provisioned it. Report and verify say so, and the next run of this controller replaces it."""
    fleet = provisioned("gpu-1", "gpu-2")
    theirs = tmp_path / "theirs/ansible_collections/fleet/cdi"
    for name in ("meta", "playbooks", "plugins", "roles"):
        shutil.copytree(CHECKOUT / name, theirs / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "galaxy.yml", theirs)
    with open(theirs / "plugins/module_utils/spec/items.py", "a", encoding="utf-8") as code:
        code.write("# Of another release.\n")
    done = fleet.play("fleet.cdi.provision", "--limit", "gpu-1", collections=tmp_path / "theirs")
    assert done.status == 0, done.said
    ((rule, problem, then, hosts),) = report_causes(fleet)
    assert (rule, hosts) == ("other-release", ["gpu-1"]) and "fleet.cdi.provision" in then
    assert "is active, and this controller has release" in problem
    found = verdicts(fleet)["gpu-1"]
    assert found["verdict"] == "drift" and "other-release" in {one["rule"] for one in found["problems"]}
    assert fleet.play("fleet.cdi.provision").status == 0
    assert verdicts(fleet) == dict.fromkeys(fleet.hosts, WELL)


def test_hosts_that_can_not_run_a_module(fleet_of):
    """A Python that fails, one that is missing, half an answer: each is a cause that says what to repair."""
    fleet = fleet_of("broken", "gone", "half", "well")
    python = os.path.realpath(PYTHON)
    script = r"#!/bin/sh\necho ImportError: no module named site >&2; exit 1\n"
    broken = f"printf '{script}' > /run/python3; chmod +x /run/python3"
    fleet.share_release("well")
    fleet.plant("broken", {"always": f"{broken}; mount --bind /run/python3 {python}"})
    fleet.plant("gone", {"always": f"mount --bind /dev/null {python}"})
    fleet.plant("half", {"connection": {"half": ""}})
    done = fleet.play("fleet.cdi.provision")
    found = {hosts[0]: text for text, _task, hosts in failures(done.said)}
    assert found.keys() == {"broken", "gone", "half"} and done.status == 2, done.said
    assert "ImportError: no module named site. Repair this Python" in found["broken"]
    assert "Permission denied. Repair this Python" in found["gone"]
    assert "its answer ends after" in found["half"]
    assert (fleet.place("well") / SPEC).exists()
    told = {name: one["problems"][0] for name, one in verdicts(fleet).items() if one["verdict"] == "unknown"}
    assert told.keys() == found.keys() and "its answer ends after" in told["half"]["text"]


def test_a_clock_that_is_wrong_by_a_year(provisioned):
    """Nothing depends on it but what people see, so provision works; report and verify name the clock."""
    fleet = provisioned("gpu-1", "gpu-2")
    if not has_module("sitecustomize"):
        pytest.skip(f"{PYTHON} has no sitecustomize, in which a test could set its clock")
    there = fleet.on("gpu-1", f"readlink -f $({PYTHON} -c 'import sitecustomize as s; print(s.__file__)')").strip()
    fleet.plant(
        "gpu-1",
        {
            "plant": "echo 'import time; now = time.time; time.time = lambda: now() + 31536000' > /run/clock.py",
            "always": f"mount --bind /run/clock.py {there}",
        },
    )
    done = fleet.play("fleet.cdi.provision")
    assert done.status == 0, done.said
    ((rule, problem, then, hosts),) = report_causes(fleet)
    assert (rule, then, hosts) == ("clock-wrong", "set it: `timedatectl`", ["gpu-1"])
    assert problem == "clock: the clock of the host is 365 days ahead of that of the controller"
    assert {name: one["verdict"] for name, one in verdicts(fleet).items()} == {"gpu-1": "problem", "gpu-2": "well"}
