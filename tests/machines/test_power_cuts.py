# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The power goes off in the middle of provision, of claims, of a refresh, of an upgrade: the next boot needs no hand.

`make machines CUTS=100` takes a hundred points, spread over the four workloads. One machine works through them all, and
at each point its disk is kept (power_cuts.py). Then each disk is booted once. Taking the points takes minutes, and each
boot with its questions some more, so these are not part of `make test-all`.

What was acknowledged before the cut must be true after the boot. The one command that was on its way may have happened
or not. A cut of a playbook needs one more run of the playbook, and after that there is nothing to do.
"""

from __future__ import annotations

import json
import os
import shutil
import time

import controller as controllers
import machine as machines
import power_cuts
import pytest
import yaml
from look import claims_of, container, devices_of, findings_of, requests_of, wait_for, wait_idle

CUTS = int(os.environ.get("CUTS") or 0)
POINTS = power_cuts.spread(CUTS)
FALSE = ("false claims", 0)
KINDS = {"example.com/edu=0", "example.com/port=0", "fleet.cdi/gpu=0", "fleet.cdi/nvme=nvme0n1"}
# Without the functions that stay offline: an upgrade ends only on a host on which all devices are healthy.
WITHOUT = ("cdi_host_virtual_functions",)

pytestmark = pytest.mark.skipif(not CUTS, reason="takes many minutes: make machines CUTS=100")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """The settings of the machines, without devices that are never healthy."""
    known = yaml.safe_load(controllers.SETTINGS.read_text(encoding="utf-8"))
    known["cdi_host_devices"].pop("functions")
    path = tmp_path_factory.mktemp("settings") / "settings.yml"
    path.write_text(yaml.safe_dump({name: value for name, value in known.items() if name not in WITHOUT}))
    return path


@pytest.fixture(scope="module")
def cuts(settings, figure):
    """(the name of a workload, a number) -> its cut. The machine that made them is off by then."""
    if machines.lacking():
        pytest.skip(machines.lacking())
    controllers.install()
    scene = power_cuts.Scene(settings)
    try:
        started = time.monotonic()
        scene.machine.start()
        scene.machine.wait_up()
        for name, work in power_cuts.WORKLOADS.items():
            number = sum(during == name for during, _number in POINTS)
            if number or name == "provision":
                work(scene, number)
        figure(f"one machine at work, {CUTS} power cuts", time.monotonic() - started)
        if shutil.which("gcc"):
            power_cuts.false_claims(scene)
        scene.machine.cut_power()
        ordered = sorted(POINTS, key=lambda point: (list(power_cuts.WORKLOADS).index(point[0]), point[1]))
        yield {**dict(zip(ordered, scene.cuts)), FALSE: scene.cuts[-1] if len(scene.cuts) > CUTS else None}
    finally:
        scene.machine.close()


@pytest.fixture(scope="module")
def boots(cuts):
    """The machines that boot from the cuts, in the order of the tests."""
    found = power_cuts.Boots(cuts[point] for point in [*POINTS, FALSE] if cuts[point])
    try:
        yield found
    finally:
        found.close()


@pytest.fixture
def cut(cuts, point):
    """The cut of this test."""
    if cuts[point] is None:
        pytest.skip("gcc is not installed, which builds a library that lies")
    return cuts[point]


@pytest.fixture
def machine(cut, boots, figure):
    """A machine that was cut off, after its next boot, when the boot's own refresh has ended."""
    found = boots.take(cut)
    name = f"a power cut in {cut.during}, {cut.moment}"
    try:
        started = time.monotonic()
        found.wait_up()
        wait_for(lambda: "running" in state_of(found) or "degraded" in state_of(found), "the boot does not end")
        wait_idle(found)
        figure(f"to the end of the boot's refresh after {name}", time.monotonic() - started)
        yield found
        figure(f"to the last answer after {name}", time.monotonic() - started)
    finally:
        found.close()


def state_of(machine):
    """systemd's state of the whole machine."""
    return machine.run("systemctl is-system-running || true")


