#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.spec_info: show the CDI specs of a host as a runtime sees them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: spec_info
short_description: Show the CDI specs of a host as a container runtime sees them
version_added: 0.1.0
description:
  - Reads every Container Device Interface (CDI) spec in the spec directories, ours and others', with the priority and
    conflict rules of the CDI reference library. Returns which file provides which device, which files are broken, in
    conflict or overruled, and where a spec is stale, that is, no longer agrees with the host.
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
      - The directory of the manifest, which says which specs this collection wrote.
    type: path
    default: /var/lib/cdi
  device_list:
    description:
      - The file that lists the devices of this boot. With it the module finds devices that are missing from, or new to,
        the specs that this collection wrote. It finds none with an empty text, or a file of an earlier boot.
    type: str
    default: /run/cdi-inventory.json
notes:
  - To find stale specs, every path that a spec names is looked at once. Nothing is run and nothing changed.
seealso:
  - module: fleet.cdi.spec
"""

EXAMPLES = r"""
- name: Read the specs of the host
  fleet.cdi.spec_info:
  register: cdi

- name: Fail where a runtime could not resolve a device
  ansible.builtin.assert:
    that:
      - not cdi.errors
      - not cdi.conflicts

- name: Fail where a spec no longer agrees with the host
  ansible.builtin.assert:
    that: not cdi.stale
    fail_msg: "{{ cdi.stale }}"
"""

RETURN = r"""
kinds:
  description:
    - What this collection was told to offer on the host, by kind, and by whom (O(fleet.cdi.spec#module:managed_by)).
      Kinds whose devices are all missing, so that there is no file now, and those of other directories are in it too.
  returned: success
  type: dict
  sample:
    fleet.cdi/tty: cdi_host
specs:
  description:
    - Every file that some release of the CDI library takes for a spec, lowest priority first.
    - One with errors is among them if a release reads it all the same; RV(errors) has its faults.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The file.
      type: str
      sample: /etc/cdi/fleet.cdi-misc.json
    kind:
      description: The kind that it defines devices of.
      type: str
      sample: fleet.cdi/misc
    cdi_version:
      description: The CDI version that it declares.
      type: str
      sample: 0.3.0
    names:
      description: The qualified names that it defines.
      type: list
      elements: str
      sample:
        - fleet.cdi/misc=fuse
    seen_by:
      description:
        - The releases of the CDI library that read these RV(specs[].names) in it. Each stands for all up to the next,
          V(newer) for those that are not yet known.
      type: list
      elements: str
      sample:
        - 1.1.0
        - 1.1.1
        - newer
    seen_otherwise:
      description:
        - What other releases of the CDI library read in it. Usually empty; V(010) without quotes is such a name in
          YAML.
      type: list
      elements: dict
      contains:
        names:
          description: The qualified names that it defines for them.
          type: list
          elements: str
          sample:
            - example.com/gpu=8
        seen_by:
          description: These releases.
          type: list
          elements: str
          sample:
            - 1.0.0
            - 1.1.0
    managed:
      description: Whether the manifest lists it and it is unchanged.
      type: bool
      sample: true
    managed_by:
      description: Who asked for it, as O(fleet.cdi.spec#module:managed_by); V(null) if RV(specs[].managed) is not.
      type: str
      sample: cdi_host
    findings:
      description: Its faults, if some runtimes read it anyway. The severity is V(error) if not all runtimes do.
      type: list
      elements: dict
      contains:
        rule:
          description: The rule, as C(fleet-cdi validate) names it.
          type: str
          sample: unique-environment
        pointer:
          description: The place in the spec, a JSON pointer.
          type: str
          sample: /devices/0/containerEdits/env
        found:
          description: The value found.
          type: str
          sample: a list of 2
        expected:
          description: The value expected.
          type: str
          sample: each variable once
        severity:
          description: V(error) or V(warning); a spec with an error is one of RV(errors), too.
          type: str
          sample: warning
devices:
  description:
    - The file that provides each qualified name, for the container runtimes of the host. They are asked for their
      versions only if they read the files in different ways.
    - Names of a file that none of them reads are in it too.
  returned: success
  type: dict
  sample:
    fleet.cdi/misc=fuse: /etc/cdi/fleet.cdi-misc.json
errors:
  description: The fault of a file or directory, by its path. Its devices are not in RV(devices).
  returned: success
  type: dict
  sample:
    /etc/cdi/half.json: "/etc/cdi/half.json: /: found no JSON (Expecting value), expected JSON [json]"
conflicts:
  description:
    - The files that define the same name in the same directory, by that name. A runtime that reads two of them does not
      resolve the name.
  returned: success
  type: dict
  sample:
    example.com/gpu=0:
      - /etc/cdi/a.json
      - /etc/cdi/b.json
shadowed:
  description: The files whose definition of a name is overruled by a directory of higher priority, by that name.
  returned: success
  type: dict
  sample:
    example.com/gpu=0:
      - /etc/cdi/a.json
stale:
  description:
    - Why a spec does not agree with the host, by the path of the spec. One that agrees is not in it.
    - Device numbers count only where a runtime trusts the spec's own.
  returned: success
  type: dict
  sample:
    /etc/cdi/example.com-gpu.json:
      - rule: driver-version
        pointer: /containerEdits/mounts/0/hostPath
        found: /usr/lib64/libexample.so.550.54
        expected: /usr/lib64/libexample.so.535.104
      - rule: node-number
        pointer: /devices/0/containerEdits/deviceNodes/1/major
        found: "509"
        expected: "510"
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
    on_host.run(AnsibleModule(**MODULE), "spec_info")


if __name__ == "__main__":
    main()
