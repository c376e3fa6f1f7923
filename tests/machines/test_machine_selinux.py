# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host that enforces SELinux: our files have the labels of its policy, nothing of ours is denied, and the doctor says
which devices the policy keeps from containers.

With test_machine.py before it, the log of denials also has a fresh provisioning, hot plug and a reboot.
"""

from __future__ import annotations

import json
import re

import pytest
from image import USER
from look import GPU, wait_idle
from whole import only_on

pytestmark = only_on("selinux")

OURS = "/opt/cdi /etc/cdi /var/lib/cdi /etc/systemd/system /etc/udev/rules.d /usr/local"
DENIAL = re.compile(r"avc: +denied +\{ (.+?) \}.* comm=(\S+).* scontext=\S+?:\S+?:(\w+):.* tcontext=\S+?:\S+?:(\w+):")
# What Debian's policy denies to programs of Debian on this machine. Containers: what the tests below try.
OTHERS = {"container_t", "getty_t", "syslogd_t"}
# podman reads it for random numbers where a service starts it, ours or another one, and does without.
RANDOM = ("read", '"podman"', "podman_t", "urandom_device_t")
BOOLEAN = "container_use_dri"  # as the reference policy calls it


@pytest.fixture(scope="module", autouse=True)
def provisioned(machine, controller):
    """A machine in the state of its settings; the second run changes nothing."""
    controller.play("provision")
    wait_idle(machine)
    assert controller.play("provision")["changed"] == 0


def findings_about_selinux(machine):
    """(rule, subject) -> names, of the doctor's findings about SELinux."""
    found = json.loads(machine.attempt("sudo fleet-cdi doctor --json").stdout)["findings"]
    return {(one["rule"], one["subject"]): one["details"] for one in found if one["rule"].startswith("selinux-")}


def opens(machine, device, path, options="", root=True):
    """Whether a container opens its device. Its exit status says so: this policy lets it write to no pipe of ours."""
    podman = f"podman run --rm --network=none {options} --device {device} --rootfs"
    start = f"sudo {podman} /opt/container" if root else f"{podman} $HOME/root"
    done = machine.attempt(f"{start} /bin/sh -c 'exec 3<{path} && exit 17; exit 18'")
    assert done.returncode in (1, 17), done.stderr
    return done.returncode == 17


@pytest.fixture
def of_user(machine):
    """A claim for the ordinary user, who has a root directory for containers: of_user(options) -> whether it opens."""
    machine.run("rm -rf root && mkdir root && cp -r /opt/container/bin root && chcon -R -t container_file_t root")
    machine.root(f"fleet-cdi claim add of-user gpu:1 --for {USER} --reuse")
    yield lambda options="": opens(machine, "fleet.cdi/claim=of-user", GPU, options, root=False)
    machine.root("fleet-cdi claim del of-user")


def test_it_is_enforced(machine):
    assert machine.run("cat /sys/fs/selinux/enforce").strip() == "1"
    assert ":unconfined_t:" in machine.root("cat /proc/self/attr/current")


def test_our_files_have_the_labels_of_the_policy(machine):
    assert machine.root(f"restorecon -nvR {OURS}") == ""


@pytest.mark.parametrize("runtime", ["crun", "runc"])
def test_a_container_of_root_opens_each_device(machine, runtime):
    """Its nodes are made anew, with its own label, whatever the policy says of the host's."""
    for device, path in (("gpu=0", GPU), ("nvme=nvme0n1", "/dev/nvme0n1")):
        assert opens(machine, f"fleet.cdi/{device}", path, f"--runtime {runtime}")


def test_the_doctor_says_which_devices_the_policy_keeps_from_containers(machine):
    found = findings_about_selinux(machine)
    assert set(found) == {
        ("selinux-devices-off", BOOLEAN),
        *(("selinux-denied", name) for name in ("fixed_disk_device_t", "tty_device_t", "userio_device_t")),
    }
    assert GPU in found["selinux-devices-off", BOOLEAN]
    assert found["selinux-denied", "userio_device_t"] == ["/dev/uio0"]


@pytest.mark.parametrize("runtime", ["crun", "runc"])
def test_a_container_of_a_user_opens_its_device_after_the_next_step_of_the_doctor(machine, of_user, runtime):
    """It has the host's node mounted, with the host's label."""
    choice = f"--runtime {runtime}"
    assert not of_user(choice)
    assert of_user(f"{choice} --security-opt label=disable")
    machine.root(f"setsebool {BOOLEAN} on")
    try:
        assert ("selinux-devices-off", BOOLEAN) not in findings_about_selinux(machine)
        assert of_user(choice)
    finally:
        machine.root(f"setsebool {BOOLEAN} off")


def test_where_selinux_only_warns_the_doctor_says_nothing(machine, of_user):
    machine.root("setenforce 0")
    try:
        assert findings_about_selinux(machine) == {}
        assert of_user()
    finally:
        machine.root("setenforce 1")


def test_a_wrong_label_is_found_and_repaired(machine):
    program = machine.root("readlink -f /opt/cdi/bin/fleet-cdi").strip()
    machine.root(f"chcon -t etc_t {program}")
    assert findings_about_selinux(machine)["selinux-label", "/opt/cdi"] == [program]
    machine.root("restorecon -R -v /opt/cdi")
    assert ("selinux-label", "/opt/cdi") not in findings_about_selinux(machine)


def test_nothing_of_ours_was_denied(machine):
    """In all that the tests of this run did since the first boot."""
    log = machine.root("cat /var/log/audit/audit.log*; journalctl -k -o cat")
    denials = {match.groups() for match in DENIAL.finditer(log)}
    assert "container_t" in {domain for _what, _comm, domain, _target in denials}  # the log has what was tried above
    ours = {one for one in denials if one[2] not in OTHERS and not one[2].startswith("systemd_")}
    assert ours - {RANDOM} == set()
