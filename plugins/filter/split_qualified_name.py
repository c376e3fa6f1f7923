# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filter fleet.cdi.split_qualified_name."""

from __future__ import annotations

DOCUMENTATION = r"""
name: split_qualified_name
short_description: Take the qualified name of a CDI device apart
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - Takes C(vendor/class=name), as container runtimes take it for a device, apart.
  - Fails for anything else.
options:
  _input:
    description:
      - The qualified name.
    type: str
    required: true
seealso:
  - plugin: fleet.cdi.join_qualified_name
    plugin_type: filter
  - plugin: fleet.cdi.qualified_name
    plugin_type: test
"""

EXAMPLES = r"""
- name: Show the kinds that a container needs
  ansible.builtin.debug:
    msg: "{{ wanted | map('fleet.cdi.split_qualified_name') | map(attribute='kind') | unique }}"
  vars:
    wanted:
      - fleet.cdi/gpu=0
      - fleet.cdi/gpu=1
      - fleet.cdi/misc=fuse
"""

RETURN = r"""
_value:
  description: Its parts.
  type: dict
  contains:
    kind:
      description: C(vendor/class).
      type: str
      sample: fleet.cdi/gpu
    vendor:
      description: The vendor.
      type: str
      sample: fleet.cdi
    class:
      description: The class.
      type: str
      sample: gpu
    name:
      description: The name of the device within its kind.
      type: str
      sample: "0"
"""

from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.fleet.cdi.plugins.module_utils.explanations.shown import with_id
from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import names


def split_qualified_name(value: Any) -> dict[str, str]:
    """Return the parts of `vendor/class=name`."""
    try:
        parts = names.split_qualified_name(str(value))
    except CdiError as error:
        raise AnsibleFilterError(with_id(f"split_qualified_name: {error}")) from None
    kind = f"{parts.vendor}/{parts.class_}"
    return {"kind": kind, "vendor": parts.vendor, "class": parts.class_, "name": parts.device}


class FilterModule:
    """The class by which Ansible finds the filter."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"split_qualified_name": split_qualified_name}
