# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers of an ordinary user with a device, on cgroup v2."""

from __future__ import annotations

import pytest
from image import USER
from look import GPU, wait_idle
from whole import only_whole

pytestmark = only_whole

OPEN = f"exec 3<{GPU} && echo opened"


@pytest.fixture(scope="module", autouse=True)
def provisioned(machine, controller):
    """A machine in the state of its settings, and a root directory for containers that the user owns."""
    controller.play("provision")
    wait_idle(machine)
    machine.run("rm -rf root && mkdir root && cp -a /opt/container/bin root")
    assert machine.run("podman info --format '{{.Host.Security.Rootless}} {{.Host.CgroupsVersion}}'") == "true v2\n"


def rootless(machine, device, script, runtime, options=""):
    """Run a script of busybox's shell in a container of the ordinary user with the device."""
    podman = f"podman --runtime {runtime} run --rm --network=none {options} --device {device}"
    return machine.attempt(f"{podman} --rootfs $HOME/root /bin/sh -c '{script}'")


@pytest.mark.parametrize("runtime", ["crun", "runc"])
def test_a_claim_for_the_user_opens_its_device_and_no_other(machine, runtime):
    """The rights of the node alone do not let the user in."""
    done = rootless(machine, "fleet.cdi/gpu=0", OPEN, runtime)
    assert done.returncode != 0 and "ermission denied" in done.stderr, done.stderr
    claim = f"of-user-{runtime}"
    machine.root(f"fleet-cdi claim add {claim} gpu:1 --for {USER}")
    seen = rootless(machine, f"fleet.cdi/claim={claim}", f"{OPEN}; busybox ls /dev/uio0 /dev/nvme0n1", runtime)
    assert seen.stdout.split() == ["opened"], seen.stderr
    assert seen.stderr.count("No such file or directory") == 2, seen.stderr
    machine.root(f"fleet-cdi claim del {claim}")
    assert rootless(machine, f"fleet.cdi/claim={claim}", "true", runtime).returncode != 0
    assert "ermission denied" in rootless(machine, "fleet.cdi/gpu=0", OPEN, runtime).stderr


def test_a_group_of_the_node_lets_the_user_in(machine):
    """As docs/machine.md says; the sessions of a user have the groups that they had at the login."""
    try:
        machine.root(f"usermod --append --groups render,video {USER}")
        machine.hang_up()
        done = rootless(machine, "fleet.cdi/gpu=0", OPEN, "crun", "--group-add keep-groups")
        assert done.stdout.split() == ["opened"], done.stderr
    finally:
        machine.root(f"gpasswd --delete {USER} render; gpasswd --delete {USER} video")
        machine.hang_up()
