# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims that are killed at each system call that changes something: no device is lost, and none is held twice.

strace kills `fleet-cdi claim` itself at the n-th call of one sort; the executable that it called goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from ansible_collections.fleet.cdi.plugins.module_utils.allocation.ledger.ledger import Ledger
from ansible_collections.fleet.cdi.plugins.module_utils.claims.device_name import request_id
from ansible_collections.fleet.cdi.plugins.module_utils.discovery import inventory
from ansible_collections.fleet.cdi.plugins.module_utils.manifest import locked_manifest
from ansible_collections.fleet.cdi.tests.unit.plugins.module_utils.cdi_plugin.conftest import Host, config
from ansible_collections.fleet.cdi.tests.unit.trees.hardware import BOOT, ttys

# System calls that change something, take the lock, start a plugin or wait for it.
CALLS = (
    "rename",
    "renameat",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "fsync",
    "flock",
    "vfork",
    "clone",
    "clone3",
    "wait4",
    "write",
)
# The same of a pod, whose claims take the steps of the other tests: what makes and removes records, and starts plugins.
POD_CALLS = {"add": ("renameat", "clone"), "del": ("unlinkat", "clone")}
MOST = 60  # of one sort, in one command

pytestmark = [
    pytest.mark.counterpart("strace"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make device nodes"),
    pytest.mark.skipif(not os.path.exists("/dev/tty15"), reason="this machine has no consoles"),
]


class Consoles:
    """A host with four consoles to grant, and the installed command."""

    def __init__(self, directory: Path) -> None:
        tree = ttys(16)
        tree["files"][BOOT] = inventory.boot_id() + "\n"  # the command has no root but /
        self.host = Host(directory, tree)
        self.host.configure(config("generic-tty", "tty"))
        self.host.install()
        self.directory = directory
        conf = directory / "etc/tty.d/generic-tty0.conf"
        with locked_manifest(str(self.host.state)) as manifest:  # by which the command finds the configuration
            manifest.write(str(conf), conf.read_bytes() + b"\n")

    def claim(self, *arguments, kill=None):
        """Run the command; with `kill` (name, number), end it at this call. Returns the exit status."""
        command = [str(self.directory / "opt/bin/fleet-cdi"), "--state-dir", str(self.host.state)]
        command += ["--inventory", self.host.inventory, "--spec-dir", str(self.directory / "cdi"), "claim", *arguments]
        if kill:
            inject = f"inject=?{kill[0]}:signal=KILL:when={kill[1]}"
            command = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace=?{kill[0]}", "-e", inject, *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.said = done.stdout + done.stderr
        return done.returncode

    def claims(self):
        """The ids of all claims, by their state."""
        assert self.claim("list", "--json") == 0, self.said
        return {claim["id"]: claim["state"] for claim in json.loads(self.said)["claims"]}

    def held(self):
        """The request-ids that the executable holds something for."""
        return {grant.key.request_id for grant in Ledger(str(self.host.state), inventory.boot_id()).grants()}

    def specs(self):
        return {path.name for path in (self.directory / "cdi").glob("*.json")}


@pytest.fixture
def consoles(tmp_path):
    return Consoles(tmp_path)


CONSOLE = "pod.alpha.kubernetes.io/opaque-int-resource-tty"
POD = {
    "kind": "Pod",
    "metadata": {"name": "a"},
    "spec": {
        "resources": {"requests": {CONSOLE: 2}},
        "containers": [
            {"name": "own", "resources": {"requests": {CONSOLE: 2}, "shared": [CONSOLE]}},
            {"name": "other", "resources": {"shared": [CONSOLE]}},
        ],
    },
}


@pytest.fixture
def pod(consoles):
    """The manifest of a pod with two claims, which take all consoles."""
    path = consoles.directory / "pod.json"
    path.write_text(json.dumps(POD))
    return str(path)


def points(run, calls=CALLS, least=10):
    """Yield (name, number) of each call at which `run` was killed."""
    found = 0
    for name in calls:
        for number in range(1, MOST):
            status = run((name, number))
            if status == 0:
                break
            assert status in (-9, 137), (name, number, status)
            found += 1
            yield name, number
        else:
            raise AssertionError(f"{name}: more than {MOST} calls")
    assert found > least


def test_add_at_each_call(consoles):
    """Each kill is followed by gc, or by the same add again."""
    id_ = "job"

    def add(kill):
        status = consoles.claim("add", id_, "tty:2", "--reuse", kill=kill)
        assert status or consoles.claim("del", id_) == 0
        return status

    for kill in points(add):
        before = consoles.claims()
        # What is held has a record, and what has a spec is held.
        assert consoles.held() <= {*before} and len(consoles.specs()) <= len(consoles.held()), kill
        if kill[1] % 2:
            assert consoles.claim("gc") == 0, (kill, consoles.said)
        else:
            assert consoles.claim("add", id_, "tty:2", "--reuse") == 0, (kill, consoles.said)
            assert consoles.claim("check") == 0, (kill, consoles.said)
        assert consoles.claim("del", id_) == 0, (kill, consoles.said)
        assert (consoles.claims(), consoles.held(), consoles.specs()) == ({}, set(), set()), kill


def test_del_at_each_call(consoles):
    def add_and_del(kill):
        assert consoles.claim("add", "job", "tty:2", "--reuse") == 0, (kill, consoles.said)
        return consoles.claim("del", "job", kill=kill)

    for kill in points(add_and_del):
        assert consoles.held() <= {*consoles.claims()}, kill
        if kill[1] % 2:
            assert consoles.claim("del", "job") == 0, (kill, consoles.said)
        else:
            assert consoles.claim("gc") == 0, (kill, consoles.said)
            assert consoles.claim("del", "job") == 0, (kill, consoles.said)
        assert (consoles.claims(), consoles.held(), consoles.specs()) == ({}, set(), set()), kill


def nothing_left(consoles):
    pods = [path.name for path in Path(consoles.host.state, "pods").glob("*.json")]
    return (consoles.claims(), consoles.held(), consoles.specs(), pods) == ({}, set(), set(), [])


def test_pod_add_at_each_call(consoles, pod):
    """Both claims or none: the same again, or the end of the pod, is right after each kill."""

    def add(kill):
        status = consoles.claim("pod", "add", pod, kill=kill)
        assert status or consoles.claim("pod", "del", pod) == 0
        return status

    for kill in points(add, POD_CALLS["add"], 7):
        assert consoles.held() <= {*map(request_id, consoles.claims())}, kill
        if kill[1] % 2:
            assert consoles.claim("pod", "add", pod) == 0, (kill, consoles.said)
            assert sorted(consoles.claims().values()) == ["granted"] * 2, kill
            assert consoles.claim("check") == 0, (kill, consoles.said)
        assert consoles.claim("pod", "del", pod) == 0, (kill, consoles.said)
        assert nothing_left(consoles), kill


def test_pod_del_at_each_call(consoles, pod):
    def add_and_del(kill):
        assert consoles.claim("pod", "add", pod) == 0, (kill, consoles.said)
        return consoles.claim("pod", "del", pod, kill=kill)

    for kill in points(add_and_del, POD_CALLS["del"], 7):
        assert consoles.held() <= {*map(request_id, consoles.claims())}, kill
        if kill[1] % 2:
            assert consoles.claim("gc") == 0, (kill, consoles.said)
        assert consoles.claim("pod", "del", pod) == 0, (kill, consoles.said)
        assert nothing_left(consoles), kill


def test_four_at_once_with_one_id_and_four_with_their_own(consoles):
    """Adds of one id all get the same; of four others, each for two of four consoles, one is left nothing."""
    base = [str(consoles.directory / "opt/bin/fleet-cdi"), "--state-dir", str(consoles.host.state), "--inventory"]
    base += [consoles.host.inventory, "--spec-dir", str(consoles.directory / "cdi"), "claim", "add"]

    def together(ids, amount):
        running = [
            subprocess.Popen([*base, id_, amount, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            for id_ in ids
        ]
        replies = [(one.communicate()[0], one.returncode) for one in running]
        return [json.loads(out) for out, status in replies if status == 0]

    same = together(["one"] * 4, "tty:2")
    assert len(same) == 4 and sum(one["changed"] for one in same) == 1
    assert len({one["token"] for one in same}) == 1
    others = together(["a", "b", "c", "d"], "tty:1")
    nodes = [node["path"] for one in (same[0], *others) for node in one["nodes"]]
    assert len(others) == 2 and len(set(nodes)) == len(nodes) == 4
    assert sorted(consoles.claims()) == sorted(["one", *(one["id"] for one in others)])
    assert consoles.claim("check") == 0, consoles.said
