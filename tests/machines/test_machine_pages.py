# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Blocks of the documentation that need a host with its own systemd, or a user: typed on the machine as they stand.

docs/machine.md, docs/refresh.md, docs/claims.md, docs/executables.md and docs/verify.md. A command after `# ` is
root's, one after `$ ` is the user's.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import controller as controllers
import pytest
import typed  # tests/harness
import yaml
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
POD = {
    "podman kube play -": "podman kube play --network=none -",  # the machine has no program for networks
    "visualisation.yml": "/srv/visualisation.yml",
}
# An image of busybox that does nothing for a while, under each name; the pause container has it, too.
IMAGES = 'tar -C /opt/container -c . | podman import --quiet --change \'CMD ["/bin/busybox", "sleep", "1000"]\' -'
PAUSE = '[engine]\ninfra_image = "localhost/render:1"\n'
# What the GPU of the page has -> what that of the machine has.
EXECUTABLE = {
    '"0x1002"': '"0x1af4"',
    "gpu:1,gpu-memory:8Gi": "gpu:1",  # its driver reports no memory
    "/opt/cdi/bin/drm": "env CDI_VERSION=0.0.2 /opt/cdi/bin/drm",  # each command has a shell of its own
    "/dev/dri/card1": "/dev/dri/card0",
    "/dev/dri/renderD129": "/dev/dri/renderD128",
    "[1]}": "[0]}",
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


def test_a_pod_with_claims(machine):
    machine.root("cat > /srv/visualisation.yml", block_of(CLAIMS, "apiVersion: v1\nkind: ResourceRequest").text)
    for image in ("render:1", "watch:1"):
        machine.root(f"{IMAGES} localhost/{image}")
    machine.root("mkdir -p /etc/containers; cat > /etc/containers/containers.conf", PAUSE)
    try:
        type_on(machine, CLAIMS, "# fleet-cdi claim pod add", POD)
    finally:
        machine.root("rm /etc/containers/containers.conf; podman rmi --all --force")


def test_an_executable(machine, controller):
    options = {"resource_type": "gpu", "name": "drm", "plugin": "drm", "description": "GPUs"}
    controller.module("cdi_plugin", args={"vendorid_whitelist": ["0x1af4"]}, **options)
    try:
        type_on(machine, "docs/executables.md", "# cat /etc/cdi/gpu.d", EXECUTABLE)
    finally:
        controller.play("provision")
        wait_idle(machine)


def test_a_verdict(machine, controller, tmp_path):
    """Functions that stay offline are why it is not well; without them it is."""
    (step,) = typed.steps_of("docs/verify.md", block_of("docs/verify.md", "$ ansible-playbook fleet.cdi.verify"))
    program, playbook, *options = shlex.split(step.command.replace("/srv/verdict", str(tmp_path)))
    assert (program, playbook) == ("ansible-playbook", "fleet.cdi.verify")

    def verdict(controller):
        run = controller.start("verify", *options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, _none = run.communicate()
        (found,) = json.loads((tmp_path / "verify.json").read_text())["hosts"].values()
        return run.returncode, found["verdict"], said

    status, found, said = verdict(controller)
    assert (status, found) == (2, "unhealthy"), said
    known = dict(controller.settings)
    known.pop("cdi_host_virtual_functions")
    known["cdi_host_devices"] = {name: one for name, one in known["cdi_host_devices"].items() if name != "functions"}
    (tmp_path / "settings.yml").write_text(yaml.safe_dump(known))
    try:
        without = controllers.Controller(machine, tmp_path / "settings.yml")
        without.play("provision")
        wait_idle(machine)
        status, found, said = verdict(without)
        assert (status, found) == (0, "well"), said
    finally:
        controllers.Controller(machine).play("provision")
        wait_idle(machine)
