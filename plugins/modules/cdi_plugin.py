#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.cdi_plugin: write the configuration of one executable of the 2017 proposal."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cdi_plugin
short_description: Configure an executable that grants devices
version_added: 0.1.0
description:
  - Writes C(/etc/cdi/<resource-type>.d/<name>.conf) for one of the executables that grant devices by the Container
    Device Interface proposal of 2017 (C(VERSION), C(INFO), C(ADD), C(DEL)). The role installs them in C(/opt/cdi/bin).
  - Then refreshes the pool of the executable, because the executable discovers nothing itself.
  - What was written, and what was there before, is recorded in the manifest; C(fleet-cdi undo) takes exactly that back.
    A file without a record is foreign and stays unchanged unless O(force=true).
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  resource_type:
    description:
      - The name of the devices in requests, as C(gpu) in C(gpu:2). A letter, then up to 15 letters and digits.
    type: str
    required: true
  name:
    description:
      - The name of the file, without C(.conf). By default that of O(plugin). Several configurations of one type are
        tried in the order of their file names.
    type: str
  state:
    description:
      - V(present) writes the configuration from the other options, V(absent) removes it.
    type: str
    choices: [present, absent]
    default: present
  plugin:
    description:
      - The executable, V(drm), V(generic-tty), V(rule) or V(sriov), or one of your own in C(<prefix>/bin).
    type: str
  description:
    description:
      - A name for people.
    type: str
  cdi_version:
    description:
      - The version of the proposal that callers speak.
    type: str
    choices: ["0.0.1", "0.0.2"]
    default: "0.0.2"
  args:
    description:
      - Which devices, by the options of the profile that the executable stands for, as in M(fleet.cdi.device_info), and
        what the executable itself is to do, as C(setup), C(teardown), C(shared) and C(delegate). V(rule) takes a
        C(profile), so that it can grant any family.
    type: dict
    default: {}
  config_dir:
    description:
      - The directory of the configurations.
    type: path
    default: /etc/cdi
  device_list:
    description:
      - The file that lists the devices of this boot. The devices that each executable may grant are written beside it.
    type: path
    default: /run/cdi-inventory.json
  state_dir:
    description:
      - The directory of the manifest and of the ledger.
    type: path
    default: /var/lib/cdi
  managed_by:
    description:
      - Who asks for this configuration, in a word that M(fleet.cdi.cdi_plugin_info) returns.
    type: str
    default: ""
  on_held:
    description:
      - What to do with a configuration that is to be absent, or to get another O(plugin), while a request holds a
        device by it. C(DEL), which gives the device back, needs it, and another plugin would not know the request.
      - V(keep) leaves it, with a warning that names the requests, for a later run to take; V(fail) refuses; V(drop)
        removes it anyway.
    type: str
    choices: [keep, fail, drop]
    default: keep
  force:
    description:
      - Replace or remove a foreign file. Its content is kept in the manifest, and undo puts it back.
    type: bool
    default: false
seealso:
  - module: fleet.cdi.cdi_plugin_info
  - module: fleet.cdi.device_info
"""

EXAMPLES = r"""
- name: Grant GPUs of one vendor
  fleet.cdi.cdi_plugin:
    resource_type: gpu
    plugin: drm
    args:
      want_device_nodes: [primary, render]
      vendorid_whitelist: ["0x1002"]

- name: Grant consoles from tty13 on
  fleet.cdi.cdi_plugin:
    resource_type: tty
    name: generic
    plugin: generic-tty
    args:
      num_system_reserved: 12

- name: Grant any device of a rule
  fleet.cdi.cdi_plugin:
    resource_type: ve
    plugin: rule
    args:
      profile: rule
      match:
        driver: ve_drv

- name: Take a configuration back
  fleet.cdi.cdi_plugin:
    resource_type: gpu
    plugin: drm
    state: absent
"""

RETURN = r"""
path:
  description: The file of the configuration.
  returned: success
  type: str
  sample: /etc/cdi/gpu.d/drm.conf
paths:
  description: All files that were written, with what the executable may grant.
  returned: success
  type: list
  elements: str
  sample: [/etc/cdi/gpu.d/drm.conf, /run/cdi-inventory.d/gpu.drm.1c291ca3.json]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "resource_type": {"type": "str", "required": True},
        "name": {"type": "str"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "plugin": {"type": "str"},
        "description": {"type": "str"},
        "cdi_version": {"type": "str", "choices": ["0.0.1", "0.0.2"], "default": "0.0.2"},
        "args": {"type": "dict", "default": {}},
        "config_dir": {"type": "path", "default": "/etc/cdi"},
        "device_list": {"type": "path", "default": "/run/cdi-inventory.json"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "managed_by": {"type": "str", "default": ""},
        "on_held": {"type": "str", "choices": ["keep", "fail", "drop"], "default": "keep"},
        "force": {"type": "bool", "default": False},
        **on_host.ARGUMENTS,
    },
    "required_if": [("state", "present", ("plugin",))],
    "required_one_of": [("name", "plugin")],
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "cdi_plugin")


if __name__ == "__main__":
    main()
