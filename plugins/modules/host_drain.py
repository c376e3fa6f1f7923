#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.host_drain: take all devices of a host out of service, or put back exactly these."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_drain
short_description: Take all devices of a host out of service, or put back exactly these
version_added: 0.1.0
description:
  - Takes every usable device of a host out of service, as M(fleet.cdi.device_state) does for one device, so that no new
    request and no new container gets a device. Who holds a device keeps it. RV(held) names the holders; run the module
    again until it is empty.
  - O(state=in_service) puts back the devices that are out of service for exactly the text in O(reason). Devices that
    operators took out of service for other reasons stay.
  - The command C(fleet-cdi) of the release that is active on the host makes the changes, also if the controller has
    another release. Playbook C(fleet.cdi.upgrade) uses this module.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  state:
    description:
      - V(drained) takes all usable devices out of service, V(in_service) puts them back.
    type: str
    choices: [drained, in_service]
    required: true
  reason:
    description:
      - Why, in one line for operators. The devices are recognised by it, so that a later run puts back what a run that
        was killed had taken out of service.
    type: str
    required: true
  only_healthy:
    description:
      - With O(state=in_service), put nothing back and fail if one of the devices would be unhealthy in service.
    type: bool
    default: false
  allow_missing:
    description:
      - With O(only_healthy=true), also go on if the host does not have one of the devices any more, because its
        settings leave it out or it was removed. Otherwise put nothing back and fail.
    type: bool
    default: false
  device_list:
    description:
      - The file that lists the devices of this boot. The pools of the executables beside it count too.
    type: path
    default: /run/cdi-inventory.json
  state_dir:
    description:
      - The directory of the manifest and of the ledger.
    type: path
    default: /var/lib/cdi
notes:
  - A partition or virtual function goes out of service with its whole device.
  - A container counts as a holder while it runs, if podman of root or docker made it with a device of the host, by any
    of its names, by C(kind=all), or by a name in a spec of another tool. If one of them can't be asked while containers
    of it may run, RV(held) has one more row, for any device.
seealso:
  - module: fleet.cdi.device_state
  - module: fleet.cdi.host_report_info
"""

EXAMPLES = r"""
- name: Take the devices out of service, and wait until nobody uses them
  fleet.cdi.host_drain:
    state: drained
    reason: new firmware
  register: drain
  until: not drain.held
  retries: 60
  delay: 10

- name: Put them back
  fleet.cdi.host_drain:
    state: in_service
    reason: new firmware
"""

RETURN = r"""
release:
  description: The release that is active on the host, V(null) without one.
  returned: success
  type: str
  sample: 0.1.0-95b2cc14fefb
devices:
  description: The ids of the devices that this run took out of service or put back.
  returned: success
  type: list
  elements: str
  sample: ["pci:0000:3b:00.0"]
drained:
  description: The ids of all devices that are out of service for O(reason) after this run.
  returned: success
  type: list
  elements: str
  sample: ["pci:0000:3b:00.0"]
held:
  description: The devices that are in use. Empty with O(state=in_service).
  returned: success
  type: list
  elements: dict
  contains:
    device:
      description: The id of the device; empty for any device of the host.
      type: str
      sample: pci:0000:3b:00.0
    name:
      description: Its qualified name, or V(any device) for what a container may have of which nothing is known.
      type: str
      sample: nvidia.com/gpu=0
    by:
      description: Its holders - requests, pods, running containers.
      type: list
      elements: str
      sample: [request job-42 of gpu/drm (claims)]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "state": {"type": "str", "choices": ["drained", "in_service"], "required": True},
        "reason": {"type": "str", "required": True},
        "only_healthy": {"type": "bool", "default": False},
        "allow_missing": {"type": "bool", "default": False},
        "device_list": {"type": "path", "default": "/run/cdi-inventory.json"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "host_drain")


if __name__ == "__main__":
    main()
