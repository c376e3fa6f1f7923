# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the texts of the systemd units with which a host converges itself from a file of settings.

systemd.service(5), systemd.timer(5); docs/fleet.md says when a site wants this.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from ...layout import USUAL
from .units import UNIT_DIR, argument, check_path, quoted

CONVERGE_SERVICE, CONVERGE_TIMER = "fleet-cdi-converge.service", "fleet-cdi-converge.timer"
FIRST = 60  # seconds after a boot: by then the refresh of the boot has ended

# No sandbox: it loads modules, edits configurations of container runtimes, and restarts services.
# No TimeoutStartSec: what it waits for has limits of its own.
_SERVICE = """\
[Unit]
Description=Bring this host to the state of {file}
After=fleet-cdi-refresh.service

[Service]
Type=oneshot
Nice=5
ExecStart={command} converge --settings {settings}
"""

# The delay is for what many hosts share, as a package mirror or a log server.
_TIMER = """\
[Unit]
Description=Bring this host to the state of its file of settings

[Timer]
OnActiveSec={first}
OnUnitInactiveSec={interval}
RandomizedDelaySec={delay}
AccuracySec=5

[Install]
WantedBy=timers.target
"""

HEAD = "# Written by fleet.cdi.cdi_host; change its settings instead of this file.\n"


class ConvergeUnit(NamedTuple):
    """The settings of the units."""

    file: str  # of the settings
    interval: int = 3600  # seconds
    prefix: str = USUAL.prefix


def converge_texts(settings: ConvergeUnit) -> dict[str, bytes]:
    """Return path -> content of each unit. Raises CdiError for a path that a unit can't hold."""
    for name in ("prefix", "file"):
        check_path(name, getattr(settings, name))
    values = {
        "file": settings.file.replace("%", "%%"),
        "command": quoted(os.path.join(settings.prefix, "bin", "fleet-cdi")),
        "settings": argument(settings.file),
        "first": FIRST,
        "interval": settings.interval,
        "delay": settings.interval // 10,
    }
    texts = {CONVERGE_SERVICE: _SERVICE, CONVERGE_TIMER: _TIMER}
    return {f"{UNIT_DIR}/{name}": (HEAD + text.format(**values)).encode() for name, text in texts.items()}
