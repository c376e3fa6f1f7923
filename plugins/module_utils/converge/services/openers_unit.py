# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd units that look at all processes for the device plugin, as texts. Private API of fleet.cdi.

systemd.socket(5), systemd.exec(5); docs/occupied.md says who asks, and why it is a service of its own.
"""

from __future__ import annotations

import os

from ...device_plugin.process.openers_service import PATH
from .units import CONFINED, SANDBOX, check_path, quoted

# The service is one process for each connection: of both instances of the plugin, while one takes over from the other.
SOCKET, TEMPLATE = "fleet-cdi-openers.socket", "fleet-cdi-openers@.service"
PROCESSES = "fleet-cdi-openers@*.service"  # all of them, as a pattern for systemctl
MOST = 8  # of them at a time

_SOCKET = f"""\
[Unit]
Description=Who has device nodes open, asked by the device plugin

[Socket]
ListenStream={PATH}
SocketMode=0600
Accept=yes
MaxConnections={MOST}
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""

# Who may look at all processes can do whatever root can. So it has nobody to talk to but who connected, writes nothing,
# and opens no device. What it looks at are the links of /proc, which no mount of its own hides.
_SERVICE = """\
[Unit]
Description=Who has device nodes open, for one process that asks
CollectMode=inactive-or-failed

[Service]
ExecStart={command} plugin openers
StandardInput=socket
StandardOutput=socket
StandardError=journal

{sandbox}
{confined}
CapabilityBoundingSet=CAP_DAC_READ_SEARCH CAP_SYS_PTRACE
ProtectHome=read-only
ProtectClock=yes
ProtectKernelTunables=yes
PrivateDevices=yes
DevicePolicy=closed
PrivateNetwork=yes
PrivateTmp=yes
IPAddressDeny=any
RestrictAddressFamilies=AF_UNIX
"""


def openers_texts(prefix: str) -> dict[str, str]:
    """Name of each unit -> its text; `prefix`: where the release is. Raises CdiError for what can't be part of one."""
    check_path("prefix", prefix)
    command = quoted(os.path.join(prefix, "bin", "fleet-cdi"))
    return {TEMPLATE: _SERVICE.format(command=command, sandbox=SANDBOX, confined=CONFINED), SOCKET: _SOCKET}
