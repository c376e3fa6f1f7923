# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paths on a host. Modules repeat these defaults, because ansible-doc reads them there; a test compares them."""

from __future__ import annotations

import os
from typing import NamedTuple

SPEC_DIRS = ("/etc/cdi", "/var/run/cdi")  # CDI SPEC.md: each runtime's default; lowest priority first
RUN = "/run"
UNIT_DIR = "/etc/systemd/system"  # of our units
REFRESH_SERVICE = "fleet-cdi-refresh.service"  # its commands are those of the release that the host uses
KUBELET = "/var/lib/kubelet"  # Kubernetes, pkg/kubelet/apis/config: the default of --root-dir


class Layout(NamedTuple):
    """The directories and files of one host."""

    state_dir: str = "/var/lib/cdi"
    inventory: str = f"{RUN}/cdi-inventory.json"  # the pools are beside it; "": no inventory
    config_dir: str = SPEC_DIRS[0]  # of the executables' configurations; the manifest may have others elsewhere
    root: str = "/"  # of the host whose devices are discovered
    prefix: str = "/opt/cdi"  # of the release
    spec_dirs: tuple[str, ...] = SPEC_DIRS  # lowest priority first; the first has our specs
    run_dir: str = f"{RUN}/cdi-device-plugin"
    plugin_config: str = "/etc/fleet-cdi/device-plugin.json"  # not in /etc/cdi, where runtimes would take it for a spec
    path: str = ""  # the variable PATH, to find runtimes outside their usual directories

    @property
    def spec_dir(self) -> str:
        """Return the directory of our specs."""
        return self.spec_dirs[0]

    @property
    def ended_claims(self) -> str:
        """Return the file with the names of claims that ended in this boot.

        It is with the other records, because the inventory and the specs may move within a boot.
        """
        return os.path.join(self.state_dir, "claims.ended")

    @property
    def unused_claims(self) -> str:
        """Return the file that notes since when the containers of claims are gone."""
        return os.path.join(self.state_dir, "claims.unused")


USUAL = Layout()


class KubeletLayout(NamedTuple):
    """The directories and the socket of a kubelet that the device plugin uses."""

    plugin_dir: str
    registry_dir: str
    pod_resources: str  # a socket


def kubelet_layout(directory: str = KUBELET) -> KubeletLayout:
    """Return what the device plugin uses below the directory of a kubelet."""
    places = ("device-plugins", "plugins_registry", "pod-resources/kubelet.sock")
    return KubeletLayout(*(f"{directory.rstrip('/')}/{place}" for place in places))


def device_state_path(state_dir: str) -> str:
    """Return the path of the list of devices that operators took out of service."""
    return os.path.join(os.path.abspath(state_dir), "device-state.json")


def ledger_path(state_dir: str) -> str:
    """Return the path of the store of grants."""
    return f"{state_dir.rstrip('/')}/ledger.db"


def ledger_lock(ledger: str) -> str:
    """Return the path of the lock file of the store at `ledger`."""
    return os.path.join(os.path.dirname(ledger), "ledger.lock")


def ledger_log(ledger: str) -> str:
    """Return the path of the log of the store at `ledger`."""
    return os.path.join(os.path.dirname(ledger), "ledger.log")
