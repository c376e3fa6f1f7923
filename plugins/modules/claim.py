#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.claim: give devices to a container or job by a name, or take them back."""

from __future__ import annotations

DOCUMENTATION = r"""
module: claim
short_description: Give devices to a container or job by a name
version_added: 0.1.0
description:
  - Has the executables of the Container Device Interface proposal of 2017 grant devices, of one or more resource-types,
    all or nothing, and makes one CDI device of them. A container asks for it by its name,
    C(podman run --device fleet.cdi/claim=job-42), and nobody else gets these devices until the claim is given back.
  - A claim survives a reboot with the same hardware, unless O(release_on_stop) is set.
  - On the host itself C(fleet-cdi claim) does the same.
  - Check mode refuses an amount that the host does not have, and does not see whether others hold the devices.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  id:
    description:
      - The id of the claim, any text. RV(claim.device) has the name of the CDI device, which is the id itself if it can
        be one.
    type: str
    required: true
  state:
    description:
      - V(present) makes the claim, V(absent) gives it back.
    type: str
    choices: [present, absent]
    default: present
  request:
    description:
      - What the claim asks for, resource-spec to amount, such as C(gpu), C(gpu-memory) or C(tty). Needed for
        O(state=present). A present claim with another request is an error.
    type: dict
  near:
    description:
      - NUMA nodes. Devices close to one of them are preferred.
    type: list
    elements: int
  release_on_stop:
    description:
      - End the claim when its container stops. By default a stopped container keeps its devices for its next start.
    type: bool
    default: false
  for_user:
    description:
      - The name of an ordinary user whose own (rootless) containers use the claim. While it lives, this user can open
        its device nodes, by an entry in their access lists, and this user alone can read its spec.
      - Can't be combined with O(release_on_stop).
    type: str
  keep:
    description:
      - Give the claim back only by O(state=absent), as for a job that runs one container after another. By default it
        is also given back some time after its last container is gone, see
        O(fleet.cdi.refresh_service#module:claims_idle).
      - Not together with O(release_on_stop).
    type: bool
    default: false
  reuse:
    description:
      - Allow an id whose earlier claim ended after the last reboot. By default this is an error, because a container
        may still ask for the former claim by its name.
    type: bool
    default: false
  force:
    description:
      - For O(state=absent), also give the devices back if a container that was started with the claim still runs. By
        default this is an error that names the containers, because others may get the devices while these use them.
    type: bool
    default: false
  timeout:
    description:
      - How many seconds an executable may take for one answer.
    type: float
    default: 60
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
  - module: fleet.cdi.claim_info
  - module: fleet.cdi.cdi_plugin
"""

EXAMPLES = r"""
- name: Get a GPU and a console of its own for a visualisation
  fleet.cdi.claim:
    id: vis-7
    request: {gpu: 1, tty: 1}
  register: devices

- name: Run it
  containers.podman.podman_container:
    name: vis-7
    image: registry.example.com/vis
    device: ["{{ devices.claim.device }}"]

- name: Give the devices back
  fleet.cdi.claim:
    id: vis-7
    state: absent
"""

RETURN = r"""
claim:
  description: The claim; null for O(state=absent).
  returned: success
  type: dict
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
      description: The user id of RV(claim.for_user); 0 for root.
      type: int
      sample: 0
    keep:
      description: Whether only O(state=absent) gives the claim back.
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
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "id": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "request": {"type": "dict"},
        "near": {"type": "list", "elements": "int"},
        "release_on_stop": {"type": "bool", "default": False},
        "for_user": {"type": "str"},
        "keep": {"type": "bool", "default": False},
        "reuse": {"type": "bool", "default": False},
        "force": {"type": "bool", "default": False},
        "timeout": {"type": "float", "default": 60},
        "config_dir": {"type": "path", "default": "/etc/cdi"},
        "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
        "device_list": {"type": "path", "default": "/run/cdi-inventory.json"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        **on_host.ARGUMENTS,
    },
    "required_if": [("state", "present", ("request",))],
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "claim")


if __name__ == "__main__":
    main()
