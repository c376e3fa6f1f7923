#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.spec: one CDI spec present or absent."""

from __future__ import annotations

DOCUMENTATION = r"""
module: spec
short_description: Manage the CDI spec of one kind on a host
version_added: 0.1.0
description:
  - Makes the Container Device Interface (CDI) spec of one kind present, from the devices of the host or from explicit
    content, or absent.
  - The file is C(<vendor>-<class>.json) in O(directory), mode C(0644), replaced atomically and durably, and only when
    it differs.
  - It has the lowest CDI version that its content fits. Device numbers are left out, so that runtimes read them at
    each container start.
  - What was written, and what was there before, is recorded in C(<state_dir>/manifest.json); C(fleet-cdi undo) takes
    exactly that back.
    A file without a record is foreign, even one of the same kind, and stays as it is unless O(force=true).
  - Fails, with nothing written, where the spec would define a name that another file in the same directory defines
    too, or one that
    a directory of higher priority overrules.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
options:
  kind:
    description:
      - The kind, C(vendor/class), of which this is the spec.
    type: str
    required: true
  state:
    description:
      - V(present) makes the file what O(devices) or O(content) say. Where no device is found there is no file.
      - V(absent) removes the file of O(kind) that this collection wrote.
    type: str
    choices: [present, absent]
    default: present
  devices:
    description:
      - Entries that select devices of the host, by name, as in M(fleet.cdi.device_info#module). All have to yield
        O(kind).
    type: dict
  content:
    description:
      - The spec itself, with C(devices) and optionally C(containerEdits), C(annotations) and C(cdiVersion), as in the
        CDI specification.
    type: dict
  directory:
    description:
      - The spec directory. It is made if it is missing.
    type: path
    default: /etc/cdi
  inventory:
    description:
      - The file that lists the devices behind the specs for this boot. O(devices) are listed in it; an empty string
        writes none.
    type: str
    default: /run/cdi-inventory.json
  state_dir:
    description:
      - The directory of the manifest.
    type: path
    default: /var/lib/cdi
  prefix:
    description:
      - Where the on-host release is installed. If another version than this collection's is active there, nothing is
        written.
    type: path
    default: /opt/cdi
  force:
    description:
      - Replace or remove a foreign file. Its content is kept in the manifest, and undo puts it back.
    type: bool
    default: false
notes:
  - Discovery reads sysfs; where the Python binding C(pyudev) is at hand, udev's properties and links are used too.
seealso:
  - module: fleet.cdi.spec_info
  - module: fleet.cdi.device_info
  - name: CDI specification
    description: Container Device Interface specification.
    link: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
"""

EXAMPLES = r"""
- name: Offer the virtual consoles from tty13 on
  fleet.cdi.spec:
    kind: fleet.cdi/tty
    devices:
      consoles:
        profile: tty
        num_system_reserved: 12

- name: Offer one node under another path
  fleet.cdi.spec:
    kind: example.com/scanner
    content:
      devices:
        - name: front-desk
          containerEdits:
            deviceNodes:
              - path: /dev/scanner
                hostPath: /dev/ttyS0

- name: Take a spec back
  fleet.cdi.spec:
    kind: example.com/scanner
    state: absent
"""

RETURN = r"""
path:
  description: The file of this kind.
  returned: success
  type: str
  sample: /etc/cdi/fleet.cdi-tty.json
kind:
  description: The kind.
  returned: success
  type: str
  sample: fleet.cdi/tty
cdi_version:
  description: The CDI version of the spec; empty where there is to be no file.
  returned: success
  type: str
  sample: 0.3.0
names:
  description: The qualified names that the spec defines.
  returned: success
  type: list
  elements: str
  sample:
    - fleet.cdi/tty=tty13
    - fleet.cdi/tty=tty14
"""

import json
from typing import Any, Optional

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils.converge import host
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.release import guard


def main() -> None:
    module = AnsibleModule(
        argument_spec=dict(
            kind=dict(type="str", required=True),
            state=dict(type="str", choices=["present", "absent"], default="present"),
            devices=dict(type="dict"),
            content=dict(type="dict"),
            directory=dict(type="path", default="/etc/cdi"),
            inventory=dict(type="str", default="/run/cdi-inventory.json"),
            state_dir=dict(type="path", default="/var/lib/cdi"),
            prefix=dict(type="path", default="/opt/cdi"),
            force=dict(type="bool", default=False),
        ),
        mutually_exclusive=[("devices", "content")],
        required_if=[("state", "present", ("devices", "content"), True)],
        supports_check_mode=True,
    )
    try:
        module.exit_json(**run(module))
    except CdiError as error:
        module.fail_json(msg=str(error))


def run(module: AnsibleModule) -> dict[str, Any]:
    """Converge one kind; returns the module's result. Raises CdiError."""
    options = module.params
    try:
        guard.check(options["prefix"])
    except CdiError as error:
        if not module.check_mode:
            raise
        module.warn(str(error))  # in check mode the other release may be about to be replaced
    present = options["state"] == "present"
    wanted = host.Wanted(
        options["kind"],
        options["devices"] if present else None,
        options["content"] if present else None,
    )
    paths = host.Paths(options["directory"], options["inventory"], options["state_dir"])
    outcome = host.converge(wanted, paths, options["force"], module.check_mode)
    for warning in outcome.warnings:
        module.warn(warning)
    result: dict[str, Any] = {
        "changed": bool(outcome.plan.changes),
        "kind": wanted.kind,
        "path": outcome.plan.path,
        "cdi_version": outcome.spec["cdiVersion"] if outcome.spec else "",
        "names": [f"{wanted.kind}={device['name']}" for device in outcome.spec["devices"]] if outcome.spec else [],
    }
    if module._diff:
        result["diff"] = [
            {
                "before_header": change.path,
                "after_header": change.path,
                "before": shown(change.before),
                "after": shown(change.after),
            }
            for change in outcome.plan.changes
        ]
    return result


def shown(content: Optional[bytes]) -> Any:
    """A file's content for the diff: the document in it, or its text if it holds none, or "" for no file."""
    if content is None:
        return ""
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")


if __name__ == "__main__":
    main()
