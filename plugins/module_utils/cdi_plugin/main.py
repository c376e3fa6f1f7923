# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An executable of the CDI proposal of 2017, /opt/cdi/bin/<plugin>: from a call to a reply. Private API of fleet.cdi."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from ansible_collections.fleet.cdi.plugins.module_utils.protocol import messages


def main(plugin: str, defaults: Mapping[str, Any]) -> None:
    """Answer the call in the environment and on stdin; ends the process."""
    sys.stdout.buffer.write(messages.reply(messages.VERSIONS[-1], {"supportedVersions": list(messages.VERSIONS)}))
    sys.stdout.buffer.flush()
    os._exit(0)
