# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.by_kind."""

from __future__ import annotations

DOCUMENTATION = r"""
name: by_kind
short_description: Group entries of the devices settings by the kind of their devices
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - There is one CDI spec for each kind, and several entries may yield devices of the same kind.
  - Fails for an entry that a host would refuse.
options:
  _input:
    description:
      - Entries by name, as in M(fleet.cdi.device_info).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Write one spec for each kind
  fleet.cdi.spec:
    kind: "{{ item.key }}"
    devices: "{{ item.value }}"
  loop: "{{ my_entries | fleet.cdi.by_kind | dict2items }}"
  vars:
    my_entries:
      consoles: {profile: tty}
      fuse: {profile: misc, nodes: [fuse]}
"""

RETURN = r"""
_value:
  description: The entries by name, by kind.
  type: dict
  sample:
    fleet.cdi/misc:
      fuse: {profile: misc, nodes: [fuse]}
    fleet.cdi/tty:
      consoles: {profile: tty}
"""

from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.fleet.cdi.plugins.module_utils.discovery import entry_options
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError


def by_kind(entries: Any) -> dict[str, dict[str, Any]]:
    """Return kind -> the entries of that kind."""
    try:
        return entry_options.by_kind(entries)
    except CdiError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"by_kind": by_kind}
