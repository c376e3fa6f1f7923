# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each of our services may do: systemd.exec(5), systemd.resource-control(5).

docs/device-plugin.md and docs/refresh.md give the reasons. extensions/molecule/device_plugin tries each directive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

# The refresh of specs; the service that sees new libraries; the one that reads all processes; the device plugin.
SERVICES = ("refresh", "libraries", "openers", "plugin")

LEFT_OUT = "-"

# Directive, and its value for each of SERVICES. "{name}" depends on the service's settings.
# The openers service can read every process, so it can do what root can: it talks only to its connection, writes
# nothing, and opens no device. It reads the links of /proc, which its own mounts do not hide.
# Specs mount files of /tmp and of homes into containers (sockets of a display, of NVIDIA's MPS). The plugin has to see
# these files, so neither directory is hidden from it.
TABLE = (
    ("NoNewPrivileges", "yes", "yes", "yes", "yes"),
    ("CapabilityBoundingSet", "{capabilities}", "", "CAP_DAC_READ_SEARCH CAP_SYS_PTRACE", "{capabilities}"),
    ("ProtectSystem", "strict", "strict", "strict", "strict"),
    ("ProtectHostname", "yes", "yes", "yes", "yes"),
    ("ProtectControlGroups", "yes", "yes", "yes", "yes"),
    ("ProtectKernelLogs", "yes", "yes", "yes", "yes"),
    ("ProtectKernelModules", "yes", "yes", "yes", "yes"),
    ("ProtectKernelTunables", "yes", "yes", "yes", "{unless_devices}"),
    ("ProtectClock", "-", "-", "yes", "{unless_devices}"),
    ("ProtectHome", "read-only", "yes", "read-only", "read-only"),
    ("ProtectProc", "-", "-", "-", "invisible"),
    ("PrivateTmp", "yes", "yes", "yes", "-"),
    ("PrivateMounts", "-", "-", "yes", "yes"),
    ("PrivateDevices", "-", "-", "yes", "-"),
    ("DevicePolicy", "-", "-", "closed", "{device_policy}"),
    ("PrivateNetwork", "-", "yes", "yes", "-"),
    ("RestrictAddressFamilies", "AF_UNIX AF_NETLINK", "-", "AF_UNIX", "{families}"),
    ("IPAddressDeny", "any", "-", "any", "{deny}"),
    ("IPAddressAllow", "-", "-", "-", "{allow}"),
    ("RestrictNamespaces", "yes", "yes", "yes", "yes"),
    ("RestrictRealtime", "yes", "yes", "yes", "yes"),
    ("RestrictSUIDSGID", "yes", "yes", "yes", "yes"),
    ("LockPersonality", "yes", "yes", "yes", "yes"),
    ("MemoryDenyWriteExecute", "-", "yes", "yes", "yes"),
    ("KeyringMode", "-", "-", "private", "private"),
    ("SystemCallArchitectures", "native", "native", "native", "native"),
    ("SystemCallFilter", "-", "-", "@system-service", "@system-service"),
    ("SystemCallFilter", "-", "-", "~@privileged @resources", "~@privileged @resources"),
    ("SystemCallErrorNumber", "-", "-", "EPERM", "EPERM"),
    ("UMask", "0022", "-", "0077", "0077"),
)


def sandbox(service: str, values: Optional[Mapping[str, str]] = None) -> str:
    """Return the lines of the directives of one of SERVICES; `values`: by the names in braces."""
    column = 1 + SERVICES.index(service)
    rows = ((row[0], row[column].format_map(values or {})) for row in TABLE)
    return "\n".join(f"{directive}={value}" for directive, value in rows if value != LEFT_OUT)
