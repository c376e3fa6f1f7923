#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.cdi_plugin_info: show the executables of the 2017 proposal and their answers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cdi_plugin_info
short_description: Show the executables that grant devices, and what they have
version_added: 0.1.0
description:
  - Finds every configuration C(/etc/cdi/<resource-type>.d/<name>.conf), as a caller of the Container Device Interface
    proposal of 2017 does, and asks each executable by C(VERSION) what it speaks and by C(INFO) what the host has.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.info_module
  - fleet.cdi.on_host
options:
  resource_type:
    description:
      - Only configurations of this resource-type.
    type: str
  config_dir:
    description:
      - The directory of the configurations.
    type: path
    default: /etc/cdi
  state_dir:
    description:
      - The directory of the manifest, which says which configurations this collection wrote.
    type: path
    default: /var/lib/cdi
  timeout:
    description:
      - How many seconds an executable may take for one answer.
    type: float
    default: 10
seealso:
  - module: fleet.cdi.cdi_plugin
"""

EXAMPLES = r"""
- name: Ask all executables
  fleet.cdi.cdi_plugin_info:
  register: cdi

- name: Fail where one can't be used
  ansible.builtin.assert:
    that:
      - not cdi.broken
      - cdi.plugins | rejectattr('error', 'none') | length == 0
"""

RETURN = r"""
plugins:
  description: The configurations, in the order in which they are tried for a request.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The file.
      type: str
      sample: /etc/cdi/gpu.d/drm.conf
    name:
      description: Its name, without C(.conf).
      type: str
      sample: drm
    type:
      description: The resource-type.
      type: str
      sample: gpu
    plugin:
      description: The executable.
      type: str
      sample: drm
    args:
      description: Its arguments.
      type: dict
      sample: {"want_device_nodes": ["primary", "render"]}
    description:
      description: The name for people.
      type: str
      sample: gpu by drm
    cdi_version:
      description: The version of the proposal that it is called with.
      type: str
      sample: 0.0.2
    managed:
      description: Whether this collection wrote the file and it is unchanged.
      type: bool
      sample: true
    managed_by:
      description: Who asked M(fleet.cdi.cdi_plugin) for it; null for a foreign file.
      type: str
      sample: cdi_host
    versions:
      description: The versions that the executable speaks.
      type: list
      elements: str
      sample: [0.0.1, 0.0.2]
    info:
      description: What the host has, resource-spec to amount. Of memory the unit is MiB.
      type: dict
      sample: {"gpu": 12, "gpu-memory": 65536}
    error:
      description: Why it can't be asked, with C(code), C(message) and C(details); null if it can.
      type: dict
      sample: null
broken:
  description: Files that are not valid configurations, with C(path), C(code), C(message) and C(details).
  returned: success
  type: list
  elements: dict
  sample: []
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "resource_type": {"type": "str"},
        "config_dir": {"type": "path", "default": "/etc/cdi"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "timeout": {"type": "float", "default": 10},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "cdi_plugin_info")


if __name__ == "__main__":
    main()
