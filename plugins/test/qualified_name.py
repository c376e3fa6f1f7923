# Copyright (c) 2026, fleet.cdi contributors
# GNU General Public License v3.0 or later (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Test fleet.cdi.qualified_name."""

from __future__ import annotations

DOCUMENTATION = r"""
name: qualified_name
short_description: Whether a text is the qualified name of a CDI device
version_added: 0.1.0
author:
  - fleet.cdi contributors (@fleet-cdi)
description:
  - A qualified name is what container runtimes take for a device, C(vendor/class=name).
  - It says nothing of whether there is such a device; M(fleet.cdi.spec_info) does.
options:
  _input:
    description:
      - Any value. What is no text is no qualified name.
    type: raw
    required: true
seealso:
  - plugin: fleet.cdi.split_qualified_name
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Refuse devices that no runtime would take
  ansible.builtin.assert:
    that: item is fleet.cdi.qualified_name
  loop:
    - fleet.cdi/gpu=0
    - example.com/scanner=front-desk

- name: Tell CDI devices from device nodes
  ansible.builtin.debug:
    msg: "{{ ['/dev/fuse', 'fleet.cdi/misc=fuse'] | select('fleet.cdi.qualified_name') }}"
"""

RETURN = r"""
_value:
  description: Whether it is one.
  type: bool
"""

from typing import Any, Callable

from ansible_collections.fleet.cdi.plugins.module_utils.records import CdiError
from ansible_collections.fleet.cdi.plugins.module_utils.spec import names


def qualified_name(value: Any) -> bool:
    """Whether `value` is `vendor/class=name`. What has no value (a Jinja Undefined) raises its own error."""
    try:
        names.split_qualified_name(str(value))
    except CdiError:
        return False
    return True


class TestModule:
    """Ansible's way to find the test."""

    def tests(self) -> dict[str, Callable[..., bool]]:
        return {"qualified_name": qualified_name}
