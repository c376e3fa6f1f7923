# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the texts of the systemd units that give back claims whose containers are gone.

systemd.service(5), systemd.timer(5); docs/claims.md says which claims. This is not a part of the refresh: at boot the
refresh runs before the engines, so it can't ask them, and podman does not run in its sandbox.
"""

from __future__ import annotations

import os

from ...claims.store import DIRECTORY
from .units import MODPROBE, argument, quoted

CLAIMS_SERVICE, CLAIMS_TIMER = "fleet-cdi-claims.service", "fleet-cdi-claims.timer"
FIRST = 10  # seconds after a boot: claims that end with a reboot still hold their devices

# ExecCondition: with ConditionPathExists, a timer does not start the service again after it was skipped once.
# No TimeoutStartSec: each question and each call of an executable has a limit of its own.
_SERVICE = """\
[Unit]
Description=Give back claims of devices whose containers are gone
After={after}

[Service]
Type=oneshot
ExecCondition=/usr/bin/test -d {claims}
# The first podman of a boot loads this module, or notes for all others that overlays don't work. Debian's policy of
# SELinux lets no podman load it that a service starts.
ExecStartPre=-{modprobe} -abq overlay
# No sandbox: it runs podman and executables of third parties, which write to directories of their own.
ExecStart={command} claim gc --idle-for={idle}
"""

_TIMER = """\
[Unit]
Description=Give back claims of devices whose containers are gone

[Timer]
OnActiveSec={first}
OnUnitInactiveSec={interval}
AccuracySec=5

[Install]
WantedBy=timers.target
"""


def claims_texts(prefix: str, state_dir: str, idle: int, interval: int, after: str) -> dict[str, str]:
    """Return name -> text of each unit. `idle`, `interval`: seconds; `after`: units that start before it at boot."""
    values = {
        "after": after,
        "modprobe": MODPROBE,
        "claims": argument(os.path.join(state_dir, DIRECTORY)),
        "command": quoted(os.path.join(prefix, "bin", "fleet-cdi")),
        "idle": idle,
        "first": FIRST,
        "interval": interval,
    }
    return {CLAIMS_SERVICE: _SERVICE.format(**values), CLAIMS_TIMER: _TIMER.format(**values)}
