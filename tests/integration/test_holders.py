# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody holds stays: a real podman container, and a request of an executable, against prune and remove."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KIND = "fleet.cdi/tty"
DIRECTORY = "/var/run/cdi"
SPEC = Path(DIRECTORY) / "fleet.cdi-tty.json"

pytestmark = [
    pytest.mark.counterpart("podman", "runc", "busybox-static"),
    pytest.mark.skipif(os.geteuid() != 0, reason="writes to /var/run/cdi and runs containers: needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/tty23"), reason="needs the consoles tty23 and tty24"),
]


def podman(*words):
    """Run podman; its output."""
    done = subprocess.run(["podman", "--runtime", "runc", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def running(container):
    """Start a container with a device, which goes on until the test ends: running(device) -> its name."""
    names = []

    def start(device):
        name = f"fleet-cdi-test-{os.getpid()}-{len(names)}"
        names.append(name)
        # podman's clean-up may remove a container of --rm while podman restarts it.
        done = container("exec sleep 1000", "--detach", "--name", name, "--device", device, keep=True)
        assert done.returncode == 0, done.stderr
        return name

    yield start
    for name in names:
        podman("rm", "--force", "--time", "0", name)


@pytest.fixture
def role(tmp_path, ansible_environment):
    """Run a playbook of the collection on this machine: role(playbook, variables) -> its output."""
    paths = {
        "cdi_host_prefix": str(tmp_path / "opt"),
        "cdi_host_state_dir": str(tmp_path / "state"),
        "cdi_host_device_list": str(tmp_path / "inventory.json"),
        "cdi_host_spec_dir": DIRECTORY,
        "cdi_host_python": sys.executable,
        "cdi_host_install_packages": False,
        "cdi_host_refresh": False,
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
    }

    def run(playbook, failed=False, check=False, **variables):
        start = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "-c", "local", playbook]
        start += ["-e", json.dumps({**paths, **variables}), *(["--check"] if check else [])]
        done = subprocess.run(start, capture_output=True, text=True, env=ansible_environment, check=False)
        assert bool(done.returncode) == failed, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).replace("\\n", " ").split())

    yield run
    run("fleet.cdi.remove", cdi_host_force=True)


def consoles(*names):
    """Settings that offer these consoles, under their names."""
    return {
        "consoles": {
            "profile": "rule",
            "kind": KIND,
            "match": {"subsystem": "tty", "node": list(names)},
            "group_by": "none",
            "name_by": ["sysname"],
        }
    }


def offered():
    """Names in our spec; () where there is none."""
    if not SPEC.exists():
        return ()
    return tuple(device["name"] for device in json.loads(SPEC.read_text())["devices"])


def test_prune_keeps_what_a_container_has(role, running):
    role("fleet.cdi.provision", cdi_host_devices=consoles("tty23", "tty24"))
    name = running(f"{KIND}=tty23")
    refused = role("fleet.cdi.provision", failed=True, cdi_host_on_held="fail")
    assert f"{KIND}=tty23 is held by container {name} (podman, running)" in refused and "Nothing was changed" in refused
    assert offered() == ("tty23", "tty24")
    assert f"{KIND}=tty23 is held by container {name} (podman, running)" in role("fleet.cdi.provision")
    assert offered() == ("tty23",)
    podman("restart", "--time", "0", name)
    assert "changed=0 " in role("fleet.cdi.provision")
    role("fleet.cdi.provision", cdi_host_devices=consoles("tty24"))
    assert offered() == ("tty24", "tty23")
    podman("restart", "--time", "0", name)
    podman("rm", "--force", "--time", "0", name)
    role("fleet.cdi.provision")
    assert offered() == ()


def test_remove_refuses_while_a_container_runs(role, running, tmp_path):
    role("fleet.cdi.provision", cdi_host_devices=consoles("tty23"))
    name = running(f"{KIND}=tty23")
    before = (tmp_path / "state/manifest.json").read_bytes()
    for check in (True, False):
        said = role("fleet.cdi.remove", failed=True, check=check)
        assert f"container {name} (podman, running) has {KIND}=tty23" in said and "cdi_host_force=true" in said
        assert offered() == ("tty23",) and (tmp_path / "state/manifest.json").read_bytes() == before
    podman("restart", "--time", "0", name)
    role("fleet.cdi.remove", cdi_host_force=True)
    assert offered() == () and not (tmp_path / "state").exists() and not (tmp_path / "opt").exists()


def test_remove_refuses_while_a_request_holds_a_device(role, tmp_path):
    plugins = {"tty/mine": {"plugin": "generic-tty", "args": {"num_system_reserved": 12}}}
    role("fleet.cdi.provision", cdi_host_devices=consoles("tty23"), cdi_host_plugins=plugins)
    conf = Path("/etc/cdi/tty.d/mine.conf")
    ask = {"CDI_VERSION": "0.0.2", "CDI_REQUEST_ID": "job-1"}

    def call(command):
        request = {"CDI_REQUEST": "tty:1"} if command == "ADD" else {}
        environment = {**os.environ, **ask, **request, "CDI_COMMAND": command}
        return subprocess.run(
            [tmp_path / "opt/bin/generic-tty"],
            input=conf.read_bytes(),
            capture_output=True,
            env=environment,
            check=False,
        )

    added = call("ADD")
    assert added.returncode == 0, added.stdout
    said = role("fleet.cdi.remove", failed=True)
    assert "request job-1 (tty/generic-tty) has tty:tty" in said and "Nothing was touched" in said
    assert conf.exists() and offered() == ("tty23",)
    assert call("DEL").returncode == 0
    role("fleet.cdi.remove")
    assert not conf.exists() and offered() == () and not (tmp_path / "state").exists()
