# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of the device plugin: the variables of role cdi_device_plugin without their prefix.

Its configuration and its unit check more (device_plugin/config, converge/services).
"""

from __future__ import annotations

from ...device_plugin.config import configuration
from ...layout import KUBELET, USUAL
from ...schema import ABSOLUTE, PATH
from ...system.openers import EXPECTED
from ..services.device_plugin_unit import CAPABILITIES
from .host_setting import BOOL, COUNT, PATHS, HostSetting

GRACE = {"type": "integer", "minimum": 1, "maximum": 86400, "description": "a whole number of seconds from 1 to 86400"}
PLUGIN = configuration.SCHEMA["properties"]
DEVICE_PLUGIN: dict[str, HostSetting] = {
    "resources": HostSetting(PLUGIN["resources"], {}),
    "delivery": HostSetting(PLUGIN["delivery"], "auto"),
    "registration": HostSetting(PLUGIN["registration"], "auto"),
    "takeover": HostSetting(BOOL, False),
    "occupied": HostSetting(PLUGIN["occupied"], "warn"),
    "occupied_ignore": HostSetting(PLUGIN["occupied_ignore"], list(EXPECTED)),
    "metrics": HostSetting(PLUGIN["metrics"], ""),
    "grace": HostSetting(GRACE, 30),
    "network_access": HostSetting(BOOL, False),
    "capabilities": HostSetting(CAPABILITIES, []),
    "writable_paths": HostSetting(PATHS, []),
    "wait": HostSetting(COUNT, 60),
    "config": HostSetting(PATH, USUAL.plugin_config),
    "kubelet_dir": HostSetting(ABSOLUTE, KUBELET),
    "force": HostSetting(BOOL, False),
}
