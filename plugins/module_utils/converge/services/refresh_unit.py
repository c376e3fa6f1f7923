# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the texts of the systemd units and the udev rules that start a refresh.

systemd.service(5), systemd.path(5), systemd.timer(5), systemd.exec(5), udev(7); docs/refresh.md gives the reason for
each.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ...layout import REFRESH_SERVICE, RUN, USUAL
from .claims_unit import claims_texts
from .sandbox import sandbox
from .units import MODPROBE, UNIT_DIR, argument, check_path, quoted

RULES = "/etc/udev/rules.d/70-fleet-cdi.rules"
SERVICE = REFRESH_SERVICE
PATH, TIMER = (SERVICE.replace("service", sort) for sort in ("path", "timer"))
LIBRARIES_SERVICE, LIBRARIES_PATH = (f"fleet-cdi-libraries.{sort}" for sort in ("service", "path"))

# udev's rules make the second file, and other changes the first. The path unit then starts the service, which removes
# both before it looks. So a change during a refresh leads to one more refresh, and a burst of a thousand events to one
# or two. Where SELinux is enforced, udev may make no file in /run; it may in its own directory.
WANTED = f"{RUN}/cdi-refresh.wanted"
WANTED_BY_UDEV = f"{RUN}/udev/cdi-refresh.wanted"

# These give devices to containers at boot. They start after the refresh, so specs and inventory are up to date.
BEFORE = ("docker.service", "containerd.service", "crio.service", "kubelet.service", "podman-restart.service")

SETTLE = 30  # seconds that udev gets for its pending events
MARGIN = 30  # seconds, besides the waiting time, after which systemd ends a command of the service

# ldconfig(8) writes it when libraries change, a driver's among them. A driver upgrade may change nothing else.
LIBRARIES = "/etc/ld.so.cache"
# The refresh starts after QUIET seconds without ldconfig; it waits at most PATIENCE seconds for that.
QUIET, PATIENCE = 5, 60
# For files and directories of any owner; the second for the nodes of drivers that leave them to programs.
CAPABILITIES, MAKES_NODES = "CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER", " CAP_MKNOD"

HEAD = """\
# Written by fleet.cdi.refresh_service; run it with other options instead of changing this file.
"""

_SERVICE = """\
[Unit]
Description=CDI specs and inventory as the devices of this host are now
Before={before}
# An event never finds the service refused because there were many.
StartLimitIntervalSec=0

[Service]
Type=oneshot
# Made outside of the sandbox, which can open only directories that exist.
ExecStartPre=-+/usr/bin/mkdir -p {needed}
{modprobe}\
# Devices that come one after the other lead to one refresh in two seconds; a boot does not wait for that.
ExecStartPre=-/bin/sh -c "systemctl --quiet is-active multi-user.target && sleep 2"
ExecStartPre=-/usr/bin/udevadm settle --timeout={settle}
ExecStartPre=+/usr/bin/rm -f {wanted} {by_udev}
{functions}\
ExecStart={command} refresh --no-claims --timeout={timeout} --grace={grace}{nodes}
# Outside of the sandbox, because executables run setup commands then; and after a refresh that failed, too.
ExecStopPost=+{command} claim restore
{last}\
TimeoutSec={limit}

ReadWritePaths={writable}
{sandbox}

[Install]
WantedBy=multi-user.target
"""

_PATH = """\
[Unit]
Description=Refresh CDI specs when devices change

[Path]
PathExists={wanted}
PathExists={by_udev}
# Nodes of MIG instances and IMEX channels come and go without an event of the kernel.
PathChanged=/dev/nvidia-caps
PathChanged=/dev/nvidia-caps-imex-channels

[Install]
WantedBy=paths.target
"""

_LIBRARIES_PATH = """\
[Unit]
Description=See that the libraries of this host change

[Path]
PathChanged={libraries}

[Install]
WantedBy=paths.target
"""

# One upgrade runs ldconfig many times. A run of ldconfig during a refresh starts this unit again, and one more refresh.
_LIBRARIES_SERVICE = """\
[Unit]
Description=Refresh CDI specs when the libraries of this host have changed
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=-/bin/sh -c "for second in $$(seq {patience}); do \
[ $$(($$(date +%%s) - $$(stat -c %%Y {libraries}))) -lt {quiet} ] || break; sleep 1; done"
ExecStart=/usr/bin/touch {wanted}

ReadWritePaths={run}
{libraries_sandbox}
"""

_TIMER = """\
[Unit]
Description=Refresh CDI specs for what has no event

[Timer]
OnActiveSec={interval}
OnUnitInactiveSec={interval}
AccuracySec=5

[Install]
WantedBy=timers.target
"""

