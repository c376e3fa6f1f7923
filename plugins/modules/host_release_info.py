#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.host_release_info: show the releases of the on-host code, and what needs them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_release_info
short_description: Show the releases of the on-host code, their state and what needs them
version_added: 0.1.0
description:
  - Returns the releases of this collection on a host, which of them is active, and every file of it that was changed or
    removed since.
  - Names what needs the release, so that a play can decide whether to remove it.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.info_module
  - fleet.cdi.on_host
options:
  state_dir:
    description:
      - The directory of the manifest.
    type: path
    default: /var/lib/cdi
  spec_dirs:
    description:
      - The spec directories. A spec in one of them that names the hook C(cdi-hook) of the release needs the release.
    type: list
    elements: path
    default: [/etc/cdi, /var/run/cdi]
seealso:
  - module: fleet.cdi.host_release
"""

EXAMPLES = r"""
- name: Read the releases of the host
  fleet.cdi.host_release_info:
  register: code

- name: Fail if a file of the active release was changed
  ansible.builtin.assert:
    that: not code.faults
    fail_msg: "{{ code.faults }}"
"""

RETURN = r"""
release:
  description: The active release, V(null) without one.
  returned: success
  type: str
  sample: 0.1.0-95b2cc14fefb
previous:
  description: The release that O(fleet.cdi.host_release#module:state=previous) goes back to, V(null) without one.
  returned: success
  type: str
  sample: 0.1.0-3d0c9f41aa27
releases:
  description: All releases on the host.
  returned: success
  type: list
  elements: str
  sample: [0.1.0-3d0c9f41aa27, 0.1.0-95b2cc14fefb]
current:
  description: Whether RV(release) is the release of this controller.
  returned: success
  type: bool
  sample: true
commands:
  description: The commands in C(bin) below O(prefix) that belong to the release.
  returned: success
  type: list
  elements: str
  sample: [cdi-hook, drm, fleet-cdi]
command_link:
  description: The link to C(fleet-cdi) on the PATH that M(fleet.cdi.host_release) made; V(null) without one.
  returned: success
  type: str
  sample: /usr/local/bin/fleet-cdi
page_links:
  description: The links to the manual page and to the completion of shells that M(fleet.cdi.host_release) made.
  returned: success
  type: list
  elements: str
  sample: [/usr/local/share/man/man8/fleet-cdi.8]
faults:
  description: Faults of the active release and of the links to it.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The file or link.
      type: str
      sample: /opt/cdi/bin/fleet-cdi
    problem:
      description: The problem.
      type: str
      sample: is not a link to ../lib/current/bin/fleet-cdi
needed_by:
  description: What needs the release. Empty if it can be removed.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: A path, a kind of devices, or the name of a record of a newer release.
      type: str
      sample: /etc/docker/daemon.json
    reason:
      description:
        - Why the release is needed. V(file) and V(keys) - the manifest lists a file, or keys in a file, that only the
          release can undo. V(kind) - a refresh keeps the spec of this kind current. V(link) - a link to a device node.
          V(record) - a record of a newer release. V(hook) - a spec that names the hook of the release.
      type: str
      sample: keys
    by:
      description: Who asked for it; empty if that is not recorded.
      type: str
      sample: cdi_host
distribution:
  description: C(ID), C(VERSION_ID) and C(NAME) in the C(os-release) of the host, empty where it does not say.
  returned: success
  type: dict
  sample:
    id: debian
    name: Debian GNU/Linux
    version_id: "12"
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "host_release_info")


if __name__ == "__main__":
    main()
