#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.device_info: the devices of a host. Its documentation is device_info.yml, which no host needs."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.respawn import has_respawned, probe_interpreters_for_module, respawn_module

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import discover, options, snapshot, udev
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError, Device, as_document

# Where distributions put the Python that their python3-pyudev is for.
SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/libexec/platform-python")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "devices": {"type": "dict"},
            "root": {"type": "path", "default": "/"},
            "gather": {"type": "list", "elements": "str", "choices": ["properties"], "default": []},
        },
        supports_check_mode=True,
    )
    root = module.params["root"]
    if root == "/" and os.path.isdir(udev.DATABASE) and not find_spec("pyudev") and not has_respawned():
        system_python = probe_interpreters_for_module(SYSTEM_PYTHONS, "pyudev")
        if system_python:
            respawn_module(system_python)  # does not return
    entries = module.params["devices"]
    enricher, warnings = udev.enricher(root)
    try:
        found = discover.discover(options.everything() if entries is None else entries, snapshot.take(root), enricher)
    except CdiError as error:
        module.fail_json(msg=str(error))
    for warning in (*warnings, *found.warnings):
        module.warn(warning)
    module.exit_json(changed=False, devices=[shown(device, module.params["gather"]) for device in found.devices])


def shown(device: Device, gather: list[str]) -> dict[str, Any]:
    """A device as the module returns it."""
    document = {**as_document(device), "qualified_names": list(device.qualified_names)}
    return {key: value for key, value in document.items() if key != "properties" or key in gather}


if __name__ == "__main__":
    main()
