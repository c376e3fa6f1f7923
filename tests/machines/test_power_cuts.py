# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The power goes off in the middle of a first provision: the next boot and the next run need no hand.

Each cut takes minutes, so these are not part of `make test-all`: `make machines CUTS=10` cuts at ten moments, spread
over the time that a run takes.
"""

from __future__ import annotations

import os
import subprocess
import time

import controller as controllers
import machine as machines
import pytest

CUTS = int(os.environ.get("CUTS") or 0)
KINDS = {"example.com/edu=0", "example.com/port=0", "fleet.cdi/gpu=0", "fleet.cdi/nvme=nvme0n1"}

pytestmark = pytest.mark.skipif(not CUTS, reason="a power cut takes minutes: make machines CUTS=10")


@pytest.fixture(scope="module")
def run_s():
    """Seconds that the first run takes on a machine that nobody cuts off. Also installs the collection."""
    if machines.lacking():
        pytest.skip(machines.lacking())
    controllers.install()
    machine = machines.Machine(machines.definition("trixie"))
    try:
        machine.start()
        machine.wait_up()
        started = time.monotonic()
        controllers.Controller(machine).play("provision")
        return time.monotonic() - started
    finally:
        machine.close()


@pytest.mark.parametrize("cut", range(CUTS))
def test_a_provision_that_was_cut_off_needs_no_hand(run_s, cut, figure):
    machine = machines.Machine(machines.definition("trixie"))
    try:
        machine.start()
        machine.wait_up()
        controller = controllers.Controller(machine)
        moment = run_s * (cut + 1) / (CUTS + 1)
        run = controller.start("provision", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moment)
        machine.cut_power()
        run.wait()
        machine.start()
        machine.wait_up()
        controllers.Controller(machine).play("provision")
        assert controller.play("provision")["changed"] == 0
        assert machine.run("systemctl is-system-running").strip() == "running"
        shown = machine.run("sudo fleet-cdi devices")
        assert {word for word in shown.split() if word in KINDS} == KINDS
        said = machine.attempt("sudo fleet-cdi doctor").stdout
        findings = {line.partition(":")[0] for line in said.splitlines() if line[:1].islower() and ": " in line}
        assert findings == {"kind-unresolved", "unhealthy"}, said  # of the functions that stay offline
        figure(f"power cut {moment:.0f} s after the start of provision", moment)
    finally:
        machine.close()
