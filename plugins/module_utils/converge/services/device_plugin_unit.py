# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the texts of the systemd units of the Kubernetes device plugin.

systemd.service(5), systemd.exec(5), systemd.resource-control(5); docs/device-plugin.md gives the reason for each line.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection
from typing import NamedTuple, Optional

from ... import schema
from ...device_plugin.config.configuration import PATH
from ...layout import KUBELET, USUAL, kubelet_layout
from . import openers_unit
from .sandbox import LEFT_OUT, sandbox
from .units import UNIT_DIR, argument, check_path, quoted

# Two instances of one template: an upgrade starts the idle one, and stops the other when it has taken over.
INSTANCES = ("a", "b")
TEMPLATE = "fleet-cdi-device-plugin@.service"
RUN_DIR = USUAL.run_dir  # of both instances

# The variable that tells which text of the unit a process was started from.
MARK = "FLEET_CDI_UNIT"

# The kubelet's unit, and those of Kubernetes distributions that contain the kubelet.
KUBELETS = (
    "kubelet.service",
    "k3s.service",
    "k3s-agent.service",
    "rke2-server.service",
    "rke2-agent.service",
    "k0scontroller.service",
    "k0sworker.service",
    "snap.microk8s.daemon-kubelite.service",
)

WATCHDOG = 30  # seconds until systemd ends a process whose event loop is silent; it reports three times as often

CAPABILITIES = {
    "type": "array",
    "items": {
        "type": "string",
        "pattern": "^CAP_[A-Z0-9_]+" + schema.END,
        "description": "the name of a capability, as in CAP_SYS_ADMIN",
    },
    "description": "a list of names of capabilities, as in CAP_SYS_ADMIN",
}

HEAD = """\
# Written by fleet.cdi.device_plugin_service; run it with other options instead of changing this file.
"""

# Not after the refresh: a restart during a refresh would wait for it. At boot the kubelet starts after both.
_TEXT = """\
[Unit]
Description=Kubernetes device plugin for the CDI devices of this host (instance %i)
Before={before}
StartLimitIntervalSec=0

[Service]
Type=exec
Environment={mark}={digest}
# Made outside of the sandbox, which can open only directories that exist.
ExecStartPre=-+/usr/bin/mkdir -p {needed}
ExecStart={command} plugin run --config {config} --instance %i
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=1
TimeoutStopSec=15
KillMode=mixed
# The event loop says that it is alive; a process that is frozen is ended, and started again.
WatchdogSec={watchdog}
OOMScoreAdjust=-900
# The directory is that of both instances: it stays while the other one runs.
RuntimeDirectory={run_dir}
RuntimeDirectoryPreserve=yes
ReadWritePaths={writable}

{sandbox}

[Install]
WantedBy=multi-user.target
"""


class PluginUnit(NamedTuple):
    """The settings of the unit."""

    prefix: str = USUAL.prefix
    config_file: str = PATH
    state_dir: str = USUAL.state_dir
    kubelet_dir: str = KUBELET
    metrics: str = ""  # "host:port", "" for none
    device_access: bool = False  # the commands setup and teardown may open device nodes
    network_access: bool = False  # these commands may use the network
    capabilities: tuple[str, ...] = ()  # for these commands
    writable_paths: tuple[str, ...] = ()  # for these commands: directories or files besides those that the plugin needs
    process_access: bool = True  # a second service finds which processes have devices open


def path() -> str:
    """Return the path of the unit."""
    return os.path.join(UNIT_DIR, TEMPLATE)


def instance(name: str) -> str:
    """Return the unit of one instance."""
    return TEMPLATE.replace("@", f"@{name}")


def instances_of(units: Collection[str]) -> tuple[str, ...]:
    """Return the instances whose units are among `units`."""
    return tuple(name for name in INSTANCES if instance(name) in units)


def paths() -> tuple[str, ...]:
    """Return the path of the unit, and the paths of its openers units."""
    return (path(), *(os.path.join(UNIT_DIR, name) for name in (openers_unit.TEMPLATE, openers_unit.SOCKET)))


def plugin_texts(unit: PluginUnit) -> dict[str, Optional[bytes]]:
    """Return path -> content of each file; None: no file. Raises CdiError for a setting that a unit can't hold."""
    beside = openers_unit.openers_texts(unit.prefix)
    contents = ((HEAD + beside[os.path.basename(one)]).encode() if unit.process_access else None for one in paths()[1:])
    return dict(zip(paths(), (unit_text(unit), *contents)))


def unit_text(unit: PluginUnit) -> bytes:
    """Return the text of the unit. Raises CdiError for a setting that a unit can't hold."""
    schema.check({"capabilities": unit.capabilities}, {"properties": {"capabilities": CAPABILITIES}}, "")
    paths = [(name, getattr(unit, name)) for name in ("prefix", "config_file", "state_dir", "kubelet_dir")]
    for name, value in (*paths, *(("writable_paths", path) for path in unit.writable_paths)):
        check_path(name, value)
    local = re.match(r"(127\.[0-9.]+|\[::1\]|localhost):", unit.metrics)
    kubelet = kubelet_layout(unit.kubelet_dir)  # its other directories belong to pods
    needed = sorted({unit.state_dir, kubelet.plugin_dir, kubelet.registry_dir})
    writable = {*needed, *unit.writable_paths, *(["/tmp"] if unit.device_access else [])}
    confined = {
        "capabilities": " ".join(unit.capabilities),
        # The plugin looks at device nodes and opens none. The commands setup and teardown may have to open nodes, and
        # shells among them keep files in /tmp.
        "device_policy": LEFT_OUT if unit.device_access else "closed",
        "unless_devices": LEFT_OUT if unit.device_access else "yes",
        # The plugin needs no network, except for metrics and for commands that ask another program, as Slurm's.
        "families": "AF_UNIX AF_NETLINK" + (" AF_INET AF_INET6" if unit.metrics or unit.network_access else ""),
        "deny": LEFT_OUT if unit.network_access or (unit.metrics and not local) else "any",
        "allow": "localhost" if local and not unit.network_access else LEFT_OUT,
    }
    values = {
        "sandbox": sandbox("plugin", confined),
        "before": " ".join(KUBELETS),
        "mark": MARK,
        "command": quoted(os.path.join(unit.prefix, "bin", "fleet-cdi")),
        "config": argument(unit.config_file),
        "needed": " ".join(map(argument, needed)),
        "watchdog": WATCHDOG,
        "run_dir": os.path.basename(RUN_DIR),
        "writable": " ".join("-" + quoted(path) for path in sorted(writable)),
    }
    digest = hashlib.sha256(_TEXT.format(**values, digest="").encode()).hexdigest()[:12]
    return (HEAD + _TEXT.format(**values, digest=digest)).encode()


def unit_mark(content: bytes) -> str:
    """Return the mark in the text of a unit; "" if it has none."""
    found = re.search(rf"^Environment={MARK}=([0-9a-f]+)$".encode(), content, re.MULTILINE)
    return found.group(1).decode() if found else ""
