#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.refresh_service_info: show the units that refresh the specs of a host, their runs, and the kinds."""

from __future__ import annotations

DOCUMENTATION = r"""
module: refresh_service_info
short_description: Show the refresh of the specs of a host
version_added: 0.1.0
description:
  - Returns the units that M(fleet.cdi.refresh_service) installs, the last and the next run of C(fleet-cdi refresh), and
    the kinds that a refresh keeps current.
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
seealso:
  - module: fleet.cdi.refresh_service
"""

EXAMPLES = r"""
- name: Read the state of the refresh
  fleet.cdi.refresh_service_info:
  register: refresh

- name: Fail if the last refresh failed
  ansible.builtin.assert:
    that: refresh.last_run.result in ["", "success"]
    fail_msg: "{{ refresh.last_run }}"
"""

RETURN = r"""
installed:
  description: Whether the manifest lists the units.
  returned: success
  type: bool
  sample: true
units:
  description: The units that start a refresh.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The unit.
      type: str
      sample: fleet-cdi-refresh.timer
    enabled:
      description: Whether it starts at boot.
      type: bool
      sample: true
    active:
      description: Whether it is active now. The service is active only while a refresh runs.
      type: bool
      sample: true
last_run:
  description: The last refresh of the service since the boot.
  returned: success
  type: dict
  contains:
    result:
      description: C(success), or the reason of a failure as systemd calls it, C(exit-code) or C(timeout). Empty
        without a run.
      type: str
      sample: success
    exit_status:
      description: Its exit status. 1 stands for missing devices, or for a kind that could not be refreshed.
      type: int
      sample: 0
    started:
      description: When it started, in UTC. Empty without a run.
      type: str
      sample: "2026-11-22T23:00:00Z"
    finished:
      description: When it finished, in UTC. Empty without a run, and while it runs.
      type: str
      sample: "2026-11-22T23:00:01Z"
next_run:
  description: When the timer starts the next refresh, in UTC. Empty if the timer does not run.
  returned: success
  type: str
  sample: "2026-11-22T23:05:00Z"
kinds:
  description: The kinds that a refresh keeps current.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: The kind.
      type: str
      sample: fleet.cdi/tty
    spec_dir:
      description: The directory of its spec.
      type: str
      sample: /etc/cdi
    managed_by:
      description: Who asked for it, as O(fleet.cdi.spec#module:managed_by).
      type: str
      sample: cdi_host
    devices:
      description: How many devices its spec offers.
      type: int
      sample: 51
    missing:
      description: The names of the offered devices that are missing now, and since when.
      type: dict
      sample: {"tty13": "2026-11-22 22:58:01 UTC"}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "refresh_service_info")


if __name__ == "__main__":
    main()
