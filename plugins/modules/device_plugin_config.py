#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.device_plugin_config: write the configuration of the Kubernetes device plugin."""

from __future__ import annotations

DOCUMENTATION = r"""
module: device_plugin_config
short_description: Configure the Kubernetes device plugin
version_added: 0.1.0
description:
  - Writes the configuration of C(fleet-cdi plugin run), which offers the CDI devices of a host to its kubelet as
    extended resources. All of it is checked before anything is written; C(docs/device-plugin.md) explains each setting.
  - Instances of the plugin that run take a new configuration by themselves, without losing what they serve. The module
    says whether they did, also when it is run again and nothing changed.
  - What was written, and what was there before, is recorded in the manifest; C(fleet-cdi undo) takes exactly that back.
    A file without a record is foreign and stays unchanged unless O(force=true).
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  state:
    description:
      - V(present) writes the configuration from the other options.
      - V(absent) takes it back, and puts a file that was there before in its place again. Without any file the plugin
        offers every kind of device under its own name, from its next start on.
    type: str
    choices: [present, absent]
    default: present
  config_file:
    description:
      - The file. Not below C(/etc/cdi), where container runtimes would take it for a spec.
    type: path
    default: /etc/fleet-cdi/device-plugin.json
  resources:
    description:
      - 'Which extended resources to offer, by name, as in V({nvidia.com/gpu: {replicas: 4}}). What an entry may hold is
        in C(docs/device-plugin.md), section Resources.'
      - Without any every kind of device whose name makes a legal resource name is offered under that.
    type: dict
    default: {}
  delivery:
    description:
      - How containers are given their devices. V(cdi) is the field C(cdi_devices) of newer kubelets, V(annotations) the
        annotations C(cdi.k8s.io/*), V(expanded) device nodes, mounts and variables for runtimes that know no CDI.
      - V(auto) decides at each registration by the container runtimes of the node.
    type: str
    choices: [auto, cdi, annotations, expanded]
    default: auto
  registration:
    description:
      - Whether the plugin calls the kubelet (V(register)), or has the kubelet find its sockets (V(watcher)). V(auto)
        does the former, and the latter where a kubelet runs that has no socket to register at.
    type: str
    choices: [auto, register, watcher]
    default: auto
  takeover:
    description:
      - Register a resource although another plugin serves it. Otherwise that resource is left to the other one.
    type: bool
    default: false
  occupied:
    description:
      - What to do about a device that nobody holds and some process has open, as one that outlived its container.
        V(warn) gives it to a pod and logs the process, its program and its container or unit. V(refuse) shows it to the
        kubelet as unhealthy while the process has it open. V(ignore) does not look.
      - C(docs/occupied.md) says what a look sees, what it costs, and who can have a device refused.
    type: str
    choices: [warn, refuse, ignore]
    default: warn
  occupied_ignore:
    description:
      - Programs and systemd units that may have devices open, as patterns, V(dcgm*). A program counts by the name of
        its file, if that is one that only root can change.
    type: list
    elements: str
    default:
      - nvidia-persistenced
      - nvidia-smi
      - nv-hostengine
      - nv-fabricmanager
      - dcgm-exporter
      - nvidia-device-plugin
      - gpu-feature-discovery
      - systemd-logind
      - systemd-udevd
      - udevadm
  metrics:
    description:
      - Address and port for metrics of Prometheus, as V(127.0.0.1:9400). Empty for none.
    type: str
    default: ""
  grace:
    description:
      - How many seconds after a pod is gone its devices are free for others at the earliest.
    type: int
    default: 30
  kubelet_dir:
    description:
      - The directory of the kubelet.
    type: path
    default: /var/lib/kubelet
  spec_dirs:
    description:
      - The spec directories, lowest priority first.
    type: list
    elements: path
    default: [/etc/cdi, /var/run/cdi]
  device_list:
    description:
      - The file that lists the devices of this boot. It says which hardware the devices are.
    type: path
    default: /run/cdi-inventory.json
  state_dir:
    description:
      - The directory of the manifest and of the ledger.
    type: path
    default: /var/lib/cdi
  timeout:
    description:
      - How many seconds instances that run get to take the configuration, before RV(taken) is V(false).
    type: int
    default: 10
  force:
    description:
      - Replace a foreign file, or take back a file that was changed since. The content of the former is kept in the
        manifest; O(state=absent) and undo put it back.
    type: bool
    default: false
seealso:
  - module: fleet.cdi.device_plugin_service
  - module: fleet.cdi.device_plugin_info
"""

EXAMPLES = r"""
- name: Offer every GPU of the host twice, and the consoles of one pool under another name
  fleet.cdi.device_plugin_config:
    resources:
      nvidia.com/gpu:
        replicas: 2
      example.com/console:
        kinds: [fleet.cdi/tty]
        match:
          names: ["tty6?"]

- name: Offer whatever there is, with metrics for this host alone
  fleet.cdi.device_plugin_config:
    metrics: 127.0.0.1:9400

- name: Take the configuration back
  fleet.cdi.device_plugin_config:
    state: absent
"""

RETURN = r"""
path:
  description: The file.
  returned: success
  type: str
  sample: /etc/fleet-cdi/device-plugin.json
taken:
  description: Whether all instances that run have the configuration; V(null) where none runs, and in check mode.
  returned: success
  type: bool
  sample: true
instances:
  description: The instances that run with this file.
  returned: success
  type: list
  elements: dict
  contains:
    instance:
      description: Its name.
      type: str
      sample: a
    taken:
      description: Whether it has the configuration.
      type: bool
      sample: true
    error:
      description: Why it does not; V(null) where it did not say.
      type: str
      sample: null
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The same list as in system/openers.py, which runs on hosts.
EXPECTED = [
    "nvidia-persistenced",
    "nvidia-smi",
    "nv-hostengine",
    "nv-fabricmanager",
    "dcgm-exporter",
    "nvidia-device-plugin",
    "gpu-feature-discovery",
    "systemd-logind",
    "systemd-udevd",
    "udevadm",
]


# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "config_file": {"type": "path", "default": "/etc/fleet-cdi/device-plugin.json"},
        "resources": {"type": "dict", "default": {}},
        "delivery": {"type": "str", "choices": ["auto", "cdi", "annotations", "expanded"], "default": "auto"},
        "registration": {"type": "str", "choices": ["auto", "register", "watcher"], "default": "auto"},
        "takeover": {"type": "bool", "default": False},
        "occupied": {"type": "str", "choices": ["warn", "refuse", "ignore"], "default": "warn"},
        "occupied_ignore": {"type": "list", "elements": "str", "default": EXPECTED},
        "metrics": {"type": "str", "default": ""},
        "grace": {"type": "int", "default": 30},
        "kubelet_dir": {"type": "path", "default": "/var/lib/kubelet"},
        "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
        "device_list": {"type": "path", "default": "/run/cdi-inventory.json"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "timeout": {"type": "int", "default": 10},
        "force": {"type": "bool", "default": False},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "device_plugin_config")


if __name__ == "__main__":
    main()
