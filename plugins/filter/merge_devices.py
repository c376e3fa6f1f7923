# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.merge_devices."""

from __future__ import annotations

DOCUMENTATION = r"""
name: merge_devices
short_description: Merge the layers of the devices settings
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Merges C(cdi_host_devices) and every C(cdi_host_devices_<anything>) by the names of their entries, at any depth.
  - C(cdi_host_devices) comes first, then the others by the name of the variable. Where two layers set the same
    option, the later one counts; a list replaces a list.
options:
  _input:
    description:
      - Variables by name. Those that are not layers are ignored.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the entries that site and rack settings add up to
  ansible.builtin.debug:
    msg: "{{ {'cdi_host_devices': site, 'cdi_host_devices_rack': rack} | fleet.cdi.merge_devices }}"
  vars:
    site:
      gpus: {profile: drm}
    rack:
      gpus: {required: true}
"""

RETURN = r"""
_value:
  description: The entries by name.
  type: dict
  sample:
    gpus:
      profile: drm
      required: true
"""

from collections.abc import Mapping
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.plugin_utils import settings


def merge_devices(variables: Any) -> dict[str, Any]:
    """Return the merged entries of all layers among `variables`."""
    if not isinstance(variables, Mapping):
        raise AnsibleFilterError(f"merge_devices: found {variables!r}; expected variables by name")
    try:
        return settings.merge(settings.DEVICES, variables, {})
    except CdiError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"merge_devices": merge_devices}
