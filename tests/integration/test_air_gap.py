# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/air-gap.md, typed to its end: a folder is filled with a network, and a controller without one is made of it.

The controller is a new environment of Python with nothing but pip. Each of its commands runs in a network namespace
without an interface. `make nightly` runs this, because it fetches packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import apart  # tests/harness
import mirror
import pytest
import typed  # tests/harness
import yaml

PAGE = "docs/air-gap.md"
OFFLINE = "unshare --net "
ANYWHERE = ("192.0.2.1", 80)
# This machine as a host: no packages, no units, no links, and one console as its device.
HOST = {
    "ansible_connection": "local",
    "ansible_become": False,
    "ansible_python_interpreter": sys.executable,
    "cdi_host_python": sys.executable,
    "cdi_host_install_packages": False,
    "cdi_host_refresh": False,
    "cdi_host_command_link": False,
    "cdi_host_device_list": apart.DEVICE_LIST,
    "cdi_host_devices": {"consoles": {"profile": "tty", "num_system_reserved": 62}},
}

pytestmark = [
    pytest.mark.skipif(not os.environ.get("NIGHTLY"), reason="fetches packages: make nightly"),
    pytest.mark.skipif(os.geteuid() != 0, reason="provisions this machine in a mount namespace: needs root"),
    pytest.mark.skipif(not os.path.exists("/dev/tty63"), reason="this machine has no 63 consoles"),
]


@pytest.fixture
def controller(tmp_path):
    """The directory of the programs of a controller with nothing but Python and pip."""
    venv.create(tmp_path / "controller", with_pip=True)
    return tmp_path / "controller/bin"


def test_a_controller_without_a_network_provisions_a_host(controller, tmp_path, ansible_environment):
    fill, use = typed.blocks_of(PAGE)
    known = {name: value for name, value in ansible_environment.items() if not name.startswith("ANSIBLE_COLLECTIONS")}
    mirror.mirror(typed.CHECKOUT, tmp_path / "checkout")
    online = {**known, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    assert typed.run(PAGE, fill, tmp_path / "checkout", online, {}, "") == 2
    (archive,) = tmp_path.glob("usb/fleet-cdi-*.tar.gz")
    with tarfile.open(archive) as opened:
        assert [name for name in opened.getnames() if name.endswith((".whl", ".tar.gz"))] == []

    os.makedirs("/var/lib/cdi/run", exist_ok=True)
    (tmp_path / "inventory").write_text(yaml.safe_dump({"all": {"hosts": {"node1": HOST}}}))
    offline = {**known, "PATH": f"{controller}:/opt/cdi/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path)}
    replace = {
        word: OFFLINE + word for word in ("pip install", "ansible-galaxy collection install", "ansible-playbook")
    }
    try:
        assert typed.run(PAGE, use, tmp_path, offline, replace, "") == 3
        found = subprocess.run(
            ["/opt/cdi/bin/fleet-cdi", "devices"], capture_output=True, text=True, check=True, env=offline
        )
        assert "fleet.cdi/tty=tty63" in found.stdout
        removed = [OFFLINE.split()[0], "--net", str(controller / "ansible-playbook"), "-i", "inventory"]
        subprocess.run([*removed, "fleet.cdi.remove"], cwd=tmp_path, env=offline, check=True, capture_output=True)
    finally:
        apart.empty()


def test_the_controller_has_no_network():
    """Else the test above would prove nothing."""
    done = subprocess.run(
        [*OFFLINE.split(), sys.executable, "-c", f"import socket; socket.create_connection({ANYWHERE}, 5)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0 and "Network is unreachable" in done.stderr
