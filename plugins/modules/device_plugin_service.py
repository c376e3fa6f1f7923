#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.device_plugin_service: run the Kubernetes device plugin as a service of the host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: device_plugin_service
short_description: Run the Kubernetes device plugin as a service of the host
version_added: 0.1.0
description:
  - Installs C(fleet-cdi-device-plugin@.service), enables one of its instances V(a) and V(b) and starts it. It starts
    before the kubelet, waits for a kubelet if none runs, and sees devices come and go.
  - An instance that runs from an older release or unit is replaced without a gap. The module starts the other instance
    beside it, and stops the older one when the kubelet watches all resources of the new one. If that does not happen
    within O(timeout), the module stops the new instance, and the older one continues. The next run completes an
    interrupted one in the same way.
  - The units are in the manifest; C(fleet-cdi undo) stops the service and takes them back.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  state:
    description:
      - V(present) makes the unit as the other options say, and has one current instance run.
      - V(absent) stops and disables both instances, and takes back the unit, sockets and status files. Devices that the
        ledger holds for Kubernetes are free then, unless pods still use some of them; a warning says so.
    type: str
    choices: [present, absent]
    default: present
  config_file:
    description:
      - The configuration, see M(fleet.cdi.device_plugin_config).
    type: path
    default: /etc/fleet-cdi/device-plugin.json
  kubelet_dir:
    description:
      - The directory of the kubelet. The service may write into its C(device-plugins) and C(plugins_registry), which it
        makes where they are missing, and into nothing else there.
    type: path
    default: /var/lib/kubelet
  state_dir:
    description:
      - The directory of the manifest and of the ledger.
    type: path
    default: /var/lib/cdi
  metrics:
    description:
      - Address and port for metrics, as in the configuration. The service has no access to the network without.
    type: str
    default: ""
  device_access:
    description:
      - Whether the commands C(setup) and C(teardown) of the configuration may open device nodes, and write into
        C(/tmp). The plugin itself only looks at nodes.
    type: bool
    default: false
  network_access:
    description:
      - Whether these commands may use the network, as V(fleet-cdi slurm withhold) does.
    type: bool
    default: false
  capabilities:
    description:
      - Capabilities for these commands, as V(CAP_SYS_ADMIN). The plugin itself needs none.
    type: list
    elements: str
    default: []
  writable_paths:
    description:
      - Absolute paths of files and directories that these commands may write besides. The plugin itself needs none.
    type: list
    elements: str
    default: []
  process_access:
    description:
      - Whether C(fleet-cdi-openers.socket) and C(fleet-cdi-openers@.service) are installed beside the plugin. They look
        which processes have devices open. The setting O(fleet.cdi.device_plugin_config#module:occupied) needs them,
        unless that is V(ignore). That service does nothing else, and has C(CAP_SYS_PTRACE) and
        C(CAP_DAC_READ_SEARCH); the plugin itself has no capability.
    type: bool
    default: true
  timeout:
    description:
      - How many seconds a new instance gets to take over.
    type: int
    default: 60
notes:
  - Needs systemd, and root. Where systemd does not run, as in an image, the unit is installed and enabled only.
seealso:
  - module: fleet.cdi.device_plugin_config
  - module: fleet.cdi.device_plugin_info
"""

EXAMPLES = r"""
- name: Offer the devices of the host to its kubelet
  fleet.cdi.device_plugin_service:

- name: Let commands that clean a GPU open its nodes and reset it
  fleet.cdi.device_plugin_service:
    device_access: true
    capabilities: [CAP_SYS_ADMIN]
    writable_paths: [/var/log/gpu-clean]

- name: Stop it, and leave nothing
  fleet.cdi.device_plugin_service:
    state: absent
"""

RETURN = r"""
instance:
  description: The instance that serves; V(null) with O(state=absent).
  returned: success
  type: str
  sample: a
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "config_file": {"type": "path", "default": "/etc/fleet-cdi/device-plugin.json"},
        "kubelet_dir": {"type": "path", "default": "/var/lib/kubelet"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "metrics": {"type": "str", "default": ""},
        "device_access": {"type": "bool", "default": False},
        "network_access": {"type": "bool", "default": False},
        "capabilities": {"type": "list", "elements": "str", "default": []},
        "writable_paths": {"type": "list", "elements": "str", "default": []},
        "process_access": {"type": "bool", "default": True},
        "timeout": {"type": "int", "default": 60},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "device_plugin_service")


if __name__ == "__main__":
    main()
