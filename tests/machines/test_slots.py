# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cards that changed their slots while the power was off: a grant is on its own hardware, or it is refused.

`make machines WHOLE=1` boots three times with other slots, `REBOOTS=10` ten times. The content of each disk is its
serial number, so a container tells which disk it got.
"""

from __future__ import annotations

import copy
import random

import controller as controllers
import machine as machines
import pytest
from look import claims_of, container, requests_of, wait_idle
from whole import MACHINE, QUICK, REBOOTS, only_whole

pytestmark = only_whole

DISKS = ("disk-red", "disk-green", "disk-blue")
SLOTS = ("display", "near", "far", "plain")


def with_cards(known, order):
    """The definition of a machine whose SLOTS have these cards."""
    known = copy.deepcopy(known)
    for slot, card in zip(SLOTS, order):
        known["pcie"][slot]["devices"] = [f"nvme,serial={card},drive={card}" if card in DISKS else card]
    return known


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The definition of a machine with three disks with content, which are in no slot."""
    plain = machines.definition(MACHINE)
    directory = tmp_path_factory.mktemp("disks")
    plain["options"], plain["kernel"] = [], list(QUICK)
    for disk in DISKS:
        content = directory / disk
        content.write_bytes(disk.encode().ljust(machines.DISK_BYTES, b"\n"))
        plain["options"] += ["-blockdev", f"driver=file,node-name={disk},filename={content}"]
    return plain


@pytest.fixture(scope="module")
def machine(plain, timed):
    """That machine with the disks in their first slots, provisioned."""
    if machines.lacking():
        pytest.skip(machines.lacking())
    found = machines.Machine(with_cards(plain, ["virtio-gpu-pci", *DISKS]))
    try:
        found.start()
        found.wait_up()
        controllers.install()
        timed("provision, machine with four disks", controllers.Controller(found).play, "provision")
        wait_idle(found)
        yield found
    finally:
        found.close()


def disk_of(machine, claim):
    """The disk that a container with the claim reads; "" if the container does not start."""
    # A disk without content has no end of a line, so its first bytes are read alone.
    done = container(machine, f"fleet.cdi/claim={claim}", "busybox head -c 16 /dev/nvme*n1")
    return done.stdout.strip() if done.returncode == 0 else ""


def test_a_grant_stays_on_its_hardware_or_is_refused(machine, plain, figure):
    # Four claims have all disks: the fourth is that of the controller with virtual functions, and has no content.
    claims = [f"owner-{number}" for number in range(len(DISKS) + 1)]
    for claim in claims:
        machine.root(f"fleet-cdi claim add {claim} disk:1")
    own = {claim: disk_of(machine, claim) for claim in claims}
    own = {claim: disk for claim, disk in own.items() if disk in DISKS}
    assert sorted(own.values()) == sorted(DISKS)
    first = ["virtio-gpu-pci", *DISKS]
    kept = refused = 0
    for boot in range(REBOOTS + 1):
        order = first if boot == REBOOTS else random.Random(boot).sample(first, len(first))
        machine.root("sync")
        machine.cut_power()
        machine.known = with_cards(plain, order)
        machine.start()
        machine.wait_up()
        wait_idle(machine)
        for claim, disk in own.items():
            got = disk_of(machine, claim)
            assert got in ("", disk), (boot, order, claim, disk, got)
            kept, refused = kept + (got == disk), refused + (got == "")
            if order == first:
                assert got == disk, machine.root("fleet-cdi claim check || true")
        assert requests_of(machine) == set(claims) == set(claims_of(machine))
    figure(f"grants on their hardware after {REBOOTS} boots with other slots and one as at first (a number)", kept)
    figure("grants that were refused (a number)", refused)
