# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbook upgrade on several hosts: names in an inventory with the local connection and directories of their own.

An older release comes from a copy of the collection with one more comment. The grants are made by the real executables.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import kubernetes_collection  # tests/harness
import page
import pytest
import simulated_fleet
import typed
import yaml
from fake_kubernetes import Cluster, serve

CHECKOUT = Path(__file__).resolve().parents[2]
PLAYBOOK = str(Path(sys.executable).with_name("ansible-playbook"))
PAGE = "docs/upgrade.md"
HOSTS = ("gpu1", "gpu2", "gpu3")
RULE = {
    "profile": "rule",
    "kind": "fleet.cdi/memory",
    "match": {"subsystem": "mem", "node": ["/dev/full", "/dev/zero"]},
    "group_by": "none",
    "name_by": ["sysname"],
}
REASON = "fleet.cdi.upgrade: the host is being upgraded"
SETTLE = [{"hosts": "all", "gather_facts": False, "tasks": [{"fleet.cdi.cdi_host": {}}]}]
# The site's own work: a line for each host that it was done on.
WORK = [
    {
        "name": "Note the host",
        "ansible.builtin.lineinfile": {
            "path": "{{ work }}/done",
            "line": "{{ inventory_hostname }} {{ lookup('ansible.builtin.pipe', 'date +%s%N') }}",
            "create": True,
            "mode": "0644",
        },
    },
    {
        "name": "Do what the test wants",
        "ansible.builtin.shell": {"cmd": "{{ work_command }}"},
        "when": "work_command | default('') | length > 0",
        "changed_when": False,
    },
]