# Left out, because they come and go with containers and volumes: virtual interfaces, device mapper, virtual consoles.
_RULES = """\
ACTION!="add|remove|bind|unbind|move", GOTO="fleet_cdi_end"
SUBSYSTEM=="net", DEVPATH=="/devices/virtual/*", GOTO="fleet_cdi_end"
SUBSYSTEM=="block", KERNEL=="dm-*", GOTO="fleet_cdi_end"
SUBSYSTEM=="vc", GOTO="fleet_cdi_end"
ENV{{DEVNAME}}=="?*", GOTO="fleet_cdi_wanted"
SUBSYSTEM=="pci|net|infiniband|mdev|dsa|auxiliary|fpga_region|fpga_manager", GOTO="fleet_cdi_wanted"
SUBSYSTEM=="module", KERNEL=="nvidia*|gdrdrv|amdgpu|i915|xe|habanalabs|vfio*|mlx*|ib_*|rdma_*", GOTO="fleet_cdi_wanted"
GOTO="fleet_cdi_end"
LABEL="fleet_cdi_wanted"
RUN+="/usr/bin/touch {by_udev}"
LABEL="fleet_cdi_end"
"""


class RefreshUnit(NamedTuple):
    """The settings of the units. Times are whole seconds."""

    prefix: str = USUAL.prefix
    spec_dir: str = USUAL.spec_dir
    state_dir: str = USUAL.state_dir
    device_list: str = USUAL.inventory
    timeout: int = 60  # waiting time for missing devices
    grace: int = 600
    interval: int = 300
    claims_idle: int = 600  # how long the containers of a claim are gone when it is given back
    metrics_file: str = ""  # of node_exporter; "": no file
    feature_file: str = ""  # of Node Feature Discovery; "": no file
    load_modules: tuple[str, ...] = ()
    make_nodes: bool = False
    virtual_functions: tuple[str, ...] = ()  # "0000:3b:00.0=8"


def refresh_texts(settings: RefreshUnit) -> dict[str, bytes]:
    """Return path -> content of each file. Raises CdiError for a path that a unit can't hold."""
    for name in ("prefix", "spec_dir", "state_dir", "device_list"):
        check_path(name, getattr(settings, name))
    writable = sorted({settings.spec_dir, settings.state_dir, os.path.dirname(settings.device_list)})
    command = quoted(os.path.join(settings.prefix, "bin", "fleet-cdi"))
    modprobe = f"ExecStartPre=-+{MODPROBE} -a {' '.join(settings.load_modules)}\n"
    functions = f"ExecStartPre=-+{command} functions {' '.join(settings.virtual_functions)}\n"
    functions += f"ExecStartPre=-/usr/bin/udevadm settle --timeout={SETTLE}\n"
    # Outside of the sandbox: other services own these directories, and metrics look at all processes.
    kept = {"features": settings.feature_file, "metrics": settings.metrics_file}
    for verb, path in kept.items():
        if path:
            check_path(f"{verb} file", path)
    values = {
        "last": "".join(
            f"ExecStopPost=-+{command} {verb} --output {argument(path)}\n" for verb, path in kept.items() if path
        ),
        "sandbox": sandbox("refresh", {"capabilities": CAPABILITIES + MAKES_NODES * settings.make_nodes}),
        "libraries_sandbox": sandbox("libraries"),
        "before": " ".join(BEFORE),
        "modprobe": modprobe if settings.load_modules else "",
        # The driver makes the functions, so udev has loaded it by then. They get drivers of their own, and nodes.
        "functions": functions if settings.virtual_functions else "",
        "settle": SETTLE,
        "wanted": WANTED,
        "by_udev": WANTED_BY_UDEV,
        "command": command,
        "timeout": settings.timeout,
        "grace": settings.grace,
        "nodes": " --make-nodes" if settings.make_nodes else "",
        "limit": max(SETTLE, settings.timeout) + MARGIN,  # systemd starts the time again for each command
        "writable": " ".join("-" + quoted(path) for path in writable),
        "needed": " ".join(map(argument, writable)),
        "interval": settings.interval,
        "libraries": LIBRARIES,
        "quiet": QUIET,
        "patience": PATIENCE,
        "run": os.path.dirname(WANTED),
    }
    files = {
        f"{UNIT_DIR}/{SERVICE}": _SERVICE,
        f"{UNIT_DIR}/{PATH}": _PATH,
        f"{UNIT_DIR}/{TIMER}": _TIMER,
        f"{UNIT_DIR}/{LIBRARIES_PATH}": _LIBRARIES_PATH,
        f"{UNIT_DIR}/{LIBRARIES_SERVICE}": _LIBRARIES_SERVICE,
        RULES: _RULES,
    }
    texts = {path: text.format(**values) for path, text in files.items()}
    after = f"{SERVICE} docker.service"  # by then claims are restored, and docker can be asked
    claims = claims_texts(settings.prefix, settings.state_dir, settings.claims_idle, settings.interval, after)
    texts.update({f"{UNIT_DIR}/{name}": text for name, text in claims.items()})
    return {path: (HEAD + text).encode() for path, text in texts.items()}
