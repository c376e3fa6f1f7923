# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kubelet and Slurm on one node, both real, set up by docs/slurm.md: neither gives away what the other has."""

from __future__ import annotations

import counterparts
import pytest
import slurm_host  # tests/harness
import yaml
from node import wait
from product import CONSOLES, TTY

ALL = {f"tty{number}" for number in (60, 61, 62, 63)}  # those of the page; the node's others are not Slurm's
OTHERS = {f"tty{number}" for number in CONSOLES} - ALL
PORTS = (6817, 6818)  # Slurm's own: the node has a network of its own
WORK = "/var/lib/slurm-test"
PATIENCE = 60

pytestmark = pytest.mark.parametrize("version", ["1.36"])


class Host:
    """A node of docs/slurm.md: its Slurm, and the consoles that the kubelet may allocate."""

    def __init__(self, product):
        self.product, self.cluster = product, product.cluster
        self.slurm = slurm_host.Slurm(self.sh)

    def sh(self, command, status=0):
        """Run a shell command on the node: its output."""
        path = f"/opt/cdi/bin:{self.product.node.environment['PATH']}"
        done = self.product.node.attempt("/bin/sh", "-c", command, PATH=path)
        assert status is None or done.returncode == status, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def until(self, condition, what):
        """Wait for a condition; its value."""
        try:
            return wait(what, condition, PATIENCE)
        except AssertionError as error:
            seen = self.sh("squeue -a; sinfo -aR; fleet-cdi grants list; fleet-cdi claim list", None)
            said = "\n".join(program.tail() for program in self.product.programs)
            raise AssertionError(f"{error}\n{seen}\n{said}") from None

    def free(self):
        """The consoles of the page that the kubelet may allocate, or has allocated; {"no answer"} without one."""
        found = self.cluster.allocatable(TTY)
        return {"no answer"} if found is None else found & ALL

    def held(self, name):
        """The consoles that a pod has."""
        return {ident.partition("=")[2] or ident for ident in self.cluster.held(name, TTY)}

    def running(self, options, command="sleep 300"):
        """The id of a new job that runs."""
        job = self.slurm.submit(options, command)
        self.until(lambda: self.slurm.state(job) == "RUNNING", f"job {job} does not start")
        return job

    def completed(self, job):
        """Wait for the end of a job that does nothing."""
        self.until(lambda: self.slurm.state(job) == "COMPLETED", f"job {job} does not get its devices")


@pytest.fixture
def own_node(nodes):
    """The next test gets another node: who owns the consoles here is for this test alone."""
    yield
    nodes.close()


@pytest.fixture
def host(own_node, product):  # noqa: ARG001 - in this order: the node is closed last
    """A node with Slurm."""
    missing = counterparts.missing(("slurmctld", "slurmd", "slurm-client"))
    if missing:
        pytest.skip(f"needs {' '.join(missing)}: make e2e INSTALL=1")
    found, node = Host(product), product.node
    for name in (f"{WORK}/state", f"{WORK}/spool", str(slurm_host.CONF)):
        node.path(name).mkdir(parents=True, exist_ok=True)
    for block in (0, 1, 4):
        for command in slurm_host.commands(block):
            found.sh(command)
    found.sh("busybox ip addr add 192.0.2.1/32 dev lo")  # with 127.0.0.1 alone Slurm resolves no name (AI_ADDRCONFIG)
    text = slurm_host.configuration(found.sh, WORK, *PORTS)
    node.path(slurm_host.CONF / "slurm.conf").write_text(text)
    for name in ("slurmctld", "slurmd"):
        product.run(name, name, "-D")
    found.until(lambda: found.sh("sinfo -h -o %T -p all", None).strip() == "idle", "Slurm's node does not come up")
    (variables,) = (yaml.safe_load(block.text) for block in slurm_host.BLOCKS if block.language == "yaml")
    resource = {**variables["cdi_device_plugin_resources"][TTY], "health": {"hold_down": 0, "linger": 1}}
    product.configure({TTY: resource}, grace=1)
    product.serve(ALL | OTHERS, TTY)
    yield found
    found.cluster.clear()
    found.until(lambda: not product.holds() and found.slurm.withheld() == [], "the devices of pods stay withheld")
    found.sh("scancel --user=root; sleep 0.3", None)


def test_pods_and_jobs_never_have_one_device(host):
    pod = host.cluster.create({TTY: 7})
    host.cluster.output(pod)
    taken = host.held(pod) & ALL
    assert set(host.slurm.withheld()) == taken and len(taken) >= 3
    waits, short = host.slurm.submit("--gres=gpu:4", "true"), None
    if taken != ALL:
        short = host.running("--gres=gpu:1")
        assert set(host.slurm.given(short)).isdisjoint(taken)
        host.until(lambda: host.free() <= taken, "the kubelet may give away what a job has")
    assert host.slurm.state(waits) == "PENDING" and host.slurm.is_well()
    if short:
        host.sh(f"scancel {short}")
    host.cluster.delete(pod)
    host.completed(waits)
    host.until(lambda: host.slurm.withheld() == [] and host.free() == ALL, "not all comes back")
    assert host.slurm.is_well()


def test_a_job_wins_against_a_pod(host):
    """Slurm has given all devices to a job whose prolog has not claimed them yet: the kubelet takes them for free."""
    job = host.running("--gres=gpu:4")
    host.until(lambda: host.slurm.claims().get(f"slurm-{job}"), "no granted claim")
    host.until(lambda: host.free() == set(), "the kubelet may give away what a job has")
    host.sh(f"fleet-cdi claim del slurm-{job}")  # as if the prolog had not come to it
    host.until(lambda: host.free() == ALL, "the kubelet does not see them free")
    status = host.cluster.settled(host.cluster.create({TTY: len(ALL | OTHERS)}))
    assert status["reason"] == "UnexpectedAdmissionError" and "Slurm does not give up" in status["message"]
    assert host.slurm.withheld() == []
    host.sh(f"scancel {job}")
    after = host.running("--gres=gpu:4")
    host.until(lambda: len(host.slurm.claims().get(f"slurm-{after}", ())) == 4, "the next job does not get its devices")
    host.until(lambda: host.free() == set(), "the kubelet may give away what the next job has")
    host.sh(f"scancel {after}")
    host.until(lambda: host.slurm.state(after) == "CANCELLED", "the next job does not end")
    assert host.slurm.is_well()
    host.until(lambda: host.free() == ALL, "the kubelet does not get them back")
    host.cluster.output(host.cluster.create({TTY: 5}))
