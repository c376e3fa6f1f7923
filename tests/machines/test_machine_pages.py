# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Blocks of the documentation that need a host with its own systemd, or a user: typed on the machine as they stand.

docs/machine.md, docs/refresh.md and docs/claims.md. A command after `# ` is root's, one after `$ ` is the user's.
"""

from __future__ import annotations

import re
import subprocess

import pytest
import typed  # tests/harness
from image import USER
from look import wait_for, wait_idle
from page import matches  # tests/harness
from whole import only_whole

pytestmark = only_whole

CONSOLES = re.compile(r"^fleet\.cdi/tty=.*\n(^ .*\n)*", re.MULTILINE)  # docs/machine.md leaves their lines out
INACTIVE = 3  # exit status of `systemctl status` for a unit that does not run now
# Of a file in a container: its day, which typed.plain does not know in this form.
DAY = re.compile(r"[A-Z][a-z]{2} +\d+ +\d\d:\d\d ")
CLAIMS = "docs/claims.md"
# What a block has -> what the machine has instead.
AS_USER = {
    "--for alice": f"--for {USER}",
    "docker.io/library/busybox ls": "--network=none --rootfs $HOME/root busybox ls",
}
BUILD = {
    "buildah build": "podman build --network=none --security-opt=label=disable --volume=/opt/container/bin:/bin:ro",
    " .": " /srv/build",
}
DOCKERFILE = "FROM scratch\nRUN exec 3</dev/tty13\n"
PROGRAM = (
    "#!/bin/sh\nset -e\nfor node in $FLEET_CDI_DEVICES; do exec 3<$node; done\necho $FLEET_CDI_CLAIM >> /srv/ran\n"
)


@pytest.fixture(scope="module", autouse=True)
def provisioned(machine, controller):
    """The machine of docs/machine.md: what provision said of it as a reader sees it."""
    run = controller.start("provision", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said, _none = run.communicate()
    assert run.returncode == 0, said
    wait_idle(machine)
    return said


def block_of(page, start):
    """The block of a page that starts so."""
    (found,) = (block for block in typed.blocks_of(page) if block.text.startswith(start))
    return found


def same(text):
    """Lines as typed.plain makes them, without days and without what blanks fill up."""
    return [typed.plain(DAY.sub("DAY ", line)) for line in text.splitlines()]


def type_on(machine, page, start, replace=None):
    """Type a block: each command prints what the page shows, or else succeeds."""
    block = block_of(page, start)
    lines = block.text.splitlines()
    for step in typed.steps_of(page, block):
        command = typed.replaced(step.command, replace or {})
        of_root = lines[step.line - block.line - 1].startswith("# ")
        done = machine.attempt(f"sudo sh -c '{command}'" if of_root else command)
        said = CONSOLES.sub("", done.stdout + done.stderr)
        for theirs, ours in (replace or {}).items():
            said = said.replace(ours, theirs) if len(ours) > 3 else said
        where = f"{page}:{step.line}: {command}"
        if step.expected:
            assert matches(same("\n".join(step.expected)), same(said)), f"{where}\n{said}"
        else:
            assert done.returncode in (0, *([INACTIVE] if "systemctl status" in command else [])), f"{where}\n{said}"


def test_the_output_of_the_first_run_is_that_of_the_page(provisioned):
    (_export, play) = typed.steps_of("docs/machine.md", block_of("docs/machine.md", "# export ANSIBLE"))
    assert matches(same("\n".join(play.expected)), same(provisioned)) or "changed=0" in provisioned, provisioned


def test_the_page_of_the_machine_shows_its_devices(machine):
    type_on(machine, "docs/machine.md", "$ sudo fleet-cdi devices\n")


def test_the_page_of_the_machine_shows_a_disk_that_was_plugged_in(machine):
    disk = machine.plug("near", "nvme", serial="pages", drive="{disk}")
    try:
        wait_for(lambda: "nvme1n1" in machine.root("fleet-cdi devices"), "no spec has the new disk")
        type_on(machine, "docs/machine.md", "$ sudo fleet-cdi devices | grep")
    finally:
        machine.unplug(disk)
    wait_for(lambda: machine.attempt("test -e /dev/nvme1n1").returncode, "the kernel keeps the disk")
    machine.root("fleet-cdi refresh --drop")


def test_systemd_tells_of_the_refresh(machine):
    type_on(machine, "docs/refresh.md", "$ systemctl status")


def test_a_claim_for_a_user(machine):
    machine.run("rm -rf root && mkdir -p root/bin && cp /bin/busybox root/bin")
    type_on(machine, CLAIMS, "# fleet-cdi claim add job-42 gpu:1 --for", AS_USER)


def test_a_build_with_a_claim(machine):
    machine.root("mkdir -p /srv/build; cat > /srv/build/Dockerfile", DOCKERFILE)
    type_on(machine, CLAIMS, "# fleet-cdi claim add build", BUILD)


def test_a_command_with_a_claim(machine):
    """The second one asks for two GPUs, and this machine has one."""
    for program in ("/opt/render/bin/render", "/opt/tests/run"):
        machine.root(f"mkdir -p $(dirname {program}); cat > {program}; chmod +x {program}", PROGRAM)
    type_on(machine, CLAIMS, "# fleet-cdi claim exec gpu", {"gpu:2": "gpu:1"})
    assert len(machine.root("cat /srv/ran").split()) == 2
    assert "fleet.cdi/claim=nightly" in machine.root("cat /srv/ran")
