# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first command on a minimal Debian without a network: no pyudev, no python3-apt, and no list of packages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# The distribution's Python packages, and where apt would find others.
EMPTY = ("/usr/lib/python3/dist-packages", "/etc/apt/sources.list.d", "/var/lib/apt/lists", "/var/cache/apt")

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="hides the machine's packages in a mount namespace: needs root"),
    pytest.mark.skipif(not shutil.which("apt-get"), reason="needs apt"),
]


@pytest.fixture
def bare(tmp_path, ansible_environment):
    """Run a role where the packages of Python and the sources of apt are hidden: bare(role, ...) -> its output."""
    (tmp_path / "none").touch()
    hide = [f"mount -t tmpfs none {path}" for path in EMPTY if os.path.isdir(path)]
    hide += [f"mount --bind {tmp_path}/none {path}" for path in ["/etc/apt/sources.list"] if os.path.exists(path)]

    def run(role, failed=False, check=False, **variables):
        play = [{"hosts": "all", "gather_facts": False, "roles": [role]}]
        (tmp_path / "play.yml").write_text(json.dumps(play))
        paths = {
            "prefix": str(tmp_path / "opt"),
            "state_dir": str(tmp_path / "state"),
            "device_list": str(tmp_path / "inventory.json"),
            "spec_dir": str(tmp_path / "cdi"),
        }
        given = {f"{role.rpartition('.')[2]}_{name}": path for name, path in paths.items()}
        given.update(variables, ansible_python_interpreter="/usr/bin/python3")
        start = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", "localhost,", "-c", "local"]
        start += [str(tmp_path / "play.yml"), "-e", json.dumps(given), *(["--check"] if check else [])]
        script = " && ".join([*hide, 'exec "$@"'])
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *start]
        done = subprocess.run(command, capture_output=True, text=True, env=ansible_environment, check=False)
        assert bool(done.returncode) == failed, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_what_is_optional_is_done_without(bare, tmp_path):
    devices = {"misc": {"profile": "misc", "required": False}}
    settings = {"cdi_host_devices": devices, "cdi_host_refresh": False}
    said = bare("fleet.cdi.cdi_host", check=True, **settings)
    assert "python3-pyudev: would be installed from the distribution (cdi_host_install_packages)" in said
    assert not (tmp_path / "opt").exists()
    said = bare("fleet.cdi.cdi_host", **settings)
    assert "python3-pyudev: could not be installed: " in said and "cdi_host_install_packages to false" in said
    assert list((tmp_path / "cdi").glob("*.json"))
    for check in (False, True):
        said = bare("fleet.cdi.cdi_host", check=check, **settings)
        assert "changed=0" in said and "python3-pyudev" in said, "what can't be had would be a change for ever"


def test_what_is_required_stops_the_run(bare, tmp_path):
    settings = {"cdi_device_plugin_resources": {}, "cdi_device_plugin_config": str(tmp_path / "plugin.json")}
    said = bare("fleet.cdi.cdi_device_plugin", failed=True, **settings)
    assert "python3-grpcio" in said and "could not be installed: " in said
    assert "The device plugin does not run without" in said and "cdi_device_plugin_install_packages" in said
