#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.device_state: take a device out of service, or back into service."""

from __future__ import annotations

DOCUMENTATION = r"""
module: device_state
short_description: Take a device out of service, or back
version_added: 0.1.0
description:
  - Keeps a device from being handed out, because it is broken, needed for something else or about to be replaced. It is
    left out of the specs and of grants from now on, with its partitions and virtual functions.
  - That is so at once, also while a request or a container holds it. What runs keeps its device, and no container can
    be started or restarted with it. A warning names who holds it, in check mode too.
  - The device is remembered by its identity, so neither a reboot nor another number brings it back; another card in the
    same slot is not meant. C(fleet-cdi doctor) and M(fleet.cdi.device_info) show the reason.
  - A device that is out of service can't be disabled again while no inventory of this boot tells which card is there.
  - Fails if a spec of the device could not be written as decided, as after a change by hand. The device is out of
    service all the same, and gets no new grants; the message tells how to repair the spec.
  - On the host itself C(fleet-cdi device disable) and C(fleet-cdi device enable) do the same.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  device:
    description:
      - The device, by its id, a name (qualified, or the name alone), its PCI address, uuid or serial, or the path of
        one of its device nodes, as C(fleet-cdi devices --json) and M(fleet.cdi.device_info) show them. It has to be in
        O(device_list), or out of service already. What several devices are called is refused, with their names.
    type: str
    required: true
  state:
    description:
      - V(disabled) takes it out of service, V(enabled) puts it back.
    type: str
    choices: [disabled, enabled]
    required: true
  reason:
    description:
      - Why, in one line for the next operator. Needed for O(state=disabled).
    type: str
  until:
    description:
      - When it is in service again by itself, a date or a time of UTC, as in V(2026-12-01) or V(2026-12-01T18:00Z). A
        time that is over means that it is in service. The refresh after that time offers it again.
    type: str
  device_list:
    description:
      - The file that lists the devices of this boot, in which the device is looked up.
    type: path
    default: /run/cdi-inventory.json
  state_dir:
    description:
      - The directory of the manifest, in which C(device-state.json) is kept.
    type: path
    default: /var/lib/cdi
seealso:
  - module: fleet.cdi.device_info
  - module: fleet.cdi.spec
"""

EXAMPLES = r"""
- name: Take a GPU with memory errors out of service
  fleet.cdi.device_state:
    device: 0000:3b:00.0
    state: disabled
    reason: "uncorrectable ECC errors, ticket 4711"

- name: Keep a port free over the weekend
  fleet.cdi.device_state:
    device: fleet.cdi/net=ens1f0
    state: disabled
    reason: cabling
    until: "2026-11-30"

- name: Put it back
  fleet.cdi.device_state:
    device: 0000:3b:00.0
    state: enabled
"""

RETURN = r"""
id:
  description: The id of the device.
  returned: success
  type: str
  sample: pci:0000:3b:00.0
state:
  description: V(disabled) or V(enabled).
  returned: success
  type: str
  sample: disabled
reason:
  description: Why it is out of service; empty if it is in service.
  returned: success
  type: str
  sample: uncorrectable ECC errors, ticket 4711
since:
  description: Since when it is out of service; empty if it is in service.
  returned: success
  type: str
  sample: "2026-11-21T15:20:00Z"
until:
  description: Until when it is out of service; empty if it stays so until an operator enables it.
  returned: success
  type: str
  sample: "2026-11-30T00:00:00Z"
paths:
  description: The files that were written - the state, specs, the inventory, pools of the executables.
  returned: success
  type: list
  elements: str
  sample: [/var/lib/cdi/device-state.json, /etc/cdi/amd.com-gpu.json, /run/cdi-inventory.json]
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "device": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["disabled", "enabled"], "required": True},
        "reason": {"type": "str"},
        "until": {"type": "str"},
        "device_list": {"type": "path", "default": "/run/cdi-inventory.json"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        **on_host.ARGUMENTS,
    },
    "required_if": [("state", "disabled", ("reason",))],
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "device_state")


if __name__ == "__main__":
    main()
