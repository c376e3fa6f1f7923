# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The execution environment: ansible-builder takes its definition, and the playbooks run in what it names and no more.

The image itself is not built: that needs a registry. An environment of Python gets exactly the packages that
ansible-builder would put into the image, and the archive of the collection.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).resolve().parents[2]
DEFINITION = CHECKOUT / "examples/awx/ee/execution-environment.yml"
BUILDER = "ansible-builder==3.2.0"
TTY = "tty24"

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a release of root: needs root"),
    pytest.mark.skipif(not os.path.exists(f"/dev/{TTY}"), reason=f"this machine has no /dev/{TTY}"),
]


def run(*command, cwd=None, env=None):
    """Run a command that has to work; return what it printed."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment_of(directory, *packages):
    """Make an environment of Python with these packages; return the directory of its programs."""
    venv.create(directory, with_pip=True)
    command = [directory / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{' '.join(packages)} could not be had: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    return directory / "bin"


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    return environment_of(tmp_path_factory.mktemp("builder"), BUILDER) / "ansible-builder"


@pytest.fixture(scope="module")
def collections(tmp_path_factory):
    """The collection as Galaxy hands it out, installed."""
    top = tmp_path_factory.mktemp("collections")
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    run(galaxy, "collection", "build", "--output-path", top, CHECKOUT)
    (archive,) = top.glob("*.tar.gz")
    run(galaxy, "collection", "install", "--force", "--offline", "--collections-path", top / "installed", archive)
    return top / "installed"


def test_ansible_builder_takes_the_definition(builder, tmp_path):
    run(builder, "create", "--file", DEFINITION, "--context", tmp_path / "context")
    container = (tmp_path / "context/Containerfile").read_text(encoding="utf-8")
    assert "ENV ANSIBLE_STDOUT_CALLBACK=fleet.cdi.progress" in container
    wanted = yaml.safe_load((tmp_path / "context/_build/requirements.yml").read_text(encoding="utf-8"))
    assert wanted == {"collections": [{"name": "fleet.cdi"}]}


@pytest.fixture(scope="module")
def job(builder, collections, tmp_path_factory):
    """Run a playbook of examples/awx/project in the environment: job(playbook) -> (exit status, what it printed)."""
    found = yaml.safe_load(run(builder, "introspect", collections).split("---", 1)[1])
    python = [line.partition("#")[0].strip() for line in found["python"]]
    assert python == ["jsonschema>=4.17"] and not found.get("system")
    named = yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))["dependencies"]
    more = (named["ansible_core"]["package_pip"], named["ansible_runner"]["package_pip"])
    programs = environment_of(tmp_path_factory.mktemp("environment"), *more, *python)

    top = tmp_path_factory.mktemp("job")
    shutil.copytree(CHECKOUT / "examples/awx/project", top / "project")
    (top / "env").mkdir()
    (top / "inventory").mkdir()
    variables = {
        "cdi_host_prefix": str(top / "opt"),
        "cdi_host_state_dir": str(top / "state"),
        "cdi_host_device_list": str(top / "inventory.json"),
        "cdi_host_spec_dir": str(top / "cdi"),
        "cdi_host_install_packages": False,
        "cdi_host_refresh": False,
        "cdi_host_devices": {"consoles": {"profile": "tty"}},
        "ansible_become": False,
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
    }
    (top / "inventory/hosts.json").write_text(json.dumps({"all": {"hosts": {"localhost": variables}}}))
    environment = {
        "PATH": f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(top),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_COLLECTIONS_PATH": str(collections),
        "ANSIBLE_STDOUT_CALLBACK": "fleet.cdi.progress",  # as the definition sets it
    }

    def play(playbook):
        command = [str(programs / "ansible-runner"), "run", str(top), "-p", playbook]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    yield play
    status, said = play("remove.yml")
    assert status == 0, said


def test_the_playbooks_run_in_exactly_that(job):
    status, said = job("provision.yml")
    assert status == 0 and "1 host, 1 changed" in said, said
    status, said = job("provision.yml")
    assert status == 0 and "1 host, 1 as wanted" in said, said
    status, said = job("report.yml")
    assert status == 0 and "1 host" in said, said
