#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.refresh_service: refresh the specs of a host when its devices change."""

from __future__ import annotations

DOCUMENTATION = r"""
module: refresh_service
short_description: Keep the specs of a host current when its devices change
version_added: 0.1.0
description:
  - Installs, enables and starts the units that run C(fleet-cdi refresh) at boot before container runtimes and the
    kubelet, when devices or drivers come and go, and in intervals. A refresh needs no controller, because the manifest
    remembers the last settings of M(fleet.cdi.spec).
  - The files are a oneshot service, a path unit and a timer of systemd called C(fleet-cdi-refresh), a path unit and a
    service called C(fleet-cdi-libraries) that see when libraries of the host have changed, a timer and a service called
    C(fleet-cdi-claims) that give back claims whose containers are gone, and the udev rules C(70-fleet-cdi.rules). They
    are in the manifest; C(fleet-cdi undo) stops the units and takes the files back.
  - A refresh never blocks a boot, because it is limited in time and no unit requires it. Where devices are missing it
    fails, so that the unit shows it, and is run again.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  state:
    description:
      - V(present) writes the files, enables the units and starts those that watch.
      - V(absent) stops and disables the units and removes the files.
    type: str
    choices: [present, absent]
    default: present
  timeout:
    description:
      - How many seconds a refresh waits for devices that it offered before and that are missing, as when a driver
        comes late at boot.
    type: int
    default: 60
  grace:
    description:
      - Seconds that a missing device stays in its spec, marked as stale. A granted device stays until it is given back.
    type: int
    default: 600
  interval:
    description:
      - Seconds between two refreshes without any event. Partitions of some GPUs change without one. Also the seconds
        between two looks for claims to give back.
    type: int
    default: 300
  claims_idle:
    description:
      - Seconds for which the containers of a claim have to be gone until the claim is given back by itself. A claim
        with O(fleet.cdi.claim#module:keep) never is, and one with O(fleet.cdi.claim#module:release_on_stop) does not
        wait.
    type: int
    default: 600
  metrics_file:
    description:
      - File with the state of this host for Prometheus' node_exporter, which is replaced after each refresh, such as
        V(/var/lib/prometheus/node-exporter/fleet_cdi.prom). Its name ends with C(.prom). Empty for no file. A file
        that was written earlier stays.
    type: str
    default: ''
  feature_file:
    description:
      - File with labels for Kubernetes' Node Feature Discovery, which is kept after each refresh, such as
        V(/etc/kubernetes/node-feature-discovery/features.d/fleet-cdi). Empty for no file; an earlier one is removed.
    type: str
    default: ''
  load_modules:
    description:
      - Kernel modules to load before each refresh.
    type: list
    elements: str
    default: []
  make_nodes:
    description:
      - Make the control nodes of a driver that leaves this to programs, as NVIDIA's does, before each refresh.
    type: bool
    default: false
  virtual_functions:
    description:
      - The number of virtual functions of PCI devices, by PCI address or name of the network interface. A device
        without virtual functions gets them before each refresh. Another number is never changed, because that would
        remove virtual functions in use.
    type: dict
    default: {}
  spec_dir:
    description:
      - The directory of the specs. The service may write there, and in few other places.
    type: path
    default: /etc/cdi
  device_list:
    description:
      - The file that lists the devices of this boot. The service may write in its directory.
    type: path
    default: /run/cdi-inventory.json
  state_dir:
    description:
      - The directory of the manifest.
    type: path
    default: /var/lib/cdi
notes:
  - Needs systemd, and root. Where systemd does not run, as in an image, the units are installed and enabled only.
seealso:
  - module: fleet.cdi.refresh_service_info
  - module: fleet.cdi.spec
"""

EXAMPLES = r"""
- name: Keep the specs of the host up to date
  fleet.cdi.refresh_service:

- name: Wait longer for a driver that takes its time, and load it first
  fleet.cdi.refresh_service:
    timeout: 180
    load_modules: [habanalabs]

- name: Have eight virtual functions of a port after each boot
  fleet.cdi.refresh_service:
    virtual_functions:
      "0000:3b:00.0": 8

- name: Stop refreshing the specs
  fleet.cdi.refresh_service:
    state: absent
"""

RETURN = r"""#"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "timeout": {"type": "int", "default": 60},
        "grace": {"type": "int", "default": 600},
        "interval": {"type": "int", "default": 300},
        "claims_idle": {"type": "int", "default": 600},
        "metrics_file": {"type": "str", "default": ""},
        "feature_file": {"type": "str", "default": ""},
        "load_modules": {"type": "list", "elements": "str", "default": []},
        "make_nodes": {"type": "bool", "default": False},
        "virtual_functions": {"type": "dict", "default": {}},
        "spec_dir": {"type": "path", "default": "/etc/cdi"},
        "device_list": {"type": "path", "default": "/run/cdi-inventory.json"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "refresh_service")


if __name__ == "__main__":
    main()
