#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.pod_devices: devices for the containers of pods, of their own or shared."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pod_devices
short_description: Give the containers of pods their devices
version_added: 0.1.0
description:
  - Reads a pod manifest as the CDI proposal of 2017 has it. A container asks for devices of its own, shares devices
    that its pod asks for, or shares those of a named C(ResourceRequest). Then it makes a claim for each of these, all
    of them or none, and returns the manifest with the CDI names of the claims, for C(podman kube play).
  - A claim that several containers use is made once, and given back with the last pod that uses it.
  - Check mode refuses an amount that the host does not have, and does not see whether others hold the devices.
  - For a kubelet, which chooses devices itself, it makes no claim and only rewrites the manifest (O(target)).
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  manifest:
    description:
      - The manifest, one document or a list of documents - C(Pod), C(ResourceRequest), C(List), and other objects,
        which are returned unchanged. The examples read a file.
      - A resource stands for devices if its name begins with C(pod.alpha.kubernetes.io/opaque-int-resource-),
        followed by a resource-spec such as C(gpu) or C(gpu-memory), or is in O(resources). C(requests) and C(limits)
        mean the same. Memory is in MiB, or has a suffix, as in C(8Gi).
      - An object that makes pods, such as a C(Deployment), may not ask for devices, because the number and the names
        of its pods are not in the manifest.
    type: raw
    required: true
  state:
    description:
      - V(present) makes the claims. V(absent) gives back what the pods of the manifest were granted; only their names
        and namespaces are read, so a manifest that was edited meanwhile gives back the same. End the pods first.
        If a container still runs with one of the claims, this is an error, and nothing is given back.
    type: str
    choices: [present, absent]
    default: present
  force:
    description:
      - For O(state=absent), also give devices back that a running container uses.
    type: bool
    default: false
  resources:
    description:
      - Extended resources that stand for devices, each with its resource-spec.
    type: dict
    default: {}
  target:
    description:
      - Who starts the pods. V(podman) gets CDI names in limits, which podman reads since 5.4.
      - V(device_plugin) gets extended resources. They can't express shared devices and sub-resources, which are
        refused.
      - V(resource_claims) gets an object C(ResourceClaim) of C(resource.k8s.io/v1) for each claim. It can express
        shared devices, and sub-resources of whole devices; a share of a device is refused.
    type: str
    choices: [podman, device_plugin, resource_claims]
    default: podman
  device_classes:
    description:
      - The C(DeviceClass) of each resource-type, for O(target=resource_claims).
    type: dict
    default: {}
  config_dir:
    description:
      - The directory of the executables' configurations.
    type: path
    default: /etc/cdi
  spec_dirs:
    description:
      - The directories of specs, lowest priority first. The specs of claims are in the last one.
    type: list
    elements: path
    default: [/etc/cdi, /var/run/cdi]
  device_list:
    description:
      - The file that lists the devices of this boot.
    type: path
    default: /run/cdi-inventory.json
  state_dir:
    description:
      - The directory in which claims and their pods are kept.
    type: path
    default: /var/lib/cdi
  timeout:
    description:
      - How many seconds an executable may take for one answer.
    type: float
    default: 60
seealso:
  - module: fleet.cdi.cdi_plugin
"""

EXAMPLES = r"""
- name: Get devices for a pod
  fleet.cdi.pod_devices:
    manifest: "{{ lookup('ansible.builtin.file', 'visualisation.yml') | from_yaml_all }}"
    resources:
      nvidia.com/gpu: gpu
  register: pod

- name: Write the manifest for podman
  ansible.builtin.copy:
    content: "{{ pod.manifest | map('to_nice_yaml') | join('---\n') }}"
    dest: /etc/containers/systemd/visualisation.yml
    mode: "0644"

- name: Give the devices back when the pod has ended
  fleet.cdi.pod_devices:
    manifest: "{{ lookup('ansible.builtin.file', 'visualisation.yml') | from_yaml_all }}"
    state: absent

- name: Rewrite the manifest for a cluster with dynamic resource allocation
  fleet.cdi.pod_devices:
    manifest: "{{ lookup('ansible.builtin.file', 'visualisation.yml') | from_yaml_all }}"
    target: resource_claims
    device_classes:
      gpu: gpu.nvidia.com
  delegate_to: localhost
"""

RETURN = r"""
containers:
  description: The containers with claims; empty for O(state=absent), and if a kubelet chooses the devices.
  returned: success
  type: list
  elements: dict
  contains:
    pod:
      description: Namespace and name of the pod.
      type: str
      sample: default/sharing
    container:
      description: The container.
      type: str
      sample: analyst
    claims:
      description: The ids of its claims.
      type: list
      elements: str
      sample: [pod_default_sharing_analyst, pod_default_sharing__gpu]
    cdi_devices:
      description: Their CDI names.
      type: list
      elements: str
      sample: [fleet.cdi/claim=pod_default_sharing_analyst, fleet.cdi/claim=pod_default_sharing__gpu]
    devices:
      description: Their device nodes; check mode knows only those of claims that are there already.
      type: list
      elements: str
      sample: [/dev/dri/card0, /dev/dri/renderD128, /dev/dri/card1, /dev/dri/renderD129]
claims:
  description: The ids of claims that were made or given back, or got or lost a pod.
  returned: success
  type: list
  elements: str
  sample: [pod_default_sharing_analyst]
manifest:
  description: The documents for O(target), without those that only this module understands; empty for O(state=absent).
  returned: success
  type: list
  elements: dict
  sample:
    - apiVersion: v1
      kind: Pod
      metadata: {name: sharing}
      spec:
        containers:
          - name: analyst
            image: compute-app:v1
            resources: {limits: {fleet.cdi/claim=pod_default_sharing__gpu: 1}}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "manifest": {"type": "raw", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "force": {"type": "bool", "default": False},
        "resources": {"type": "dict", "default": {}},
        "target": {"type": "str", "choices": ["podman", "device_plugin", "resource_claims"], "default": "podman"},
        "device_classes": {"type": "dict", "default": {}},
        "config_dir": {"type": "path", "default": "/etc/cdi"},
        "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
        "device_list": {"type": "path", "default": "/run/cdi-inventory.json"},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "timeout": {"type": "float", "default": 60},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "pod_devices")


if __name__ == "__main__":
    main()
