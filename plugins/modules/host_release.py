#!/usr/bin/python
# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module fleet.cdi.host_release: install, roll back or remove the on-host code of this collection."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_release
short_description: Install, roll back or remove the on-host code of this collection
version_added: 0.1.0
description:
  - Brings the code of the controller's fleet.cdi to a host, as one archive, and makes it the host's active release.
    C(fleet-cdi), the command line for operators, is C(bin/fleet-cdi) below O(prefix).
  - A release is unpacked, verified, byte-compiled and run once before it is activated by one atomic rename, so that a
    run that is killed or fails before the rename leaves the release that was active. The new release then migrates the
    store of grants; if that fails, it stays active, and the error says so. The release before it stays for
    O(state=previous); older ones go.
  - The archive is transferred only to a host that lacks the release. On a host that has it this is one module run,
    which also compares the digest of the installed sources and repairs what was changed.
author:
  - fleet.cdi contributors (@fleet-cdi)
extends_documentation_fragment:
  - fleet.cdi.attributes
  - fleet.cdi.attributes.writer
options:
  state:
    description:
      - With V(present) the release of the controller is the active one.
      - V(previous) rolls back to the release that was active before, with the launcher that it had. Repeating it
        changes nothing, so that a play can be run again on the hosts where it failed. V(present) ends the roll-back.
      - V(absent) removes all releases, and the empty directories that were made for them. Specs, manifest and
        O(device_list) stay; run C(fleet-cdi undo) before this to remove the specs. O(on_needed) says what to do while
        something on the host still needs the release.
    type: str
    choices: [present, previous, absent]
    default: present
  on_needed:
    description:
      - What to do with O(state=absent) while something on the host needs the release. That is everything that the
        manifest lists, because only the release can undo it, and specs that name its hook.
      - V(keep) leaves the release, with a warning that names what needs it; V(fail) refuses; V(drop) removes the
        release without a look.
    type: str
    choices: [keep, fail, drop]
    default: keep
  prefix:
    description:
      - The directory that gets C(bin) and C(lib). It is made if it is missing. An absolute path, in which no component
        is another user's symlink.
    type: path
    default: /opt/cdi
  command_link:
    description:
      - Whether C(/usr/local/bin/fleet-cdi) is a link to the command, so that it is on the PATH. Without this option an
        existing choice stays; the first installation makes the link. With it come links to the manual page and to the
        completion of bash and zsh, below C(/usr/local/share).
      - Only for the O(prefix) V(/opt/cdi), as one name can mean one release only. O(state=absent) removes them. Another
        file with the name of the command is refused, and stays. Files at the other places stay, too.
    type: bool
  python:
    description:
      - The interpreter on the host that runs the release, Python 3.9 or later. An absolute path.
    type: path
    default: /usr/bin/python3
  parts:
    description:
      - What of the collection the host is to run. RV(missing_packages) lists what these need and the host lacks.
    type: list
    elements: str
    choices: [discovery, device_plugin]
    default: [discovery]
  supported_only:
    description:
      - Refuse a distribution that this collection does not support, before anything is installed. Debian 12, 13 and
        testing are tested. Ubuntu 22.04 and 24.04, and Enterprise Linux 9 and 10 (C(rhel), C(rocky), C(almalinux),
        C(centos)), are supported by design, and not tested yet. The roles set this.
    type: bool
    default: false
  distributions:
    description:
      - Further distributions that O(supported_only=true) accepts, C(ID) of C(os-release) and a list of C(VERSION_ID) as
        text. A version stands for its minor releases too, and V("") for a release without C(VERSION_ID).
    type: dict
    default: {}
  state_dir:
    description:
      - The directory of the manifest and of the ledger. C(fleet-cdi) and the executables of the 2017 proposal use it,
        and O(device_list) and O(spec_dirs), unless their own options say otherwise.
    type: path
    default: /var/lib/cdi
  device_list:
    description:
      - The file that lists the devices behind the specs for this boot.
    type: path
    default: /run/cdi-inventory.json
  spec_dirs:
    description:
      - The spec directories, lowest priority first.
    type: list
    elements: path
    default: [/etc/cdi, /var/run/cdi]
  release:
    description:
      - The id of the release to make active. The action plugin fills it in with that of the controller's collection; do
        not set it.
    type: str
  archive:
    description:
      - The archive of O(release) on the host. The action plugin transfers it when it is needed and fills this in; do
        not set it.
    type: path