def rerun(machine, settings, playbook):
    """One more run of a playbook converges a machine that was cut off in it, and the second finds nothing to do."""
    controller = controllers.Controller(machine, settings)
    controller.play(playbook)
    wait_idle(machine)
    assert controller.play(playbook)["changed"] == 0


def claims_are_true(machine, cut):
    """Each claim that was acknowledged is there and opens its devices, and each that was given back is not."""
    held, gone, open_ = power_cuts.replayed(cut.said)
    assert not [line for line in cut.said if line.startswith("failed")], cut.said
    machine.root("systemctl start fleet-cdi-claims")  # as its timer does
    found = claims_of(machine)
    assert held <= set(found) <= held | open_ and set(found.values()) <= {"granted"}, (found, cut.said[-3:])
    assert requests_of(machine) == set(found)
    assert not gone & set(found)
    machine.root("fleet-cdi claim check")
    listed = json.loads(machine.root("fleet-cdi claim list --json"))["claims"]
    nodes = [node["path"] for claim in listed for node in claim["nodes"]]
    if found:
        first, *others = (f"fleet.cdi/claim={claim}" for claim in found)
        script = "".join(f"exec 3<{node} && echo {node}; " for node in nodes)
        done = container(machine, first, script, options=" ".join(f"--device {other}" for other in others))
        assert sorted(done.stdout.split()) == sorted(nodes), done.stderr
    for claim in sorted(gone - set(found))[-1:]:
        assert container(machine, f"fleet.cdi/claim={claim}", "true").returncode != 0
    for claim in found:
        machine.root(f"fleet-cdi claim del {claim}")
    assert requests_of(machine) == set() == set(claims_of(machine))


@pytest.mark.parametrize("point", POINTS, ids=[f"{name}-{number}" for name, number in POINTS])
def test_a_machine_whose_power_was_cut_off_needs_no_hand(machine, cut, settings):
    if cut.during == "refresh":  # what went just before the cut is kept for a while: cdi_host_refresh_grace
        time.sleep(yaml.safe_load(settings.read_text())["cdi_host_refresh_grace"])
        machine.root("touch /run/cdi-refresh.wanted")  # any event
        wait_for(lambda: machine.attempt("test -e /run/cdi-refresh.wanted").returncode, "no refresh begins")
        wait_idle(machine)
    assert state_of(machine).strip() == "running", machine.run("systemctl --failed --no-legend")
    if cut.during in ("provision", "upgrade"):
        rerun(machine, settings, cut.during)
    if cut.during == "claims":
        claims_are_true(machine, cut)
    assert "Nothing to change." in machine.root("fleet-cdi refresh --check")
    offered = {name for name, one in devices_of(machine).items() if one["health"]["state"] == "healthy"}
    ports = {name for name in offered if name.startswith("example.com/port=")}
    assert offered - ports >= KINDS - ports and len(ports) == 1 + cut.plugged, offered
    assert findings_of(machine) == set(machine.known["findings"]), machine.attempt("sudo fleet-cdi doctor").stdout
    machine.root("fleet-cdi version --verify")
    machine.root("fleet-cdi claim add after gpu:1")
    assert container(machine, "fleet.cdi/claim=after", "exec 3</dev/dri/renderD128").returncode == 0


@pytest.mark.parametrize("point", [FALSE], ids=["claims"])
def test_an_acknowledgement_that_is_not_true_is_found(machine, cut):
    """The control: where no program brings its data to the disk, the questions above find claims that are lost."""
    held, _gone, _open = power_cuts.replayed(cut.said)
    assert held
    machine.root("rm -f /etc/ld.so.preload")
    with pytest.raises((AssertionError, OSError), match=r"assert|claim (list|check)"):
        claims_are_true(machine, cut)
    said = machine.root("fleet-cdi claim list --json || true")  # a claim's file may be there and be empty
    assert held - {one["id"] for one in json.loads(said)["claims"]}