# Stands in for the package manager of a host: notes what it was asked for.
PACKAGES = """#!/bin/sh
# WANT_JSON
cat "$1" >> "$INSTALLED"; echo >> "$INSTALLED"
echo '{"changed": true}'
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes releases and grants of root: needs root")


def older_collection(directory):
    """Make a collection with another release in `directory`, and return that."""
    cdi = directory / "ansible_collections/fleet/cdi"
    for name in ("plugins", "meta"):
        shutil.copytree(CHECKOUT / name, cdi / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "galaxy.yml", cdi)
    with (cdi / "plugins/module_utils/release/version.py").open("a", encoding="utf-8") as file:
        file.write("# older\n")
    return directory


class Fleet:
    """Hosts, and what plays and commands do with them."""

    def __init__(self, directory, environment):
        self.directory, self.environment = directory, environment
        self.old = older_collection(directory / "old")
        (directory / "settle.yml").write_text(yaml.safe_dump(SETTLE))
        (directory / "work.yml").write_text(yaml.safe_dump(WORK))
        self.older = ""  # the release that all hosts begin with
        self.write_hosts()

    def write_hosts(self, nodes=(), **more):
        hosts = {name: {**settings(self.directory / name), **more.get(name, {})} for name in HOSTS}
        hosts["gpu2"]["cdi_host_plugins"] = {"memory/rule": {"args": RULE}}
        # Ansible takes these for the controller too, which has no such program.
        every = {"ansible_become": True, "ansible_become_exe": "/nonexistent/sudo"}
        groups = {"nodes": {"hosts": dict.fromkeys(nodes)}}
        (self.directory / "hosts.json").write_text(
            json.dumps({"all": {"hosts": hosts, "vars": every, "children": groups}})
        )

    def command(self, playbook, *options):
        # A later one of the same name counts.
        given = ["-e", f"work={self.directory}", "-e", "fleet_cdi_upgrade_drain_timeout=0"]
        # Here root may not see the processes of all users.
        given += ["-e", "fleet_cdi_upgrade_accept=well,unknown"]
        given += ["-e", f"fleet_cdi_upgrade_tasks={self.directory}/work.yml"]
        return [PLAYBOOK, "-i", "hosts.json", "--forks", "4", playbook, *given, *options]

    def play(self, playbook, *options, status=0, path=CHECKOUT / "build/pythonpath", **more):
        environment = {**self.environment, "ANSIBLE_COLLECTIONS_PATH": str(path), **more}
        environment["ANSIBLE_BECOME_ALLOW_SAME_USER"] = "1"  # as for a user who is not root
        done = subprocess.run(
            self.command(playbook, *options),
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        said = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == status, done.stdout + done.stderr
        return said

    def upgrade(self, *options, status=0, **more):
        return self.play("fleet.cdi.upgrade", *options, status=status, **more)

    def cli(self, host, *words):
        done = subprocess.run(
            [str(self.directory / host / "opt/bin/fleet-cdi"), *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def releases(self):
        return [os.readlink(self.directory / host / "opt/lib/current") for host in HOSTS]

    def out_of_service(self, host):
        """The devices of a host that are out of service, with the reasons."""
        path = self.directory / host / "state/device-state.json"
        found = json.loads(path.read_text())["devices"] if path.exists() else {}
        return {name: one["reason"] for name, one in found.items()}

    def offered(self, host):
        path = self.directory / host / "cdi/fleet.cdi-memory.json"
        return [one["name"] for one in json.loads(path.read_text())["devices"]] if path.exists() else []

    def worked(self):
        """The hosts on which the site's work was done, since the last call."""
        path = self.directory / "done"
        found = [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []
        path.write_text("")
        return sorted(found)


def settings(directory):
    return {
        "cdi_host_devices": {"memory": {**RULE, "required": True}},
        "cdi_host_prefix": f"{directory}/opt",
        "cdi_host_state_dir": f"{directory}/state",
        "cdi_host_device_list": f"{directory}/inventory.json",
        "cdi_host_spec_dir": f"{directory}/cdi",
        "cdi_host_command_link": False,
        "cdi_host_install_packages": False,
        "cdi_host_refresh": False,
        "ansible_become": False,
        "ansible_connection": "local",
        "ansible_pipelining": True,
        "ansible_python_interpreter": sys.executable,
    }


@pytest.fixture(scope="module")
def fleet(tmp_path_factory, ansible_environment):
    """Hosts with the older release."""
    made = Fleet(tmp_path_factory.mktemp("fleet"), ansible_environment)
    made.play("settle.yml", path=made.old)
    made.older = made.releases()[0]
    yield made
    made.write_hosts()
    for host in HOSTS:
        subprocess.run([str(made.directory / host / "opt/bin/fleet-cdi"), "undo", "--force"], check=False)


def test_an_upgrade_of_a_fleet(fleet):
    """One story, because each host has to be made once."""
    old = fleet.older

    # A preview touches nothing.
    said = fleet.upgrade("--check")
    assert "Would take 2 devices out of service, wait for nobody, run" in said and f"go from release {old}" in said
    assert fleet.releases() == [old] * 3 and fleet.worked() == [] and fleet.out_of_service("gpu1") == {}

    # A device that is held for ever stops the run after its batch. The mark of an operator stays.
    fleet.cli("gpu1", "device", "disable", "mem:zero", "--reason", "broken, ticket 7")
    fleet.cli("gpu2", "claim", "add", "job-42", "memory:1")
    said = fleet.upgrade("-e", "fleet_cdi_upgrade_serial=2", status=2)
    assert "are still in use: fleet.cdi/memory=full by request job-42 of memory/rule (claims)" in said, said
    assert "The run stops after this batch, because these hosts failed or can't be reached: gpu2" in said
    new = fleet.releases()[0]
    assert fleet.releases() == [new, old, old] and new != old and fleet.worked() == ["gpu1"]
    assert fleet.out_of_service("gpu1") == {"mem:zero": "broken, ticket 7"}
    assert [fleet.out_of_service(host) for host in HOSTS[1:]] == [{}] * 2
    assert [fleet.offered(host) for host in HOSTS] == [["full"], *[["full", "zero"]] * 2]

    # The next run goes on where this one stopped.
    fleet.cli("gpu2", "claim", "del", "job-42")
    fleet.upgrade()
    assert fleet.releases() == [new] * 3 and fleet.worked() == ["gpu2", "gpu3"]
    assert fleet.offered("gpu2") == ["full", "zero"]

    # A host that is not well after the work stays out of service, and its message tells the way back.
    bad = fleet.directory / "gpu3/cdi/bad.json"
    again = ("--limit", "gpu3", "-e", "fleet_cdi_upgrade_unchanged=true")
    command = f"mkdir -p {bad.parent} && echo nothing > {bad}"
    said = fleet.upgrade(*again, "-e", json.dumps({"work_command": command}), status=2)
    assert "The host is not well after the upgrade:" in said and "bad.json" in said, said
    assert "ansible-playbook fleet.cdi.upgrade -e fleet_cdi_upgrade_state=previous --limit gpu3" in said
    assert fleet.out_of_service("gpu3") == {"mem:full": REASON, "mem:zero": REASON} and fleet.offered("gpu3") == []
    bad.unlink()
    back = ("-e", "fleet_cdi_upgrade_state=previous", "-e", "fleet_cdi_upgrade_serial=3")
    fleet.upgrade(*back, "--limit", "gpu3")
    assert fleet.releases() == [new, new, old]
    assert fleet.out_of_service("gpu3") == {} and fleet.offered("gpu3") == ["full", "zero"]

    # A run that was killed while a host was drained: the next one converges.
    fleet.worked()
    command = fleet.command("fleet.cdi.upgrade", "--limit", "gpu2", "-e", "fleet_cdi_upgrade_unchanged=true")
    asleep = fleet.directory / "asleep"
    with subprocess.Popen(
        [*command, "-e", json.dumps({"work_command": f": > {asleep}; exec sleep 600"})],
        cwd=fleet.directory,
        env={**fleet.environment, "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath")},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as killed:
        until = time.monotonic() + 600
        while not asleep.exists() and time.monotonic() < until and killed.poll() is None:
            time.sleep(0.2)
        for pid in family(killed.pid):  # the workers of Ansible have sessions of their own; none comes or goes now
            os.kill(pid, signal.SIGKILL)
    assert asleep.exists() and fleet.worked() == ["gpu2"]
    assert set(fleet.out_of_service("gpu2").values()) == {REASON}
    fleet.upgrade("--limit", "gpu2")
    assert fleet.out_of_service("gpu2") == {} and fleet.offered("gpu2") == ["full", "zero"]

    # A host that can't be reached fails its batch; the others of the batch are finished, and no later batch begins.
    fleet.worked()
    fleet.write_hosts(gpu1={"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1})
    said = fleet.upgrade("-e", "fleet_cdi_upgrade_serial=2", status=4)
    assert "because these hosts failed or can't be reached: gpu1" in said, said
    assert fleet.releases() == [new, new, old] and fleet.worked() == []

    # A host with another release than that of the controller is no host to take back.
    fleet.write_hosts()
    said = fleet.upgrade(*back, "--limit", "gpu3")
    assert fleet.releases() == [new, new, old] and fleet.worked() == []


def test_only_a_host_that_is_well_goes_back_into_service(tmp_path):
    """On these hosts root sees all processes: nothing is unknown, and the default of fleet_cdi_upgrade_accept holds."""
    devices = {"cdi_host_devices": {"memory": {**RULE, "required": True}}}
    hosts = simulated_fleet.Fleet(tmp_path, dict.fromkeys(("gpu-1", "gpu-2", "new-1"), devices))
    (tmp_path / "settle.yml").write_text(yaml.safe_dump(SETTLE))
    first = hosts.play("settle.yml", "--limit", "gpu-1,gpu-2", collections=older_collection(tmp_path / "old"))
    assert first.status == 0, first.said

    def state(host):
        place = hosts.place(host)
        path = place / "var/lib/cdi/device-state.json"
        out = sorted(json.loads(path.read_text())["devices"]) if path.exists() else []
        return os.readlink(place / "opt/cdi/lib/current"), out

    old, _out = state("gpu-1")
    done = hosts.play("fleet.cdi.upgrade", "--limit", "gpu-1")
    assert done.status == 0, done.said
    new, out = state("gpu-1")
    assert new != old and out == []

    # Another tool writes a broken spec while the host is out of service.
    (tmp_path / "work.yml").write_text(yaml.safe_dump(WORK[1:]))
    work = {"fleet_cdi_upgrade_tasks": str(tmp_path / "work.yml"), "work_command": "echo nothing > /etc/cdi/bad.json"}
    done = hosts.play("fleet.cdi.upgrade", "--limit", "gpu-2", "-e", json.dumps(work))
    assert done.status == 2, done.said
    assert "The host is not well after the upgrade:" in done.said and "bad.json" in done.said, done.said
    assert state("gpu-2") == (new, ["mem:full", "mem:zero"])

    # A new host had nothing to take out of service before. What the run gave it is out of service afterwards, so the
    # next run does not take it for done.
    work["work_command"] = "mkdir -p /etc/cdi && echo nothing > /etc/cdi/bad.json"
    done = hosts.play("fleet.cdi.upgrade", "--limit", "new-1", "-e", json.dumps(work))
    assert done.status == 2 and state("new-1") == (new, ["mem:full", "mem:zero"]), done.said
    end = "Repair it and run the playbook again; it has no earlier release to go back to."
    assert f"The host stays out of service. {end}" in done.said, done.said
    assert hosts.play("fleet.cdi.upgrade", "--limit", "new-1").status == 2
    (hosts.place("new-1") / "etc/cdi/bad.json").unlink()
    done = hosts.play("fleet.cdi.upgrade", "--limit", "new-1")
    assert done.status == 0 and state("new-1") == (new, []), done.said


def test_no_device_is_overlooked_before_and_after_the_work(tmp_path):
    """The devices that are to go out of service have to be known, and those that went have to be there afterwards."""
    hosts = simulated_fleet.Fleet(tmp_path, {"gpu-1": {"cdi_host_devices": {"memory": RULE}}})
    assert hosts.play("fleet.cdi.provision").status == 0
    (tmp_path / "work.yml").write_text(yaml.safe_dump(WORK[1:]))
    place = hosts.place("gpu-1")
    more = {
        "fleet_cdi_upgrade_unchanged": True,
        "fleet_cdi_upgrade_tasks": str(tmp_path / "work.yml"),
        "work_command": "touch /etc/cdi/worked",
    }
    (place / "run/cdi-inventory.json").unlink()  # as after a reboot whose refresh failed
    done = hosts.play("fleet.cdi.upgrade", "-e", json.dumps(more))
    assert done.status == 2 and not (place / "etc/cdi/worked").exists(), done.said
    assert "nobody can tell which devices to take out of service" in done.said, done.said

    assert hosts.play("fleet.cdi.provision").status == 0
    more["cdi_host_devices"] = {"memory": {**RULE, "match": {"subsystem": "mem", "node": "/dev/zero"}}}
    done = hosts.play("fleet.cdi.upgrade", "-e", json.dumps(more))
    assert done.status == 2 and (place / "etc/cdi/worked").exists(), done.said
    assert "its settings leave them out: mem:full. Nothing was changed." in done.said, done.said
    out = json.loads((place / "var/lib/cdi/device-state.json").read_text())["devices"]
    assert sorted(out) == ["mem:full", "mem:zero"]
    done = hosts.play("fleet.cdi.upgrade", "-e", json.dumps(more), "-e", "fleet_cdi_upgrade_allow_missing=true")
    assert done.status == 0 and not (place / "var/lib/cdi/device-state.json").exists(), done.said


def test_wrong_settings_stop_it_before_the_first_host(fleet):
    said = fleet.upgrade("-e", "fleet_cdi_upgrade_seriel=2", status=2)
    assert "did you mean 'fleet_cdi_upgrade_serial'" in said, said
    said = fleet.upgrade("-e", "fleet_cdi_upgrade_state=rolled_back", status=2)
    assert "rolled_back" in said and fleet.worked() == []


def test_a_file_of_tasks_that_is_missing_is_said_before_a_host_is_drained(fleet):
    wrong = json.dumps({"fleet_cdi_upgrade_tasks": "/srv/drivr.yml", "fleet_cdi_upgrade_unchanged": True})
    for options in (("--check",), ()):
        said = fleet.upgrade("--limit", "gpu1", "-e", wrong, *options, status=2)
        assert "fleet_cdi_upgrade_tasks: found /srv/drivr.yml; expected a file of the controller [FC1101]" in said, said
        assert REASON not in fleet.out_of_service("gpu1").values()


def test_a_preview_fails_where_the_run_would(tmp_path):
    """The work of the site, or the end of a job, may correct it: then the preview only names it."""
    nothing = {**RULE, "match": {"subsystem": "mem", "node": ["/dev/none"]}, "required": True}
    hosts = simulated_fleet.Fleet(tmp_path, {"gpu-1": {"cdi_host_devices": {"memory": nothing}}})
    (tmp_path / "work.yml").write_text(yaml.safe_dump(WORK[1:]))
    hosts.shown_by = "ansible.builtin.default"
    missing = "specs: devices entry 'memory': found no device, but has required: true"
    look = hosts.play("fleet.cdi.upgrade", "--check")
    assert look.status == 2 and f'"msg": "{missing}' in look.said, look.said
    look = hosts.play("fleet.cdi.upgrade", "--check", "-e", f"fleet_cdi_upgrade_tasks={tmp_path}/work.yml")
    assert look.status == 0 and f"Its settings can't be met now: {missing}" in " ".join(look.said.split()), look.said


@pytest.fixture(scope="module")
def kubernetes():
    """Variables of the environment with which Ansible finds kubernetes.core."""
    try:
        found = kubernetes_collection.place(CHECKOUT / "build")
    except OSError as error:
        pytest.skip(f"kubernetes.core could not be had: {error}")
    path = f"{CHECKOUT / 'build/pythonpath'}:{found.collections}"
    return {"ANSIBLE_COLLECTIONS_PATH": path, "PYTHONPATH": str(found.library)}


def family(pid):
    """Return a process and all that it started."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
        return [pid, *(one for child in children.read().split() for one in family(int(child)))]


def test_nodes_are_cordoned_and_drained(fleet, kubernetes):
    """A node that an operator cordoned before stays so. Our own cordon goes, also one that a killed run left.

    The page has the settings of the nodes.
    """
    cluster = Cluster()
    cluster.add_node("gpu3", unschedulable=True)
    for pod, owner in (("web", "ReplicaSet"), ("db", "StatefulSet"), ("agent", "DaemonSet")):
        cluster.add_pod(pod, "gpu3", owner)
    cluster.protected.add("db")
    (block,) = [one for one in typed.blocks_of(PAGE) if typed.saved_as(one) == ["group_vars/nodes.yml"]]
    saved = typed.replaced(block.text, {"/root/.kube/config": str(fleet.directory / "kubeconfig")})
    (fleet.directory / "group_vars").mkdir()
    (fleet.directory / "group_vars/nodes.yml").write_text(saved)
    fleet.write_hosts(nodes=["gpu3"])
    before = fleet.releases()[2]
    with serve(cluster) as address:
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fleet", "cluster": {"server": address}}],
            "contexts": [{"name": "fleet", "context": {"cluster": "fleet", "user": "fleet"}}],
            "users": [{"name": "fleet", "user": {"token": "token"}}],
            "current-context": "fleet",
        }
        (fleet.directory / "kubeconfig").write_text(json.dumps(kubeconfig))
        options = ("--limit", "gpu3")

        said = fleet.upgrade(*options, "--check", **kubernetes)
        assert "Would cordon and drain node gpu3, take 2 devices" in said and cluster.changes == []

        # A pod that its disruption budget protects.
        said = fleet.upgrade(*options, status=2, **kubernetes)
        assert "would violate the pod's disruption budget" in said and "Pods on it: db, agent" in said, said
        assert cluster.changes == ["evicted web"] and cluster.nodes["gpu3"]["spec"] == {"unschedulable": True}
        assert fleet.releases()[2] == before and fleet.out_of_service("gpu3") == {}

        cluster.protected.clear()
        cluster.nodes["gpu3"]["spec"] = {}  # by the operator
        fleet.upgrade(*options, **kubernetes)
        done = ['gpu3 {"unschedulable": true}', "evicted db", 'gpu3 {"unschedulable": false}']
        assert cluster.changes[1:] == done and [name for _namespace, name in cluster.pods] == ["agent"]
        assert cluster.nodes["gpu3"]["metadata"]["annotations"] == {} and fleet.releases()[2] != before

        # What a run that was killed left: our cordon, and nothing else to do.
        del cluster.changes[:]
        cluster.nodes["gpu3"]["metadata"]["annotations"] = {"fleet.cdi/cordoned-by": "fleet.cdi.upgrade"}
        cluster.nodes["gpu3"]["spec"]["unschedulable"] = True
        fleet.upgrade(*options, **kubernetes)
        assert cluster.changes == ['gpu3 {"unschedulable": false}']


def test_every_command_of_the_page(fleet):
    """All four runs succeed, and the driver of the page is installed by the one that names its tasks."""
    library, log, installed = (fleet.directory / name for name in ("library", "page.log", "installed"))
    library.mkdir()
    (library / "noted_packages").write_text(PACKAGES)
    host = {**settings(fleet.directory / "gpu3"), "fleet_cdi_upgrade_accept": "well,unknown"}
    host["ansible_package_use"] = "noted_packages"
    (fleet.directory / "page.json").write_text(json.dumps({"all": {"hosts": {"gpu3": host}}}))
    environment = {
        **fleet.environment,
        "ANSIBLE_INVENTORY": str(fleet.directory / "page.json"),
        "ANSIBLE_LIBRARY": str(library),
        "ANSIBLE_LOG_PATH": str(log),
        "INSTALLED": str(installed),
        "PATH": f"{Path(PLAYBOOK).parent}:{os.environ['PATH']}",
    }
    replace = {"rack7": "gpu3", "/srv/fleet": str(fleet.directory)}
    assert page.run(CHECKOUT / PAGE, fleet.directory, environment, replace, 600.0) == 4
    assert re.findall(r"(?:unreachable|failed)=(\d+)", log.read_text()) == ["0", "0"] * 4
    (asked,) = map(json.loads, installed.read_text().splitlines())
    assert (asked["name"], asked["state"]) == ("nvidia-driver", "latest")
    # The last command went back.
    assert fleet.releases()[2] == fleet.older
    assert fleet.offered("gpu3") == ["full", "zero"]
