#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.claim_info: show the claims of a host, and their faults."""

from __future__ import annotations

DOCUMENTATION = r"""
module: claim_info
short_description: Show the claims of a host
version_added: 0.1.0
description:
  - Returns all claims, and compares each of them with its spec, the ledger and the device nodes.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.info_module
  - fleet.cdi.on_host
options:
  id:
    description:
      - Only the claim with this id.
    type: str
  config_dir:
    description:
      - The directory of the executables' configurations. Those that M(fleet.cdi.cdi_plugin) wrote elsewhere are used,
        too.
    type: path
    default: /etc/cdi
  spec_dirs:
    description:
      - The spec directories of the container runtimes, lowest priority first. The specs of claims are in the last one,
        which a reboot should empty.
    type: list
    elements: path
    default: [/etc/cdi, /var/run/cdi]
  device_list:
    description:
      - The file that lists the devices of this boot. The names of claims that ended in this boot are kept beside it.
    type: path
    default: /run/cdi-inventory.json
  state_dir:
    description:
      - The directory of the manifest, which has the claims in C(claims).
    type: path
    default: /var/lib/cdi
seealso:
  - module: fleet.cdi.claim
"""

EXAMPLES = r"""
- name: Look at the claims of all hosts
  fleet.cdi.claim_info:
  register: found

- name: Fail where one disagrees with its host
  ansible.builtin.assert:
    that: not found.faults
"""

RETURN = r"""
claims:
  description: The claims, sorted by id.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: The id of the claim.
      type: str
      sample: job-42
    device:
      description: What a container asks for.
      type: str
      sample: fleet.cdi/claim=job-42
    amounts:
      description: The request, resource-spec to amount.
      type: dict
      sample: {"gpu": 1, "tty": 1}
    near:
      description: The NUMA nodes of the request.
      type: list
      elements: int
      sample: [0]
    release_on_stop:
      description: Whether the claim ends when its container stops.
      type: bool
      sample: false
    for_user:
      description: The ordinary user whose containers use it; empty for root's.
      type: str
      sample: ""
    uid:
      description: The user id of RV(claims[].for_user); 0 for root.
      type: int
      sample: 0
    keep:
      description: Whether only O(fleet.cdi.claim#module:state=absent) gives the claim back.
      type: bool
      sample: false
    only:
      description: The device nodes of the devices that the caller chose. Empty if the executables chose.
      type: list
      elements: path
      sample: []
    job:
      description: The run of a Slurm job that ends the claim, or empty.
      type: str
      sample: ""
    state:
      description: V(granted), V(idle), or V(asked) while it is made or given back.
      type: str
      sample: granted
    nodes:
      description: The granted device nodes, each with C(path), C(type), C(major) and C(minor). Empty in a preview.
      type: list
      elements: dict
      sample: [{"path": "/dev/tty13", "type": "c", "major": 4, "minor": 13}]
    names:
      description: The CDI devices whose edits the claim has.
      type: list
      elements: str
      sample: [fleet.cdi/tty=tty13]
    numa_locality:
      description: The NUMA nodes close to the devices, if the executables tell.
      type: list
      elements: int
      sample: [0]
    configurations:
      description: The configurations of the executables that granted.
      type: list
      elements: path
      sample: [/etc/cdi/tty.d/generic-tty.conf]
    boot_id:
      description: The boot in which the device numbers were read.
      type: str
      sample: 0f6f4a9e-4c1c-4f0b-93c2-9f4c2f3a1d55
    token:
      description: Tells this claim from a later one with the same id.
      type: str
      sample: 3f2a9c0d4b5e6f70
    reason:
      description: Why the claim could not be given back or restored; empty otherwise.
      type: str
      sample: ""
faults:
  description: What disagrees, each with C(id) of the claim or a path, C(fault), and C(advice) on the next step.
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
        "id": {"type": "str"},
        "config_dir": {"type": "path", "default": "/etc/cdi"},
        "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
        "device_list": {"type": "path", "default": "/run/cdi-inventory.json"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "claim_info")


if __name__ == "__main__":
    main()
