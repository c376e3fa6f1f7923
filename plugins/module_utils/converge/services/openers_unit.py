# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the texts of the systemd units that read all processes for the device plugin.

systemd.socket(5), systemd.exec(5); docs/occupied.md says who asks, and why this is a separate service.
"""

from __future__ import annotations

import os

from ...device_plugin.process.openers_service import PATH
from .sandbox import sandbox
from .units import check_path, quoted

# Each connection has a process of the service. Both instances connect while one takes over from the other.
SOCKET, TEMPLATE = "fleet-cdi-openers.socket", "fleet-cdi-openers@.service"
PROCESSES = "fleet-cdi-openers@*.service"  # all of them, as a pattern for systemctl
MOST = 8  # connections at a time

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

_SERVICE = f"""\
[Unit]
Description=Who has device nodes open, for one process that asks
CollectMode=inactive-or-failed

[Service]
ExecStart={{command}} plugin openers
StandardInput=socket
StandardOutput=socket
StandardError=journal

{sandbox("openers")}
"""


def openers_texts(prefix: str) -> dict[str, str]:
    """Return name -> text of each unit; `prefix`: the directory of releases. Raises CdiError for a bad path."""
    check_path("prefix", prefix)
    command = quoted(os.path.join(prefix, "bin", "fleet-cdi"))
    return {TEMPLATE: _SERVICE.format(command=command), SOCKET: _SOCKET}
