# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of the host: a clock that was set back, a full disk, a root file system that is read-only.

The tests change one machine, one after the other, and each leaves it as the next one expects it.
"""

from __future__ import annotations

import pytest
from look import claims_of, container, error_of, findings_of, requests_of, spec_of, wait_for, wait_idle
from whole import only_whole

pytestmark = only_whole

DIGESTS = "find /etc/cdi /opt/cdi /var/lib/cdi/manifest.json /var/run/cdi -type f | sort | xargs sha256sum"
# Take all of the free space, with root's reserve: first extents without content, then the remaining blocks.
FILL = """
sync
while free=$(($(stat -f -c '%f * %S' / | sed 's/ //g')));  [ $free -gt 1048576 ]; do
    fallocate -l $((free / 20 * 19)) /full-$free || break
done
dd if=/dev/zero of=/full-blocks bs=4096 status=none
sync
! dd if=/dev/zero of=/full-bytes bs=512 status=none
"""
NEW = ("-e", '{"cdi_host_refresh_grace": 16}')  # a setting that makes `provision` write a unit
FULL, READ_ONLY = "No space left on device", "Read-only file system"


@pytest.fixture(scope="module", autouse=True)
def provisioned(machine, controller):
    """A machine in the state of its settings."""
    controller.play("provision")
    wait_idle(machine)


def refused(controller, *options):
    """The message of a run of provision that fails without a traceback."""
    with pytest.raises(OSError) as failed:
        controller.play("provision", *options)
    said = str(failed.value)
    assert "Traceback" not in said and "failed=1" in said, said
    return said


def granted(machine, claim):
    """Whether a claim of the display device can be made, used and given back."""
    machine.root(f"fleet-cdi claim add {claim} gpu:1")
    assert claim in requests_of(machine)
    done = container(machine, f"fleet.cdi/claim={claim}", "exec 3</dev/dri/renderD128 && echo opened")
    machine.root(f"fleet-cdi claim del {claim}")
    return done.stdout.strip() == "opened" and claim not in requests_of(machine)


def recovers(machine, disk, claim):
    """The unit of the refresh finds the disk that came during the fault, and claims work. Then the disk goes."""
    machine.root("systemctl start fleet-cdi-refresh")
    wait_idle(machine)
    assert "nvme1n1" in spec_of(machine, "fleet.cdi/nvme")
    assert granted(machine, claim)
    machine.unplug(disk)
    wait_for(lambda: machine.attempt("test -e /dev/nvme1n1").returncode, "the kernel keeps the disk")
    machine.root("fleet-cdi refresh --drop")


def test_a_clock_that_was_set_back_an_hour_changes_nothing(machine, controller):
    findings = findings_of(machine)
    machine.root("fleet-cdi claim add before tty:1")
    machine.root("date -s '1 hour ago'")
    try:
        assert "Nothing to change." in machine.root("fleet-cdi refresh")
        assert claims_of(machine) == {"before": "granted"} and requests_of(machine) == {"before"}
        assert granted(machine, "meanwhile")
        disk = machine.plug("near", "nvme", serial="clock", drive="{disk}")
        wait_for(lambda: "nvme1n1" in spec_of(machine, "fleet.cdi/nvme"), "no spec has the new disk")
        machine.unplug(disk)
        wait_for(lambda: machine.attempt("test -e /dev/nvme1n1").returncode, "the kernel keeps the disk")
        machine.root("fleet-cdi refresh --drop")
        assert "nvme1n1" not in spec_of(machine, "fleet.cdi/nvme")
        wait_idle(machine)
        assert controller.play("provision")["changed"] == 0
        assert findings_of(machine) == findings
    finally:
        machine.root("date -s '1 hour'")
    assert "Nothing to change." in machine.root("fleet-cdi refresh")
    machine.root("fleet-cdi claim del before")
    assert requests_of(machine) == set() and granted(machine, "later")


def test_a_full_disk_is_said_and_leaves_nothing_half_written(machine, controller):
    findings = findings_of(machine)
    machine.root("fleet-cdi claim add survivor tty:1")
    before = machine.root(DIGESTS)
    machine.root(FILL)
    disk = ""
    try:
        assert FULL in error_of(machine.attempt("sudo fleet-cdi claim add refused gpu:1"))
        assert FULL in refused(controller, *NEW)
        # Also the executable itself, without a claim. Its reply is JSON on stdout.
        words = "CDI_COMMAND=ADD CDI_VERSION=0.0.2 CDI_REQUEST=gpu:1 CDI_REQUEST_ID=bare /opt/cdi/bin/drm"
        add = machine.attempt(f"sudo sh -c '{words} < /etc/cdi/gpu.d/drm.conf'")
        if add.returncode:  # the ledger's files have their size from the beginning, so an ADD may find room in them
            assert FULL in add.stdout and "Traceback" not in add.stderr, (add.stdout, add.stderr)
        else:
            machine.root(f"{words.replace('ADD', 'DEL', 1)} < /etc/cdi/gpu.d/drm.conf")
        disk = machine.plug("near", "nvme", serial="full", drive="{disk}")
        wait_for(lambda: machine.attempt("test -e /dev/nvme1n1").returncode == 0, "the kernel does not see the disk")
        assert FULL in error_of(machine.attempt("sudo fleet-cdi refresh"))
        wait_for(
            lambda: machine.attempt("systemctl is-failed fleet-cdi-refresh").returncode == 0, "the unit does not fail"
        )
        assert FULL in machine.root("journalctl --unit fleet-cdi-refresh --lines 20")
        assert machine.root(DIGESTS) == before
        assert claims_of(machine) == {"survivor": "granted"} and requests_of(machine) == {"survivor"}
    finally:
        machine.root("rm -f /full-*")
    recovers(machine, disk, "freed")
    machine.root("fleet-cdi claim del survivor")
    assert controller.play("provision", *NEW)["changed"] == 1
    assert controller.play("provision")["changed"] == 1
    assert controller.play("provision")["changed"] == 0
    assert findings_of(machine) == findings and requests_of(machine) == set()


def test_a_read_only_root_is_said_and_leaves_the_host_as_it_was(machine, controller):
    findings = findings_of(machine)
    machine.root("fleet-cdi claim add steadfast tty:1")
    before = machine.root(DIGESTS)
    machine.root("sync; echo u > /proc/sysrq-trigger")  # remounts also what has open files
    wait_for(lambda: machine.run("findmnt -no OPTIONS /").startswith("ro"), "the root file system stays writable")
    disk = ""
    try:
        assert READ_ONLY in error_of(machine.attempt("sudo fleet-cdi claim add refused gpu:1"))
        assert READ_ONLY in refused(controller, *NEW)
        assert "read-only" in findings_of(machine)
        disk = machine.plug("near", "nvme", serial="read-only", drive="{disk}")
        wait_for(lambda: machine.attempt("test -e /dev/nvme1n1").returncode == 0, "the kernel does not see the disk")
        assert READ_ONLY in error_of(machine.attempt("sudo fleet-cdi refresh"))
        assert claims_of(machine) == {"steadfast": "granted"} and requests_of(machine) == {"steadfast"}
        assert READ_ONLY in error_of(machine.attempt("sudo fleet-cdi claim del steadfast"))
        wait_idle(machine)  # a refresh that began before could end its work now
    finally:
        machine.root("mount -o remount,rw /")
    assert machine.root(DIGESTS) == before
    recovers(machine, disk, "writable")
    machine.root("fleet-cdi claim del steadfast")
    assert controller.play("provision", *NEW)["changed"] == 1
    assert controller.play("provision")["changed"] == 1
    assert findings_of(machine) == findings and requests_of(machine) == set()
