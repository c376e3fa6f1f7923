#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.host_report_info: four truths of each device of a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_report_info
short_description: Compare the wanted, written, promised and real state of each device of a host
version_added: 0.1.0
description:
  - Returns for each device what the settings want, what the CDI specs have, who holds it in the ledger, and what the
    kernel has, with the processes that have it open. Names each disagreement, its cause and the next command.
  - The devices are discovered at this moment. Playbook C(fleet.cdi.report) makes a report of many hosts from it.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.info_module
  - fleet.cdi.on_host
options:
  spec_dirs:
    description:
      - The spec directories, lowest priority first. One that is missing counts as empty.
    type: list
    elements: path
    default: [/etc/cdi, /var/run/cdi]
  state_dir:
    description:
      - The directory of the manifest and the ledger.
    type: path
    default: /var/lib/cdi
  device_list:
    description:
      - The file that lists the devices of this boot.
    type: str
    default: /run/cdi-inventory.json
notes:
  - It needs root to see the processes of all users; without, who has a device open is unknown.
seealso:
  - module: fleet.cdi.device_info
  - module: fleet.cdi.spec_info
"""

EXAMPLES = r"""
- name: Compare the truths of each device
  fleet.cdi.host_report_info:
  register: truth

- name: Fail where they disagree
  ansible.builtin.assert:
    that: not truth.report.findings
    fail_msg: "{{ truth.report.findings }}"
"""

RETURN = r"""
gathered:
  description: When the answer came, by the clock of the controller, in seconds since the epoch.
  returned: always
  type: int
  sample: 1795910400
report:
  description: The truth of the host. Devices leave out empty values.
  returned: success
  type: dict
  contains:
    version:
      description: The version of this document.
      type: int
      sample: 1
    made:
      description: When it was made, by the clock of the host, in seconds since the epoch.
      type: int
      sample: 1795910400
    uptime:
      description: When it was made, in seconds since the boot.
      type: int
      sample: 86400
    boot_id:
      description: The kernel's id of the boot.
      type: str
      sample: 0b6c2f4d-4a4e-4a53-8a44-0b4d7e2a9d11
    release:
      description: The active release of the on-host code.
      type: str
      sample: 0.1.0-5f2c0a9d3b1e
    devices:
      description:
        - The devices, each with its truths. V(wanted), V(promised) and V(real) are a state and a text, V(written) a
          state, a text and the specs, V(promised) also the holders.
        - V(openers) is V(null) if it is unknown who has the device open; V(unknown) names all truths that are unknown.
        - A process in V(openers) has C(user), the name in C(/etc/passwd) of the host, if that has its C(uid).
        - V(findings) are places in RV(report.findings).
      type: list
      elements: dict
      sample:
        - id: pci:0000:3b:00.0
          kind: nvidia.com/gpu
          names: ["0"]
          wanted: [offered, cdi_host]
          written: ["yes", "", [/etc/cdi/nvidia.com-gpu.json]]
          promised: [free, "", []]
          real: [healthy, ""]
          openers: []
    links:
      description: Connections of devices; places in RV(report.devices), type, number, bandwidth in GB/s.
      type: list
      elements: list
      sample:
        - [0, 1, NVL, 12, 300.0]
    nics:
      description: The network cards, with their place in the host.
      type: list
      elements: dict
      sample:
        - id: pci:0000:5e:00.0
          names: [mlx5_0]
          numa_node: 0
          pcie_path: [pci0000:5d]
    findings:
      description: Each problem, with its cause and the next step.
      type: list
      elements: dict
      sample:
        - rule: driver-version
          subject: /etc/cdi/nvidia.com-gpu.json
          problem: "/containerEdits/mounts/0/hostPath: the spec says 580.1, the host has 580.2"
          next: "the driver was changed: run the provisioning again: `ansible-playbook fleet.cdi.provision`"
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "device_list": {"type": "str", "default": "/run/cdi-inventory.json"},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "host_report_info")


if __name__ == "__main__":
    main()
