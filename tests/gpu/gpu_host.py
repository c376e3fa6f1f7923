# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This host as fleet.cdi.provision leaves it, with a profile for its GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vendors import Vendor

CHECKOUT = Path(__file__).resolve().parents[2]
DEVICES = "/var/lib/cdi/devices.json"  # the inventory, which is in /run of a host
TYPE = "gpu"  # the resource-type of the executable that hands the GPUs out


class GpuHost:
    """This host, provisioned."""

    def __init__(self, directory: Path, vendor: Vendor, options: Mapping[str, str]) -> None:
        """`options` are those of the profile; the playbook's files go to `directory`."""
        self.directory = directory
        self.vendor = vendor
        self.options = options

    def provision(self, **entry: Any) -> str:
        """Run the playbook with the vendor's profile and these options of it; what it prints."""
        entry = {"profile": self.vendor.profile, "name_by": list(self.vendor.names), **self.options, **entry}
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "cdi_host_python": sys.executable,
            "cdi_host_command_link": False,
            "cdi_host_install_packages": False,
            "cdi_host_refresh": False,  # units are the host's own
            "cdi_host_device_list": DEVICES,
            "cdi_host_devices": {"gpus": entry},
            "cdi_host_plugins": {
                f"{TYPE}/rule": {"plugin": "rule", "args": {"profile": self.vendor.profile, **self.options}}
            },
        }
        inventory = self.directory / "hosts.json"
        inventory.write_text(json.dumps({"all": {"hosts": {"localhost": variables}}}))
        program = str(Path(sys.executable).parent / "ansible-playbook")
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(CHECKOUT / "build/pythonpath"),
            "ANSIBLE_HOME": str(self.directory / "ansible"),
            "ANSIBLE_NOCOLOR": "1",
        }
        done = subprocess.run(
            [program, "-i", str(inventory), "fleet.cdi.provision"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def attempt(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["/opt/cdi/bin/fleet-cdi", "--inventory", DEVICES, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def run(self, *words: str) -> str:
        """Run fleet-cdi; what it prints."""
        done = self.attempt(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def devices(self) -> list[dict[str, Any]]:
        return json.loads(Path(DEVICES).read_text())["devices"]

    def spec(self) -> Any:
        return json.loads(Path(f"/etc/cdi/{self.vendor.kind.replace('/', '-')}.json").read_text())
