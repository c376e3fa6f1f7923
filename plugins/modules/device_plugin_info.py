#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.device_plugin_info: show the resources of the Kubernetes device plugin, and the kubelet's answer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: device_plugin_info
short_description: Show the resources of the Kubernetes device plugin, and whether the kubelet lists them
version_added: 0.1.0
description:
  - Reads what the instances of the plugin say of themselves, and asks the kubelet by its API for pod resources which
    devices it has. Before Kubernetes 1.21 that is not known, and an open stream of the kubelet to the plugin counts.
  - Warns of resources that another plugin or a driver of dynamic resource allocation may have as well, and of ways to
    give devices to containers that can't work on this node.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.info_module
  - fleet.cdi.on_host
options:
  config_file:
    description:
      - The configuration, see M(fleet.cdi.device_plugin_config).
    type: path
    default: /etc/fleet-cdi/device-plugin.json
  kubelet_dir:
    description:
      - The directory of the kubelet.
    type: path
    default: /var/lib/kubelet
  state_dir:
    description:
      - The directory of the manifest, which says whether this collection wrote the configuration.
    type: path
    default: /var/lib/cdi
seealso:
  - module: fleet.cdi.device_plugin_config
  - module: fleet.cdi.device_plugin_service
"""

EXAMPLES = r"""
- name: Wait until the kubelet lists all resources
  fleet.cdi.device_plugin_info:
  register: plugin
  until: plugin.ready
  retries: 15
  delay: 2

- name: Fail where devices are unhealthy
  ansible.builtin.assert:
    that: plugin.resources | rejectattr('unhealthy', 'equalto', {}) | length == 0
"""

RETURN = r"""
ready:
  description:
    - Whether an instance runs with its configuration, and the kubelet, if one runs, lists every healthy device.
  returned: success
  type: bool
  sample: true
pending:
  description: The reasons why RV(ready) is V(false).
  returned: success
  type: list
  elements: str
  sample: []
resources:
  description: The resources of the instance that was started last.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Its name, as pods ask for it.
      type: str
      sample: nvidia.com/gpu
    state:
      description:
        - V(registered) where the kubelet watches it, V(waiting) without a kubelet, V(idle) without a device,
          V(conflict) where another plugin serves it, V(refused) where the kubelet will not take it.
        - V(registering), V(retrying) or V(standby) on the way.
      type: str
      sample: registered
    stream:
      description: Whether the kubelet's stream for the list of devices is open.
      type: bool
      sample: true
    error:
      description: The error of the resource; V(null) without one.
      type: str
      sample: null
    devices:
      description: How many devices the kubelet is told of, replicas counted one by one.
      type: int
      sample: 8
    healthy:
      description: How many of them are healthy.
      type: int
      sample: 7
    unhealthy:
      description: Why each of the others is not.
      type: dict
      sample: {"GPU-5c1b": "/dev/nvidia3: is gone"}
    listed:
      description: How many devices the kubelet lists for it; V(null) where it can't be asked.
      type: int
      sample: 7
    delivery:
      description:
        - How containers are given the devices, C(cdi), C(annotations) and C(expanded), and C(why) what the
          configuration asks for can't work on this node. Empty until the first registration.
      type: dict
      sample: {"cdi": true, "annotations": true, "expanded": false, "why": ""}
    warnings:
      description: What keeps devices of it from being offered, or may.
      type: list
      elements: str
      sample: []
instances:
  description: The instances that run, the one that was started last at the end.
  returned: success
  type: list
  elements: dict
  contains:
    instance:
      description: Its name.
      type: str
      sample: a
    pid:
      description: The id of its process, as the process sees it.
      type: int
      sample: 812
    release:
      description: The release that it runs.
      type: str
      sample: 0.1.0-95b2cc14fefb
    started:
      description: When it was started.
      type: str
      sample: "2026-11-21T18:02:11Z"
    config:
      description: The configuration in force, C(path), C(sha256) and C(error).
      type: dict
      sample: {"path": "/etc/fleet-cdi/device-plugin.json", "sha256": "a6f1", "error": null}
kubelet:
  description:
    - C(state) V(up), V(down) or V(absent); C(asked), whether its API for pod resources answered, and C(why) not;
      C(drivers), the drivers of dynamic resource allocation that are registered.
  returned: success
  type: dict
  sample: {"state": "up", "asked": true, "why": "", "drivers": []}
service:
  description: The instances that systemd starts at boot (C(enabled)), and those that run now (C(active)).
  returned: success
  type: dict
  sample: {"enabled": ["a"], "active": ["a"]}
config:
  description: C(path) of the configuration, whether it C(exists), and whether this collection wrote it (C(managed)).
  returned: success
  type: dict
  sample: {"path": "/etc/fleet-cdi/device-plugin.json", "exists": true, "managed": true}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "config_file": {"type": "path", "default": "/etc/fleet-cdi/device-plugin.json"},
        "kubelet_dir": {"type": "path", "default": "/var/lib/kubelet"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "device_plugin_info")


if __name__ == "__main__":
    main()
