#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.cdi_host: a whole host from its settings, in one run."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cdi_host
short_description: Bring a host to the state of its settings, in one run
version_added: 0.1.0
description:
  - Does all that role P(fleet.cdi.cdi_host#role) does, in one run of the on-host code - installs the release, makes
    the driver ready, writes the specs of all kinds, sets the container runtimes to read them, configures the
    executables that grant devices, the refresh and the device plugin.
  - The role runs this module and nothing else. The other modules of this collection do the single steps.
  - It looks at the devices of the host once, and asks its container runtimes for their versions once.
  - Missing distribution packages are installed by the package module of the distribution, unless the settings say
    otherwise; only then is another module sent to the host.
  - The parts run in the order of O(parts). After a part that fails, the rest is left out; the message names the part,
    and the result has what the parts before it did.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
  - fleet.cdi.on_host
options:
  settings:
    description:
      - The settings of the host - the variables of role P(fleet.cdi.cdi_host#role) without C(cdi_host_).
        C(device_plugin) has the variables of role P(fleet.cdi.cdi_device_plugin#role) without C(cdi_device_plugin_);
        without it the host gets no device plugin.
      - Without this option the variables of the host count, with all layers of their devices.
    type: dict
  state:
    description:
      - V(present) brings the host to the state of the settings.
      - V(absent) takes back everything that fleet.cdi did on the host, by its manifest, and removes the on-host code.
        While a device is in use, it changes nothing and fails with the names of the users.
    type: str
    choices: [present, absent]
    default: present
  parts:
    description:
      - What to do of O(settings), with V(state=present). The release is always installed.
      - Without this option the tags of the command line that are parts count, and without such tags all parts; those of
        C(--skip-tags) are left out. An empty list is an error.
    type: list
    elements: str
    choices: [driver, specs, runtimes, plugins, refresh, device_plugin]
  state_dir:
    description:
      - The directory of the manifest. It counts more than that in O(settings).
    type: path
notes:
  - In check mode nothing is installed and nothing is waited for.
seealso:
  - module: fleet.cdi.spec
  - module: fleet.cdi.container_runtime
  - module: fleet.cdi.refresh_service
"""

EXAMPLES = r"""
- name: Give the host what its variables ask for
  fleet.cdi.cdi_host:

- name: Offer the virtual consoles, and refresh nothing by itself
  fleet.cdi.cdi_host:
    settings:
      devices:
        consoles: {profile: tty}
      refresh: false

- name: Write the specs alone
  fleet.cdi.cdi_host:
    settings:
      devices:
        consoles: {profile: tty}
    parts: [specs]

- name: Take everything back
  fleet.cdi.cdi_host:
    state: absent
"""

RETURN = r"""
parts:
  description: The parts that ran, with whether they changed something; C(release) is the on-host code.
  returned: always
  type: dict
  sample: {release: false, driver: false, specs: true}
release:
  description: The release of the on-host code that is active.
  returned: with O(state=present)
  type: str
  sample: 0.1.0-1a2b3c4d5e6f
distribution:
  description: The distribution of the host, by its C(os-release).
  returned: with O(state=present)
  type: dict
  sample: {id: debian, version_id: "13", name: Debian GNU/Linux}
missing_packages:
  description: Distribution packages that are missing and that the settings don't let this module install.
  returned: if there are any
  type: list
  elements: str
  sample: [python3-pyudev]
devices:
  description: Numbers of devices, by kind and state of health.
  returned: always
  type: dict
  sample: {fleet.cdi/tty: {healthy: 51}}
pending:
  description: Container runtimes that read their changed configuration at their next restart.
  returned: always
  type: list
  elements: str
  sample: [docker]
made:
  description: What was made for the driver - loaded modules, virtual functions, device nodes.
  returned: if something was made
  type: list
  elements: str
  sample: [/dev/nvidia-uvm]
problems:
  description: Why the host is not as its settings say. The task has failed if there are any.
  returned: always
  type: list
  elements: dict
  contains:
    part:
      description: The part that failed.
      type: str
      sample: specs
    code:
      description:
        - The sort of the problem - V(error), V(package-missing), V(kind-unchanged), V(spec-broken), V(runtime-failed),
          V(runtime-off), V(configuration-failed), V(not-ready), or V(left) with O(state=absent).
      type: str
      sample: spec-broken
    message:
      description: The problem and the next step.
      type: str
removed:
  description: Files that were removed.
  returned: with O(state=absent)
  type: list
  elements: str
restored:
  description: Files of others that were put back.
  returned: with O(state=absent)
  type: list
  elements: str
forced:
  description: Who had devices, and which files were changed since, that went by V(force) in O(settings) alone.
  returned: with O(state=absent)
  type: list
  elements: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "settings": {"type": "dict"},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "parts": {
            "type": "list",
            "elements": "str",
            "choices": ["driver", "specs", "runtimes", "plugins", "refresh", "device_plugin"],
        },
        "state_dir": {"type": "path"},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "cdi_host")


if __name__ == "__main__":
    main()