notes:
  - The code on the host needs nothing but the Python standard library. With C(pyudev) it also sees udev's properties;
    RV(missing_packages) says whether that is at hand.
seealso:
  - module: fleet.cdi.host_release_info
  - module: fleet.cdi.spec
"""

EXAMPLES = r"""
- name: Bring this collection's code to the host
  fleet.cdi.host_release:
  become: true

- name: Keep everything below one directory of an ordinary user
  fleet.cdi.host_release:
    prefix: "{{ ansible_user_dir }}/cdi"
    state_dir: "{{ ansible_user_dir }}/cdi/state"
    device_list: "{{ ansible_user_dir }}/cdi/inventory.json"
    spec_dirs:
      - "{{ ansible_user_dir }}/cdi/specs"

- name: Go back to the release before
  fleet.cdi.host_release:
    state: previous
  become: true

- name: Remove the on-host code
  fleet.cdi.host_release:
    state: absent
  become: true
"""

RETURN = r"""
release:
  description: The active release, V(null) without one. In check mode the one that would be.
  returned: success
  type: str
  sample: 0.1.0-95b2cc14fefb
previous:
  description: The release that O(state=previous) goes back to, after that the one that was left; V(null) without one.
  returned: success
  type: str
  sample: 0.1.0-3d0c9f41aa27
distribution:
  description: C(ID), C(VERSION_ID) and C(NAME) of the host's C(os-release), empty where it does not say.
  returned: success
  type: dict
  sample:
    id: debian
    name: Debian GNU/Linux
    version_id: "12"
needed_by:
  description: What needs the release, as in RV(fleet.cdi.host_release_info#module:needed_by).
  returned: O(state) is V(absent)
  type: list
  elements: dict
  sample: []
python:
  description: The interpreter that runs the release.
  returned: O(state) is not V(absent)
  type: dict
  contains:
    path:
      description: The value of O(python).
      type: str
      sample: /usr/bin/python3
    version:
      description: Its version.
      type: str
      sample: 3.11.2
missing_packages:
  description:
    - Distribution packages for O(parts) that O(python) lacks. Discovery does without, and sees less; the device plugin
      does not run.
  returned: O(state) is not V(absent)
  type: list
  elements: str
  sample:
    - python3-pyudev
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.fleet.cdi.plugins.module_utils import on_host

# The arguments of AnsibleModule; the action plugin checks a task by them as well.
MODULE: dict[str, Any] = {
    "argument_spec": {
        "state": {"type": "str", "choices": ["present", "previous", "absent"], "default": "present"},
        "on_needed": {"type": "str", "choices": ["keep", "fail", "drop"], "default": "keep"},
        "python": {"type": "path", "default": "/usr/bin/python3"},
        "command_link": {"type": "bool"},
        "parts": {
            "type": "list",
            "elements": "str",
            "choices": ["discovery", "device_plugin"],
            "default": ["discovery"],
        },
        "supported_only": {"type": "bool", "default": False},
        "distributions": {"type": "dict", "default": {}},
        "state_dir": {"type": "path", "default": "/var/lib/cdi"},
        "device_list": {"type": "path", "default": "/run/cdi-inventory.json"},
        "spec_dirs": {"type": "list", "elements": "path", "default": ["/etc/cdi", "/var/run/cdi"]},
        **on_host.ARGUMENTS,
    },
    "supports_check_mode": True,
}


def main() -> None:
    on_host.run(AnsibleModule(**MODULE), "host_release")


if __name__ == "__main__":
    main()
